"""Reports out of streams of every kind, and what is no report beside them."""

from __future__ import annotations

import gzip
import json
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudadoctor.fleet import documents
from cudadoctor.fleet.documents import MAX_REPORT_BYTES, Found, Item, Unreadable, read_all
from cudadoctor.fleet.node_report import NoReport
from cudadoctor.model.codec import to_compact_json, to_json
from tests.report.sample_reports import healthy_h100

INDENTED = to_json(healthy_h100()) + b"\n"
COMPACT = to_compact_json(healthy_h100()) + b"\n"
SORTED = json.dumps(json.loads(COMPACT), sort_keys=True).encode() + b"\n"
LINES = INDENTED.count(b"\n")


def read(tmp_path: Path, data: bytes, name: str = "reports.jsonl") -> list[tuple[int, str]]:
    """Line and `report`, or line and why not, of a file's content."""
    path = tmp_path / name
    path.write_bytes(data)
    return list(shown(read_all([str(path)])))


def shown(found: Iterator[Item]) -> Iterator[tuple[int, str]]:
    for item in found:
        if isinstance(item, NoReport):
            yield 0, f"{item.node} {item.because}"
        else:
            yield item.line, "report" if isinstance(item, Found) else item.because


READABLE: dict[str, tuple[bytes, list[int]]] = {
    "indented": (INDENTED, [1]),
    "compact": (COMPACT, [1]),
    "no newline": (COMPACT.strip(), [1]),
    "lines": (COMPACT * 3, [1, 2, 3]),
    "one after another": (INDENTED * 2, [1, 1 + LINES]),
    "on one line": (COMPACT.strip() * 3, [1, 1, 1]),
    "sorted keys": (SORTED * 2, [1, 2]),
    "empty lines": (b"\n\n" + COMPACT + b"\n\n\n" + COMPACT + b"\n\n", [3, 7]),
    "CRLF": (COMPACT.replace(b"\n", b"\r\n") * 2, [1, 2]),
    "byte order mark": (b"\xef\xbb\xbf" + COMPACT, [1]),
    "UTF-16": (INDENTED.decode().encode("utf-16"), [1]),
    "gzip": (gzip.compress(COMPACT * 2), [1, 2]),
}
"""Data and the lines on which its reports begin."""


@pytest.mark.parametrize(("data", "lines"), READABLE.values(), ids=READABLE)
def test_reads(data: bytes, lines: list[int], tmp_path: Path) -> None:
    assert read(tmp_path, data) == [(line, "report") for line in lines]


@pytest.mark.parametrize("block", [1, 7, 1000])
def test_where_blocks_end_changes_nothing(block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "BLOCK_BYTES", block)
    data = b"noise\n" + COMPACT[:500] + b"\n" + COMPACT
    assert [line for line, _ in read(tmp_path, data)] == [1, 2, 3]


