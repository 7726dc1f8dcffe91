"""Slurm's spelling of many names, both ways."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudadoctor.fleet.hostlist import HostlistError, compress, expand, nodes_of

SPELLED = {
    "node[01-03,20]": ("node01", "node02", "node03", "node20"),
    "a,b": ("a", "b"),
    "rack[1-2]n[08-10]": ("rack1n08", "rack1n09", "rack1n10", "rack2n08", "rack2n09", "rack2n10"),
    "gpu[9-11]-ib": ("gpu9-ib", "gpu10-ib", "gpu11-ib"),
    "login,n[1,3]": ("login", "n1", "n3"),
}


@pytest.mark.parametrize("text", list(SPELLED))
def test_expands(text: str) -> None:
    assert expand(text) == SPELLED[text]


@pytest.mark.parametrize(
    "text", ["n[1-", "n]1[", "n[a-b]", "n[3-1]", "n[1-99999999999]", "n[]", "a[1-1000]b[1-1000]c[1-9]", "n[[1]]"]
)
def test_refuses(text: str) -> None:
    with pytest.raises(HostlistError):
        expand(text)


@pytest.mark.parametrize(
    ("names", "spelled"),
    [
        (("node02", "node01", "node03", "node20"), "node[01-03,20]"),
        (("n9", "n10", "n11"), "n[9-11]"),
        (("n99", "n100"), "n[99-100]"),
        (("n099", "n100"), "n[099-100]"),
        (("b", "a"), "a,b"),
        (("n7",), "n7"),
        (("n7-ib", "n8-ib"), "n[7-8]-ib"),
        (("n", "n1"), "n,n1"),
        ((), ""),
    ],
)
def test_compresses(names: tuple[str, ...], spelled: str) -> None:
    assert compress(names) == spelled


@given(st.sets(st.from_regex(r"[a-z]{1,3}(\d{1,3}(-[a-z]{1,2})?)?", fullmatch=True), max_size=40))
def test_what_is_compressed_expands_to_the_same(names: set[str]) -> None:
    assert set(expand(compress(names))) == names


def test_a_file_holds_lists_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text("# rack 1\nn[1-2]\nlogin # no GPU\n\n", encoding="utf-8")
    assert nodes_of(str(path)) == ("n1", "n2", "login")
    path.write_text("# none\n", encoding="utf-8")
    with pytest.raises(HostlistError):
        nodes_of(str(path))
