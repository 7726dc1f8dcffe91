"""Finds the GPU code of an ELF file: in its CUDA sections, then among its other data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor.binary.elf import SHF_COMPRESSED, SHF_EXECINSTR, SectionType, SegmentType, read_segments
from cudadoctor.binary.source import BinaryError
from cudadoctor.binary.sweep import sweep, walk
from cudadoctor.binary.wrapper import REGISTERED_SECTION, RELOCATABLE_SECTION, WRAPPER_SECTION, device_linked_offsets
from cudadoctor.model.binaries import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.device_code import Module
    from cudadoctor.binary.elf import ElfHeader, Section
    from cudadoctor.binary.source import ByteSource

_PLACES = {REGISTERED_SECTION: Place.REGISTERED, RELOCATABLE_SECTION: Place.RELOCATABLE}
SMALL_SWEEP = 1 << 25
"""Bytes of data sections that are searched in a file without any sign of CUDA; with a sign there is no limit."""

_NO_CODE_INSIDE = re.compile(
    r"\.(data\.rel\.ro|debug|eh_frame|gcc_except_table|rel\b|rela\b|rel\.|rela\.|dyn|sym|str|shstr|gnu\.|comment|note|hash"
    r"|init|fini|got|plt|text|stab)"
)


def elf_modules(source: ByteSource, header: ElfHeader, sections: tuple[Section, ...]) -> Iterator[Module]:
    """Every module of the file, in file order. Raises BinaryError, after what was found until then."""
    if not sections:
        for segment in read_segments(source, header):
            if segment.type == SegmentType.LOAD:
                yield from sweep(source, segment.offset, min(segment.offset + segment.file_size, source.size), "")
        return
    linked = device_linked_offsets(source, sections)
    for section in sorted(_searched(sections), key=lambda section: section.offset):
        for module in _section_modules(source, section):
            yield structs.replace(module, device_linked=True) if module.offset in linked else module


def _searched(sections: tuple[Section, ...]) -> Iterator[Section]:
    """The CUDA sections, and the data sections if there are CUDA sections or the data are small."""
    data = [section for section in sections if _may_hold_code(section)]
    if has_cuda_sections(sections) or sum(section.size for section in data) <= SMALL_SWEEP:
        yield from data
    yield from (part for part in sections if part.name in _PLACES and part.type != SectionType.NOBITS)


def _section_modules(source: ByteSource, section: Section) -> Iterator[Module]:
    place = _PLACES.get(section.name)
    end = _end(source, section)
    if place is None:
        return sweep(source, section.offset, end, section.name)
    return walk(source, section.offset, end, place, section.name)


def registered_modules(source: ByteSource, sections: tuple[Section, ...]) -> Iterator[Module]:
    """The modules of `.nv_fatbin` only: the quick answer to what a framework was built for."""
    for section in sections:
        if section.name == REGISTERED_SECTION and section.type != SectionType.NOBITS:
            yield from walk(source, section.offset, _end(source, section), Place.REGISTERED, section.name)


def has_cuda_sections(sections: tuple[Section, ...]) -> bool:
    """True where the CUDA compiler has left a section of its own."""
    return any(section.name.startswith((REGISTERED_SECTION, "__nv_", ".nvFat")) for section in sections)


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
