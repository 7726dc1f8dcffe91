"""A toolkit against GPUs and torch."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.snapshot import PythonEnvironment, Snapshot, Torch
from cudadoctor.model.versions import CudaVersion
from tests.rules.build_machines import (
    Change,
    changed,
    copies,
    findings,
    judge,
    kit,
    machine,
    outcome,
    printed_kit,
    told,
    toolkits,
    torch,
    unasked,
)
from tests.rules.builders import said

BROKEN = Missing(MissingReason.FAILED, "exit code 127: cannot execute binary file", "nvcc")
CPU_TORCH = torch(torch_version=Known("2.9.1+cpu", "test"), build=BROKEN, torch_cuda_version=BROKEN)
NEEDS_11_7 = told(said("toolkit-too-old", wanted="11.7"))

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("toolkit-too-old", "fits", machine(), "pass"),
    ("toolkit-too-old", "no toolkit", machine(toolkits()), "not_applicable"),
    ("toolkit-too-old", "unknown", machine(unasked("toolkits")), "unknown"),
    ("toolkit-too-old", "5090 and 12.6", machine(toolkits(kit("12.6")), gpu="NVIDIA GeForce RTX 5090", cc="12.0"), "warning"),
    ("toolkit-too-old", "4090 and 11.5: sm_86 code serves", machine(toolkits(kit("11.5"))), "note"),
    ("toolkit-too-old", "GPU newer than every table", machine(toolkits(kit("19.9")), gpu="NVIDIA Z1", cc="15.0"), "unknown"),
    ("toolkit-too-old", "a project says so", NEEDS_11_7, "error"),
    (
        "toolkit-too-old",
        "the toolkit is new enough",
        changed(NEEDS_11_7, toolkits(printed_kit("12.4"))),
        "pass",
    ),
    ("toolkit-too-new", "fits", machine(), "pass"),
    ("toolkit-too-new", "V100 and 13.0", machine(toolkits(kit("13.0")), gpu="Tesla V100-SXM2-16GB", cc="7.0"), "warning"),
    ("toolkit-too-new", "no toolkit", machine(toolkits()), "not_applicable"),
    ("toolkit-too-new", "unknown", machine(unasked("toolkits")), "unknown"),
    ("benign-smi-vs-nvcc", "differ", machine(), "note"),
    ("benign-smi-vs-nvcc", "agree", machine(toolkits(kit("13.0"))), "pass"),
    ("benign-smi-vs-nvcc", "unknown", machine(unasked("toolkits")), "unknown"),
    (
        "benign-smi-vs-nvcc",
        "runtimes of two toolkits",
        changed(machine(copies("/usr/local/cuda-11.8/lib/libcudart.so.11.8.89")), unasked("toolkits")),
        "note",
    ),
    ("benign-torch-vs-toolkit", "agree", machine(), "pass"),
    ("benign-torch-vs-toolkit", "differ", machine(toolkits(kit("11.8"))), "note"),
    ("benign-torch-vs-toolkit", "a CPU build", machine(CPU_TORCH), "not_applicable"),
    ("benign-torch-vs-toolkit", "unknown toolkit", machine(unasked("toolkits")), "unknown"),
    ("nvcc-torch-mismatch", "nothing built", machine(toolkits(kit("11.8"))), "pass"),
    ("nvcc-torch-mismatch", "torch says so", told(said("nvcc-torch-mismatch", have="11.8", wanted="12.1")), "error"),
    ("nvcc-torch-minor-difference", "torch warns", told(said("nvcc-torch-minor-difference")), "note"),
    ("nvcc-torch-minor-difference", "nothing built", machine(), "pass"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (torch(torch_cuda_version=Known(CudaVersion.parse("12.9"), "test")), "12.9"),
        (torch(torch_cuda_version=Known(CudaVersion.parse("12.4"), "test")), "12.9"),
        (torch(torch_cuda_version=Known(CudaVersion.parse("13.0"), "test")), "13.0"),
    ],
)
def test_suggested_toolkit_fits_gpu_torch_and_driver(change: Change, wanted: str, matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("12.6")), change, gpu="NVIDIA GeForce RTX 5090", cc="12.0")
    (found,) = findings(judge(snapshot, matrices), "toolkit-too-old")
    assert found.fixes[0].commands[0] == f"sudo apt-get install cuda-toolkit-{wanted.replace('.', '-')}"
    assert found.fixes[0].rechecked


def test_mismatch_names_both_versions_where_torch_is_known_only_by_facts(matrices: Matrices) -> None:
    snapshot = Snapshot(
        errors=(said("nvcc-torch-mismatch"),),
        toolkits=Known((printed_kit("11.8"),), "test"),
        python=PythonEnvironment(torch=Known(Torch(torch_version=Known("2.1.0+cu121", "test")), "test")),
    )
    (found,) = findings(judge(snapshot, matrices), "nvcc-torch-mismatch")
    assert "nvcc is of CUDA 11.8, torch of 12.1" in found.what
