"""Reads the tables of an ELF file (64-bit, little-endian): header, sections, segments.

Layout from the System V ABI (documented); agreement with readelf is tested. Every size is bounded by the file before it is
used, so that a lying header ends in BinaryError, not in memory or time.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from cudadoctor.binary.source import BinaryError, read_exact

if TYPE_CHECKING:
    from cudadoctor.binary.source import ByteSource

MAGIC = b"\x7fELF"
MAX_TABLE_ENTRIES = 1 << 18
"""Most sections or segments that are read; C++ objects with a section per function have tens of thousands."""
MAX_NAMES_SIZE = 1 << 24
"""Most bytes of section names that are read."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")

_PN_XNUM = 0xFFFF
_SHN_XINDEX = 0xFFFF


class Machine(IntEnum):
    """The processor that an ELF file is for; values of e_machine."""

    OTHER = 0
    X86_64 = 62
    AARCH64 = 183
    CUDA = 190


class SectionType(IntEnum):
    """Values of sh_type that this package tells apart."""

    NULL = 0
    PROGBITS = 1
    SYMTAB = 2
    STRTAB = 3
    RELA = 4
    NOTE = 7
    NOBITS = 8
    REL = 9


SHF_EXECINSTR = 4
SHF_COMPRESSED = 0x800


class SegmentType(IntEnum):
    """Values of p_type that this package tells apart."""

    LOAD = 1
    DYNAMIC = 2
    INTERP = 3


@dataclass(frozen=True, slots=True)
class Section:
    """One row of the section table; `type` is sh_type, known ones are in SectionType."""

    name: str
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int


@dataclass(frozen=True, slots=True)
class Segment:
    """One row of the program header table; `type` is p_type, known ones are in SegmentType."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int


@dataclass(frozen=True, slots=True)
class ElfHeader:
    """The first 64 bytes of an ELF file."""

    os_abi: int
    abi_version: int
    type: int
    machine: Machine
    machine_number: int
    version: int
    flags: int
    program_offset: int
    section_offset: int
    program_entry_size: int
    program_count: int
    section_entry_size: int
    section_count: int
    names_index: int


def is_elf(head: bytes) -> bool:
    """True for the first bytes of an ELF file of any class."""
    return head[:4] == MAGIC


def read_header(source: ByteSource) -> ElfHeader:
    """The header; raises BinaryError for what is not a 64-bit little-endian ELF file."""
    raw = read_exact(source, 0, _HEADER.size)
    if raw[:4] != MAGIC:
        raise BinaryError("not an ELF file")
    if raw[4] != 2 or raw[5] != 1:
        raise BinaryError(f"an ELF file of class {raw[4]} and byte order {raw[5]}; only 64-bit little-endian is read")
    ident, kind, number, version, _entry, *rest = _HEADER.unpack(raw)
    program_offset, section_offset, flags, _header_size, *counts = rest
    return ElfHeader(
        os_abi=ident[7],
        abi_version=ident[8],
        type=kind,
        machine=Machine(number) if number in Machine._value2member_map_ else Machine.OTHER,
        machine_number=number,
        version=version,
        flags=flags,
        program_offset=program_offset,
        section_offset=section_offset,
        program_entry_size=counts[0],
        program_count=counts[1],
        section_entry_size=counts[2],
        section_count=counts[3],
        names_index=counts[4],
    )


def read_sections(source: ByteSource, header: ElfHeader) -> tuple[Section, ...]:
    """All sections with their names; empty where the file has no section table. Raises BinaryError."""
    if header.section_offset == 0:
        return ()
    if header.section_entry_size != _SECTION.size:
        raise BinaryError(f"section entries of {header.section_entry_size} bytes")
    first = _SECTION.unpack(read_exact(source, header.section_offset, _SECTION.size))
    count = header.section_count or first[5]
    names_index = first[6] if header.names_index == _SHN_XINDEX else header.names_index
    if count > MAX_TABLE_ENTRIES:
        raise BinaryError(f"{count} sections")
    raw = read_exact(source, header.section_offset, count * _SECTION.size)
    rows = list(_SECTION.iter_unpack(raw))
    names = _section_names(source, rows, names_index)
    return tuple(
        Section(_name_at(names, name), kind, flags, address, offset, size, link, info)
        for name, kind, flags, address, offset, size, link, info, _align, _entry_size in rows
    )


def _section_names(source: ByteSource, rows: list[tuple[int, ...]], index: int) -> bytes:
    if index == 0:
        return b""
    if index >= len(rows):
        raise BinaryError(f"section names in section {index} of {len(rows)}")
    offset, size = rows[index][4], rows[index][5]
    if size > MAX_NAMES_SIZE:
        raise BinaryError(f"section names of {size} bytes")
    return read_exact(source, offset, size)


def _name_at(names: bytes, offset: int) -> str:
    end = names.find(b"\0", offset)
    return names[offset : end if end >= 0 else len(names)].decode("utf-8", "surrogateescape")


def read_segments(source: ByteSource, header: ElfHeader) -> tuple[Segment, ...]:
    """All segments; empty where the file has no program headers (object files). Raises BinaryError."""
    if header.program_offset == 0 or header.program_count == 0:
        return ()
    if header.program_entry_size != _SEGMENT.size:
        raise BinaryError(f"program header entries of {header.program_entry_size} bytes")
    count = header.program_count
    if count == _PN_XNUM and header.section_offset:
        count = int(_SECTION.unpack(read_exact(source, header.section_offset, _SECTION.size))[7])
    if count > MAX_TABLE_ENTRIES:
        raise BinaryError(f"{count} segments")
    raw = read_exact(source, header.program_offset, count * _SEGMENT.size)
    return tuple(
        Segment(kind, flags, offset, address, file_size, memory_size)
        for kind, flags, offset, address, _physical, file_size, memory_size, _align in _SEGMENT.iter_unpack(raw)
    )
