"""Reads the target of a cubin (an ELF file for the GPU) from its header.

How known: compiled with ptxas of CUDA 11.8 to 13.5 and compared with 14,823 real cubins inside containers whose headers name
the target. CUDA 13 keeps the suffix `a` only in the section `.nv.compat`; the suffix `f` is in no field at all, such a cubin
reads as plain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudadoctor.binary.device_code import SASS_KIND, UNKNOWN_LABEL, Compression, Entry, Module
from cudadoctor.binary.elf import Machine, read_header, read_sections
from cudadoctor.binary.source import BinaryError, SliceSource, WorkLimitError, read_exact
from cudadoctor.model.binaries import Place
from cudadoctor.model.versions import CodeKind, ComputeCapability, SmTarget

if TYPE_CHECKING:
    from cudadoctor.binary.elf import ElfHeader, Section
    from cudadoctor.binary.source import ByteSource

CUBIN_START = b"\x7fELF\x02\x01\x01"
OLD_ABI, NEW_ABI = 0x33, 0x41
"""e_ident[EI_OSABI] of cubins: up to CUDA 12.9 for architectures below 100, and of all later ones."""
_ABIS = frozenset((bytes((OLD_ABI,)), bytes((NEW_ABI,))))

_COMPAT_SECTION = 0x70000086
_COMPAT_SPECIFIC = bytes((0x02, 0x09))
_MAX_COMPAT_SIZE = 4096


def is_cubin(head: bytes) -> bool:
    """True for the first 20 bytes of a cubin."""
    return head[:7] == CUBIN_START and head[7:8] in _ABIS and head[18:20] == Machine.CUDA.to_bytes(2, "little")


def read_cubin(source: ByteSource, offset: int, limit: int, place: Place, section: str) -> Module | None:
    """The cubin that starts at `offset` and ends before `limit`; None where there is none or its tables do not fit."""
    if not is_cubin(source.read(offset, 20)):
        return None
    part = SliceSource(source, offset, limit - offset)
    try:
        header = read_header(part)
        if header.machine is not Machine.CUDA:
            return None
        sections = read_sections(part, header)
        size = _end(header, sections)
        if size > part.size:
            return None
        target = _target(part, header, sections)
    except WorkLimitError:
        raise
    except BinaryError:
        return None
    entry = Entry(target, None, str(target or UNKNOWN_LABEL), SASS_KIND, Compression.NONE, offset, size, size)
    return Module(place, section, offset, size, (entry,))


def _end(header: ElfHeader, sections: tuple[Section, ...]) -> int:
    tables = header.section_offset + len(sections) * header.section_entry_size
    programs = header.program_offset + header.program_count * header.program_entry_size
    return max([tables, programs, 64, *(part.offset + part.size for part in sections if part.type != 8)])


def _target(source: ByteSource, header: ElfHeader, sections: tuple[Section, ...]) -> SmTarget | None:
    if header.os_abi == OLD_ABI:
        number = header.flags & 0xFF
        specific = bool(header.flags & 0x800) and number >= 90  # sm_60 uses that bit for something else
    else:
        number = header.flags >> 8 & 0xFF
        specific = bool(header.flags & 0x8) or _compat_specific(source, sections)
    if number < 10:
        return None
    return SmTarget(CodeKind.SASS, ComputeCapability.from_number(number), "a" if specific else "")


def _compat_specific(source: ByteSource, sections: tuple[Section, ...]) -> bool:
    """True where a record of `.nv.compat` (format 02, attribute 09) says architecture-specific."""
    compat = next((part for part in sections if part.type == _COMPAT_SECTION), None)
    if compat is None:
        return False
    records = read_exact(source, compat.offset, min(compat.size, _MAX_COMPAT_SIZE))
    return any(records[at : at + 2] == _COMPAT_SPECIFIC and records[at + 2] == 1 for at in range(0, len(records) - 3, 4))
