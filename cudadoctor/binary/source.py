"""Random access to the bytes of something that is never loaded: a file, a part of a file, a member of a wheel."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self


class BinaryError(ValueError):
    """The bytes cannot be read, or are not what their own headers say."""


class ByteSource(Protocol):
    """What every reader of this package reads from."""

    @property
    def size(self) -> int:
        """The number of bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer than `length` only at the end. Raises BinaryError."""
        ...


def read_exact(source: ByteSource, offset: int, length: int) -> bytes:
    """Exactly `length` bytes from `offset`; raises BinaryError where the source ends earlier."""
    if offset < 0 or length < 0 or offset + length > source.size:
        raise BinaryError(f"{length} bytes at offset {offset} lie outside of a file of {source.size} bytes")
    data = source.read(offset, length)
    if len(data) != length:
        raise BinaryError(f"file ends at offset {offset + len(data)}, {length - len(data)} bytes early")
    return data


def read_text(source: ByteSource, offset: int, limit: int = 4096) -> str:
    """The NUL-terminated text at `offset`; raises BinaryError where it is longer than `limit` bytes or has no end."""
    found = b""
    while len(found) < limit:
        piece = source.read(offset + len(found), min(128, limit - len(found)))
        head, end, _ = piece.partition(b"\0")
        found += head
        if end:
            return found.decode("utf-8", "surrogateescape")
        if not piece:
            break
    raise BinaryError(f"text at offset {offset} has no end within {limit} bytes")


if hasattr(os, "pread"):
    _read_at = os.pread
else:  # Windows

    def _read_at(fd: int, length: int, offset: int, /) -> bytes:
        os.lseek(fd, offset, os.SEEK_SET)
        return os.read(fd, length)


class FileSource:
    """The bytes of a regular file. Small reads at places (pread): a 500 MB library costs no memory."""

    __slots__ = ("_fd", "path", "size", "status")

    def __init__(self, path: str | Path) -> None:
        """Open `path`; raises BinaryError where it is not a readable regular file."""
        self.path = str(path)
        flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            self._fd = os.open(path, flags)
        except (OSError, ValueError) as error:
            raise BinaryError(f"cannot open {path}: {getattr(error, 'strerror', None) or error}") from error
        self.status = os.fstat(self._fd)
        if not stat.S_ISREG(self.status.st_mode):
            self.close()
            raise BinaryError(f"not a regular file: {path}")
        self.size = self.status.st_size

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer than `length` only at the end."""
        if offset < 0 or offset >= self.size:
            return b""
        try:
            data = _read_at(self._fd, length, offset)
            while data and len(data) < min(length, self.size - offset):
                rest = _read_at(self._fd, length - len(data), offset + len(data))
                if not rest:
                    break
                data += rest
        except OSError as error:
            raise BinaryError(f"cannot read {self.path}: {error.strerror}") from error
        return data

    def close(self) -> None:
        """Close the file; further reads are errors."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class SliceSource:
    """A part of another source that reads as if it were a file of its own (a stored member of a zip or an archive)."""

    __slots__ = ("_parent", "_start", "size")

    def __init__(self, parent: ByteSource, start: int, size: int) -> None:
        """The `size` bytes of `parent` from `start`; raises BinaryError where the parent is shorter."""
        if start < 0 or size < 0 or start + size > parent.size:
            raise BinaryError(f"a member of {size} bytes at offset {start} lies outside of a file of {parent.size} bytes")
        self._parent, self._start, self.size = parent, start, size

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer than `length` only at the end."""
        if offset < 0 or offset >= self.size:
            return b""
        return self._parent.read(self._start + offset, min(length, self.size - offset))


class BytesSource:
    """Bytes in memory."""

    __slots__ = ("_data", "size")

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; fewer than `length` only at the end."""
        return self._data[offset : offset + length] if offset >= 0 else b""


class WorkLimitError(BinaryError):
    """Reading a file took far more work than any real file needs."""


_WINDOW = 512


class MeteredSource:
    """Another source, read only so many times and so many bytes: hostile headers cannot make a scan endless.

    Small reads near each other are served from one window, which saves half of the system calls.
    """

    __slots__ = ("_bytes_left", "_parent", "_reads_left", "_window", "_window_start", "size")

    def __init__(self, parent: ByteSource) -> None:
        self._parent, self.size = parent, parent.size
        self._window, self._window_start = b"", 0
        self._bytes_left = 8 * parent.size + (1 << 26)
        self._reads_left = 1 << 22

    def read(self, offset: int, length: int) -> bytes:
        """The bytes from `offset`; raises WorkLimitError once the allowance is used up."""
        at = offset - self._window_start
        if at >= 0 and at + length <= len(self._window):
            return self._window[at : at + length]
        data = self._parent.read(offset, max(length, _WINDOW))
        self._bytes_left -= len(data)
        self._reads_left -= 1
        if self._bytes_left < 0 or self._reads_left < 0:
            raise WorkLimitError("the file's headers lead in circles: gave up reading it")
        if length > _WINDOW:
            return data
        self._window, self._window_start = data, offset
        return data[:length]
