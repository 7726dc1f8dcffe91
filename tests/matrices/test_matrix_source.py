"""Reading a matrix file: what is refused, and how the refusal names the row."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from msgspec import Struct

from cudadoctor.matrices.source import Document, MatrixError, Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import CudaVersion


class Example(Struct, frozen=True):
    cuda: CudaVersion
    number: int
    targets: tuple[str, ...]
    origin: Provenance


def build(row: Row) -> Example:
    return Example(row.parsed("cuda", CudaVersion.parse), row.integer("number"), row.texts("targets"), row.origin())


ASCENDING = Schema(build, lambda row: row.cuda, Order.ASCENDING)
HEAD = """
[meta]
title = "An example"
as_of = "2026-11-30"
[meta.source]
row = "a table that was read"
"""
FIRST = """
[[row]]
cuda = "12.6"
number = 1
verified = "doc"
"""
SECOND = """
[[row]]
cuda = "12.10"
number = 2
targets = ["sm_90"]
verified = "mechanical"
source = "its own source"
as_of = "2026-12-01"
note = "a note"
"""


def read(folder: Path, text: str) -> tuple[Example, ...]:
    path = folder / "example.toml"
    path.write_text(text, encoding="utf-8")
    document = Document(path)
    rows = document.table("row", ASCENDING)
    document.finish()
    return rows


def test_a_row_inherits_source_and_date_or_has_its_own(tmp_path: Path) -> None:
    first, second = read(tmp_path, HEAD + FIRST + SECOND)
    assert first.origin == Provenance("a table that was read", date(2026, 11, 30), Verified.DOC)
    assert second.origin == Provenance("its own source", date(2026, 12, 1), Verified.MECHANICAL, "a note")
    assert (first.targets, second.targets) == ((), ("sm_90",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + FIRST.replace("number = 1\n", ""), "row 1: number is missing"),
        (HEAD + FIRST.replace("number = 1", 'number = "1"'), "row 1: number has the wrong type: '1'"),
        (HEAD + FIRST.replace("number = 1", "number = true"), "row 1: number has the wrong type: True"),
        (HEAD + FIRST.replace('"12.6"', '"twelve"'), "row 1: cuda: not a CUDA version: 'twelve'"),
        (HEAD + FIRST.replace('"12.6"', '""'), "row 1: cuda is empty"),
        (HEAD + FIRST.replace('"doc"', '"hearsay"'), "row 1: verified: 'hearsay'"),
        (HEAD + FIRST.replace('verified = "doc"\n', ""), "row 1: verified is missing"),
        (HEAD + FIRST + "colour = 1\n", "row 1: unknown fields: colour"),
        (HEAD + FIRST + "targets = [90]\n", "row 1: targets holds 90, which is no text"),
        (HEAD + FIRST + 'as_of = "yesterday"\n', "row 1: as_of"),
        (HEAD + FIRST + FIRST, "row 2: 12.6 is there twice"),
        (HEAD + SECOND + FIRST, "row 2: 12.6 is out of order after 12.10"),
        (HEAD.replace('row = "a table that was read"', "") + FIRST, "[meta.source] has no text for row"),
        (HEAD.replace('as_of = "2026-11-30"', "") + FIRST, "[meta]: as_of is missing"),
        (HEAD + FIRST + "[[other]]\nx = 1\n", "unknown tables: other"),
        (HEAD, "table row is missing or empty"),
        ("row = [1]\n" + HEAD, "row 1: not a table"),
        ("[meta\n", "not TOML"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_row(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(MatrixError, match=r"example\.toml") as caught:
        read(tmp_path, text)
    assert words in str(caught.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"absent\.toml: cannot be read"):
        Document(tmp_path / "absent.toml")
