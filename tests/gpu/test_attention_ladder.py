"""Which rung of the attention ladder is chosen, and that its launches and their check suit tensor cores."""

from __future__ import annotations

import random
from math import exp

import pytest

from cudadoctor.gpu.cases import ATTENTION_CHECKED, AttentionCase, AttentionShape
from cudadoctor.gpu.catalog import (
    ATTN_F16_FUSED,
    ATTN_F16_MMA,
    ATTN_F16_WGMMA,
    ATTN_F16_WGMMA_D128_Q192,
    LADDER,
    DataType,
    KernelSpec,
    rungs,
)
from cudadoctor.gpu.numbers import F32, PRECISIONS
from cudadoctor.gpu.tensor_map import Box
from cudadoctor.gpu.verify import check_attention_row, check_softmax_row
from cudadoctor.model.versions import ComputeCapability

SMALLEST_SHARED_BYTES = 101376
"""What 8.6, 8.9 and 12.x allow a CTA (CUDA C++ Programming Guide, compute capabilities)."""


def case_of(kernel: KernelSpec, shape: AttentionShape) -> AttentionCase:
    return AttentionCase(shape, kernel.request(), random.Random(1))


@pytest.mark.parametrize(
    ("device", "chosen"),
    [
        ("5.0", ["attn_fwd_f16_fused_sm50"]),
        ("7.5", ["attn_fwd_f16_fused_sm50"]),
        ("8.0", ["attn_fwd_f16_mma_sm80", "attn_fwd_f16_fused_sm50"]),
        ("8.9", ["attn_fwd_f16_mma_sm80", "attn_fwd_f16_fused_sm50"]),
        ("9.0", ["attn_fwd_f16_wgmma_sm90a", "attn_fwd_f16_mma_sm80", "attn_fwd_f16_fused_sm50"]),
        ("10.0", ["attn_fwd_f16_mma_sm80", "attn_fwd_f16_fused_sm50"]),
        ("12.1", ["attn_fwd_f16_mma_sm80", "attn_fwd_f16_fused_sm50"]),
    ],
)
def test_the_highest_proven_rung_comes_first(device: str, chosen: list[str]) -> None:
    assert [kernel.name for kernel in rungs(ATTN_F16_FUSED, ComputeCapability.parse(device), LADDER)] == chosen


def test_the_rung_for_many_architectures_fits_the_smallest_shared_memory() -> None:
    assert ATTN_F16_MMA in LADDER and ATTN_F16_MMA.dynamic_smem_bytes <= SMALLEST_SHARED_BYTES


def test_grids() -> None:
    shape = AttentionShape(4, 2, 300, 300, (300, 300), 1, 1.0)
    assert case_of(ATTN_F16_MMA, shape).grids(lambda: 132) == ((3 * 8, 1, 1),)
    assert case_of(ATTN_F16_WGMMA, shape).grids(lambda: 132) == ((2 * 8, 1, 1),)
    assert case_of(ATTN_F16_WGMMA, shape).grids(lambda: 7) == ((7, 1, 1),)


def test_tensor_maps_stay_within_a_head() -> None:
    shape = AttentionShape(4, 2, 300, 211, (211, 100), 0, 1.0)
    q, k, v, lengths, o = case_of(ATTN_F16_WGMMA_D128_Q192, shape).boxes
    assert q == Box(300, 128, 192, 64, 8)
    assert k == v == Box(211, 128, 80, 64, 4)
    assert lengths is None, "a plain address"
    assert o == Box(300, 128, 64, 64, 8)
    assert q.extents == (128, 300, 8) and q.box_extents == (64, 192, 1)


def test_padding_is_cut_within_blocks_of_keys() -> None:
    """One batch entry ends within a block, one has no key at all: V in the padding is NaN."""
    cases = [case_of(ATTN_F16_WGMMA, shape) for shape in ATTENTION_CHECKED]
    lengths = {length for case in cases for length in case.shape.kv_lengths if length < case.shape.keys}
    assert 0 in lengths and any(length % 128 for length in lengths)


def test_weights_in_half_precision_are_allowed_their_rounding_and_no_more() -> None:
    """The same error passes where P is rounded to fp16, and fails where it stays in fp32."""
    generator = random.Random(3)
    q = [generator.gauss(0, 1) for _ in range(16)]
    keys, values = ([generator.gauss(0, 1) for _ in range(16 * 40)] for _ in range(2))
    scores = [sum(a * b for a, b in zip(q, keys[i : i + 16], strict=True)) for i in range(0, len(keys), 16)]
    assert max(scores) < 20
    weights = [exp(score) for score in scores]
    exact = [sum(w * v for w, v in zip(weights, values[c::16], strict=True)) / sum(weights) for c in range(16)]
    sizes = [sum(w * abs(v) for w, v in zip(weights, values[c::16], strict=True)) / sum(weights) for c in range(16)]
    half = PRECISIONS[DataType.F16.value]
    off = [value + 0.5 * half.unit_roundoff * size for value, size in zip(exact, sizes, strict=True)]
    assert check_attention_row(off, q, keys, values, 1.0, (F32, half), "").passed
    assert not check_attention_row(off, q, keys, values, 1.0, (F32, F32), "").passed
    far = [value + 3.0 * half.unit_roundoff * size for value, size in zip(exact, sizes, strict=True)]
    assert not check_attention_row(far, q, keys, values, 1.0, (F32, half), "").passed


def test_softmax_rows() -> None:
    infinity = float("inf")
    assert check_softmax_row([0.5, 0.5, 0.0], [1.0, 1.0, -infinity], "").passed
    assert not check_softmax_row([0.5, 0.5001, 0.0], [1.0, 1.0, -infinity], "").passed
    assert not check_softmax_row([0.5, float("nan"), 0.0], [1.0, 1.0, -infinity], "").passed
    assert check_softmax_row([0.0, 0.0], [-infinity, -infinity], "").passed
    assert not check_softmax_row([0.5, 0.5], [-infinity, -infinity], "").passed
