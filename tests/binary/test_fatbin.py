from __future__ import annotations

import struct

import pytest

from cudadoctor.binary.fatbin import CONTAINER_MAGIC, read_module
from cudadoctor.binary.source import BytesSource
from cudadoctor.model.binaries import Place
from cudadoctor.model.versions import PtxIsa, SmTarget

SPECIFIC, FAMILY = 0x100000, 0x200000


def entry(kind: int = 2, number: int = 80, flags: int = 0x11, version: tuple[int, int] = (1, 8), header: int = 64) -> bytes:
    """An entry header as fatbinary writes it, and a payload."""
    size = 64
    fields = (kind, 0x0101, header, size, 0, 0, version[1], version[0], number, 0, 0, flags, 0, 0)
    return struct.pack("<HHIQIIHHIIIQQQ", *fields) + bytes(header - 64) + bytes(size)


def container(*entries: bytes, size: int | None = None) -> bytes:
    body = b"".join(entries)
    return CONTAINER_MAGIC + (len(body) if size is None else size).to_bytes(8, "little") + body


def labels(data: bytes) -> tuple[str, ...] | None:
    module = read_module(BytesSource(data), 0, len(data), Place.FILE, "")
    return None if module is None else tuple(item.label for item in module.entries)


@pytest.mark.parametrize(
    ("row", "label"),
    [
        (entry(2, 75), "sm_75"),
        (entry(2, 90, 0x11 | SPECIFIC), "sm_90a"),
        (entry(2, 103, 0x11 | FAMILY), "sm_103f"),
        (entry(1, 120, 0x11 | FAMILY, version=(9, 0)), "compute_120f PTX 9.0"),
        (entry(8, 90, 0x11), "lto_90"),
        (entry(4, 80), "unknown"),
        (entry(0x10, 80), "unknown"),
        (entry(2, 5), "unknown"),
        (entry(2, 70000), "unknown"),
        (entry(2, 90, 0x11 | FAMILY | SPECIFIC), "unknown"),
        (entry(2, 121, header=184), "sm_121"),
    ],
)
def test_labels(row: bytes, label: str) -> None:
    assert labels(container(row)) == (label,)


def test_target_and_ptx_version_of_an_entry() -> None:
    data = container(entry(1, 90, 0x11 | SPECIFIC, version=(8, 4)))
    module = read_module(BytesSource(data), 0, len(data), Place.FILE, "")
    assert module is not None
    assert module.entries[0].target == SmTarget.parse("compute_90a")
    assert module.entries[0].ptx_isa == PtxIsa(8, 4)


def test_module_ends_where_its_header_says() -> None:
    data = container(entry(), entry(2, 90)) + b"\xff" * 100
    module = read_module(BytesSource(data), 0, len(data), Place.FILE, "")
    assert module is not None
    assert module.size == len(data) - 100
    assert module.complete


@pytest.mark.parametrize("lie", [1 << 62, (1 << 64) - 1, 1000])
def test_container_that_claims_too_much_is_incomplete(lie: int) -> None:
    data = container(entry(), size=lie)
    module = read_module(BytesSource(data), 0, len(data), Place.FILE, "")
    assert module is not None
    assert not module.complete
    assert module.size == len(data)


def test_payload_that_claims_too_much_is_incomplete() -> None:
    row = bytearray(entry())
    row[8:16] = (1 << 63).to_bytes(8, "little")
    data = container(bytes(row))
    module = read_module(BytesSource(data), 0, len(data), Place.FILE, "")
    assert module is not None
    assert not module.complete
    assert module.size <= len(data)


def test_entry_of_another_version_ends_the_module() -> None:
    bad = bytearray(entry(2, 90))
    bad[2:4] = b"\x02\x02"
    data = container(entry(2, 80), bytes(bad))
    module = read_module(BytesSource(data), 0, len(data), Place.FILE, "")
    assert module is not None
    assert [item.label for item in module.entries] == ["sm_80"]
    assert not module.complete


def test_magic_alone_is_no_module() -> None:
    assert labels(CONTAINER_MAGIC + (500).to_bytes(8, "little") + b"\xab" * 500) is None
    assert labels(CONTAINER_MAGIC[:5]) is None
    assert labels(b"") is None


def test_empty_container_is_a_module_without_code() -> None:
    assert labels(container()) == ()
