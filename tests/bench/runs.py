"""Runs of a bench, made by hand: an H200 as it measured, and what is changed of it."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from cudadoctor.bench.model import BenchGpu, BenchReport, Phase, Reference, Row, Sample, Section, Timing
from cudadoctor.model.report import Tool
from cudadoctor.model.versions import ComputeCapability

H200 = BenchGpu(
    name="NVIDIA H200",
    pci_device="2335",
    compute_capability=ComputeCapability(9, 0),
    driver_release="580.159.04",
    sm_clock_max_mhz=1980,
    power_limit_w=700.0,
    power_limit_default_w=700.0,
    ecc=True,
    pcie_generation_max=5,
    pcie_width_max=16,
)
GEMM_FLOPS = 2.0 * 4096**3


def timing(median: float, spread: float = 0.01) -> Timing:
    return Timing(median=median, low=median * (1 - spread / 2), high=median * (1 + spread / 2), launches=20)


def gemm(tflops: float = 780.0, spread: float = 0.01, library: float | None = 775.0) -> Row:
    reference = Reference(name="torch.mm", timing=timing(GEMM_FLOPS / library * 1e-9)) if library else None
    return Row(
        section=Section.GEMM,
        kernel="gemm_bf16_wgmma_sm90a",
        problem="4096^3 bf16",
        timing=timing(GEMM_FLOPS / tflops * 1e-9, spread),
        dtype="bf16",
        tensor_cores=True,
        flops=GEMM_FLOPS,
        bytes_moved=3 * 2 * 4096**2,
        reference=reference,
    )


def copy(gb_s: float = 4240.0, spread: float = 0.01) -> Row:
    size = 1 << 30
    return Row(
        section=Section.MEMORY,
        kernel="copy_u32_vectors_sm50",
        problem="512 MiB copied",
        timing=timing(size / gb_s * 1e-6, spread),
        bytes_moved=size,
    )


def transfer(gb_s: float = 52.0) -> Row:
    size = 1 << 26
    return Row(
        section=Section.MEMORY,
        kernel="copy to the GPU",
        problem="pinned memory",
        timing=timing(size / gb_s * 1e-6),
        bytes_moved=size,
    )


def samples(**changes: Any) -> tuple[Sample, ...]:
    """Ten quiet samples, then twenty of a GPU at work."""
    idle = Sample(
        at=0.0,
        phase=Phase.IDLE,
        sm_clock_mhz=345,
        power_w=78.0,
        temperature_c=33,
        throttle_reasons=("gpu_idle",),
        utilization_percent=0,
        pcie_generation=5,
        pcie_width=16,
        others=0,
    )
    work = {"sm_clock_mhz": 1905, "power_w": 640.0, "throttle_reasons": (), "utilization_percent": 90}
    loaded = structs.replace(idle, phase=Phase.MEASURING, **{**work, **changes})
    return (
        *(structs.replace(idle, at=0.05 * n) for n in range(10)),
        *(structs.replace(loaded, at=0.5 + 0.05 * n) for n in range(20)),
    )


def report(*rows: Row, gpu: BenchGpu = H200, seen: tuple[Sample, ...] | None = None) -> BenchReport:
    return BenchReport(
        tool=Tool(version="0"),
        created="2026-12-01T03:00:00Z",
        seconds=8.0,
        gpu=gpu,
        torch="2.11.0+cu130",
        rows=rows or (gemm(), copy(), transfer()),
        samples=samples() if seen is None else seen,
    )
