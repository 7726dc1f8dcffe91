"""Finds containers and loose cubins in a range of bytes: densely packed ones by their sizes, others by their first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudadoctor.binary.cubin import CUBIN_START, read_cubin
from cudadoctor.binary.fatbin import ALIGNMENT, CONTAINER_START, align, read_module
from cudadoctor.binary.source import BinaryError
from cudadoctor.model.binaries import Place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudadoctor.binary.device_code import Module
    from cudadoctor.binary.source import ByteSource

MAX_CANDIDATES = 1 << 18
"""Most places of one range that are looked at; cuFFT, the richest library known, has 23,983 containers."""

_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 8, 1 << 18


def walk(source: ByteSource, start: int, end: int, place: Place, section: str) -> Iterator[Module]:
    """The containers of a section that holds nothing else, in file order. Raises BinaryError where there are too many."""

    def read(at: int) -> Module | None:
        return read_module(source, at, end, place, section)

    return _modules(source, start, end, (CONTAINER_START,), read)


def sweep(source: ByteSource, start: int, end: int, section: str) -> Iterator[Module]:
    """The containers and loose cubins among other data, in file order. Raises BinaryError where there are too many."""

    def read(at: int) -> Module | None:
        return read_module(source, at, end, Place.DATA, section) or read_cubin(source, at, end, Place.LOOSE, section)

    return _modules(source, start, end, (CONTAINER_START, CUBIN_START), read)


def _modules(
    source: ByteSource, start: int, end: int, needles: tuple[bytes, ...], read: Callable[[int], Module | None]
) -> Iterator[Module]:
    at = align(start)
    for _ in range(MAX_CANDIDATES):
        found = find_start(source, at, end, needles)
        if found is None:
            return
        module = read(found)
        if module is None:
            at = found + ALIGNMENT
        else:
            yield module
            at = align(module.offset + module.size)
    raise BinaryError(f"more than {MAX_CANDIDATES} places look like GPU code")


def find_start(source: ByteSource, start: int, end: int, needles: tuple[bytes, ...]) -> int | None:
    """The first aligned offset from `start` at which one of the needles stands.

    Reads in pieces that grow to 256 kB, which stay in the processor's cache for the second needle.
    """
    at, chunk_size = start, _FIRST_CHUNK
    overlap = max(len(needle) for needle in needles) - 1
    while at < end:
        chunk = source.read(at, min(chunk_size, end - at))
        first = len(chunk)
        for needle in needles:
            first = _find_aligned(chunk, needle, at, first)
        if first < len(chunk):
            return at + first
        if len(chunk) < chunk_size:
            return None
        at += len(chunk) - overlap
        chunk_size = min(chunk_size * 16, _LARGEST_CHUNK)
    return None


def _find_aligned(chunk: bytes, needle: bytes, base: int, before: int) -> int:
    """Where in `chunk` the needle stands at an aligned offset of the file; `before` where it does not before that."""
    hit = chunk.find(needle, 0, before)
    while hit >= 0 and (base + hit) % ALIGNMENT:
        hit = chunk.find(needle, hit + 1, before)
    return hit if hit >= 0 else before
