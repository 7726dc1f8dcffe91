"""The launches of a proof: shapes, fresh inputs, kernel parameters and the check of the output.

Runs in the driver child; standard library only. Shapes for correctness divide by no tile; those for timing do.
"""

from __future__ import annotations

import ctypes
import random
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cudadoctor.gpu import verify
from cudadoctor.gpu.inputs import Extents, Input, Read
from cudadoctor.gpu.memory_cases import CHECKED as CHECKED_OF_MEMORY
from cudadoctor.gpu.memory_cases import MemoryCase, checked_memory_cases
from cudadoctor.gpu.numbers import NAN_BYTE, PRECISIONS, Precision, decode, random_bytes
from cudadoctor.gpu.row_cases import RowCase, checked_row_cases, timed_row_case
from cudadoctor.gpu.tensor_map import Box

BLOCK_ELEMS = 65536
"""Elements of random data that timed inputs repeat: every timed row length divides it."""
SAMPLED_ENTRIES = 16
SAMPLED_ROWS = 5
SAMPLED_TIMED_ROWS = 2


class GemmShape(NamedTuple):
    """D[M,N] = A[M,K] B[N,K]^T."""

    m: int
    n: int
    k: int


class AttentionShape(NamedTuple):
    """Sizes and masks of one attention launch; kv_lengths has one entry for each batch entry."""

    heads: int
    kv_heads: int
    queries: int
    keys: int
    kv_lengths: tuple[int, ...]
    causal: int
    scale: float


GEMM_CHECKED = (GemmShape(333, 517, 259), GemmShape(67, 130, 264))
"""K = 259 takes the element-wise loads, K = 264 the 16-byte ones with a cut last slice."""
GEMM_CHECKED_IN_ROWS_OF_8 = (GemmShape(333, 520, 264), GemmShape(67, 136, 72), GemmShape(1, 8, 8))
"""For kernels that take only rows of whole 16-byte vectors: cut last slices and tiles, and a matrix smaller than any tile."""
GEMM_TIMED = tuple(GemmShape(size, size, size) for size in (512, 1024, 2048))
ATTENTION_CHECKED = (
    AttentionShape(4, 2, 197, 197, (197, 61), 1, 0.5),
    AttentionShape(2, 1, 130, 97, (97, 0), 1, 30.0),
    AttentionShape(2, 2, 65, 211, (190,), 0, 0.125),
    AttentionShape(1, 1, 33, 130, (130,), 1, 1.0),
)
"""Causal with padding and grouped heads; queries without any key and scores in the hundreds; full with padding; the last queries
of a longer text (decoding)."""
ATTENTION_TIMED = tuple(AttentionShape(16, 16, length, length, (length,), 0, 0.125) for length in (256, 512, 1024))


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


