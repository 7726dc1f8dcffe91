"""Tensor maps: how the copy engine of Hopper and later finds boxes of a matrix in memory.

Runs in the driver child; standard library only.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from cudadoctor.gpu.driver_api import Driver
from cudadoctor.gpu.numbers import Precision

MAP_BYTES = 128
MAP_ALIGNMENT = 64
"""Size and alignment of `CUtensorMap` (cuda.h)."""
DATA_TYPES = {"f16": 6, "f32": 7, "bf16": 9}
"""`CUtensorMapDataType` (cuda.h)."""
INTERLEAVE_NONE, SWIZZLE_128B, L2_PROMOTION_256B, FILL_ZEROS = 0, 3, 3, 0


class Box(NamedTuple):
    """A row-major matrix and the part of it that one copy moves, in elements; a row of the box is 128 bytes."""

    rows: int
    columns: int
    box_rows: int
    box_columns: int


def encode_tensor_map(driver: Driver, address: ctypes.c_uint64, box: Box, precision: Precision) -> ctypes.Array[ctypes.c_ubyte]:
    """A `CUtensorMap` with 128-byte swizzle, ready to be a kernel parameter.

    Raises DriverError, and MissingSymbolError where the driver is older than CUDA 12.
    """
    memory = (ctypes.c_ubyte * (MAP_BYTES + MAP_ALIGNMENT))()
    tensor_map = (ctypes.c_ubyte * MAP_BYTES).from_buffer(memory, -ctypes.addressof(memory) % MAP_ALIGNMENT)
    driver.call(
        "cuTensorMapEncodeTiled",
        tensor_map,
        ctypes.c_int(DATA_TYPES[precision.name]),
        ctypes.c_uint(2),
        ctypes.c_void_p(address.value),
        (ctypes.c_uint64 * 2)(box.columns, box.rows),
        (ctypes.c_uint64 * 1)(box.columns * precision.size_bytes),
        (ctypes.c_uint * 2)(box.box_columns, box.box_rows),
        (ctypes.c_uint * 2)(1, 1),
        ctypes.c_int(INTERLEAVE_NONE),
        ctypes.c_int(SWIZZLE_128B),
        ctypes.c_int(L2_PROMOTION_256B),
        ctypes.c_int(FILL_ZEROS),
    )
    return tensor_map
