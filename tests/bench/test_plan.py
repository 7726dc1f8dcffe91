"""What is measured fits the GPU: its kind and what is free of its memory."""

from __future__ import annotations

import random

import pytest

from cudadoctor.bench import plan
from cudadoctor.bench.model import Section
from cudadoctor.gpu.measure import bytes_of, case_of, flops_of
from cudadoctor.model.versions import ComputeCapability

GIB = 1 << 30
CAPABILITIES = [ComputeCapability.parse(text) for text in ("5.0", "7.0", "7.5", "8.0", "8.9", "9.0", "10.0", "12.0")]


def jobs(capability: str, free: int, *, quick: bool = False) -> tuple[plan.Job, ...]:
    return plan.jobs(tuple(Section), ComputeCapability.parse(capability), 132, free, quick=quick)


@pytest.mark.parametrize("capability", CAPABILITIES, ids=str)
def test_every_kernel_runs_on_the_gpu_and_a_quick_run_takes_no_other(capability: ComputeCapability) -> None:
    full = jobs(str(capability), 100 * GIB)
    quick = jobs(str(capability), 100 * GIB, quick=True)
    assert all(job.kernel.runs_on(capability) for job in full)
    assert {job.kernel for job in quick} <= {job.kernel for job in full}
    assert {job.section for job in quick} == set(Section)
    assert len({(job.kernel.name, job.problem) for job in full}) == len(full)


@pytest.mark.parametrize("free", [100 * GIB, 2 * GIB, GIB // 4])
@pytest.mark.parametrize("quick", [True, False])
def test_no_problem_takes_more_than_its_share_of_the_memory(free: int, quick: bool) -> None:
    for job in jobs("9.0", free, quick=quick):
        if job.kernel.name == "gemm_f32_naive_sm50":
            continue  # 12 MB, whatever is free
        elems = job.shape.get("elems", 0)
        matrices = 3 * job.shape.get("m", 0) ** 2 * (4 if job.kernel.dtype.value == "f32" else 2)
        attention = 4 * 2 * job.shape.get("heads", 0) * job.shape.get("queries", 0) * 128
        assert max(2 * 4 * elems, matrices, attention) <= plan.MEMORY_SHARE * free, job.name


def test_the_highest_rung_is_measured_on_hopper_and_only_there() -> None:
    assert any("wgmma" in job.kernel.name for job in jobs("9.0", GIB))
    assert not any("wgmma" in job.kernel.name for job in jobs("12.0", GIB))


def test_causal_attention_counts_half_the_work() -> None:
    (job,) = (job for job in jobs("5.0", GIB // 64, quick=True) if job.section is Section.ATTENTION)
    case = case_of(job.kernel.request(), job.shape, random.Random(1))
    assert job.shape["heads"] < plan.ATTENTION_HEADS
    assert f"{job.shape['heads']} head" in job.problem
    assert flops_of(case) == 2.0 * job.shape["heads"] * 2048 * 2048 * 128
    assert bytes_of(case) == 4 * 2 * job.shape["heads"] * 2048 * 128 + 4
