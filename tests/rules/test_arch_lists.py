"""Lists of architectures: malformed, stale, empty."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import PythonEnvironment, Snapshot, Torch
from cudadoctor.model.versions import CudaVersion
from tests.rules.build_machines import (
    changed,
    errors_of,
    findings,
    judge,
    machine,
    outcome,
    printed_kit,
    told,
    toolkits,
    torch,
    unasked,
    variables,
)
from tests.rules.builders import gpu, known, said

OLD_TORCH = torch(torch_version=known("2.5.1+cu124"), torch_cuda_version=known(CudaVersion.parse("12.4")), arch_list=known(()))
TORCH_26 = torch(torch_version=known("2.6.0+cu124"), torch_cuda_version=known(CudaVersion.parse("12.4")), arch_list=known(()))
CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("arch-list-unknown", "not set", machine(), "pass"),
    ("arch-list-unknown", "well formed", machine(variables(TORCH_CUDA_ARCH_LIST="7.5;8.9+PTX Hopper 9.0a")), "pass"),
    ("arch-list-unknown", "with sm_", machine(variables(TORCH_CUDA_ARCH_LIST="sm_89")), "warning"),
    ("arch-list-unknown", "without a dot", machine(variables(TORCH_CUDA_ARCH_LIST="89")), "warning"),
    ("arch-list-unknown", "with commas", machine(variables(TORCH_CUDA_ARCH_LIST="8.6,8.9")), "warning"),
    ("arch-list-unknown", "a name torch does not know", machine(variables(TORCH_CUDA_ARCH_LIST="Lovelace")), "warning"),
    ("arch-list-unknown", "newer than torch", machine(OLD_TORCH, variables(TORCH_CUDA_ARCH_LIST="8.9 12.0")), "warning"),
    ("arch-list-unknown", "in the next release's wheels", machine(TORCH_26, variables(TORCH_CUDA_ARCH_LIST="8.9 12.0")), "pass"),
    ("arch-list-unknown", "not newer than torch", machine(OLD_TORCH, variables(TORCH_CUDA_ARCH_LIST="8.9 9.0+PTX")), "pass"),
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
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


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
