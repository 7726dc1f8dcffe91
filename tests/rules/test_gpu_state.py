"""The state of GPUs: MIG, compute mode, memory, throttling, links."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import ComputeMode, Container, Platform, Snapshot
from cudadoctor.rules.engine import Case, Outcome, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import (
    FAIL,
    GENERATIONS,
    MATRICES,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    gpu,
    healthy,
    judged,
    known,
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_container,
    with_host,
)
from tests.rules.software import diagnosed, error_tags, tags, with_gpu

GIB = 2**30
NO_LIST = structs.replace(healthy(), gpus=TIMED_OUT)
BUSY = said("cuda-devices-unavailable", "all CUDA-capable devices are busy or unavailable")
ASSERTED = said("mig-single-instance", "device >= 0 && device < num_gpus INTERNAL ASSERT FAILED")
FULL = with_gpu(healthy(), memory_total_bytes=known(24 * GIB), memory_used_bytes=known(24 * GIB - 1))
QUIET = with_gpu(
    healthy(),
    ecc_uncorrected=known(0),
    compute_mode=known(ComputeMode.DEFAULT),
    throttle_reasons=known(("gpu_idle", "sw_power_cap")),
    pcie_width=known(16),
    pcie_width_max=known(16),
    pcie_generation=known(1),
    pcie_generation_max=known(4),
    memory_total_bytes=known(24 * GIB),
    memory_used_bytes=known(GIB),
)
PROHIBITED = with_gpu(QUIET, compute_mode=known(ComputeMode.PROHIBITED))
EXCLUSIVE = with_gpu(QUIET, compute_mode=known(ComputeMode.EXCLUSIVE_PROCESS))
MIG = with_gpu(healthy("NVIDIA H100", "9.0"), mig_enabled=known(True))
EMPTY_MIG = with_gpu(healthy("NVIDIA A100-SXM4-80GB", "8.0"), mig_enabled=known(True), mig_devices=known(()))
IN_CONTAINER = with_container(with_gpu(healthy(), memory_used_bytes=known(7 * GIB)), kind=known("docker"))


def failing(snapshot: Snapshot, *errors: object) -> Snapshot:
    return structs.replace(snapshot, errors=errors)


TABLE: Table = {
    "gpu-throttled": (
        ("heat", with_gpu(QUIET, throttle_reasons=known(("hw_thermal_slowdown",)), temperature_c=known(95)), FAIL),
        ("power brake", with_gpu(QUIET, throttle_reasons=known(("hw_power_brake_slowdown",))), FAIL),
        ("idle and power cap", QUIET, PASS),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
    "pcie-link-degraded": (
        ("fewer lanes", with_gpu(QUIET, pcie_width=known(4), utilization_percent=known(90)), FAIL),
        ("lower generation when idle", QUIET, PASS),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
    "compute-mode-prohibited": (
        ("prohibited", PROHIBITED, FAIL),
        ("default", QUIET, PASS),
        ("not read", with_gpu(QUIET, compute_mode=TIMED_OUT), UNKNOWN),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
    "device-exclusive-busy": (
        ("exclusive and busy", failing(EXCLUSIVE, BUSY), FAIL),
        ("exclusive alone", EXCLUSIVE, PASS),
        ("busy, mode default", failing(QUIET, BUSY), PASS),
        ("busy, mode unknown", text_only(BUSY), FAIL),
        ("busy, prohibited", failing(PROHIBITED, BUSY), PASS),
        ("busy, MIG without instances", failing(EMPTY_MIG, BUSY), PASS),
    ),
    "mig-single-instance": (
        ("assertion with MIG", text_only(ASSERTED, said("shown-mig")), FAIL),
        ("assertion alone", text_only(ASSERTED), FAIL),
        ("assertion with CUDA_VISIBLE_DEVICES", text_only(ASSERTED, said("shown-visible-devices")), PASS),
        ("ordinal with MIG", text_only(said("cuda-invalid-device-ordinal"), said("shown-mig")), FAIL),
        (
            "ordinal with two instances in CUDA_VISIBLE_DEVICES",
            text_only(said("cuda-invalid-device-ordinal"), said("shown-visible-devices", value="MIG-0a,MIG-0b")),
            FAIL,
        ),
        ("ordinal without MIG", text_only(said("cuda-invalid-device-ordinal")), PASS),
        ("healthy", healthy(), PASS),
    ),
    "mig-misconfigured": (
        ("no instances", EMPTY_MIG, FAIL),
        ("says so", text_only(said("mig-misconfigured", "No MIG devices found")), FAIL),
        ("busy in MIG mode", failing(MIG, BUSY), FAIL),
        ("MIG in use", MIG, PASS),
        ("MIG off", healthy(), PASS),
        ("not read", with_gpu(healthy(), mig_enabled=TIMED_OUT), UNKNOWN),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
    "mixed-gpus": (
        ("two generations", structs.replace(healthy(), gpus=known((gpu("RTX 3090", "8.6"), gpu("RTX 5090", "12.0", 1)))), FAIL),
        ("all alike", GENERATIONS["ampere"], PASS),
        ("one", healthy(), PASS),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
    "gpu-memory-full": (("full", FULL, FAIL), ("room", QUIET, PASS), ("GPUs not listed", NO_LIST, UNKNOWN)),
    "benign-smi-limits": (
        ("container", IN_CONTAINER, FAIL),
        ("bare Linux", with_gpu(healthy(), memory_used_bytes=known(7 * GIB)), PASS),
        ("WSL", with_host(with_gpu(healthy(), memory_used_bytes=known(7 * GIB)), platform=known(Platform.WSL)), FAIL),
        ("something else is wrong", failing(IN_CONTAINER, BUSY), NOT_APPLICABLE),
        ("processes shown", with_gpu(IN_CONTAINER, compute_process_count=known(2)), PASS),
    ),
    "perf-counter-permission": (
        ("the profiler says so", text_only(said("perf-counter-permission", "ERR_NVGPUCTRPERM")), FAIL),
        ("restricted by default", healthy(), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


@pytest.mark.parametrize("name", GENERATIONS)
def test_healthy_machines_have_no_warning(name: str) -> None:
    results = judged(GENERATIONS[name])
    assert names(results, Severity.ERROR) == []
    assert names(results, Severity.WARNING) == []


def test_ordinary_figures_are_no_fault() -> None:
    results = judged(QUIET)
    assert names(results, Severity.ERROR) == names(results, Severity.WARNING) == []


def test_full_memory_is_noted_and_a_warning_where_a_proof_starved() -> None:
    starved = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.FAILED, ApiError(2, "CUDA_ERROR_OUT_OF_MEMORY", ""))
    assert "gpu-memory-full" in names(judged(FULL), Severity.NOTE)
    results = evaluate(Case(FULL, MATRICES, (starved,)), RULES)
    assert "gpu-memory-full" in names(results, Severity.WARNING)
    assert names(results, Severity.ERROR) == []


def test_a_proof_that_finds_no_memory_on_an_empty_gpu_fails() -> None:
    starved = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.FAILED, ApiError(2, "CUDA_ERROR_OUT_OF_MEMORY", ""))
    assert names(evaluate(Case(QUIET, MATRICES, (starved,)), RULES), Severity.ERROR) == ["kernel-proof-fails"]


def test_narrow_link_is_noted_when_idle() -> None:
    idle = with_gpu(QUIET, pcie_width=known(4), utilization_percent=known(0))
    assert "pcie-link-degraded" in names(judged(idle), Severity.NOTE)


def test_prohibited_beside_others_is_a_warning() -> None:
    pair = structs.replace(
        QUIET, gpus=known((gpu("A", "8.0"), structs.replace(gpu("B", "8.0", 1), compute_mode=known(ComputeMode.PROHIBITED))))
    )
    assert "compute-mode-prohibited" in names(judged(pair), Severity.WARNING)


def test_mig_without_instances_is_the_root() -> None:
    results = judged(
        text_only(said("mig-misconfigured", "No MIG devices found"), said("torch-no-gpu-visible"), gpus=EMPTY_MIG.gpus)
    )
    assert roots(results) == ["mig-misconfigured"]


def test_container_kind_missing_is_not_a_container() -> None:
    assert outcome(structs.replace(IN_CONTAINER, container=Container()), "benign-smi-limits") is PASS


TICKETS = {
    "exclusive": (
        """RuntimeError: cuda runtime error (46) : all CUDA-capable devices are busy or unavailable
