"""Streams reports out of folders, files and pipes: one document a file, JSON lines, or documents one after another.

A report begins with a brace in the first column, as both our own and every compact JSON do, so a stream is cut there without
being parsed; only a stretch that is no report is looked at more closely. Memory holds one block and one report at a time.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from cudadoctor.fleet.node_report import NodeReport, NoReport, read_no_report, read_node_report
from cudadoctor.model.codec import DocumentError

MAX_REPORT_BYTES = 16 * 2**20
"""Longest report read; real ones have some ten to a hundred kilobytes."""
MAX_SKIPPED_BYTES = 8 * MAX_REPORT_BYTES
"""After so much without the beginning of a report, the rest of a stream is left: it may be a bomb that unpacks to zeros."""
BLOCK_BYTES = 2**20
SUFFIXES = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
"""Files of a folder that are read."""
_START = re.compile(rb"\n\{")
"""As a pattern: `bytes.split` takes twice the time."""
_REPORT_START = re.compile(rb'\{\s{0,8}"schema"\s{0,4}:\s{0,4}"cudadoctor\.')
"""Cannot stand inside a string of JSON, where its quotes would be escaped."""
_SHOWN = 60

Read = Callable[[int], bytes]
"""At most so many bytes; none at the end."""


@dataclass(frozen=True, slots=True)
class Found:
    """A report and where it stands: the file ('' for standard input), the line, whether anything else is in that file."""

    file: str
    line: int
    report: NodeReport


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What is no report, and why."""

    file: str
    line: int
    because: str


Item = Found | NoReport | Unreadable
"""What a stream is made of."""


def read_all(paths: Sequence[str]) -> Iterator[Item]:
    """Every report in the files and folders, in their order (`-` is standard input)."""
    for path in paths:
        if path == "-":
            yield from _of_stream(sys.stdin.buffer, "")
            continue
        files = _files_below(path) if Path(path).is_dir() else (path,)
        none = True
        for file in files:
            none = False
            yield from _of_file(file)
        if none:
            yield Unreadable(path, 0, f"the folder has no file that ends in {', '.join(SUFFIXES[:3])} or one of these with .gz")


def _files_below(folder: str) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if name.endswith(SUFFIXES) and path.is_file():
                yield str(path)


def _of_file(file: str) -> Iterator[Item]:
    try:
        if not _is_regular(file):
            yield Unreadable(file, 0, "is not a regular file; to read a pipe, name - and pipe it in")
            return
        with open(file, "rb") as stream:  # noqa: PTH123  # half the time of Path.open, for each of 10,000 files
            yield from _of_stream(stream, file)
    except OSError as error:
        yield Unreadable(file, 0, f"cannot be read: {error.strerror or error}")


def _is_regular(file: str) -> bool:
    """Neither a device nor a pipe, which might never end or never begin; raises OSError where there is nothing."""
    return stat.S_ISREG(os.stat(file).st_mode)  # noqa: PTH116  # as above


def _of_stream(stream: BinaryIO, file: str) -> Iterator[Item]:
    line, nothing = 1, True
    try:
        for line, text in _stretches(_reader(stream)):
            for found in _of_stretch(file, line, text):
                nothing = False
                yield found
        if nothing:
            yield Unreadable(file, line, "is empty")
    except (EOFError, zlib.error, OSError) as error:
        yield Unreadable(file, line, f"ends too early or is damaged: {getattr(error, 'strerror', None) or error}")


def _reader(stream: BinaryIO) -> Read:
    """Reads the stream as UTF-8: unpacked where it is gzip, and recoded from the UTF-16 of Windows' `>`.

    Of a gzip file that is cut short, what is whole is given before the error comes.
    """
    begins = stream.peek(2)[:2] if isinstance(stream, io.BufferedReader) else b""
    if begins == b"\x1f\x8b":
        import gzip

        return gzip.GzipFile(fileobj=stream).read1
    if begins in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return codecs.EncodedFile(stream, "utf-8", "utf-16", "replace").read
    return stream.read


def _stretches(read: Read) -> Iterator[tuple[int, bytes | None]]:
    """The line and the text of each stretch that begins with a brace in the first column; None for one that is too long."""
    rest, line, skips, skipped = b"", 1, False, 0
    while skipped <= MAX_SKIPPED_BYTES and (block := read(BLOCK_BYTES)):
        first, *others = _START.split(rest + block)
        *whole, rest = first, *(b"{" + other for other in others)
        for text in whole:
            if not skips:
                yield line, text
            line, skips, skipped = line + text.count(b"\n") + 1, False, 0
        if skips:
            skipped += len(block)
        if len(rest) > MAX_REPORT_BYTES or skips:
            if not skips:
                yield line, None
            line, rest, skips = line + rest[:-1].count(b"\n"), rest[-1:], True
    if not skips:
        yield line, rest


def _of_stretch(file: str, line: int, text: bytes | None) -> Iterator[Item]:
    if text is None:
        yield Unreadable(file, line, f"is longer than {MAX_REPORT_BYTES // 2**20} MiB")
        return
    if not text.strip():
        return
    try:
        yield _read(file, line, text.removeprefix(codecs.BOM_UTF8))
    except DocumentError as error:
        yield from _salvaged(file, line, text, str(error))


def _read(file: str, line: int, data: bytes) -> Found | NoReport:
    try:
        return Found(file, line, read_node_report(data))
    except DocumentError:
        no_report = read_no_report(data)
        if no_report is None:
            raise
        return no_report


def _salvaged(file: str, line: int, text: bytes, because: str) -> Iterator[Item]:
    """The reports of a stretch that is not one: several on a line, one cut short by the next, other output before or after."""
    starts = sorted({0, *(match.start() for match in _REPORT_START.finditer(text))})
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        part, at = text[start:end], line + text.count(b"\n", 0, start)
        try:
            yield _read(file, at, part)
        except DocumentError as error:
            yield from _without_rest(file, at, part, str(error) if len(starts) > 1 else because)


def _without_rest(file: str, line: int, part: bytes, because: str) -> Iterator[Item]:
    """The report at the beginning of a text, and what follows it; the text as a whole where none begins there."""
    text = part.decode("utf-8", "replace")
    if not text.lstrip().startswith("{"):
        if text.strip():
            yield Unreadable(file, line, f"no JSON: {text.strip()[:_SHOWN]!r}")
        return
    try:
        _, end = json.JSONDecoder().raw_decode(text.lstrip())
        item = _read(file, line, text.lstrip()[:end].encode())
    except (ValueError, RecursionError):
        yield Unreadable(file, line, because)
        return
    yield item
    yield from _without_rest(file, line + text.lstrip().count("\n", 0, end) + 1, text.lstrip()[end:].encode(), because)
