"""Fresh random data and its decoding for fp32, fp16 and bf16, quick enough in plain Python for some 100,000 elements.

Standard library only; runs in the driver child.
"""

from __future__ import annotations

import random
import struct
from array import array
from typing import NamedTuple


class Precision(NamedTuple):
    """A storage type: its size, how coarse it is, and the bytes that random values are made of."""

    name: str
    size_bytes: int
    unit_roundoff: float
    """Half the distance between 1 and the next number: the largest relative error of one rounding."""
    smallest: float
    """Half the smallest subnormal: the largest absolute error of rounding to zero or near it."""
    exponent_mask: int
    """Which bits of the top byte are free (they hold mantissa or the lowest exponent bit)."""
    small_top: int
    """Top byte of values from 0.125 to 0.5."""
    large_top: int
    """Top byte of values from 0.5 to 2."""


F32 = Precision("f32", 4, 2.0**-24, 2.0**-150, 0x00, 0x3E, 0x3F)
F16 = Precision("f16", 2, 2.0**-11, 2.0**-25, 0x07, 0x30, 0x38)
BF16 = Precision("bf16", 2, 2.0**-8, 2.0**-134, 0x00, 0x3E, 0x3F)
PRECISIONS = {precision.name: precision for precision in (F32, F16, BF16)}

NAN_BYTE = b"\xff"
"""Repeated, it is a NaN in every floating-point format."""
NEGATIVE_FROM = 192
"""Random top bytes from here on give negative values: a quarter, so that the mean is not zero and errors do not cancel."""


def random_bytes(rng: random.Random, count: int, precision: Precision, top: int) -> bytes:
    """`count` random little-endian values with full mantissas; two binades, set by `top`; a quarter is negative."""
    size = precision.size_bytes
    raw = bytearray(rng.randbytes(count * size))
    table = bytes(top | (byte & precision.exponent_mask) | (0x80 if byte >= NEGATIVE_FROM else 0) for byte in range(256))
    raw[size - 1 :: size] = raw[size - 1 :: size].translate(table)
    return bytes(raw)


def decode(data: bytes, precision: Precision) -> array[float]:
    """The values of little-endian `data`, exactly."""
    if precision is BF16:  # the upper half of a binary32
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        return array("f", bytes(wide))
    if precision.size_bytes == 2:
        return array("f", struct.unpack(f"<{len(data) // 2}e", data))
    values = array("f")
    values.frombytes(data)
    return values
