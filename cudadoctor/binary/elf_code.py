"""Finds the GPU code of an ELF file: in its CUDA sections, then among its other data."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from cudadoctor.binary.device_code import Place
from cudadoctor.binary.elf import SHF_COMPRESSED, SHF_EXECINSTR, SectionType, SegmentType, read_segments
from cudadoctor.binary.source import BinaryError, read_exact
from cudadoctor.binary.sweep import sweep, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.device_code import Module
    from cudadoctor.binary.elf import ElfHeader, Section
    from cudadoctor.binary.source import ByteSource

REGISTERED_SECTION, RELOCATABLE_SECTION, WRAPPER_SECTION = ".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"
SMALL_SWEEP = 1 << 25
"""Bytes of data sections that are searched in a file without any sign of CUDA; with a sign there is no limit."""

_WRAPPER_SIZE = 24
_WRAPPER_MAGIC = 0x466243B1
_WRAPPER_DEVICE_LINKED = 2
_MAX_WRAPPERS = 1 << 16
_NO_CODE_INSIDE = re.compile(
    r"\.(data\.rel\.ro|debug|eh_frame|gcc_except_table|rel\b|rela\b|rel\.|rela\.|dyn|sym|str|shstr|gnu\.|comment|note|hash|init|fini|got|plt|text|stab)"
)


def elf_modules(source: ByteSource, header: ElfHeader, sections: tuple[Section, ...]) -> Iterator[Module]:
    """Every module of the file, CUDA sections first. Raises BinaryError, after what was found until then."""
    yield from _in_cuda_sections(source, sections)
    if not sections:
        for segment in read_segments(source, header):
            if segment.type == SegmentType.LOAD:
                yield from sweep(source, segment.offset, min(segment.offset + segment.file_size, source.size), "")
        return
    data = [section for section in sections if _may_hold_code(section)]
    if has_cuda_sections(sections) or sum(section.size for section in data) <= SMALL_SWEEP:
        for section in data:
            yield from sweep(source, section.offset, _end(source, section), section.name)


def registered_modules(source: ByteSource, sections: tuple[Section, ...]) -> Iterator[Module]:
    """The modules of `.nv_fatbin` only: the quick answer to what a framework was built for."""
    for section in sections:
        if section.name == REGISTERED_SECTION and section.type != SectionType.NOBITS:
            yield from walk(source, section.offset, _end(source, section), Place.REGISTERED, section.name)


def has_cuda_sections(sections: tuple[Section, ...]) -> bool:
    """True where the CUDA compiler has left a section of its own."""
    return any(section.name.startswith((REGISTERED_SECTION, "__nv_", ".nvFat")) for section in sections)


def _in_cuda_sections(source: ByteSource, sections: tuple[Section, ...]) -> Iterator[Module]:
    relocatable = [part for part in sections if part.name == RELOCATABLE_SECTION and part.type != SectionType.NOBITS]
    linked = frozenset(_device_linked(source, sections)) if relocatable else frozenset()
    for module in registered_modules(source, sections):
        yield replace(module, device_linked=True) if module.offset in linked else module
    for section in relocatable:
        yield from walk(source, section.offset, _end(source, section), Place.RELOCATABLE, section.name)


def _device_linked(source: ByteSource, sections: tuple[Section, ...]) -> Iterator[int]:
    """File offsets of the containers whose wrapper has version 2. nvcc makes such a wrapper, with an empty list of inputs, even
    where nothing is relocatable, so it counts only in a file with relocatable code."""
    for section in sections:
        if section.name != WRAPPER_SECTION or section.type == SectionType.NOBITS:
            continue
        count = min(section.size // _WRAPPER_SIZE, _MAX_WRAPPERS)
        raw = read_exact(source, section.offset, count * _WRAPPER_SIZE)
        for at in range(0, len(raw), _WRAPPER_SIZE):
            magic, version = int.from_bytes(raw[at : at + 4], "little"), int.from_bytes(raw[at + 4 : at + 8], "little")
            if (magic, version) == (_WRAPPER_MAGIC, _WRAPPER_DEVICE_LINKED):
                yield from _file_offset(sections, int.from_bytes(raw[at + 8 : at + 16], "little"))


def _file_offset(sections: tuple[Section, ...], address: int) -> Iterator[int]:
    for section in sections:
        if section.name == REGISTERED_SECTION and section.address <= address < section.address + section.size:
            yield section.offset + address - section.address


def _may_hold_code(section: Section) -> bool:
    return (
        section.type == SectionType.PROGBITS
        and not section.flags & (SHF_EXECINSTR | SHF_COMPRESSED)
        and not section.name.startswith((REGISTERED_SECTION, "__nv_rel", WRAPPER_SECTION))
        and not _NO_CODE_INSIDE.match(section.name)
    )


def _end(source: ByteSource, section: Section) -> int:
    if section.offset > source.size:
        raise BinaryError(f"section {section.name} starts behind the end of the file")
    return min(section.offset + section.size, source.size)
