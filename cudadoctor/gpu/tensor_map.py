"""Tensor maps: how the copy engine of Hopper and later finds boxes of a matrix in memory.

Runs in the driver child; standard library only.
"""

from __future__ import annotations

import ctypes
import math
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
    """A row-major matrix and the part of it that one copy moves, in elements; a row of the box is 128 bytes.

    With `matrices`, that many of them one after the other: the map has three dimensions, and no box reaches into the next matrix.
    """

    rows: int
    columns: int
    box_rows: int
    box_columns: int
    matrices: int | None = None

    @property
    def extents(self) -> tuple[int, ...]:
        """Of all data, the fastest-running dimension first."""
        return (self.columns, self.rows) if self.matrices is None else (self.columns, self.rows, self.matrices)

    @property
    def box_extents(self) -> tuple[int, ...]:
        """Of one copy, likewise."""
        return (self.box_columns, self.box_rows) if self.matrices is None else (self.box_columns, self.box_rows, 1)


def encode_tensor_map(driver: Driver, address: ctypes.c_uint64, box: Box, precision: Precision) -> ctypes.Array[ctypes.c_ubyte]:
    """A `CUtensorMap` with 128-byte swizzle, ready to be a kernel parameter.

    Raises DriverError, and MissingSymbolError where the driver is older than CUDA 12.
    """
    memory = (ctypes.c_ubyte * (MAP_BYTES + MAP_ALIGNMENT))()
    tensor_map = (ctypes.c_ubyte * MAP_BYTES).from_buffer(memory, -ctypes.addressof(memory) % MAP_ALIGNMENT)
    rank = len(box.extents)
    pitches = [math.prod(box.extents[:dimension]) * precision.size_bytes for dimension in range(1, rank)]
    driver.call(
        "cuTensorMapEncodeTiled",
        tensor_map,
        ctypes.c_int(DATA_TYPES[precision.name]),
        ctypes.c_uint(rank),
        ctypes.c_void_p(address.value),
        (ctypes.c_uint64 * rank)(*box.extents),
        (ctypes.c_uint64 * (rank - 1))(*pitches),
        (ctypes.c_uint * rank)(*box.box_extents),
        (ctypes.c_uint * rank)(*[1] * rank),
        ctypes.c_int(INTERLEAVE_NONE),
        ctypes.c_int(SWIZZLE_128B),
        ctypes.c_int(L2_PROMOTION_256B),
        ctypes.c_int(FILL_ZEROS),
    )
    return tensor_map
