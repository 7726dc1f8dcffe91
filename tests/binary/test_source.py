from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudadoctor.binary.source import (
    BinaryError,
    BytesSource,
    FileSource,
    MeteredSource,
    SliceSource,
    WorkLimitError,
    read_exact,
    read_text,
)


def test_file_source_reads_at_any_offset(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(100)))
    with FileSource(path) as source:
        assert source.size == 100
        assert source.read(98, 10) == b"\x62\x63"
        assert source.read(100, 1) == source.read(-1, 1) == b""
        assert read_exact(source, 3, 2) == b"\x03\x04"


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "loop", "nul"])
def test_what_is_no_regular_file_is_an_error_and_never_blocks(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(BinaryError, match=kind if kind != "nul" else "null"):
        FileSource("\0nul" if kind == "nul" else path)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else None
    if before is None:
        pytest.skip("no procfs")
    for _ in range(5):
        with pytest.raises(BinaryError):
            FileSource(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(100))
    with FileSource(path) as source:
        path.write_bytes(bytes(10))
        with pytest.raises(BinaryError, match="90 bytes early"):
            read_exact(source, 0, 100)


def test_read_text() -> None:
    source = BytesSource(b"abc\0" + b"x" * 5000)
    assert read_text(source, 0) == "abc"
    assert read_text(BytesSource(b"y" * 300 + b"\0"), 0) == "y" * 300
    for offset in (4, 6000):
        with pytest.raises(BinaryError, match="no end"):
            read_text(source, offset)
    assert read_text(BytesSource(b"\xff\0"), 0) == "\udcff"


def test_slice_stays_inside() -> None:
    source = SliceSource(BytesSource(bytes(range(10))), 2, 4)
    assert source.read(0, 100) == b"\x02\x03\x04\x05"
    assert source.read(4, 1) == b""
    with pytest.raises(BinaryError, match="outside"):
        SliceSource(BytesSource(b"abc"), 1, 3)


def test_metered_source_answers_like_its_parent_and_gives_up() -> None:
    data = bytes(range(256)) * 16
    source = MeteredSource(BytesSource(data))
    for offset, length in ((0, 16), (10, 4), (500, 100), (4090, 100), (3000, 2000), (0, 4096)):
        assert source.read(offset, length) == data[offset : offset + length]
    with pytest.raises(WorkLimitError):
        for _ in range(100_000):
            source.read(0, 4096)
