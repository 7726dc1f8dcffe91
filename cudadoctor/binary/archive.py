"""Lists the members of a static library (`ar` archive), GNU and BSD names alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.binary.source import BinaryError, SliceSource, read_exact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.source import ByteSource

MAGIC = b"!<arch>\n"
MAX_MEMBERS = 1 << 16
_HEADER_SIZE = 60


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive; `source` reads it in place."""

    name: str
    source: ByteSource


def members(source: ByteSource) -> Iterator[Member]:
    """The members in file order, the symbol and name tables left out. Raises BinaryError, after what was readable."""
    at = len(MAGIC)
    for _ in range(MAX_MEMBERS):
        if at + _HEADER_SIZE > source.size:
            return
        header = read_exact(source, at, _HEADER_SIZE)
        if header[58:60] != b"`\n":
            raise BinaryError(f"no archive member at offset {at}")
        try:
            size = int(header[48:58])
        except ValueError as error:
            raise BinaryError(f"archive member of size {header[48:58]!r}") from error
        name = header[:16].decode("latin-1").rstrip()
        if name not in {"/", "//", "/SYM64/"} and not name.startswith("__.SYMDEF"):
            yield Member(name.rstrip("/"), SliceSource(source, at + _HEADER_SIZE, size))
        at += _HEADER_SIZE + size + size % 2
    raise BinaryError(f"more than {MAX_MEMBERS} archive members")
