"""What builds ask for: architectures in both directions, arch lists, CMake, system headers."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import PythonEnvironment, Snapshot, Torch
from cudadoctor.model.versions import ComputeCapability, CudaVersion
from cudadoctor.rules.nvcc_targets import Direction, direction
from cudadoctor.rules.engine import Case
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
from tests.rules.builders import gpu, known, said

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
    ("arch-list-unknown", "not set", machine(), "pass"),
    ("arch-list-unknown", "well formed", machine(variables(TORCH_CUDA_ARCH_LIST="7.5;8.9+PTX Hopper 9.0a")), "pass"),
    ("arch-list-unknown", "with sm_", machine(variables(TORCH_CUDA_ARCH_LIST="sm_89")), "warning"),
    ("arch-list-unknown", "without a dot", machine(variables(TORCH_CUDA_ARCH_LIST="89")), "warning"),
    ("arch-list-unknown", "with commas", machine(variables(TORCH_CUDA_ARCH_LIST="8.6,8.9")), "warning"),
    ("arch-list-unknown", "a name torch does not know", machine(variables(TORCH_CUDA_ARCH_LIST="Lovelace")), "warning"),
    ("arch-list-unknown", "unknown", machine(unasked("environment")), "unknown"),
    ("arch-list-unknown", "torch says so", told(said("arch-list-unknown", arch="9.0+PTX")), "error"),
    ("arch-list-stale", "not set", machine(), "pass"),
    ("arch-list-stale", "covers", machine(variables(TORCH_CUDA_ARCH_LIST="8.6")), "pass"),
    ("arch-list-stale", "covers by a name's PTX", machine(variables(TORCH_CUDA_ARCH_LIST="Turing")), "pass"),
    ("arch-list-stale", "leaves out", machine(variables(TORCH_CUDA_ARCH_LIST="7.0 7.5")), "warning"),
    ("arch-list-stale", "only for another chip", machine(variables(TORCH_CUDA_ARCH_LIST="9.0a")), "warning"),
    ("arch-list-stale", "CMake's", machine(variables(CUDAARCHS="75-real;90-real")), "warning"),
    ("arch-list-stale", "CMake's PTX", machine(variables(CUDAARCHS="75")), "pass"),
    ("arch-list-stale", "unknown", machine(unasked("environment")), "unknown"),
    ("arch-list-stale", "unknown GPU", machine(unasked("gpus")), "unknown"),
    ("arch-list-empty-no-gpu", "nothing built", machine(), "pass"),
    ("arch-list-empty-no-gpu", "torch fails", told(said("arch-list-empty-no-gpu")), "error"),
    ("cmake-arch-invalid", "not set", machine(), "pass"),
    ("cmake-arch-invalid", "well formed", machine(variables(CUDAARCHS="native")), "pass"),
    ("cmake-arch-invalid", "with a dot", machine(variables(CUDAARCHS="8.9")), "warning"),
    ("cmake-arch-invalid", "unknown", machine(unasked("environment")), "unknown"),
    ("cmake-arch-invalid", "CMake says so", told(said("cmake-arch-invalid")), "error"),
    ("cmake-arch-invalid", "valid if set, alone", told(said("cmake-arch-check-failed", "must be valid if set")), "error"),
    ("cmake-too-old", "nothing built", machine(), "pass"),
    ("cmake-too-old", "CMake says so", told(said("cmake-too-old", wanted="3.26", have="3.22.1")), "error"),
    ("cmake-too-old", "native handed on", told(said("cmake-arch-invalid", value="native")), "error"),
    ("system-header-missing", "nothing built", machine(), "pass"),
    ("system-header-missing", "crypt.h", told(said("system-header-missing", header="crypt.h")), "error"),
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


@pytest.mark.parametrize(
    ("value", "fixed"),
    [("7.5", "8.9"), ("sm_89", "8.9"), ("7.0;7.5", "8.9")],
)
def test_arch_list_is_replaced_by_one_that_fits(value: str, fixed: str, matrices: Matrices) -> None:
    results = judge(machine(variables(TORCH_CUDA_ARCH_LIST=value)), matrices)
    found = [*findings(results, "arch-list-stale"), *findings(results, "arch-list-unknown")]
    assert [one.fixes[0].commands for one in found] == [(f"export TORCH_CUDA_ARCH_LIST={fixed}",)]
    assert found[0].fixes[0].rechecked


def test_arch_that_torch_does_not_know_is_older_toolkits_fault_too(matrices: Matrices) -> None:
    old = PythonEnvironment(torch=known(Torch(torch_version=known("1.6.0"))))
    snapshot = Snapshot(errors=(said("arch-list-unknown", arch="8.9"),), python=old)
    assert errors_of(judge(snapshot, matrices)) == {"arch-list-unknown", "toolkit-too-old"}
    newer = changed(snapshot, toolkits(printed_kit("12.4")))
    assert errors_of(judge(newer, matrices)) == {"arch-list-unknown"}


def test_mixed_gpus_get_a_list_for_both(matrices: Matrices) -> None:
    base = machine(variables(TORCH_CUDA_ARCH_LIST="7.5"))
    gpus = base.gpus
    assert isinstance(gpus, Known)
    both = structs.replace(base, gpus=known((*gpus.value, gpu("RTX 5090", "12.0", 1))))
    (found,) = findings(judge(both, matrices), "arch-list-stale")
    assert found.fixes[0].commands == ("export TORCH_CUDA_ARCH_LIST='8.9;12.0'",)


@pytest.mark.parametrize(
    ("value", "repaired"), [("sm_89", "8.9"), ("89;120", "'8.9;12.0'"), ("8.6,8.9", "'8.6;8.9'"), ("compute_90", "9.0")]
)
def test_malformed_list_is_written_anew_where_no_gpu_is_known(value: str, repaired: str, matrices: Matrices) -> None:
    snapshot = changed(machine(variables(TORCH_CUDA_ARCH_LIST=value)), unasked("gpus"))
    (found,) = findings(judge(snapshot, matrices), "arch-list-unknown")
    assert found.fixes[0].commands == (f"export TORCH_CUDA_ARCH_LIST={repaired}",)
    assert [fix.rechecked for fix in found.fixes] == [True, True]