class GemmCase:
    """One GEMM launch."""

    repeats_exactly = True

    def __init__(self, shape: GemmShape, kernel: Mapping[str, Any], rng: random.Random) -> None:
        self.shape = shape
        self.precision: Precision = PRECISIONS[kernel["dtype"]]
        self.flops = 2.0 * shape.m * shape.n * shape.k
        self.output_bytes = shape.m * shape.n * self.precision.size_bytes
        self._tile: list[int] = kernel["tile"]
        self._grid_kind: str = kernel["grid"]
        self._b_is_kn = kernel["layout_of_b"] == "kn"
        self.boxes: tuple[Box | None, ...] = self._boxes() if kernel["operands"] == "tensor_maps" else ()
        self._rng = rng
        self._a_bytes, self._a = _random_matrix(rng, shape.m * shape.k, self.precision)
        self._b_bytes, self._b = _random_matrix(rng, shape.n * shape.k, self.precision)

    @property
    def inputs(self) -> tuple[Input, ...]:
        size = self.precision.size_bytes
        return (
            Input(self._a_bytes, self.shape.m * self.shape.k * size),
            Input(self._b_bytes, self.shape.n * self.shape.k * size),
        )

    def grids(self, multiprocessors: Callable[[], int]) -> tuple[Extents, ...]:
        """How many CTAs to launch in x, y and z, for each pass."""
        columns, rows = cdiv(self.shape.n, self._tile[1]), cdiv(self.shape.m, self._tile[0])
        if self._grid_kind == "plane":
            return ((columns, rows, 1),)
        tiles = columns * rows
        return ((min(tiles, multiprocessors()) if self._grid_kind == "persistent" else tiles, 1, 1),)

    def _boxes(self) -> tuple[Box, ...]:
        """What the tensor maps of A, B and D move at once: slices of 128 bytes of a tile's rows, and 64 x 64 of the result."""
        shape, width = self.shape, 128 // self.precision.size_bytes
        a = Box(shape.m, shape.k, self._tile[0], width)
        return a, Box(shape.n, shape.k, self._tile[1], width), Box(shape.m, shape.n, 64, width)

    def parameters(self, inputs: Sequence[Any], output: Any) -> tuple[Any, ...]:
        """The kernel's parameters in order; inputs and output are addresses or tensor maps."""
        return (*inputs, output, ctypes.c_int(self.shape.m), ctypes.c_int(self.shape.n), ctypes.c_int(self.shape.k))

    def check(self, output: bytes) -> verify.Check:
        """All of the output by Freivalds' check, some entries exactly."""
        d = decode(output, self.precision)
        signs = [1.0 if bit else -1.0 for bit in self._rng.choices((0, 1), k=self.shape.n)]
        checks = verify.check_freivalds(d, self._a, self._b_rows(), self.shape, signs, self.precision)
        sampled = self.check_samples(lambda offset, count: output[offset : offset + count])
        # Inputs are below 0.5, so no entry exceeds a quarter of the number of products.
        bounded = verify.check_bounded(d, 0.25 * self.shape.k * (1.0 + 2.0 * self.precision.unit_roundoff), "largest entry")
        return verify.worst([*checks, sampled]) if bounded.passed else bounded

    def _b_rows(self) -> array[float]:
        """B as [N, K]; only for checked launches, whose data is not repeated."""
        if not self._b_is_kn:
            return self._b
        rows = array("f")
        for column in range(self.shape.n):
            rows.extend(self._b[column :: self.shape.n])
        return rows

    def _b_row(self, column: int) -> Sequence[float]:
        """The K factors of column `column` of D."""
        if not self._b_is_kn:
            return _row(self._b, column, self.shape.k)
        return [self._b[(k * self.shape.n + column) % len(self._b)] for k in range(self.shape.k)]

    def check_samples(self, read: Read) -> verify.Check:
        """The last entry and some random ones, each held to the worst-case bound."""
        shape, size = self.shape, self.precision.size_bytes
        places = [(self._rng.randrange(shape.m), self._rng.randrange(shape.n)) for _ in range(SAMPLED_ENTRIES - 1)]
        checks = []
        for row, column in [*places, (shape.m - 1, shape.n - 1)]:
            got = decode(read((row * shape.n + column) * size, size), self.precision)[0]
            a_row, b_row = _row(self._a, row, shape.k), self._b_row(column)
            checks.append(verify.check_entry(got, a_row, b_row, self.precision, f"entry [{row}, {column}]"))
        return verify.worst(checks)


