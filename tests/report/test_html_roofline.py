"""The roofline of the page: points where they belong, roofs from the catalogue, nothing where a peak is not known."""

from __future__ import annotations

import re

import pytest
from msgspec import structs

from cudadoctor.model.fact import Known
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.report import Report
from cudadoctor.report.html_roofline import points_of, rooflines
from tests.report.hostile import HOSTILE
from tests.report.sample_reports import healthy_h100


def proof(kernel: str, tflops: float | None, run_ms: float | None, outcome: ProofOutcome = ProofOutcome.PASSED) -> Proof:
    return Proof(layer=ProofLayer.NVRTC, gpu=0, kernel=kernel, target="sm_90", outcome=outcome, tflops=tflops, run_ms=run_ms)


def with_gpu(report: Report, name: str, *proofs: Proof) -> Report:
    """The report of one GPU of that name, with these proofs."""
    gpus = report.snapshot.gpus
    assert isinstance(gpus, Known)
    gpu = structs.replace(gpus.value[0], index=0, name=Known(name, "NVML"))
    return structs.replace(
        report, snapshot=structs.replace(report.snapshot, gpus=structs.replace(gpus, value=(gpu,))), proofs=proofs
    )


@pytest.mark.parametrize(("kernel", "size"), [("gemm_f32_naive_sm50", 4), ("gemm_bf16_wgmma_sm90a", 2)])
@pytest.mark.parametrize("side", [512, 1024, 2048])
def test_a_product_stands_at_the_intensity_of_its_size(kernel: str, size: int, side: int) -> None:
    seconds = 0.001
    (point,) = points_of([proof(kernel, 2 * side**3 / seconds / 1e12, seconds * 1e3)])
    assert point.intensity == pytest.approx(2 * side**3 / (3 * side**2 * size))


def test_only_the_best_of_what_was_right_and_timed_is_drawn() -> None:
    proofs = [
        proof("gemm_f16_mma_sm80", 100.0, 0.02),
        proof("gemm_f16_mma_sm80", 300.0, 0.02),
        proof("gemm_f16_mma_sm80", 900.0, 0.02, ProofOutcome.FAILED),
        proof("gemm_f16_tiled_sm50", None, 0.02),
        proof("attn_fwd_f16_fused_sm50", 30.0, 0.02),
        proof("matmul", 30.0, 0.02),
    ]
    assert [(point.kernel, point.tflops) for point in points_of(proofs)] == [("gemm_f16_mma_sm80", 300.0)]


def test_the_roofs_are_those_of_the_catalogue_and_the_point_lies_below() -> None:
    (figure,) = rooflines(with_gpu(healthy_h100(), "NVIDIA H200", proof("gemm_bf16_wgmma_sm90a", 429.0, 0.04)))
    assert "tensor cores 989" in figure and "fp32 67" in figure and "memory 4800 GB/s" in figure
    roof = re.search(r'class="roof" d="M[0-9.]+ [0-9.]+L([0-9.]+) ([0-9.]+)H', figure)
    dot = re.search(r'class="kernel" cx="([0-9.]+)" cy="([0-9.]+)"', figure)
    assert roof is not None and dot is not None
    assert float(dot[1]) > float(roof[1]) and float(dot[2]) > float(roof[2])


@pytest.mark.parametrize("name", ["NVIDIA Unheard-of 9000", *HOSTILE.values()])
def test_a_gpu_whose_peaks_are_not_known_has_no_roofline(name: str) -> None:
    assert list(rooflines(with_gpu(healthy_h100(), name, proof("gemm_bf16_wgmma_sm90a", 429.0, 0.04)))) == []


def test_a_hostile_kernel_name_is_inert() -> None:
    (figure,) = rooflines(with_gpu(healthy_h100(), "NVIDIA H200", proof("gemm_f16_<script>alert(1)</script>", 9.0, 0.04)))
    assert "<script" not in figure and "&lt;script" in figure
