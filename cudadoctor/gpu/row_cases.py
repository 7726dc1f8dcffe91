"""The launches of a proof for the small kernels that work row by row: softmax and rotary encoding.

Runs in the driver child; standard library only.
"""

from __future__ import annotations

import ctypes
import math
import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cudadoctor.gpu import verify
from cudadoctor.gpu.inputs import Extents, Input, Read
from cudadoctor.gpu.numbers import F32, Precision, decode, random_bytes
from cudadoctor.gpu.tensor_map import Box

FLOPS_PER_ELEMENT = 5.0
"""Softmax: subtract, exponential, add, multiply, compare. Rotary encoding has 3 an element; what counts is memory."""
SPREAD = 20.0
"""Standard deviation of softmax's inputs: exponents from underflow to the largest weight."""
SAMPLED_ROWS = 5
LARGEST = 3.4028234663852886e38
"""The largest finite fp32."""


class RowShape(NamedTuple):
    """A matrix [rows, columns]; positions repeat every `length` rows (rotary encoding only)."""

    rows: int
    columns: int
    length: int = 1


SOFTMAX_CHECKED = (RowShape(7, 1000), RowShape(5, 33), RowShape(3, 1))
ROTARY_CHECKED = (RowShape(70, 64, 35), RowShape(9, 130, 3), RowShape(1, 2))
TIMED = RowShape(1024, 4096, 512)


class SoftmaxCase:
    """One softmax launch. The first row is minus infinity alone, the second has some, the third is as large as fp32 can be."""

    repeats_exactly = True

    def __init__(self, shape: RowShape, rng: random.Random) -> None:
        self.shape = shape
        self.precision: Precision = F32
        self.flops = FLOPS_PER_ELEMENT * shape.rows * shape.columns
        self.output_bytes = 4 * shape.rows * shape.columns
        self.boxes: tuple[Box | None, ...] = ()
        self._rng = rng
        rows = min(shape.rows, 16)  # what is timed repeats them
        self._x = array("f", [rng.gauss(0.0, SPREAD) for _ in range(rows * shape.columns)])
        for place in (*range(shape.columns), *range(shape.columns, min(2, rows) * shape.columns - 1, 3)):
            self._x[place] = -math.inf
        for place in range(2 * shape.columns, min(3, rows) * shape.columns):
            self._x[place] = LARGEST * rng.uniform(-1.0, 1.0) if place % shape.columns else -LARGEST

    @property
    def inputs(self) -> tuple[Input, ...]:
        return (Input(self._x.tobytes(), self.output_bytes),)

    def grids(self, multiprocessors: Callable[[], int]) -> tuple[Extents, ...]:  # noqa: ARG002  # one interface for all
        """One CTA a row."""
        return ((self.shape.rows, 1, 1),)

    def parameters(self, inputs: Sequence[Any], output: Any) -> tuple[Any, ...]:
        """The kernel's parameters in order."""
        return (*inputs, output, ctypes.c_int(self.shape.rows), ctypes.c_int(self.shape.columns))

    def check(self, output: bytes) -> verify.Check:
        """Every row."""
        return self._check_rows(lambda offset, size: output[offset : offset + size], range(self.shape.rows))

    def check_samples(self, read: Read) -> verify.Check:
        """Some random rows."""
        return self._check_rows(read, self._rng.sample(range(self.shape.rows), SAMPLED_ROWS))

    def _check_rows(self, read: Read, rows: Sequence[int]) -> verify.Check:
        columns = self.shape.columns
        checks = []
        for row in rows:
            start = row * columns % len(self._x)
            got = decode(read(4 * row * columns, 4 * columns), F32)
            checks.append(verify.check_softmax_row(got, self._x[start : start + columns], f"row {row}"))
        return verify.worst(checks)


class RotaryCase:
    """One launch of rotary encoding."""

    repeats_exactly = True

    def __init__(self, shape: RowShape, rng: random.Random) -> None:
        self.shape = shape
        self.precision: Precision = F32
        self.flops = FLOPS_PER_ELEMENT * shape.rows * shape.columns
        self.output_bytes = 4 * shape.rows * shape.columns
        self.boxes: tuple[Box | None, ...] = ()
        self._rng = rng
        rows = min(shape.rows, 16) if shape.rows % 16 == 0 else shape.rows
        self._x = decode(random_bytes(rng, rows * shape.columns, F32, F32.large_top), F32)
        angles = [position * 10000.0 ** (-2.0 * i / shape.columns) for position in range(shape.length) for i in range(self._half)]
        self._cosines, self._sines = array("f", map(math.cos, angles)), array("f", map(math.sin, angles))

    @property
    def _half(self) -> int:
        return self.shape.columns // 2

    @property
    def inputs(self) -> tuple[Input, ...]:
        table_bytes = 4 * len(self._cosines)
        tables = [Input(table.tobytes(), table_bytes) for table in (self._cosines, self._sines)]
        return (Input(self._x.tobytes(), self.output_bytes), *tables)

    def grids(self, multiprocessors: Callable[[], int]) -> tuple[Extents, ...]:  # noqa: ARG002  # one interface for all
        """One thread a quad of pairs of one row."""
        quads = self.shape.rows * -(-self._half // 4)
        return ((-(-quads // 256), 1, 1),)

    def parameters(self, inputs: Sequence[Any], output: Any) -> tuple[Any, ...]:
        """The kernel's parameters in order."""
        return (*inputs, output, *map(ctypes.c_int, self.shape))

    def check(self, output: bytes) -> verify.Check:
        """Every value."""
        return self._check_rows(lambda offset, size: output[offset : offset + size], range(self.shape.rows))

    def check_samples(self, read: Read) -> verify.Check:
        """Some random rows."""
        return self._check_rows(read, self._rng.sample(range(self.shape.rows), SAMPLED_ROWS))

    def _check_rows(self, read: Read, rows: Sequence[int]) -> verify.Check:
        return verify.worst(check for row in rows for check in self._check_row(read, row))

    def _check_row(self, read: Read, row: int) -> list[verify.Check]:
        columns, half = self.shape.columns, self._half
        got = decode(read(4 * row * columns, 4 * columns), F32)
        start = row * columns % len(self._x)
        first, second = self._x[start : start + half], self._x[start + half : start + columns]
        angle = row % self.shape.length * half
        cosines, sines = self._cosines[angle : angle + half], self._sines[angle : angle + half]
        checks = []
        for i in range(half):
            where = f"row {row}, pair {i}"
            checks.append(verify.check_entry(got[i], (first[i], -second[i]), (cosines[i], sines[i]), F32, where))
            checks.append(verify.check_entry(got[i + half], (second[i], first[i]), (cosines[i], sines[i]), F32, where))
        return checks


RowCase = SoftmaxCase | RotaryCase


def checked_row_cases(kernel: Mapping[str, Any], rng: random.Random) -> list[RowCase]:
    """The launches whose whole output is checked."""
    if kernel["op"] == "softmax":
        return [SoftmaxCase(shape, rng) for shape in SOFTMAX_CHECKED]
    return [RotaryCase(shape, rng) for shape in ROTARY_CHECKED]


def timed_row_case(kernel: Mapping[str, Any], rng: random.Random, max_flops: float) -> RowCase | None:
    """The launch for timing, or None where it has more than `max_flops`."""
    if FLOPS_PER_ELEMENT * TIMED.rows * TIMED.columns > max_flops:
        return None
    return SoftmaxCase(TIMED, rng) if kernel["op"] == "softmax" else RotaryCase(TIMED, rng)