class AttentionCase:
    """One attention launch."""

    repeats_exactly = True

    def __init__(self, shape: AttentionShape, kernel: Mapping[str, Any], rng: random.Random) -> None:
        self.shape = shape
        self.precision: Precision = PRECISIONS[kernel["dtype"]]
        self.width: int = kernel["head_dim"]
        self.batch = len(shape.kv_lengths)
        self.flops = 4.0 * self.batch * shape.heads * shape.queries * shape.keys * self.width
        self._q_elems = self.batch * shape.heads * shape.queries * self.width
        self._kv_elems = self.batch * shape.kv_heads * shape.keys * self.width
        self.output_bytes = self._q_elems * self.precision.size_bytes
        self._tile: list[int] = kernel["tile"]
        self._grid_kind: str = kernel["grid"]
        self._weights = PRECISIONS[kernel["weights"]]
        self._naive = len(kernel["entries"]) > 1
        self.boxes: tuple[Box | None, ...] = self._boxes() if kernel["operands"] == "tensor_maps" else ()
        self._rng = rng
        self._q_bytes, self._q = _random_matrix(rng, self._q_elems, self.precision, self.precision.large_top)
        self._k_bytes, self._k = _random_matrix(rng, self._kv_elems, self.precision)
        self._v_bytes, self._v = _random_matrix(rng, self._kv_elems, self.precision)

    @property
    def inputs(self) -> tuple[Input, ...]:
        size = self.precision.size_bytes
        lengths = array("i", self.shape.kv_lengths).tobytes()
        scores = Input(NAN_BYTE * 4, 4 * self.batch * self.shape.heads * self.shape.queries * self.shape.keys)
        return (
            Input(self._q_bytes, self._q_elems * size),
            Input(self._spoil_padding(self._k_bytes), self._kv_elems * size),
            Input(self._spoil_padding(self._v_bytes), self._kv_elems * size),
            Input(lengths, len(lengths)),
            *((scores,) if self._naive else ()),
        )

    def grids(self, multiprocessors: Callable[[], int]) -> tuple[Extents, ...]:
        """How many CTAs to launch in x, y and z, for each pass."""
        shape, heads = self.shape, self.batch * self.shape.heads
        tiles = cdiv(shape.queries, self._tile[0])
        if self._naive:
            threads = self._tile[0]
            scores, values = cdiv(shape.keys, threads), cdiv(shape.queries * self.width, threads)
            return (scores, shape.queries, heads), (tiles, 1, heads), (values, 1, heads)
        if self._grid_kind == "plane":
            return ((tiles, shape.heads, self.batch),)
        return ((min(tiles * heads, multiprocessors()) if self._grid_kind == "persistent" else tiles * heads, 1, 1),)

    def _boxes(self) -> tuple[Box | None, ...]:
        """What the tensor maps of Q, K, V and O move at once: 64 columns of a tile's rows; kv_lengths needs none."""
        shape, (block_q, block_kv) = self.shape, self._tile
        q = Box(shape.queries, self.width, block_q, 64, self.batch * shape.heads)
        kv = Box(shape.keys, self.width, block_kv, 64, self.batch * shape.kv_heads)
        return q, kv, kv, None, q._replace(box_rows=64)

    def _spoil_padding(self, data: bytes) -> bytes:
        """Keys and values in the padding become NaN: a kernel that reads them gives NaN."""
        shape, row_bytes = self.shape, self.width * self.precision.size_bytes
        if all(length == shape.keys for length in shape.kv_lengths):
            return data
        spoiled = bytearray(data)
        for head in range(self.batch * shape.kv_heads):
            length = shape.kv_lengths[head // shape.kv_heads]
            start, end = (head * shape.keys + length) * row_bytes, (head + 1) * shape.keys * row_bytes
            spoiled[start:end] = b"\xff" * (end - start)
        return bytes(spoiled)

    def parameters(self, inputs: Sequence[Any], output: Any) -> tuple[Any, ...]:
        """The kernel's parameters in order."""
        shape, (q, k, v, lengths, *scores) = self.shape, inputs
        counts = map(ctypes.c_int, (shape.heads, shape.kv_heads, shape.queries, shape.keys))
        common = (q, k, v, output, lengths, *counts, ctypes.c_float(shape.scale), ctypes.c_int(shape.causal))
        # Causal tiles go longest first over all heads; equal ones head after head, whose K and V then stay in the L2.
        head_group = self.batch * shape.heads if shape.causal else 1
        more = {"plane": (), "line": (self.batch,), "persistent": (self.batch, head_group)}[self._grid_kind]
        return (*common, *map(ctypes.c_int, more), *scores)

    def check(self, output: bytes) -> verify.Check:
        """Every value finite and bounded by |V| < 0.5, queries without a key exactly zero, others sampled against float64."""
        o = decode(output, self.precision)
        bounded = verify.check_bounded(o, 0.5 * (1.0 + 8.0 * self.precision.unit_roundoff), "largest value")
        heads = range(self.batch * self.shape.heads)
        rows = [(head, query) for head in heads for query in range(self.shape.queries)]
        blind = [self._check_row(self._output_row(o, *row), *row) for row in rows if not self._keys_seen(*row)]
        seeing = [row for row in rows if self._keys_seen(*row)]
        sampled = [seeing[0], seeing[-1], *self._rng.sample(seeing, SAMPLED_ROWS - 2)]
        rows_checked = [*blind, *(self._check_row(self._output_row(o, *row), *row) for row in sampled)]
        return verify.worst(rows_checked) if bounded.passed else bounded

    def check_samples(self, read: Read) -> verify.Check:
        """Some random queries against float64."""
        row_bytes = self.width * self.precision.size_bytes
        checks = []
        for _ in range(SAMPLED_TIMED_ROWS):
            head, query = self._rng.randrange(self.batch * self.shape.heads), self._rng.randrange(self.shape.queries)
            got = decode(read((head * self.shape.queries + query) * row_bytes, row_bytes), self.precision)
            checks.append(self._check_row(got, head, query))
        return verify.worst(checks)

    def _output_row(self, o: array[float], head: int, query: int) -> array[float]:
        return _row(o, head * self.shape.queries + query, self.width)

    def _keys_seen(self, head: int, query: int) -> int:
        """How many keys the query may see: the first ones, as both masks cut off the end."""
        shape = self.shape
        length = shape.kv_lengths[head // shape.heads]
        return max(0, min(length, query + 1 + shape.keys - shape.queries)) if shape.causal else length

    def _check_row(self, got: Sequence[float], head: int, query: int) -> verify.Check:
        shape, width = self.shape, self.width
        batch, head_in_batch = divmod(head, shape.heads)
        kv_head = batch * shape.kv_heads + head_in_batch // (shape.heads // shape.kv_heads)
        seen = self._keys_seen(head, query)
        q = _row(self._q, head * shape.queries + query, width)
        keys = _row(self._k, kv_head, shape.keys * width)[: seen * width]
        values = _row(self._v, kv_head, shape.keys * width)[: seen * width]
        where = f"batch {batch}, head {head_in_batch}, query {query}"
        return verify.check_attention_row(got, q, keys, values, shape.scale, (self.precision, self._weights), where)


Case = GemmCase | AttentionCase | RowCase | MemoryCase


def checked_cases(kernel: Mapping[str, Any], rng: random.Random) -> list[Case]:
    """The launches whose whole output is checked."""
    if kernel["op"] == "gemm":
        shapes = GEMM_CHECKED if kernel["row_multiple"] == 1 else GEMM_CHECKED_IN_ROWS_OF_8
        return [GemmCase(shape, kernel, rng) for shape in shapes]
    if kernel["op"] in CHECKED_OF_MEMORY:
        return [*checked_memory_cases(kernel, rng)]
    if kernel["op"] != "attention":
        return [*checked_row_cases(kernel, rng)]
    return [AttentionCase(shape, kernel, rng) for shape in ATTENTION_CHECKED]


def timed_case(kernel: Mapping[str, Any], rng: random.Random, max_flops: float) -> Case | None:
    """The largest launch for timing with at most `max_flops`, or None where even the smallest has more."""
    if kernel["op"] == "gemm":
        gemms = [shape for shape in GEMM_TIMED if 2.0 * shape.m * shape.n * shape.k <= max_flops]
        return GemmCase(gemms[-1], kernel, rng) if gemms else None
    if kernel["op"] in CHECKED_OF_MEMORY:
        return None  # `bench` times them
    if kernel["op"] != "attention":
        return timed_row_case(kernel, rng, max_flops)
    width = kernel["head_dim"]
    sizes = ATTENTION_TIMED[:-1] if len(kernel["entries"]) > 1 else ATTENTION_TIMED  # naive: the scores take memory
    attentions = [shape for shape in sizes if 4.0 * shape.heads * shape.queries * shape.keys * width <= max_flops]
    return AttentionCase(attentions[-1], kernel, rng) if attentions else None


def _random_matrix(rng: random.Random, elems: int, precision: Precision, top: int | None = None) -> tuple[bytes, array[float]]:
    """Random data of at most BLOCK_ELEMS elements where `elems` is a multiple of that (it is repeated), else of all `elems`."""
    count = BLOCK_ELEMS if elems > BLOCK_ELEMS and elems % BLOCK_ELEMS == 0 else elems
    data = random_bytes(rng, count, precision, precision.small_top if top is None else top)
    return data, decode(data, precision)


def _row(values: array[float], row: int, width: int) -> array[float]:
    """Row `row` of a matrix whose data is `values`, repeated; whole rows fit into the repetition, or it into a row."""
    start = row * width % len(values)
    if width <= len(values):
        return values[start : start + width]
    return values * (width // len(values))
