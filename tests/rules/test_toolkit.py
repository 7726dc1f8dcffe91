"""Where the toolkit is, what it holds, and how it fits GPU, driver and torch: tables of machines and pasted texts."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import PythonEnvironment, Snapshot, Torch
from cudadoctor.model.versions import CudaVersion
from tests.rules import builders
from tests.rules.build_machines import (
    Change,
    changed,
    copies,
    errors,
    errors_of,
    findings,
    judge,
    kit,
    machine,
    nvcc_proof,
    outcome,
    packages,
    printed_kit,
    told,
    toolkits,
    torch,
    unasked,
    variables,
)
from tests.rules.builders import said

BROKEN = Missing(MissingReason.FAILED, "exit code 127: cannot execute binary file", "nvcc")
CPU_TORCH = torch(torch_version=Known("2.9.1+cpu", "test"), build=BROKEN, torch_cuda_version=BROKEN)
TWO_RELEASES = (kit("12.8"), kit("11.8", found_by=("/usr/local/cuda-11.8",), chosen=False))
NEEDS_11_7 = told(said("toolkit-too-old", wanted="11.7"))
CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    # rule, what is special, machine, outcome
    ("nvcc-missing", "an idle machine", machine(), "pass"),
    ("nvcc-missing", "no toolkit, nothing built", machine(toolkits()), "pass"),
    ("nvcc-missing", "a build looked for it", told(said("nvcc-not-found", "nvcc: command not found")), "error"),
    (
        "nvcc-missing",
        "the failed test of the compiler has another cause",
        told(said("nvcc-not-found", "The CUDA compiler identification is unknown"), said("host-compiler-too-new")),
        "pass",
    ),
    (
        "nvcc-missing",
        "nvcc is known to be elsewhere",
        changed(told(said("nvcc-not-found", path="/usr/local/cuda/bin/nvcc")), toolkits(printed_kit("12.0", "/usr/bin/nvcc"))),
        "pass",
    ),
    ("cuda-home-unset", "an idle machine", machine(), "pass"),
    ("cuda-home-unset", "no toolkit", machine(toolkits()), "not_applicable"),
    ("cuda-home-unset", "nothing known", machine(unasked("toolkits")), "unknown"),
    (
        "cuda-home-unset",
        "a toolkit where builds do not look",
        machine(toolkits(kit("12.4", found_by=("/usr/local/cuda-12.4",), chosen=False))),
        "note",
    ),
    ("cuda-home-unset", "torch says so", told(said("cuda-home-unset")), "error"),
    ("cuda-home-malformed", "an idle machine", machine(), "pass"),
    ("cuda-home-malformed", "one folder", machine(variables(CUDA_HOME="/usr/local/cuda-12.8/")), "pass"),
    ("cuda-home-malformed", "a list", machine(variables(CUDA_HOME=":/usr/local/cuda")), "warning"),
    ("cuda-home-malformed", "ends in bin", machine(variables(CUDA_PATH="/usr/local/cuda/bin")), "warning"),
    ("cuda-home-malformed", "Python's list", machine(variables(CUDA_HOME="['/usr/local/cuda']")), "warning"),
    ("cuda-home-malformed", "unknown environment", machine(unasked("environment")), "unknown"),
    ("cuda-home-malformed", "its trace in a path", told(said("nvcc-not-found", path=":/usr/local/cuda/bin/nvcc")), "error"),
    ("cuda-home-malformed", "bin twice", told(said("cuda-home-malformed", path="/usr/local/cuda/bin/bin/nvcc")), "error"),
    ("cuda-home-wrong", "not set", machine(), "pass"),
    ("cuda-home-wrong", "unknown environment", machine(unasked("environment")), "unknown"),
    ("cuda-home-wrong", "unknown toolkits", machine(variables(CUDA_HOME="/opt/cuda"), unasked("toolkits")), "unknown"),
    ("cuda-home-wrong", "malformed is another finding", machine(variables(CUDA_HOME="/a:/b")), "not_applicable"),
    (
        "cuda-home-wrong",
        "leads nowhere",
        machine(variables(CUDA_HOME="/opt/gone"), toolkits(kit("12.8", chosen=False))),
        "warning",
    ),
    (
        "cuda-home-wrong",
        "leads to a toolkit",
        machine(variables(CUDA_HOME="/usr/local/cuda-12.8"), toolkits(kit("12.8", found_by=("CUDA_HOME",)))),
        "pass",
    ),
    (
        "cuda-home-wrong",
        "a toolkit without nvcc",
        machine(variables(CUDA_HOME="/usr/local/cuda-12.8"), toolkits(kit("12.8", found_by=("CUDA_HOME",), missing=("nvcc",)))),
        "warning",
    ),
    (
        "cuda-home-wrong",
        "a makefile's default",
        changed(told(said("nvcc-not-found", path="/usr/local/cuda/bin/nvcc")), toolkits(printed_kit("12.0", "/usr/bin/nvcc"))),
        "error",
    ),
    ("wrong-nvcc-on-path", "one toolkit", machine(), "pass"),
    ("wrong-nvcc-on-path", "unknown", machine(unasked("toolkits")), "unknown"),
    (
        "wrong-nvcc-on-path",
        "PATH and CUDA_HOME of two majors",
        machine(toolkits(kit("11.8", found_by=("PATH",), chosen=False), kit("12.8", found_by=("CUDA_HOME",)))),
        "warning",
    ),
    (
        "wrong-nvcc-on-path",
        "two minors of one major",
        machine(toolkits(kit("12.4", found_by=("PATH",), chosen=False), kit("12.8", found_by=("CUDA_HOME",)))),
        "pass",
    ),
    ("wrong-nvcc-on-path", "CMake says so", told(said("wrong-nvcc-on-path", have="11.5", wanted="12.1")), "error"),
    ("toolkit-incomplete", "complete", machine(), "pass"),
    ("toolkit-incomplete", "no toolkit", machine(toolkits()), "not_applicable"),
    ("toolkit-incomplete", "unknown", machine(unasked("toolkits")), "unknown"),
    ("toolkit-incomplete", "no library headers", machine(toolkits(kit("12.8", missing=("cuSPARSE headers",)))), "note"),
    ("toolkit-incomplete", "no ptxas", machine(toolkits(kit("12.8", missing=("ptxas",)))), "warning"),
    ("toolkit-headers-missing", "nothing built", machine(), "pass"),
    ("toolkit-headers-missing", "cusparse.h", told(said("toolkit-headers-missing", header="cusparse.h")), "error"),
    ("toolkit-libs-missing-at-link", "nothing built", machine(), "pass"),
    ("toolkit-libs-missing-at-link", "-lcudart", told(said("toolkit-libs-missing-at-link", library="-lcudart")), "error"),
    (
        "toolkit-libs-missing-at-link",
        "WSL has -lcuda elsewhere",
        builders.with_wsl(changed(machine(), errors(said("toolkit-libs-missing-at-link", library="-lcuda")))),
        "not_applicable",
    ),
    ("nvcc-fails", "it runs", machine(), "pass"),
    ("nvcc-fails", "no toolkit", machine(toolkits()), "not_applicable"),
    ("nvcc-fails", "unknown", machine(unasked("toolkits")), "unknown"),
    ("toolkit-links-differ", "one", machine(), "pass"),
    ("toolkit-links-differ", "unknown", machine(unasked("toolkits")), "unknown"),
    (
        "toolkit-links-differ",
        "two ways, two toolkits",
        machine(toolkits(kit("12.8", found_by=("PATH",)), kit("12.4", found_by=("/usr/local/cuda",), chosen=False))),
        "note",
    ),
    ("several-toolkits", "one", machine(), "pass"),
    (
        "several-toolkits",
        "two",
        machine(toolkits(*TWO_RELEASES)),
        "note",
    ),
    ("several-toolkits", "unknown", machine(unasked("toolkits")), "unknown"),
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
    ("ptx-newer-than-driver", "driver is newer", machine(), "pass"),
    ("ptx-newer-than-driver", "driver is older", machine(cuda="12.2"), "warning"),
    ("ptx-newer-than-driver", "unknown", machine(unasked("toolkits")), "unknown"),
    ("ptx-newer-than-driver", "no toolkit", machine(toolkits()), "not_applicable"),
    ("ptx-newer-than-driver", "error 222", told(said("ptx-newer-than-driver")), "error"),
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
    ("ptxas-too-old", "no triton", machine(), "not_applicable"),
    ("ptxas-too-old", "unknown packages", changed(machine(), lambda s: told()), "unknown"),
    ("ptxas-too-old", "a triton that knows the GPU", machine(packages(triton="3.5.0")), "pass"),
    ("ptxas-too-old", "a triton older than the GPU", machine(packages(triton="3.5.0"), gpu="NVIDIA GB10", cc="12.1"), "warning"),
    ("ptxas-too-old", "ptxas says so", told(said("ptxas-too-old", arch="sm_121")), "error"),
    ("ptxas-too-old", "a removed architecture is no lack", told(said("ptxas-too-old", arch="sm_35")), "unknown"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def test_nvcc_that_does_not_run(matrices: Matrices) -> None:
    broken = structs.replace(kit("12.8"), toolkit_version=BROKEN)
    (found,) = findings(judge(machine(toolkits(broken)), matrices), "nvcc-fails")
    assert "exit code 127: cannot execute binary file" in found.what


@pytest.mark.parametrize("name", builders.GENERATIONS)
@pytest.mark.parametrize("release", [None, "own"])
def test_healthy_machines_give_no_error_and_no_warning(name: str, release: str | None, matrices: Matrices) -> None:
    base = builders.GENERATIONS[name]
    build = base.python.torch
    assert isinstance(build, Known)
    cuda = build.value.torch_cuda_version
    assert isinstance(cuda, Known)
    supported = base.driver.driver_cuda_version
    assert isinstance(supported, Known)
    kits = () if release is None else (kit(min(cuda.value, supported.value).release),)
    results = judge(changed(base, toolkits(*kits)), matrices)
    assert [one.name for one in results.findings if one.severity is not Severity.NOTE] == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (":/usr/local/cuda", "/usr/local/cuda"),
        ("/usr/local/cuda-12.1:/usr/local/cuda-12.1/bin", "/usr/local/cuda-12.1"),
        ("/opt/cuda/bin", "/opt/cuda"),
        ("/opt/cuda/bin/nvcc", "/opt/cuda"),
        ("['/usr/local/cuda-11.8']", "/usr/local/cuda-11.8"),
        ("/usr/local/cuda/lib64", "/usr/local/cuda"),
    ],
)
def test_malformed_home_is_put_right(value: str, expected: str, matrices: Matrices) -> None:
    results = judge(machine(variables(CUDA_HOME=value)), matrices)
    (found,) = findings(results, "cuda-home-malformed")
    assert found.fixes[0].commands == (f"export CUDA_HOME={expected}",)
    assert found.fixes[0].rechecked


def test_home_that_leads_to_another_toolkit_than_torchs(matrices: Matrices) -> None:
    snapshot = changed(
        told(said("nvcc-torch-mismatch", have="12.3", wanted="11.8")),
        variables(CUDA_PATH="/opt/cuda"),
        toolkits(printed_kit("11.8", "/envs/x/bin/nvcc"), printed_kit("12.3")),
    )
    results = judge(snapshot, matrices)
    assert {"nvcc-torch-mismatch", "cuda-home-wrong"} <= errors_of(results)
    (found,) = findings(results, "cuda-home-wrong")
    assert found.fixes[0].commands == ("export CUDA_HOME=/envs/x PATH=/envs/x/bin:$PATH",)
    assert found.root
    assert not findings(results, "nvcc-torch-mismatch")[0].root


def test_distribution_nvcc_that_hides_a_newer_toolkit(matrices: Matrices) -> None:
    snapshot = changed(
        told(said("unsupported-gpu-architecture", arch="compute_86")),
        toolkits(printed_kit("10.1", "/usr/bin/nvcc"), printed_kit("12.4", "/usr/local/cuda-12.4/bin/nvcc")),
    )
    (found,) = findings(judge(snapshot, matrices), "wrong-nvcc-on-path")
    assert found.fixes[0].commands == ("export CUDA_HOME=/usr/local/cuda-12.4 PATH=/usr/local/cuda-12.4/bin:$PATH",)


def test_incomplete_toolkit_that_compiles_is_only_noted(matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("12.8", missing=("ptxas",))))
    assert outcome(judge(snapshot, matrices, nvcc_proof()), "toolkit-incomplete") == "note"


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


def test_ptxas_of_an_installed_toolkit_is_suggested(matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("13.0")), packages(triton="3.5.0"), gpu="NVIDIA GB10", cc="12.1")
    (found,) = findings(judge(snapshot, matrices), "ptxas-too-old")
    assert found.fixes[0].commands == ("export TRITON_PTXAS_PATH=/usr/local/cuda-13.0/bin/ptxas",)


def test_text_that_names_no_toolkit_leaves_both_names(matrices: Matrices) -> None:
    """torch looks everywhere before it says this, so that most likely nothing is installed."""
    results = judge(told(said("cuda-home-unset")), matrices)
    assert {"cuda-home-unset", "nvcc-missing"} <= errors_of(results)
    known = changed(told(said("cuda-home-unset")), toolkits(printed_kit("12.1", "/usr/local/cuda-12.1/bin/nvcc")))
    assert "nvcc-missing" not in errors_of(judge(known, matrices))


def test_mismatch_names_both_versions_where_torch_is_known_only_by_facts(matrices: Matrices) -> None:
    snapshot = Snapshot(
        errors=(said("nvcc-torch-mismatch"),),
        toolkits=Known((printed_kit("11.8"),), "test"),
        python=PythonEnvironment(torch=Known(Torch(torch_version=Known("2.1.0+cu121", "test")), "test")),
    )
    (found,) = findings(judge(snapshot, matrices), "nvcc-torch-mismatch")
    assert "nvcc is of CUDA 11.8, torch of 12.1" in found.what
