"""Runs recorded on an H200 (driver 580.159.04, torch 2.11.0+cu130, 2026-12-01), played back as they were and as a worse card's.

h200_free: `bench --quick` alone on the GPU. h200_busy: `bench gemm --quick` while another process multiplied matrices.
h200_full: `bench`, every fourth sample kept.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from cudadoctor.bench.lessons import lessons
from cudadoctor.bench.model import BenchReport, Outcome, Phase, Row, Sample, Section
from cudadoctor.bench.roofline import Bound, bound_of, measured_roof
from cudadoctor.bench.verdict import judge
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import from_json

FOLDER = Path(__file__).with_name("recorded")
THROTTLED_TO = 0.45
"""The share of its clock that a card in hardware slowdown keeps here."""


def recorded(name: str) -> BenchReport:
    return from_json((FOLDER / f"{name}.json").read_bytes(), BenchReport)


@pytest.fixture(scope="module")
def matrices() -> Matrices:
    return Matrices.load()


@pytest.mark.parametrize("name", ["h200_free", "h200_full"])
def test_alone_on_the_gpu_it_performs_as_it_should(matrices: Matrices, name: str) -> None:
    found = judge(recorded(name), matrices)
    assert found.outcome is Outcome.AS_EXPECTED
    assert found.reasons == ()
    assert len(found.comparisons) == 6


def test_beside_another_process_it_is_busy(matrices: Matrices) -> None:
    found = judge(recorded("h200_busy"), matrices)
    assert found.outcome is Outcome.UNDETERMINED
    assert "by 1 other process" in found.sentence


def slower(row: Row) -> Row:
    """What computes, at the lowered clock; memory and link keep their own."""
    if row.timing is None or row.section is Section.MEMORY:
        return row
    timing = structs.replace(
        row.timing,
        median=row.timing.median / THROTTLED_TO,
        low=row.timing.low / THROTTLED_TO,
        high=row.timing.high / THROTTLED_TO,
    )
    return structs.replace(row, timing=timing)


def throttled(sample: Sample, **changes: Any) -> Sample:
    if sample.phase is not Phase.MEASURING:
        return sample
    return structs.replace(sample, sm_clock_mhz=int(1980 * THROTTLED_TO), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"throttle_reasons": ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown"), "temperature_c": 92}, "too hot (92 °C)"),
        ({"throttle_reasons": ("hw_slowdown", "hw_power_brake_slowdown")}, "the power supply asks it to slow down"),
        ({"throttle_reasons": ()}, "891 MHz under load, 1,980 MHz at most"),
    ],
)
def test_a_throttled_card_is_slow_and_it_is_said_why(matrices: Matrices, changes: dict[str, Any], words: str) -> None:
    run = recorded("h200_free")
    worse = structs.replace(
        run,
        rows=tuple(slower(row) for row in run.rows),
        samples=tuple(throttled(sample, **changes) for sample in run.samples),
    )
    found = judge(worse, matrices)
    assert found.outcome is Outcome.SLOW
    assert words in found.sentence
    assert {each.figure for each in found.comparisons if each.below} == {
        "GEMM in fp32",
        "GEMM on tensor cores",
        "attention, causal",
    }


def test_the_memory_kernels_show_what_their_heads_say() -> None:
    said = " ".join(lessons(recorded("h200_full").rows))
    assert "32nd word takes 5.3x" in said
    assert "shared memory take 13.3x" in said
    assert "Four branches inside a warp take 3.9x" in said
    assert "takes 341 ns" in said
    assert "32 warps an SM do 5.6x the loads of 1 warp an SM" in said


def test_what_limits_each_kernel() -> None:
    run = recorded("h200_full")
    roof = measured_roof(run.rows)
    bounds = {row.key: bound_of(row, roof) for row in run.rows}
    assert bounds["gemm_bf16_wgmma_sm90a", "4096^3 bf16"] is Bound.COMPUTE
    assert bounds["gemm_f32_naive_sm50", "1024^3 f32"] is Bound.LATENCY
    assert bounds["copy_u32_vectors_sm50", "1 GiB copied"] is Bound.MEMORY
    assert bounds["transpose_u32_conflicted_sm50", "33 turns"] is Bound.SHARED
    assert bounds["copy to the GPU", "pinned memory"] is Bound.LINK
