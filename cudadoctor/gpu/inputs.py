"""What a launch gets and how its output is read. Standard library only; runs in the driver child."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

Extents = tuple[int, int, int]
Read = Callable[[int, int], bytes]
"""Reads (offset, size) in bytes of the output."""


class Input(NamedTuple):
    """What a buffer holds: `data`, repeated to `size_bytes`."""

    data: bytes
    size_bytes: int
