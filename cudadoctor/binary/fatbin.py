"""Walks fat binary containers by their headers; no payload is read or decompressed.

The format has no published specification. Fields and flag bits are as measured on 53,550 entries of 208 real files (CUDA 11.8 to
13.5) and on files built for the purpose with nvcc 13.0, whose entries this package's tests compare again; per-architecture
counts equal cuobjdump's on the libraries of benchmarks/scan_vs_cuobjdump.py. The kinds 4 and 0x10 of public notes were never
seen: kinds other than 1, 2, 8 are reported as unknown, never as an error.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from cudadoctor.binary.device_code import LTO_KIND, PTX_KIND, SASS_KIND, UNKNOWN_LABEL, Compression, Entry, Module
from cudadoctor.model.binaries import Place
from cudadoctor.model.versions import CodeKind, ComputeCapability, PtxIsa, SmTarget

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.source import ByteSource

CONTAINER_MAGIC = b"\x50\xed\x55\xba\x01\x00\x10\x00"
"""Magic 0xBA55ED50, version 1, header size 16: the first 8 bytes of every container seen (15,288)."""
CONTAINER_START = CONTAINER_MAGIC[:5]
"""What is searched for: the part without zeros, which Python finds four times faster in zero-filled data."""
CONTAINER_HEADER_SIZE = 16
ENTRY_HEADER_SIZE = 64
ALIGNMENT = 8
MAX_ENTRY_HEADER = 1 << 16
"""Largest entry header taken as real; 64 to 184 bytes seen, more with long option texts."""
MAX_ENTRIES = 4096
"""Most entries of one container; real ones have below 40."""

_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_ENTRY_VERSION = 0x0101
_KINDS = {PTX_KIND: CodeKind.PTX, SASS_KIND: CodeKind.SASS, LTO_KIND: CodeKind.LTO}
_FLAG_LZ4, _FLAG_ZSTD, _FLAG_SCRAMBLED = 0x2000, 0x8000, 0x10000
_FLAG_SPECIFIC, _FLAG_FAMILY = 0x100000, 0x200000
_MAX_ARCHITECTURE = 999


def read_module(source: ByteSource, offset: int, limit: int, place: Place, section: str) -> Module | None:
    """The container at `offset` that must end before `limit`; None where there is none.

    One that its own sizes lead out of bounds is returned with what was readable and `complete` False.
    """
    head = source.read(offset, CONTAINER_HEADER_SIZE + ENTRY_HEADER_SIZE)
    if head[:8] != CONTAINER_MAGIC or len(head) < CONTAINER_HEADER_SIZE:
        return None
    size = int.from_bytes(head[8:16], "little")
    start = offset + CONTAINER_HEADER_SIZE
    fits = start + size <= limit
    entries = tuple(_entries(source, start, min(start + size, limit), head[CONTAINER_HEADER_SIZE:]))
    if size and not entries:
        return None  # the magic as a constant in other data: 6 times in one cuDNN library
    last = entries[-1] if entries else None
    end = start if last is None else last.offset + last.stored_size
    return Module(place, section, offset, min(end, limit) - offset, entries, complete=fits and end == start + size)


def _entries(source: ByteSource, offset: int, end: int, head: bytes) -> Iterator[Entry]:
    for _ in range(MAX_ENTRIES):
        if offset + ENTRY_HEADER_SIZE > end or len(head) < ENTRY_HEADER_SIZE:
            return
        fields = _ENTRY.unpack(head)
        header_size, stored = fields[2], fields[3]
        if fields[1] != _ENTRY_VERSION or not ENTRY_HEADER_SIZE <= header_size <= MAX_ENTRY_HEADER or not fields[0]:
            return
        yield _entry(fields, offset + header_size)
        offset += header_size + stored
        if offset >= end:
            return
        head = source.read(offset, ENTRY_HEADER_SIZE)


def _entry(fields: tuple[int, ...], payload: int) -> Entry:
    kind, _version, _header, stored, _compressed, _options, minor, major, number, _name, _length, flags, _zero, unpacked = fields
    target, isa, label = _code(kind, number, flags & (_FLAG_SPECIFIC | _FLAG_FAMILY), major, minor)
    return Entry(target, isa, label, kind, _compression(flags), payload, stored, unpacked or stored)


@lru_cache(maxsize=4096)
def _code(kind: int, number: int, suffix_flags: int, major: int, minor: int) -> tuple[SmTarget | None, PtxIsa | None, str]:
    """Target, PTX version and label; remembered, as files have thousands of entries for a dozen targets."""
    isa = PtxIsa(major, minor) if kind == PTX_KIND else None
    suffix = {0: "", _FLAG_SPECIFIC: "a", _FLAG_FAMILY: "f"}.get(suffix_flags)
    if kind not in _KINDS or suffix is None or not 10 <= number <= _MAX_ARCHITECTURE:
        return None, isa, UNKNOWN_LABEL
    target = SmTarget(_KINDS[kind], ComputeCapability.from_number(number), suffix)
    return target, isa, f"{target} PTX {isa}" if isa else str(target)


def _compression(flags: int) -> Compression:
    if flags & _FLAG_SCRAMBLED:
        return Compression.SCRAMBLED
    if flags & _FLAG_ZSTD:
        return Compression.ZSTD
    return Compression.LZ4 if flags & _FLAG_LZ4 else Compression.NONE


def align(offset: int) -> int:
    """The next offset at which a container can start."""
    return (offset + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
