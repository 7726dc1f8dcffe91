"""Architectures that nvcc refuses: one sentence, two causes."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.model.versions import ComputeCapability, CudaVersion
from cudadoctor.rules.engine import Case
from cudadoctor.rules.nvcc_targets import Direction, direction
from tests.rules.build_machines import (
    changed,
    errors_of,
    findings,
    judge,
    kit,
    machine,
    outcome,
    printed_kit,
    told,
    toolkits,
    unasked,
    variables,
)
from tests.rules.builders import known, said

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("nvcc-arch-unsupported", "nothing listed", machine(), "pass"),
    ("nvcc-arch-unsupported", "a listed one", machine(variables(TORCH_CUDA_ARCH_LIST="12.1"), toolkits(kit("12.6"))), "warning"),
    ("nvcc-arch-unsupported", "CUDAARCHS", machine(variables(CUDAARCHS="120-real"), toolkits(kit("12.6"))), "warning"),
    ("nvcc-arch-unsupported", "no toolkit", machine(toolkits()), "not_applicable"),
    ("nvcc-arch-unsupported", "unknown", machine(unasked("toolkits")), "unknown"),
    ("nvcc-arch-removed", "nothing listed", machine(), "pass"),
    ("nvcc-arch-removed", "a listed one", machine(variables(TORCH_CUDA_ARCH_LIST="7.0 8.9"), toolkits(kit("13.0"))), "warning"),
    ("nvcc-arch-removed", "no toolkit", machine(toolkits()), "not_applicable"),
    ("nvcc-arch-removed", "unknown", machine(unasked("toolkits")), "unknown"),
    ("benign-nvcc-deprecation", "nothing built", machine(), "pass"),
    ("benign-nvcc-deprecation", "nvcc warns", told(said("nvcc-arch-deprecated")), "note"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


@pytest.mark.parametrize(
    ("arch", "nvcc", "expected"),
    [
        ("3.5", None, Direction.NVCC_TOO_NEW),
        ("3.0", None, Direction.NVCC_TOO_NEW),
        ("5.0", None, Direction.NVCC_TOO_NEW),
        ("7.0", None, Direction.NVCC_TOO_NEW),
        ("7.5", None, Direction.NVCC_TOO_OLD),
        ("8.6", None, Direction.NVCC_TOO_OLD),
        ("8.9", None, Direction.NVCC_TOO_OLD),
        ("12.0", None, Direction.NVCC_TOO_OLD),
        ("10.1", None, Direction.UNKNOWN),
        ("10.1", "12.6", Direction.NVCC_TOO_OLD),
        ("10.1", "13.0", Direction.NVCC_TOO_NEW),
        ("3.5", "12.2", Direction.NVCC_TOO_NEW),
        ("7.0", "8.0", Direction.NVCC_TOO_OLD),
        ("8.6", "11.0", Direction.NVCC_TOO_OLD),
        ("14.0", None, Direction.NVCC_TOO_OLD),
        ("6.5", None, Direction.UNKNOWN),
    ],
)
def test_one_sentence_two_causes(arch: str, nvcc: str | None, expected: Direction, matrices: Matrices) -> None:
    version = CudaVersion.parse(nvcc) if nvcc is not None else None
    assert direction(Case(Snapshot(), matrices), ComputeCapability.parse(arch), version) is expected


@pytest.mark.parametrize(
    ("arch", "nvcc", "reported", "not_reported"),
    [
        ("compute_120", "", {"nvcc-arch-unsupported", "toolkit-too-old"}, "nvcc-arch-removed"),
        ("sm_120a", "12.4", {"nvcc-arch-unsupported", "toolkit-too-old"}, "nvcc-arch-removed"),
        ("compute_35", "12.2", {"nvcc-arch-removed"}, "nvcc-arch-unsupported"),
        ("compute_50", "", {"nvcc-arch-removed"}, "toolkit-too-old"),
        ("compute_86", "11.0", {"nvcc-arch-unsupported"}, "nvcc-arch-removed"),
    ],
)
def test_refused_architecture(arch: str, nvcc: str, reported: set[str], not_reported: str, matrices: Matrices) -> None:
    snapshot = told(said("unsupported-gpu-architecture", arch=arch))
    found = errors_of(judge(changed(snapshot, toolkits(printed_kit(nvcc))) if nvcc else snapshot, matrices))
    assert reported <= found
    assert not_reported not in found


def test_refused_architecture_without_a_name_is_the_gpus(matrices: Matrices) -> None:
    gpus = machine(gpu="NVIDIA GeForce RTX 5090", cc="12.0").gpus
    said_so = Snapshot(gpus=gpus, toolkits=known((printed_kit("12.4"),)), errors=(said("unsupported-gpu-architecture"),))
    (found,) = findings(judge(said_so, matrices), "nvcc-arch-unsupported")
    assert found.what == "nvcc 12.4 is too old for sm_120: CUDA 12.8 is the first that knows it."


def test_nvcc_of_the_text_is_not_blamed_where_it_knows_the_architecture(matrices: Matrices) -> None:
    snapshot = changed(told(said("unsupported-gpu-architecture", arch="compute_120")), toolkits(printed_kit("12.8")))
    (found,) = findings(judge(snapshot, matrices), "nvcc-arch-unsupported")
    assert found.what.startswith("The nvcc of this build is too old for sm_120")


def test_ptxas_refuses_a_removed_architecture(matrices: Matrices) -> None:
    assert errors_of(judge(told(said("ptxas-too-old", arch="sm_35")), matrices)) == {"nvcc-arch-removed", "toolkit-too-new"}


def test_stopgap_runs_on_the_gpu(matrices: Matrices) -> None:
    snapshot = changed(told(said("unsupported-gpu-architecture", arch="compute_86")), toolkits(printed_kit("11.0")))
    (found,) = findings(judge(snapshot, matrices), "nvcc-arch-unsupported")
    assert found.fixes[-1].commands == ("export TORCH_CUDA_ARCH_LIST='8.0'",)


def test_removed_architecture_of_the_gpu_here_needs_an_older_toolkit(matrices: Matrices) -> None:
    volta = machine(gpu="Tesla V100-SXM2-16GB", cc="7.0")
    refusal = said("unsupported-gpu-architecture", arch="compute_70")
    asked = Snapshot(gpus=volta.gpus, host=volta.host, toolkits=known((printed_kit("13.0"),)), errors=(refusal,))
    (found,) = findings(judge(asked, matrices), "nvcc-arch-removed")
    assert found.fixes[0].commands[0] == "sudo apt-get install cuda-toolkit-12-9"
