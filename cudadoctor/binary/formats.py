"""Tells what a file is and reads from it what this tool wants: GPU code and the libraries that it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cudadoctor.binary import archive
from cudadoctor.binary.cubin import is_cubin, read_cubin
from cudadoctor.binary.device_code import Module
from cudadoctor.binary.dynamic import DynamicInfo, read_dynamic
from cudadoctor.binary.elf import is_elf, read_header, read_sections
from cudadoctor.binary.elf_code import elf_modules, has_cuda_sections
from cudadoctor.binary.fatbin import CONTAINER_MAGIC
from cudadoctor.binary.pe import is_pe, pe_modules, read_pe
from cudadoctor.binary.ptx import read_ptx
from cudadoctor.binary.source import BinaryError, MeteredSource
from cudadoctor.binary.sweep import walk
from cudadoctor.model.binaries import Place

if TYPE_CHECKING:
    from cudadoctor.binary.source import ByteSource

HEAD_SIZE = 64


class FileKind(Enum):
    """The formats that are read."""

    ELF = "elf"
    PE = "pe"
    ARCHIVE = "archive"
    FATBIN = "fatbin"
    CUBIN = "cubin"
    PTX = "ptx"


@dataclass(frozen=True, slots=True)
class OpenedBinary:
    """A file that was recognised. `modules` reads on while it is iterated and may raise BinaryError at any step."""

    kind: FileKind
    modules: Iterator[Module]
    dynamic: DynamicInfo | None
    imports: tuple[str, ...]
    has_cuda_sections: bool


def open_binary(source: ByteSource) -> OpenedBinary | None:
    """What the file is; None where it is none of the formats. Raises BinaryError where its headers are damaged."""
    metered = MeteredSource(source)
    head = metered.read(0, HEAD_SIZE)
    if is_elf(head) and not is_cubin(head):
        return _open_elf(metered)
    if is_pe(metered, head):
        sections, imports = read_pe(metered)
        own = any(section.name.startswith((".nv_fatb", "__nv_rel")) for section in sections)
        return OpenedBinary(FileKind.PE, pe_modules(metered, sections), None, imports, own)
    if head.startswith(archive.MAGIC):
        return OpenedBinary(FileKind.ARCHIVE, _archive_modules(metered), None, (), False)
    return _open_gpu_file(metered, head)


def _open_elf(source: MeteredSource) -> OpenedBinary:
    header = read_header(source)
    sections = read_sections(source, header)
    modules = elf_modules(source, header, sections)
    return OpenedBinary(FileKind.ELF, modules, read_dynamic(source), (), has_cuda_sections(sections))


def _open_gpu_file(source: MeteredSource, head: bytes) -> OpenedBinary | None:
    if head.startswith(CONTAINER_MAGIC):
        return OpenedBinary(FileKind.FATBIN, walk(source, 0, source.size, Place.FILE, ""), None, (), False)
    if is_cubin(head):
        cubin = read_cubin(source, 0, source.size, Place.FILE, "")
        if cubin is None:
            raise BinaryError("a cubin with damaged headers")
        return OpenedBinary(FileKind.CUBIN, iter((cubin,)), None, (), False)
    ptx = read_ptx(source) if b"\0" not in head else None
    return OpenedBinary(FileKind.PTX, iter((ptx,)), None, (), False) if ptx is not None else None


def _archive_modules(source: MeteredSource) -> Iterator[Module]:
    for member in archive.members(source):
        if is_elf(member.source.read(0, HEAD_SIZE)):
            header = read_header(member.source)
            yield from elf_modules(member.source, header, read_sections(member.source, header))