def test_after_a_line_that_is_too_long_the_next_report_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(COMPACT)
    monkeypatch.setattr(documents, "BLOCK_BYTES", 2 * size)
    monkeypatch.setattr(documents, "MAX_REPORT_BYTES", size)
    found = read(tmp_path, b"x" * (4 * size - 1) + b"\n" + COMPACT)  # the line ends with a block
    assert [words for _, words in found] == ["is longer than 0 MiB", "report"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ["is empty"]),
        (b" \n\n", ["is empty"]),
        (COMPACT[:500] + b"\n" + COMPACT, ["truncated", "report"]),
        (INDENTED[:500] + b"\n" + INDENTED, ["truncated", "report"]),
        (COMPACT[:500] + COMPACT, ["truncated", "report"]),
        (COMPACT + COMPACT[:500], ["report", "truncated"]),
        (
            b"srun: hello\n" + INDENTED + b"srun: bye\n" + COMPACT,
            ["no JSON: 'srun: hello'", "report", "no JSON: 'srun: bye'", "report"],
        ),
        (b"\x00\xff" * 1000, ["no JSON"]),
        (b'{"a": ' + b"[" * 100_000 + b"\n" + COMPACT, ["nested too deeply", "report"]),
        (
            b'{"a": "' + b"x" * (MAX_REPORT_BYTES + 2 * documents.BLOCK_BYTES) + b'"}\n' + COMPACT,
            ["is longer than 16 MiB", "report"],
        ),
        (b'{"schema": "cudadoctor.scan/1", "created": "", "verdict": ""}', ["its schema is 'cudadoctor.scan/1'"]),
        (b'{"schema": 1}', ["Expected `str`"]),
        (b"{}", ["missing required field"]),
        (b"[1]", ["no JSON"]),
        (COMPACT.replace(b'"healthy"', b'"fine"'), ["its verdict is 'fine'"]),
        (COMPACT.replace(b'"H', b'"\xff'), ["report"]),
        (COMPACT.replace(b'"healthy"', b'"\xff"'), ["Invalid UTF-8"]),
        (COMPACT.replace(b'"verdict":', b'"verdict":"problems","verdict":'), ["report"]),
        (gzip.compress(COMPACT * 2)[:-30], ["report", "ends too early or is damaged"]),
        (gzip.compress(COMPACT) + b"rest", ["ends too early or is damaged"]),
        (COMPACT.replace(b"report/1", b"report/2"), ["report"]),
        (COMPACT.replace(b"report/1", b"report/2").replace(b'"healthy"', b'"fine"'), ["is newer than this cudadoctor"]),
        (COMPACT.replace(b"report/1", b"report/0"), ["its schema is 'cudadoctor.report/0'"]),
    ],
)
def test_says_why_not_and_goes_on(data: bytes, expected: list[str], tmp_path: Path) -> None:
    found = [words for _, words in read(tmp_path, data)]
    assert len(found) == len(expected)
    assert all(part in words for part, words in zip(expected, found, strict=True))


def test_memory_is_bounded_however_long_a_line_is() -> None:
    left = 100 * 2**20

    def read(size: int) -> bytes:
        """A hundred megabytes of one line."""
        nonlocal left
        block = b"x" * min(size, left)
        left -= len(block)
        return block

    tracemalloc.start()
    try:
        assert list(documents._stretches(read)) == [(1, None)]
        assert tracemalloc.get_traced_memory()[1] < 5 * MAX_REPORT_BYTES
    finally:
        tracemalloc.stop()


NO_REPORT = to_compact_json(NoReport(node="n1", created="2026-11-30T12:00:00Z", because="is down"))


@pytest.mark.parametrize(
    ("data", "items"),
    [
        (NO_REPORT, [(0, "n1 is down")]),
        (
            NO_REPORT + b"\n" + COMPACT + NO_REPORT + b" logout",
            [(0, "n1 is down"), (2, "report"), (0, "n1 is down"), (4, "no JSON: 'logout'")],
        ),
        (COMPACT.strip() + NO_REPORT, [(1, "report"), (0, "n1 is down")]),
        (NO_REPORT[:-9], [(1, "is no whole report: Input data was truncated")]),
    ],
    ids=["alone", "between", "on one line", "cut short"],
)
def test_a_word_that_there_is_no_report(data: bytes, items: list[tuple[int, str]], tmp_path: Path) -> None:
    assert read(tmp_path, data) == items


def test_folders_are_read_in_order_and_only_reports_in_them(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for name in ("b/2.json", "1.json", "3.jsonl", "notes.txt", "4.json.gz"):
        (tmp_path / name).write_bytes(gzip.compress(COMPACT) if name.endswith("gz") else COMPACT)
    os.mkfifo(tmp_path / "pipe.json")
    files = [Path(item.file).name for item in read_all([str(tmp_path)]) if not isinstance(item, NoReport)]
    assert files == ["1.json", "3.jsonl", "4.json.gz", "2.json"]


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    missing, empty = read_all([str(tmp_path / "none.json"), str(tmp_path / "empty")])
    assert isinstance(missing, Unreadable) and "No such file" in missing.because
    assert isinstance(empty, Unreadable) and "has no file" in empty.because
