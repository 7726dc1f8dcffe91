"""The launches of the memory kernels: what they get and what must come out, exactly.

Runs in the driver child; standard library only. Everything is integers, so that every error is 0 or a wrong element.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cudadoctor.gpu.inputs import Extents, Input, Read
from cudadoctor.gpu.numbers import F32, Precision
from cudadoctor.gpu.tensor_map import Box
from cudadoctor.gpu.verify import Check

WORD_BYTES = 4
MODULUS = 2**32
BLOCK_ELEMS = 65536
"""Elements of random data that large inputs repeat."""
SAMPLES = 64
PATHS = ((1664525, 1013904223), (22695477, 1), (1103515245, 12345), (134775813, 1))
"""Factor and summand of each branch of branch_u32_paths."""
CYCLE = PATHS[0]
"""The links of chase_u32_cycle."""
SCATTER = 2654435769
WARP = 32
FILL_BLOCKS = 4096
"""CTAs that write the table of links."""


class MemoryShape(NamedTuple):
    """Elements of the input, and what the kernel takes besides: see `Operation`.

    copy: elems; gather: elems, stride; transpose: elems, columns, rounds; branch: elems, group, steps;
    chase: elems, steps, lanes, blocks; clock: nanoseconds.
    """

    elems: int
    first: int = 0
    second: int = 0
    third: int = 0


CHECKED = {
    "copy": (MemoryShape(4 * 2500), MemoryShape(4)),
    "gather": (MemoryShape(4096, 1), MemoryShape(4096, 32), MemoryShape(300, 3)),
    "transpose": (MemoryShape(70 * 45, 45, 1), MemoryShape(64 * 32, 32, 3), MemoryShape(1, 1, 1)),
    "branch": (MemoryShape(1000, 1, 37), MemoryShape(1000, 32, 5), MemoryShape(1, 7, 1)),
    "chase": (MemoryShape(4096, 100, 32, 3), MemoryShape(1024, 1, 1, 2)),
    "clock": (MemoryShape(2, 200_000),),
}
"""What `prove` launches and checks whole; none of the larger ones divides by a tile."""


def powered(step: tuple[int, int], times: int, modulus: int) -> tuple[int, int]:
    """Factor and summand of `times` steps of v -> factor * v + summand at once."""
    factor, summand = 1, 0
    base, base_summand = step
    while times:
        if times & 1:
            factor, summand = factor * base % modulus, (summand * base + base_summand) % modulus
        base, base_summand = base * base % modulus, (base_summand * base + base_summand) % modulus
        times >>= 1
    return factor, summand


class MemoryCase:
    """One launch of a memory kernel."""

    def __init__(self, shape: MemoryShape, kernel: Mapping[str, Any], rng: random.Random) -> None:
        self.shape = shape
        self.op: str = kernel["op"]
        self.precision: Precision = F32
        self.boxes: tuple[Box | None, ...] = ()
        self.flops = float(shape.elems)
        self.repeats_exactly = self.op != "clock"
        self._tile: list[int] = kernel["tile"]
        self._rng = rng
        self._x = array("I", rng.randbytes(WORD_BYTES * min(shape.elems, BLOCK_ELEMS)))

    @property
    def output_bytes(self) -> int:
        return WORD_BYTES * self._results

    @property
    def _results(self) -> int:
        """Elements of the output."""
        if self.op == "chase":
            return self.shape.third * WARP
        return 2 if self.op == "clock" else self.shape.elems

    @property
    def bytes_asked(self) -> int:
        """What the kernel reads and writes because it must, in global memory."""
        if self.op == "chase":
            return WORD_BYTES * self.shape.third * self.shape.second * self.shape.first
        return 0 if self.op == "clock" else 2 * WORD_BYTES * self.shape.elems

    @property
    def inputs(self) -> tuple[Input, ...]:
        if self.op == "clock":
            return ()
        return (Input(self._x.tobytes(), WORD_BYTES * self.shape.elems),)

    def grids(self, multiprocessors: Callable[[], int]) -> tuple[Extents, ...]:  # noqa: ARG002  # one interface for all
        """How many CTAs to launch, for each pass."""
        shape = self.shape
        if self.op == "chase":
            return (FILL_BLOCKS, 1, 1), (shape.third, 1, 1)
        if self.op == "transpose":
            rows = shape.elems // shape.first
            return ((-(-shape.first // self._tile[1]), -(-rows // self._tile[0]), 1),)
        if self.op == "clock":
            return ((1, 1, 1),)
        if self.op == "gather":
            return ((-(-(shape.elems // shape.first) // self._tile[0]), shape.first, 1),)
        pieces = shape.elems // 4 if self.op == "copy" else shape.elems
        return ((-(-pieces // self._tile[0]), 1, 1),)

    def parameters(self, inputs: Sequence[Any], output: Any) -> tuple[Any, ...]:
        """The kernel's parameters in order."""
        shape = self.shape
        numbers = {
            "copy": (shape.elems // 4,),
            "gather": (shape.elems, shape.first),
            "transpose": (shape.elems // max(shape.first, 1), shape.first, shape.second),
            "branch": (shape.elems, shape.first, shape.second),
            "chase": (shape.elems, shape.first, shape.second),
            "clock": (shape.first,),
        }[self.op]
        return (*inputs, output, *map(ctypes.c_int, numbers))

    def check(self, output: bytes) -> Check:
        """Every element."""
        return self._check_elements(lambda offset, size: output[offset : offset + size], range(self._results))

    def check_samples(self, read: Read) -> Check:
        """The last element and some random ones."""
        written = self.shape.second if self.op == "chase" else 1
        group = WARP if self.op == "chase" else 1
        places = [self._rng.randrange(self._results // group) * group + self._rng.randrange(written) for _ in range(SAMPLES)]
        return self._check_elements(read, [*places, self._results - group])

    def _check_elements(self, read: Read, places: Sequence[int]) -> Check:
        if self.op == "clock":
            return self._check_clock(read)
        for place in places:
            got, expected = _word(read, place), self._expected(place)
            if expected is not None and got != expected:
                return Check(float(abs(got - expected)), 0.0, f"element {place}")
        return Check(0.0, 0.0, "all elements")

    def _check_clock(self, read: Read) -> Check:
        """The window is at least as long as asked, and cycles passed in it."""
        cycles, nanoseconds = _word(read, 0), _word(read, 1)
        short = max(self.shape.first - nanoseconds, 0 if 0 < cycles < MODULUS - 1 else 1)
        return Check(float(short), 0.0, "the window's length")

    def _expected(self, place: int) -> int | None:
        """The element at `place` of the output; None where the kernel leaves it alone."""
        if self.op == "chase":
            return self._end_of_chain(place)
        if self.op == "branch":
            factor, summand = powered(PATHS[place // self.shape.first % 4], self.shape.second, MODULUS)
            return (self._x_at(place) * factor + summand) % MODULUS
        return self._x_at(self._source(place))

    def _source(self, place: int) -> int:
        """Where in X the element at `place` of a moving kernel's output comes from."""
        if self.op == "copy":
            return place
        rows = self.shape.elems // self.shape.first
        return place % rows * self.shape.first + place // rows

    def _end_of_chain(self, thread: int) -> int | None:
        elems, steps, lanes, _ = self.shape
        if thread % WARP >= lanes:
            return None
        factor, summand = powered(CYCLE, steps, elems)
        return (thread * SCATTER * factor + summand) % elems

    def _x_at(self, place: int) -> int:
        return self._x[place % len(self._x)]


def _word(read: Read, place: int) -> int:
    return int.from_bytes(read(WORD_BYTES * place, WORD_BYTES), "little")


def checked_memory_cases(kernel: Mapping[str, Any], rng: random.Random) -> list[MemoryCase]:
    """The launches whose whole output is checked."""
    return [MemoryCase(shape, kernel, rng) for shape in CHECKED[kernel["op"]]]
