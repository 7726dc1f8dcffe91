"""Arch lists: exact, clipped, mixed, with PTX where a GPU is newer than what can be built; compared with what nvcc accepts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from cudadoctor.archs import (
    ArchPlan,
    ArchStyle,
    BuildLimit,
    PtxChoice,
    WantedGpu,
    build_limits,
    plan_archs,
    ptx_warning,
    toolkit_limit,
    torch_capabilities,
)
from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import Driver, PythonEnvironment, Snapshot, Toolkit, Torch
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget

NVCC = Path("/usr/local/bin/nvcc")


@pytest.fixture(scope="module")
def matrices() -> Matrices:
    return Matrices.load()


def gpus(*capabilities: str) -> tuple[WantedGpu, ...]:
    return tuple(WantedGpu(f"GPU of {text}", ComputeCapability.parse(text)) for text in capabilities)


def nvcc(release: str, matrices: Matrices) -> BuildLimit:
    return toolkit_limit(f"nvcc {release}", matrices.toolkits.targets(CudaVersion.parse(release)) or ())


def torch(version: str, matrices: Matrices, own: str = "") -> BuildLimit:
    build = Torch(
        torch_version=Known(version, "test"),
        arch_list=Known(tuple(SmTarget.parse(word) for word in own.split()), "test"),
    )
    return BuildLimit(f"torch {version}", torch_capabilities(build, matrices))


@pytest.mark.parametrize(
    ("wanted", "toolkit", "expected"),
    [
        (("8.9", "12.0"), "12.8", "8.9;12.0"),
        (("8.9",), "12.4", "8.9"),
        (("12.0",), "12.6", "9.0+PTX"),
        (("12.1",), "12.8", "12.0"),
        (("8.9",), "11.5", "8.6"),
        (("9.0",), "11.7", "8.6+PTX"),
        (("10.3",), "12.8", "10.0"),
        (("7.0", "9.0"), "12.9", "7.0;9.0"),
        (("7.0", "9.0"), "13.0", "9.0"),
        (("7.0",), "13.0", ""),
        (("3.5",), "12.2", ""),
        (("11.0",), "12.9", "10.1"),
        (("10.1",), "13.0", "11.0"),
        (("8.7",), "11.2", "8.6+PTX"),
        (("8.6", "8.6", "7.5"), "12.4", "7.5;8.6"),
        (("10.7",), "13.0", "10.3"),
    ],
)
def test_clipped_to_the_toolkit(wanted: tuple[str, ...], toolkit: str, expected: str, matrices: Matrices) -> None:
    assert plan_archs(gpus(*wanted), [nvcc(toolkit, matrices)]).text(ArchStyle.TORCH) == expected


@pytest.mark.parametrize(
    ("wanted", "version", "expected"),
    [
        ("8.9", "2.5.1+cu124", "8.9"),
        ("12.0", "2.5.1+cu124", "9.0+PTX"),
        ("12.1", "2.8.0+cu128", "12.0"),
        ("10.3", "2.7.0+cu128", "10.0"),
        ("10.7", "2.15.0+cu132", "10.7"),
        ("12.0", "2.15.0+cu132", "12.0"),
        ("8.9", "1.12.1+cu116", "8.6"),
    ],
)
def test_clipped_to_torch(wanted: str, version: str, expected: str, matrices: Matrices) -> None:
    assert plan_archs(gpus(wanted), [torch(version, matrices)]).text(ArchStyle.TORCH) == expected


def test_both_limits_hold(matrices: Matrices) -> None:
    limits = [nvcc("13.0", matrices), torch("2.5.1+cu124", matrices)]
    plan = plan_archs(gpus("12.0"), limits)
    assert plan.text(ArchStyle.TORCH) == "9.0+PTX"
    assert "torch 2.5.1+cu124 cannot build for 12.0" in plan.why[0]
    assert "nvcc" not in plan.why[0]


def test_torch_newer_than_the_table_does_not_limit(matrices: Matrices) -> None:
    build = Torch(torch_version=Known("9.1.0", "test"))
    assert torch_capabilities(build, matrices) == frozenset()


def test_own_list_of_torch_counts(matrices: Matrices) -> None:
    limit = torch("2.5.1", matrices, own="sm_90 sm_120")
    assert plan_archs(gpus("12.0"), [limit]).text(ArchStyle.TORCH) == "12.0"


def test_without_limits_each_gpu_is_named() -> None:
    plan = plan_archs(gpus("13.0", "7.5"), [])
    assert plan.text(ArchStyle.TORCH) == "7.5;13.0"
    assert plan.why == ()


def test_no_gpu_gives_an_empty_list() -> None:
    assert plan_archs((), []).text(ArchStyle.TORCH) == ""


@pytest.mark.parametrize(
    ("style", "expected"),
    [
        (ArchStyle.TORCH, "8.9;9.0+PTX"),
        (ArchStyle.CMAKE, "89-real;90"),
        (
            ArchStyle.NVCC,
            "-gencode=arch=compute_89,code=sm_89 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90",
        ),
    ],
)
def test_styles(style: ArchStyle, expected: str, matrices: Matrices) -> None:
    assert plan_archs(gpus("8.9", "12.0"), [nvcc("12.4", matrices)]).text(style) == expected


def test_json_says_why(matrices: Matrices) -> None:
    plan = plan_archs(gpus("7.0", "12.0"), [nvcc("13.0", matrices)])
    document = json.loads(plan.text(ArchStyle.JSON))
    assert document["torch"] == "12.0"
    assert document["unserved"] == [{"name": "GPU of 7.0", "compute_capability": "7.0"}]
    assert "nvcc 13.0 cannot build for 7.0 (the lowest is 7.5)" in document["why"][0]


def test_ptx_on_request_goes_to_the_highest() -> None:
    plan = plan_archs(gpus("8.6", "9.0"), [], PtxChoice.ALWAYS)
    assert plan.text(ArchStyle.TORCH) == "8.6;9.0+PTX"
    assert plan.why == ("PTX of 9.0 is added as asked, for newer GPUs.",)


def machine(matrices: Matrices, driver_cuda: str) -> Snapshot:
    kit = Toolkit(
        root="/usr/local/cuda",
        toolkit_version=Known(CudaVersion.parse("12.6"), "nvcc"),
        chosen_for_builds=True,
    )
    return Snapshot(
        driver=Driver(driver_cuda_version=Known(CudaVersion.parse(driver_cuda), "NVML")),
        toolkits=Known((kit,), "test"),
        python=PythonEnvironment(torch=Known(Torch(torch_version=Known("2.5.1+cu124", "test")), "test")),
    )


def test_limits_of_a_machine(matrices: Matrices) -> None:
    limits = build_limits(machine(matrices, "12.2"), matrices)
    assert [limit.name for limit in limits] == ["nvcc 12.6", "torch 2.5.1"]
    assert build_limits(Snapshot(), matrices) == ()


def test_ptx_that_the_driver_cannot_compile_is_said(matrices: Matrices) -> None:
    plan = plan_archs(gpus("12.0"), [nvcc("12.6", matrices)])
    assert "error 222" in (ptx_warning(plan, machine(matrices, "12.2"), matrices) or "")
    assert ptx_warning(plan, machine(matrices, "12.8"), matrices) is None
    exact = plan_archs(gpus("9.0"), [nvcc("12.6", matrices)])
    assert ptx_warning(exact, machine(matrices, "12.2"), matrices) is None


def compiles(options: str, folder: Path) -> bool:
    source = folder / "empty.cu"
    source.write_text("__global__ void k() {}\n")
    command = [str(NVCC), *options.split(), "-fatbin", "-o", str(folder / "out.fatbin"), str(source)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.nvcc
@pytest.mark.skipif(not NVCC.exists(), reason=f"no nvcc at {NVCC}")
def test_values_are_what_nvcc_accepts(tmp_path: Path, matrices: Matrices) -> None:
    listed = subprocess.run([str(NVCC), "--list-gpu-code"], capture_output=True, text=True, check=True).stdout.split()
    limit = toolkit_limit("nvcc", (SmTarget.parse(word) for word in listed))
    wanted = ("5.2", "7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.1", "10.3", "10.7", "11.0", "12.0", "12.1")
    plan: ArchPlan = plan_archs(gpus(*wanted), [limit], PtxChoice.ALWAYS)
    assert {f"sm_{arch.number}" for arch in plan.archs} <= set(listed)
    assert compiles(plan.text(ArchStyle.NVCC), tmp_path)
    for gpu in plan.unserved:
        assert not compiles(f"-gencode=arch=compute_{gpu.capability.number},code=sm_{gpu.capability.number}", tmp_path)
