"""Collects the library names that a file mentions in its constant data: what it may dlopen besides its NEEDED entries.

A name in the text is a candidate, no more: it may stand in an error message. How known: libcudnn.so.9 and ctranslate2 name the
libraries that they dlopen this way.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudadoctor.binary.elf import is_elf, read_header, read_sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.source import ByteSource

MAX_SEARCHED = 1 << 28
"""Bytes of constant data that are looked at."""
MAX_NAMES = 512
_CHUNK = 1 << 18
_LONGEST = 128
_START = b"\0lib"
_NAME = re.compile(rb"\0(lib[A-Za-z0-9_+-][A-Za-z0-9_+.-]{0,99}\.so(?:\.\d{1,4}){0,3})\0")


def dlopen_names(source: ByteSource) -> tuple[str, ...]:
    """The library names in the read-only data of an ELF file, in the order met. Raises BinaryError."""
    if not is_elf(source.read(0, 4)):
        return ()
    names: dict[str, None] = {}
    left = MAX_SEARCHED
    for section in read_sections(source, read_header(source)):
        if section.name in {".rodata", ".lrodata"} or section.name.startswith(".rodata."):
            size = min(section.size, left)
            left -= size
            for name in _names(source, section.offset, section.offset + size):
                names.setdefault(name)
                if len(names) >= MAX_NAMES:
                    return tuple(names)
    return tuple(names)


def _names(source: ByteSource, start: int, end: int) -> Iterator[str]:
    for at in range(start, end, _CHUNK):
        # one byte before, for the NUL in front of a name at the chunk's start
        chunk = source.read(max(at - 1, 0), min(_CHUNK + _LONGEST, end - at + 1))
        hit = chunk.find(_START)
        while 0 <= hit <= _CHUNK:
            found = _NAME.match(chunk, hit)
            if found is not None:
                yield found[1].decode("ascii")
            hit = chunk.find(_START, hit + 1)
