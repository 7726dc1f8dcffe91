"""The verdict on runs played back: free, slow for each reason, busy, unknown."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from cudadoctor.bench.model import BenchGpu, BenchReport, Outcome, Phase, Row, Sample, Verdict
from cudadoctor.bench.verdict import judge
from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import ComputeCapability
from tests.bench.runs import H200, copy, gemm, report, samples, timing, transfer

RTX_4090 = BenchGpu(name="NVIDIA GeForce RTX 4090", compute_capability=ComputeCapability(8, 9))
UNKNOWN = BenchGpu(name="NVIDIA Graphics Device", compute_capability=ComputeCapability(15, 0))


@pytest.fixture(scope="module")
def matrices() -> Matrices:
    return Matrices.load()


def on(gpu: BenchGpu, **changes: Any) -> BenchGpu:
    return structs.replace(gpu, **changes)


def verdict(matrices: Matrices, *rows: Row, gpu: BenchGpu = H200, seen: tuple[Sample, ...] | None = None) -> Verdict:
    return judge(report(*rows, gpu=gpu, seen=seen), matrices)


def test_a_free_h200_performs_as_it_should(matrices: Matrices) -> None:
    found = verdict(matrices)
    assert found.outcome is Outcome.AS_EXPECTED
    assert found.reasons == ()
    assert {each.figure for each in found.comparisons if each.measured_model} == {
        "copy bandwidth",
        "GEMM on tensor cores",
        "torch.mm on tensor cores",
    }


def test_the_power_limit_alone_is_ordinary(matrices: Matrices) -> None:
    found = verdict(matrices, seen=samples(throttle_reasons=("sw_power_cap",)))
    assert found.outcome is Outcome.AS_EXPECTED
    assert not found.reasons
    assert "ordinary" in found.remarks[0]


SLOW = (gemm(400.0, library=398.0), copy())


@pytest.mark.parametrize(
    ("gpu", "changes", "rows", "name", "tag", "words"),
    [
        (
            H200,
            {"throttle_reasons": ("hw_thermal_slowdown",), "temperature_c": 91},
            SLOW,
            "gpu-throttled",
            None,
            "too hot (91 °C)",
        ),
        (H200, {"throttle_reasons": ("hw_power_brake_slowdown",)}, SLOW, "gpu-throttled", None, "power supply"),
        (
            on(H200, power_limit_w=300.0),
            {"throttle_reasons": ("sw_power_cap",)},
            SLOW,
            "gpu-throttled",
            "power-limit",
            "lowered to 300 W from 700 W",
        ),
        (H200, {"throttle_reasons": ("sw_power_cap",)}, SLOW, "gpu-throttled", "power-limit", "700 W, the default"),
        (H200, {"sm_clock_mhz": 990}, SLOW, "gpu-throttled", "clocks-lowered", "990 MHz under load, 1,980 MHz"),
        (H200, {"pcie_width": 4}, (transfer(12.0),), "pcie-link-degraded", None, "4 of 16 lanes"),
        (H200, {"pcie_generation": 3}, (transfer(13.0),), "pcie-link-degraded", "pcie-generation", "generation 3 of 5"),
    ],
)
def test_a_slow_gpu_is_told_with_its_reason(
    matrices: Matrices, gpu: BenchGpu, changes: dict[str, Any], rows: tuple[Row, ...], name: str, tag: str | None, words: str
) -> None:
    found = verdict(matrices, *rows, gpu=gpu, seen=samples(**changes))
    assert found.outcome is Outcome.SLOW
    assert found.reasons[0].name == name
    assert found.reasons[0].tags == ((tag,) if tag else ())
    assert words in found.reasons[0].what
    assert words in found.sentence
    assert found.reasons[0].fixes[0].commands


def test_slow_without_a_cause_says_so(matrices: Matrices) -> None:
    assert "No cause was seen" in verdict(matrices, *SLOW).sentence
    unread = verdict(matrices, *SLOW, seen=())
    assert unread.outcome is Outcome.SLOW
    assert "the cause is not known" in unread.sentence


def test_noise_is_no_slowness(matrices: Matrices) -> None:
    """Below the range by less than the spread of its own launches."""
    assert verdict(matrices, copy(3950.0, spread=0.10)).outcome is Outcome.AS_EXPECTED
    assert verdict(matrices, copy(3950.0, spread=0.01)).outcome is Outcome.SLOW


def with_idle(**changes: Any) -> tuple[Sample, ...]:
    return tuple(structs.replace(each, **changes) if each.phase is Phase.IDLE else each for each in samples())


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (with_idle(utilization_percent=97, others=1), "97% load before anything was measured, by 1 other process on it"),
        (with_idle(utilization_percent=60), "programs that NVML does not show"),
        (samples(others=2), "2 other processes came"),
    ],
)
@pytest.mark.parametrize("rows", [SLOW, (gemm(), copy())])
def test_a_busy_gpu_is_never_called_slow_nor_as_expected(
    matrices: Matrices, seen: tuple[Sample, ...], words: str, rows: tuple[Row, ...]
) -> None:
    found = verdict(matrices, *rows, seen=seen)
    assert found.outcome is Outcome.UNDETERMINED
    assert found.sentence.startswith("Busy: ")
    assert words in found.sentence


def test_an_idle_process_does_not_make_it_busy(matrices: Matrices) -> None:
    found = verdict(matrices, seen=tuple(structs.replace(each, others=1) for each in samples()))
    assert found.outcome is Outcome.AS_EXPECTED
    assert "1 other process holds memory" in found.remarks[0]


def test_load_of_a_program_that_has_just_ended_is_not_held_against_it(matrices: Matrices) -> None:
    seen = tuple(structs.replace(each, utilization_percent=80) if number < 7 else each for number, each in enumerate(samples()))
    assert verdict(matrices, seen=seen).outcome is Outcome.AS_EXPECTED


@pytest.mark.parametrize(
    ("rows", "gpu", "words"),
    [
        ((), on(H200, mig=True), "MIG"),
        ((), UNKNOWN, "No expectation is known"),
        ((gemm(library=None),), RTX_4090, "No expectation is known"),
        ((structs.replace(copy(), timing=None, because="no memory"),), H200, "Nothing could be measured: no memory"),
        ((structs.replace(copy(), timing=timing(0.0)),), H200, "No expectation"),
    ],
)
def test_unknown_is_never_a_pass(matrices: Matrices, rows: tuple[Row, ...], gpu: BenchGpu, words: str) -> None:
    found = verdict(matrices, *rows, gpu=gpu)
    assert found.outcome is Outcome.UNDETERMINED
    assert words in found.sentence


def test_another_model_is_judged_by_its_rated_peaks_and_that_is_said(matrices: Matrices) -> None:
    usual = verdict(matrices, copy(920.0), gpu=RTX_4090)
    assert usual.outcome is Outcome.AS_EXPECTED
    assert "no run on this model is known" in usual.sentence
    assert "rated bandwidth peak" in usual.comparisons[0].basis
    assert verdict(matrices, copy(500.0), gpu=RTX_4090).outcome is Outcome.SLOW


def test_ecc_is_named_where_it_may_be_the_reason(matrices: Matrices) -> None:
    assert any("ECC is on" in remark for remark in verdict(matrices, copy(700.0), gpu=on(RTX_4090, ecc=True)).remarks)
    for quiet in (on(RTX_4090, ecc=False), on(RTX_4090, ecc=None)):
        assert not any("ECC" in remark for remark in verdict(matrices, copy(700.0), gpu=quiet).remarks)
    assert not any("ECC" in remark for remark in verdict(matrices, copy(900.0), gpu=on(RTX_4090, ecc=True)).remarks)


def test_wrong_results_come_before_everything(matrices: Matrices) -> None:
    broken = structs.replace(copy(), timing=None, wrong=True, because="its result is wrong at element 3")
    found = verdict(matrices, gemm(), broken, seen=with_idle(utilization_percent=97))
    assert found.outcome is Outcome.WRONG
    assert "element 3" in found.sentence


def test_judging_is_pure(matrices: Matrices) -> None:
    run: BenchReport = report()
    assert judge(run, matrices) == judge(run, matrices)
