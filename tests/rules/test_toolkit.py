"""Where the toolkit is: found, named rightly, the one that is meant."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Snapshot
from tests.rules import builders
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
from tests.rules.builders import said

DISTRIBUTION = structs.replace(kit("11.5", "/usr/lib/nvidia-cuda-toolkit"), packaging="distribution package")
CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
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
        "note",
    ),
    (
        "cuda-home-wrong",
        "a makefile's default",
        changed(told(said("nvcc-not-found", path="/usr/local/cuda/bin/nvcc")), toolkits(printed_kit("12.0", "/usr/bin/nvcc"))),
        "error",
    ),
    ("wrong-nvcc-on-path", "one toolkit", machine(), "pass"),
    (
        "wrong-nvcc-on-path",
        "the distribution's old one first",
        machine(toolkits(DISTRIBUTION, kit("12.4", found_by=("/usr/local/cuda-12.4",), chosen=False))),
        "warning",
    ),
    ("wrong-nvcc-on-path", "the distribution's alone", machine(toolkits(DISTRIBUTION)), "pass"),
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
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


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


def test_libraries_of_a_runtime_image_are_no_toolkit(matrices: Matrices) -> None:
    runtime = kit("11.8", missing=("nvcc", "ptxas", "cicc", "CUDA headers"))
    results = judge(machine(toolkits(runtime), variables(TORCH_CUDA_ARCH_LIST="8.9", CUDA_HOME="/usr/local/cuda-11.8")), matrices)
    assert [one.name for one in results.findings if one.severity is not Severity.NOTE] == ["cuda-home-wrong"]


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


@pytest.mark.parametrize(("on_path", "in_home"), [("12.8", "11.8"), ("11.8", "12.8")])
def test_of_two_majors_that_of_torch_is_meant(on_path: str, in_home: str, matrices: Matrices) -> None:
    two = toolkits(kit(on_path, found_by=("PATH",), chosen=False), kit(in_home, found_by=("CUDA_HOME",)))
    (found,) = findings(judge(machine(two), matrices), "wrong-nvcc-on-path")
    assert found.fixes[0].commands == ("export CUDA_HOME=/usr/local/cuda-12.8 PATH=/usr/local/cuda-12.8/bin:$PATH",)
    assert found.fixes[0].rechecked


def test_distribution_nvcc_that_hides_a_newer_toolkit(matrices: Matrices) -> None:
    snapshot = changed(
        told(said("unsupported-gpu-architecture", arch="compute_86")),
        toolkits(printed_kit("10.1", "/usr/bin/nvcc"), printed_kit("12.4", "/usr/local/cuda-12.4/bin/nvcc")),
    )
    (found,) = findings(judge(snapshot, matrices), "wrong-nvcc-on-path")
    assert found.fixes[0].commands == ("export CUDA_HOME=/usr/local/cuda-12.4 PATH=/usr/local/cuda-12.4/bin:$PATH",)


def test_text_that_names_no_toolkit_leaves_both_names(matrices: Matrices) -> None:
    """torch looks everywhere before it says this, so that most likely nothing is installed."""
    results = judge(told(said("cuda-home-unset")), matrices)
    assert {"cuda-home-unset", "nvcc-missing"} <= errors_of(results)
    known = changed(told(said("cuda-home-unset")), toolkits(printed_kit("12.1", "/usr/local/cuda-12.1/bin/nvcc")))
    assert "nvcc-missing" not in errors_of(judge(known, matrices))
