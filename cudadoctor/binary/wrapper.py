"""Finds the device-linked modules of an ELF file: the containers that a version 2 wrapper registers.

How known: files linked by nvcc 13.0 with GNU ld, which writes a container's address into its wrapper, and with LLVM's lld, which
leaves zero there and puts the address into a RELATIVE relocation only; both are tests.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from cudadoctor.binary.elf import SectionType
from cudadoctor.binary.source import read_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.elf import Section
    from cudadoctor.binary.source import ByteSource

REGISTERED_SECTION, RELOCATABLE_SECTION, WRAPPER_SECTION = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"

_WRAPPER = struct.Struct("<IIQQ")
_MAGIC, _DEVICE_LINKED = 0x466243B1, 2
_MAX_WRAPPERS = 1 << 16
_RELOCATION = struct.Struct("<QQq")
_RELATIVE = frozenset({8, 1027})
"""R_X86_64_RELATIVE and R_AARCH64_RELATIVE."""
_RELOCATIONS_AT_ONCE = 1 << 13
_MAX_RELOCATIONS = 1 << 22


def device_linked_offsets(source: ByteSource, sections: tuple[Section, ...]) -> frozenset[int]:
    """File offsets of the device-linked containers. Raises BinaryError.

    nvcc makes a version 2 wrapper, with an empty list of inputs, even where nothing is relocatable, so it counts only in a file
    with relocatable code.
    """
    if not any(section.name == RELOCATABLE_SECTION for section in sections):
        return frozenset()
    pointers = dict(_pointers(source, sections))
    unfilled = frozenset(place for place, address in pointers.items() if address == 0)
    addresses = {*pointers.values(), *(_relocated(source, sections, unfilled) if unfilled else ())}
    return frozenset(offset for address in addresses for offset in _file_offsets(sections, address))


def _pointers(source: ByteSource, sections: tuple[Section, ...]) -> Iterator[tuple[int, int]]:
    """The address and the value of each version 2 wrapper's pointer to its container."""
    for section in sections:
        if section.name == WRAPPER_SECTION and section.type != SectionType.NOBITS:
            count = min(section.size // _WRAPPER.size, _MAX_WRAPPERS)
            rows = _WRAPPER.iter_unpack(read_exact(source, section.offset, count * _WRAPPER.size))
            for index, (magic, version, container, _inputs) in enumerate(rows):
                if (magic, version) == (_MAGIC, _DEVICE_LINKED):
                    yield section.address + index * _WRAPPER.size + 8, container


def _relocated(source: ByteSource, sections: tuple[Section, ...], places: frozenset[int]) -> Iterator[int]:
    """What the loader will write at these addresses."""
    for section in sections:
        if section.type != SectionType.RELA or not section.address:
            continue
        count = min(section.size // _RELOCATION.size, _MAX_RELOCATIONS)
        for first in range(0, count, _RELOCATIONS_AT_ONCE):
            size = min(_RELOCATIONS_AT_ONCE, count - first) * _RELOCATION.size
            raw = read_exact(source, section.offset + first * _RELOCATION.size, size)
            for place, info, addend in _RELOCATION.iter_unpack(raw):
                if place in places and info & 0xFFFFFFFF in _RELATIVE:
                    yield addend


def _file_offsets(sections: tuple[Section, ...], address: int) -> Iterator[int]:
    for section in sections:
        if section.name == REGISTERED_SECTION and section.address <= address < section.address + section.size:
            yield section.offset + address - section.address
