"""Reads the section table and the imports of a Windows PE file (64-bit DLL or EXE).

Layout: Microsoft's PE format (documented). Section names are cut to 8 bytes: `.nv_fatbin` is `.nv_fatb` there, as seen in the
Windows wheels of bitsandbytes and cuRAND.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.binary.source import BinaryError, read_exact, read_text
from cudadoctor.binary.sweep import sweep, walk
from cudadoctor.model.binaries import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.device_code import Module
    from cudadoctor.binary.source import ByteSource

_SECTION = struct.Struct("<8sIIII12xI")
_PE32_PLUS = 0x20B
_CONTAINS_CODE = 0x20
_MAX_IMPORTS = 4096
_IMPORT_SIZE = 20


@dataclass(frozen=True, slots=True)
class PeSection:
    """One row of the section table; `size` is what the file and the memory image have in common."""

    name: str
    address: int
    offset: int
    size: int
    has_machine_code: bool


def is_pe(source: ByteSource, head: bytes) -> bool:
    """True where a PE header stands behind the DOS stub that starts with `head`."""
    if head[:2] != b"MZ" or len(head) < 64:
        return False
    return source.read(int.from_bytes(head[60:64], "little"), 4) == b"PE\0\0"


def read_pe(source: ByteSource) -> tuple[tuple[PeSection, ...], tuple[str, ...]]:
    """The sections, and the names of the DLLs that it imports. Raises BinaryError."""
    at = int.from_bytes(read_exact(source, 60, 4), "little") + 4
    count, optional_size = struct.unpack("<2xH12xH2x", read_exact(source, at, 20))
    optional = read_exact(source, at + 20, optional_size)
    if len(optional) < 112 or int.from_bytes(optional[:2], "little") != _PE32_PLUS:
        raise BinaryError("not a 64-bit PE file")
    raw = read_exact(source, at + 20 + optional_size, count * _SECTION.size)
    sections = tuple(
        PeSection(name.rstrip(b"\0").decode("latin-1"), address, offset, min(virtual, size), bool(flags & _CONTAINS_CODE))
        for name, virtual, address, size, offset, flags in _SECTION.iter_unpack(raw)
    )
    import_address = int.from_bytes(optional[120:124], "little")
    return sections, tuple(_imports(source, sections, import_address))


def pe_modules(source: ByteSource, sections: tuple[PeSection, ...]) -> Iterator[Module]:
    """Every module of the file. Raises BinaryError, after what was found until then."""
    for section in sections:
        end = min(section.offset + section.size, source.size)
        if section.name.startswith(".nv_fatb"):
            yield from walk(source, section.offset, end, Place.REGISTERED, section.name)
        elif section.name.startswith("__nv_rel"):
            yield from walk(source, section.offset, end, Place.RELOCATABLE, section.name)
        elif not section.has_machine_code:
            yield from sweep(source, section.offset, end, section.name)


def _imports(source: ByteSource, sections: tuple[PeSection, ...], address: int) -> Iterator[str]:
    at = _offset(sections, address)
    for index in range(_MAX_IMPORTS):
        if at is None:
            return
        row = read_exact(source, at + index * _IMPORT_SIZE, _IMPORT_SIZE)
        name = _offset(sections, int.from_bytes(row[12:16], "little"))
        if name is None:
            return
        yield read_text(source, name, 512)


def _offset(sections: tuple[PeSection, ...], address: int) -> int | None:
    if address == 0:
        return None
    return next((s.offset + address - s.address for s in sections if s.address <= address < s.address + s.size), None)
