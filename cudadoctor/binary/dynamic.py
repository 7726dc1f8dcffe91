"""Reads what the dynamic loader reads of a library: the names it needs, its search paths, its symbol versions.

Found through the program headers as ld.so does, so that files without a section table work too. Layout: System V ABI and
the LSB (documented); agreement with `readelf -d -V` is tested on the libraries of the machine that runs the tests. String
tables can be tens of megabytes, so each string is read on its own.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.binary.elf import Machine, SegmentType, read_header, read_segments
from cudadoctor.binary.source import BinaryError, read_exact, read_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.elf import Segment
    from cudadoctor.binary.source import ByteSource

MAX_DYNAMIC_ENTRIES = 1 << 14
MAX_VERSIONS = 1 << 14

_DYN = struct.Struct("<qQ")
_VERNEED = struct.Struct("<HHIII")
_VERNAUX = struct.Struct("<IHHII")
_VERDEF = struct.Struct("<HHHHIII")

_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 10, 14, 15, 29
_DT_FLAGS_1, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = 0x6FFFFFFB, 0x6FFFFFFC, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF
_DF_1_NODEFLIB = 0x800
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2


@dataclass(frozen=True, slots=True)
class VersionNeed:
    """A symbol version that a library wants of another one: `GLIBC_2.34` of `libc.so.6`."""

    soname: str
    version: str
    weak: bool


@dataclass(frozen=True, slots=True)
class DynamicInfo:
    """What ld.so looks at. `rpath` and `runpath` are the split entries as written, `$ORIGIN` included."""

    machine: Machine
    needed: tuple[str, ...]
    soname: str | None
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    no_default_folders: bool
    interpreter: str | None
    version_needs: tuple[VersionNeed, ...]
    version_definitions: frozenset[str]


def read_dynamic(source: ByteSource) -> DynamicInfo:
    """The loader's view of an ELF file; all empty for an object file or static program. Raises BinaryError."""
    header = read_header(source)
    segments = read_segments(source, header)
    interpreter = next((_interpreter(source, s) for s in segments if s.type == SegmentType.INTERP), None)
    dynamic = next((s for s in segments if s.type == SegmentType.DYNAMIC), None)
    if dynamic is None:
        return DynamicInfo(header.machine, (), None, (), (), False, interpreter, (), frozenset())
    tags = tuple(_tags(source, dynamic))
    return _Table(source, segments, tags).info(header.machine, interpreter)


def _interpreter(source: ByteSource, segment: Segment) -> str:
    return read_text(source, segment.offset)


def _tags(source: ByteSource, segment: Segment) -> Iterator[tuple[int, int]]:
    count = segment.file_size // _DYN.size
    if count > MAX_DYNAMIC_ENTRIES:
        raise BinaryError(f"{count} dynamic entries")
    for tag, value in _DYN.iter_unpack(read_exact(source, segment.offset, count * _DYN.size)):
        if tag == _DT_NULL:
            return
        yield tag, value


class _Table:
    """The dynamic tags of one file together with the string table that they point into."""

    def __init__(self, source: ByteSource, segments: tuple[Segment, ...], tags: tuple[tuple[int, int], ...]) -> None:
        self._source, self._segments, self._tags = source, segments, tags
        self._values = dict(reversed(tags))  # of a repeated tag the first one counts
        self._strings_size = self._value(_DT_STRSZ) or 0

    def info(self, machine: Machine, interpreter: str | None) -> DynamicInfo:
        has_runpath = self._value(_DT_RUNPATH) is not None
        return DynamicInfo(
            machine=machine,
            needed=tuple(self._text(value) for tag, value in self._tags if tag == _DT_NEEDED),
            soname=self._optional_text(_DT_SONAME),
            rpath=() if has_runpath else self._folders(_DT_RPATH),
            runpath=self._folders(_DT_RUNPATH),
            no_default_folders=bool((self._value(_DT_FLAGS_1) or 0) & _DF_1_NODEFLIB),
            interpreter=interpreter,
            version_needs=tuple(self._needs()),
            version_definitions=frozenset(self._definitions()),
        )

    def _value(self, wanted: int) -> int | None:
        return self._values.get(wanted)

    def _offset(self, address: int) -> int:
        for segment in self._segments:
            if segment.type == SegmentType.LOAD and segment.address <= address < segment.address + segment.file_size:
                return segment.offset + address - segment.address
        raise BinaryError(f"address {address:#x} lies in no segment of the file")

    def _text(self, index: int) -> str:
        table = self._value(_DT_STRTAB)
        if table is None or index >= self._strings_size:
            raise BinaryError(f"string {index} of a string table of {self._strings_size} bytes")
        return read_text(self._source, self._offset(table) + index)

    def _optional_text(self, tag: int) -> str | None:
        index = self._value(tag)
        return None if index is None else self._text(index)

    def _folders(self, tag: int) -> tuple[str, ...]:
        """The entries of a search path; an empty entry (the current folder) stays an empty string."""
        text = self._optional_text(tag)
        return tuple(text.split(":")) if text else ()

    def _needs(self) -> Iterator[VersionNeed]:
        address, count = self._value(_DT_VERNEED), self._value(_DT_VERNEEDNUM) or 0
        if address is None:
            return
        at, seen = self._offset(address), 0
        for _ in range(min(count, MAX_VERSIONS)):
            _version, auxiliaries, file, first, following = _VERNEED.unpack(read_exact(self._source, at, _VERNEED.size))
            seen += auxiliaries
            if seen > MAX_VERSIONS:
                raise BinaryError(f"more than {MAX_VERSIONS} symbol versions")
            yield from self._auxiliaries(self._text(file), at + first, auxiliaries)
            if following == 0:
                return
            at += following

    def _auxiliaries(self, soname: str, at: int, count: int) -> Iterator[VersionNeed]:
        for _ in range(count):
            _hash, flags, _other, name, following = _VERNAUX.unpack(read_exact(self._source, at, _VERNAUX.size))
            yield VersionNeed(soname, self._text(name), bool(flags & _VER_FLG_WEAK))
            if following == 0:
                return
            at += following

    def _definitions(self) -> Iterator[str]:
        address, count = self._value(_DT_VERDEF), self._value(_DT_VERDEFNUM) or 0
        if address is None:
            return
        at = self._offset(address)
        for _ in range(min(count, MAX_VERSIONS)):
            _version, flags, _index, _names, _hash, first, following = _VERDEF.unpack(read_exact(self._source, at, _VERDEF.size))
            if not flags & _VER_FLG_BASE:
                name, _next = struct.unpack("<II", read_exact(self._source, at + first, 8))
                yield self._text(name)
            if following == 0:
                return
            at += following
