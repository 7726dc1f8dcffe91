from __future__ import annotations

import ctypes
import math
import random
import struct
from typing import Any

import pytest

from cudadoctor.gpu.cases import ATTENTION_CHECKED, GEMM_CHECKED, AttentionCase, GemmCase, GemmShape, checked_cases, timed_case
from cudadoctor.gpu.catalog import CATALOG, GEMM_F16_TILED, Grid, KernelSpec, Operation
from cudadoctor.gpu.numbers import NAN_BYTE

MAX_MEMORY_BYTES = 64 << 20
TILED = [kernel for kernel in CATALOG if kernel.op in (Operation.GEMM, Operation.ATTENTION)]
by_tiles = pytest.mark.parametrize("kernel", TILED, ids=lambda kernel: kernel.name)
every_kernel = pytest.mark.parametrize("kernel", CATALOG, ids=lambda kernel: kernel.name)


def rng() -> random.Random:
    return random.Random(1)


@by_tiles
def test_checked_shapes_divide_by_no_tile(kernel: KernelSpec) -> None:
    for case in checked_cases(kernel.request(), rng()):
        assert isinstance(case, GemmCase | AttentionCase)
        extents = (case.shape.m, case.shape.n) if isinstance(case, GemmCase) else (case.shape.queries, case.shape.keys)
        assert all(extent % tile for extent, tile in zip(extents, kernel.tile, strict=False))
        grids = case.grids(lambda: 1000)
        assert len(grids) == len(kernel.entries)
        x, y, z = grids[-1]
        tiles = [
            -(-extent // tile)
            for extent, tile in zip(extents[: 2 if isinstance(case, GemmCase) else 1], kernel.tile, strict=False)
        ]
        assert x * y * z >= math.prod(tiles), "a tile that is cut is there"


def test_checked_shapes_take_both_ways_to_load_and_every_mask() -> None:
    assert {shape.k % 8 == 0 for shape in GEMM_CHECKED} == {True, False}
    assert {shape.causal for shape in ATTENTION_CHECKED} == {0, 1}
    assert any(shape.queries > shape.keys and shape.causal for shape in ATTENTION_CHECKED), "queries that see no key"
    assert any(shape.queries < shape.keys and shape.causal for shape in ATTENTION_CHECKED), "the end of a longer text"
    assert any(0 in shape.kv_lengths for shape in ATTENTION_CHECKED), "nothing but padding"
    assert any(shape.heads != shape.kv_heads for shape in ATTENTION_CHECKED)


@by_tiles
@pytest.mark.parametrize("max_flops", [1e8, 1e9, 1e10, 1e15])
def test_the_timed_case_is_small_in_memory_and_work(kernel: KernelSpec, max_flops: float) -> None:
    case = timed_case(kernel.request(), rng(), max_flops)
    if max_flops == 1e8:
        assert case is None
        return
    assert case is not None and case.flops <= max_flops
    assert sum(content.size_bytes for content in case.inputs) + case.output_bytes < MAX_MEMORY_BYTES
    assert all(content.size_bytes % len(content.data) == 0 for content in case.inputs), "whole repetitions"


def test_timed_samples_know_the_repeated_data() -> None:
    """Entry [i, j] as the device would compute it from the buffers is what the check expects."""
    case = timed_case(GEMM_F16_TILED.request(), rng(), 3e8)
    assert isinstance(case, GemmCase) and case.shape == GemmShape(512, 512, 512)
    a, b = (content.data * (content.size_bytes // len(content.data)) for content in case.inputs)

    def entry(offset: int, size: int) -> bytes:
        row, column = divmod(offset // size, 512)
        left = memoryview(a)[row * 1024 : (row + 1) * 1024]
        right = memoryview(b)[column * 1024 : (column + 1) * 1024]
        return struct_sum(bytes(left), bytes(right))

    assert case.check_samples(entry).passed
    assert not case.check_samples(lambda offset, size: entry(0, size)).passed


def struct_sum(left: bytes, right: bytes) -> bytes:

    count = len(left) // 2
    values = zip(struct.unpack(f"<{count}e", left), struct.unpack(f"<{count}e", right), strict=True)
    return struct.pack("<e", sum(x * y for x, y in values))


def test_padding_is_nan() -> None:
    for case in (
        case for kernel in CATALOG if kernel.op is Operation.ATTENTION for case in checked_cases(kernel.request(), rng())
    ):
        assert isinstance(case, AttentionCase)
        shape, row_bytes = case.shape, case.width * case.precision.size_bytes
        _, keys, values, *_ = case.inputs
        for batch, length in enumerate(shape.kv_lengths):
            head_start = batch * shape.kv_heads * shape.keys * row_bytes
            for content in (keys, values):
                padding = content.data[head_start + length * row_bytes : head_start + shape.keys * row_bytes]
                assert padding == NAN_BYTE * len(padding)
                assert NAN_BYTE * 4 not in content.data[head_start : head_start + length * row_bytes]


@every_kernel
def test_output_that_was_never_written_fails(kernel: KernelSpec) -> None:
    for case in checked_cases(kernel.request(), rng()):
        assert not case.check(NAN_BYTE * case.output_bytes).passed
        assert not case.check(bytes(case.output_bytes)).passed


@by_tiles
def test_parameters_are_those_of_the_operation(kernel: KernelSpec) -> None:
    parameters: tuple[Any, ...] = ()
    shape: tuple[object, ...] = ()
    for case in checked_cases(kernel.request(), rng()):
        addresses = [ctypes.c_uint64(100 + index) for index in range(len(case.inputs))]
        parameters = case.parameters(addresses, ctypes.c_uint64(999))
        shape = case.shape
    values = [parameter.value for parameter in parameters]
    if kernel.op is Operation.GEMM:
        assert values == [100, 101, 999, *shape]
    else:
        more = {Grid.PLANE: [104] if kernel.passes != ("",) else [], Grid.LINE: [1], Grid.PERSISTENT: [1, 1]}[kernel.grid]
        assert values == [100, 101, 102, 999, 103, 1, 1, 33, 130, 1.0, 1, *more]