| NVIDIA-SMI 384.145                Driver Version: 384.145                   |
|   0  Tesla V100-SXM2...  On   | 00000000:06:00.0 Off |                    0 |
| N/A   66C    P0   253W / 300W |   9000MiB / 16152MiB |     98%   E. Process |""",
        {"device-exclusive-busy"},
        {"driver-too-old", "mig-misconfigured"},
    ),
    "two MIG slices": (
        """CUDA_VISIBLE_DEVICES=MIG-aaa,MIG-bbb python train.py
RuntimeError: CUDA error: invalid device ordinal
GPU 0: NVIDIA A100-SXM4-40GB
  MIG 3g.20gb     Device  0: (UUID: MIG-aaa)
  MIG 3g.20gb     Device  1: (UUID: MIG-bbb)""",
        {"mig-single-instance"},
        {"visible-devices-invalid", "visible-devices-renumbering"},
    ),
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected, never = TICKETS[name]
    report = diagnosed(text)
    assert expected <= tags(report)
    assert not never & error_tags(report)


def test_windows_keeps_the_memory_of_processes() -> None:
    report = diagnosed(
        """C:\\>nvidia-smi
| NVIDIA-SMI 531.18                 Driver Version: 531.18       CUDA Version: 12.1     |
|   0  NVIDIA GeForce RTX 3080      WDDM  | 00000000:0A:00.0  On |                  N/A |
| 30%   45C    P8              30W / 320W |   3000MiB / 10240MiB |      4%      Default |
| Processes:                                                                            |
|    0   N/A  N/A      4096      C   python.exe                                  N/A      |"""
    )
    assert "benign-smi-limits" in tags(report)
    assert error_tags(report) == set()
