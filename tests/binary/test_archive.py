from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.binary.archive import MAGIC, members
from cudadoctor.binary.source import BinaryError, BytesSource, FileSource


def test_members_of_a_real_archive(samples: Path) -> None:
    with FileSource(samples / "objects.a") as source:
        found = list(members(source))
        assert [member.name for member in found] == ["one.o", "two.o", "kernel.cu"]
        assert found[0].source.read(0, 4) == b"\x7fELF"
        assert b"__global__" in found[2].source.read(0, 500)


def test_empty_archive() -> None:
    assert list(members(BytesSource(MAGIC))) == []


@pytest.mark.parametrize(
    ("field", "words"), [(b"99999999  `\n", "outside"), (b"abc       `\n", "size"), (b"4         xx", "no archive member")]
)
def test_damaged_archives(field: bytes, words: str) -> None:
    with pytest.raises(BinaryError, match=words):
        list(members(BytesSource(MAGIC + b"x.o/".ljust(48) + field + b"data")))


def test_negative_size_does_not_loop() -> None:
    with pytest.raises(BinaryError):
        list(members(BytesSource(MAGIC + b"x.o/".ljust(48) + b"-60       `\n" + b"data" * 50)))
