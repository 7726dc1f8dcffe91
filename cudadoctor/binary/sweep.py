"""Finds containers and loose cubins in a range of bytes: densely packed ones by their sizes, others by their first bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudadoctor.binary.cubin import CUBIN_START, read_cubin
from cudadoctor.binary.device_code import Place
from cudadoctor.binary.fatbin import ALIGNMENT, CONTAINER_MAGIC, align, read_module
from cudadoctor.binary.source import BinaryError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.device_code import Module
    from cudadoctor.binary.source import ByteSource

MAX_CANDIDATES = 1 << 18
"""Most places of one range that are looked at; cuFFT, the richest library known, has 23,983 containers."""

_FIRST_CHUNK, _LARGEST_CHUNK = 1 << 8, 1 << 20
_CONTAINERS = (CONTAINER_MAGIC,)
_CONTAINERS_AND_CUBINS = (CONTAINER_MAGIC, CUBIN_START)


def walk(source: ByteSource, start: int, end: int, place: Place, section: str) -> Iterator[Module]:
    """The containers of a section that holds nothing else, in file order. Raises BinaryError where there are too many."""
    at = align(start)
    for _ in range(MAX_CANDIDATES):
        module = read_module(source, at, end, place, section)
        if module is not None:
            yield module
            at = align(module.offset + module.size)
            continue
        following = find_start(source, at, end, _CONTAINERS)
        if following is None:
            return
        at = following if following > at else following + ALIGNMENT
    raise BinaryError(f"more than {MAX_CANDIDATES} containers in {section or 'the file'}")


def sweep(source: ByteSource, start: int, end: int, section: str) -> Iterator[Module]:
    """The containers and loose cubins among other data, in file order. Raises BinaryError where there are too many."""
    at = align(start)
    for _ in range(MAX_CANDIDATES):
        module = read_module(source, at, end, Place.DATA, section) or read_cubin(source, at, end, Place.LOOSE, section)
        if module is not None:
            yield module
            at = align(module.offset + module.size)
            continue
        following = find_start(source, at, end, _CONTAINERS_AND_CUBINS)
        if following is None:
            return
        at = following if following > at else following + ALIGNMENT
    raise BinaryError(f"more than {MAX_CANDIDATES} candidates for GPU code in {section or 'the file'}")


def find_start(source: ByteSource, start: int, end: int, needles: tuple[bytes, ...]) -> int | None:
    """The first aligned offset from `start` at which one of the needles stands; reads in pieces that grow to 1 MB."""
    at, chunk_size = start, _FIRST_CHUNK
    overlap = max(len(needle) for needle in needles) - 1
    while at < end:
        chunk = source.read(at, min(chunk_size, end - at))
        hit = min((hit for needle in needles if (hit := _find_aligned(chunk, needle, at)) >= 0), default=-1)
        if hit >= 0:
            return at + hit
        if len(chunk) < chunk_size:
            return None
        at += len(chunk) - overlap
        chunk_size = min(chunk_size * 16, _LARGEST_CHUNK)
    return None


def _find_aligned(chunk: bytes, needle: bytes, base: int) -> int:
    hit = chunk.find(needle)
    while hit >= 0 and (base + hit) % ALIGNMENT:
        hit = chunk.find(needle, hit + 1)
    return hit
