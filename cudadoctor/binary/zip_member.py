"""Reads the members of a wheel (zip) in place: stored ones directly, deflated ones as a stream; nothing is unpacked to disk.

A deflated member is decompressed from the nearest restart point kept in memory, so that a library's section table at its end
and its GPU code before it cost two passes, whatever its size. Bounded: memory by the number of restart points, time by limits
on the unpacked size and on the ratio; a member that holds more or less than it claims ends in BinaryError.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.binary.source import BinaryError, SliceSource, WorkLimitError, read_exact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cudadoctor.binary.source import ByteSource

MAX_MEMBERS = 1 << 17
MAX_UNPACKED = 1 << 33
"""Largest unpacked member that is read, in bytes; the largest library of a wheel known has 1.1 GB."""
MAX_RATIO = 200
"""Largest unpacked / packed size of members above 64 MB; zip bombs reach 1,000, libraries with empty sections about 20."""
_RATIO_MATTERS_FROM = 1 << 26
_LOCAL_HEADER = struct.Struct("<4s22xHH")
_CHUNK = 1 << 16
_RESTART_POINTS = 32
_RECENT = 1 << 20
_PAGE, _MAX_PAGES = 1 << 14, 128


@dataclass(frozen=True, slots=True)
class WheelMember:
    """One file of a wheel; `source` reads it in place."""

    name: str
    size: int
    source: ByteSource


def wheel_members(path: str | Path, source: ByteSource) -> Iterator[WheelMember]:
    """The files of a zip at `path`, read through `source`. Raises BinaryError where its directory is damaged."""
    for info in _directory(path, source):
        if not info.is_dir():
            yield WheelMember(info.filename, info.file_size, open_member(source, info))


def _directory(path: str | Path, source: ByteSource) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, struct.error, UnicodeError) as error:
        raise BinaryError(f"damaged zip: {error}") from error
    if len(members) > MAX_MEMBERS:
        raise BinaryError(f"a zip with {len(members)} members")
    unpacked = sum(info.file_size for info in members)
    if unpacked > _RATIO_MATTERS_FROM and unpacked > MAX_RATIO * source.size:
        raise BinaryError(_bomb(source.size, unpacked))
    return members


def _bomb(packed: int, unpacked: int) -> str:
    return f"a zip bomb: {packed} bytes that claim to unpack to {unpacked}"


class UnreadableSource:
    """A member that is not read at all; every read says why."""

    __slots__ = ("_reason", "size")

    def __init__(self, size: int, reason: str) -> None:
        self.size, self._reason = size, reason

    def read(self, offset: int, length: int) -> bytes:  # noqa: ARG002 - the signature of every ByteSource
        """Raises BinaryError."""
        raise BinaryError(self._reason)


def open_member(source: ByteSource, info: zipfile.ZipInfo) -> ByteSource:
    """The bytes of one member; a member that cannot be read gives a source whose reads say why."""
    if info.flag_bits & 1:
        return UnreadableSource(info.file_size, "an encrypted member")
    if info.file_size > MAX_UNPACKED:
        return UnreadableSource(info.file_size, f"a member of {info.file_size} bytes, more than {MAX_UNPACKED}")
    if info.file_size > _RATIO_MATTERS_FROM and info.file_size > MAX_RATIO * info.compress_size:
        return UnreadableSource(
            info.file_size, f"{info.compress_size} bytes that claim to unpack to {info.file_size}: a zip bomb"
        )
    try:
        packed = _packed(source, info)
    except BinaryError as error:
        return UnreadableSource(info.file_size, str(error))
    if info.compress_type == zipfile.ZIP_STORED:
        return packed
    if info.compress_type == zipfile.ZIP_DEFLATED:
        return PagedSource(DeflatedSource(packed, info.file_size))
    return UnreadableSource(info.file_size, f"packed with method {info.compress_type}, which is not read")


def _packed(source: ByteSource, info: zipfile.ZipInfo) -> SliceSource:
    magic, name_size, extra_size = _LOCAL_HEADER.unpack(read_exact(source, info.header_offset, 30))
    if magic != b"PK\x03\x04":
        raise BinaryError("the zip directory points to what is no member")
    return SliceSource(source, info.header_offset + 30 + name_size + extra_size, info.compress_size)


@dataclass(slots=True)
class _Position:
    """A state of decompression: what comes next at `unpacked`, from packed byte `packed` on."""

    unpacked: int
    packed: int
    inflater: zlib._Decompress
    pending: bytes

    def copy(self) -> _Position:
        return _Position(self.unpacked, self.packed, self.inflater.copy(), self.pending)


class DeflatedSource:
    """A deflated member, readable at any offset.

    The last megabyte stays in memory; going further back restarts at the nearest point kept.
    """

    __slots__ = ("_at", "_packed", "_points", "_recent", "_recent_start", "_spacing", "_work_left", "size")

    def __init__(self, packed: ByteSource, size: int) -> None:
        self._packed, self.size = packed, size
        self._spacing = max(size // _RESTART_POINTS, 1 << 20)
        start = _Position(0, 0, zlib.decompressobj(-15), b"")
        self._points = [start]
        self._at = start.copy()
        self._recent, self._recent_start = bytearray(), 0
        self._work_left = 16 * size + _RATIO_MATTERS_FROM

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer than `length` only at the end. Raises BinaryError for damaged or short data."""
        if offset < 0 or offset >= self.size or length <= 0:
            return b""
        end = min(offset + length, self.size)
        if offset < self._recent_start:
            self._go_back(offset)
        pieces: list[bytearray] = []
        while offset < end:
            if offset >= self._at.unpacked:
                self._advance()
                continue
            piece = self._recent[offset - self._recent_start : end - self._recent_start]
            pieces.append(piece)
            offset += len(piece)
        return b"".join(pieces)

    def _go_back(self, offset: int) -> None:
        nearest = max((point for point in self._points if point.unpacked <= offset), key=lambda point: point.unpacked)
        self._at = nearest.copy()
        self._recent, self._recent_start = bytearray(), nearest.unpacked

    def _advance(self) -> None:
        """Unpack the next chunk behind the recent bytes."""
        at = self._at
        if not at.pending and not at.inflater.eof:
            at.pending = self._packed.read(at.packed, _CHUNK)
            at.packed += len(at.pending)
            if not at.pending:
                raise BinaryError(f"packed data ends at {at.unpacked} of {self.size} bytes")
        if at.inflater.eof:
            raise BinaryError(f"holds {at.unpacked} bytes, but claims {self.size}")
        try:
            piece = at.inflater.decompress(at.pending, _CHUNK * 4)
        except zlib.error as error:
            raise BinaryError(f"damaged deflate data: {error}") from error
        at.pending = at.inflater.unconsumed_tail
        self._remember(piece)
        at.unpacked += len(piece)
        if at.unpacked >= self._points[-1].unpacked + self._spacing:
            self._points.append(at.copy())

    def _remember(self, piece: bytes) -> None:
        self._work_left -= len(piece)
        if self._work_left < 0:
            raise WorkLimitError("the member's headers lead back and forth: gave up reading it")
        surplus = len(self._recent) - _RECENT
        if surplus > 0:
            del self._recent[:surplus]
            self._recent_start += surplus
        self._recent += piece


class PagedSource:
    """Another source whose small reads are answered from pages kept in memory, so that reading two tables in turn is cheap."""

    __slots__ = ("_pages", "_parent", "size")

    def __init__(self, parent: ByteSource) -> None:
        self._parent, self.size = parent, parent.size
        self._pages: OrderedDict[int, bytes] = OrderedDict()

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer than `length` only at the end."""
        if offset < 0 or length > _PAGE:
            return self._parent.read(offset, length)
        first, start = divmod(offset, _PAGE)
        data = self._page(first)
        if start + length > _PAGE:
            data += self._page(first + 1)
        return data[start : start + length]

    def _page(self, number: int) -> bytes:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = self._parent.read(number * _PAGE, _PAGE)
            if len(self._pages) > _MAX_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(number)
        return page
