"""What Nsight Compute's counts say, from its real output on an H200 (columns that are not asked for left out)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cudadoctor.bench import ncu
from cudadoctor.bench.model import KernelProfile, Profile
from cudadoctor.matrices import Matrices
from cudadoctor.system import RealSystem

SAMPLE = Path(__file__).parents[1] / "tool_output" / "ncu" / "2025.3.1_h200.csv"
REFUSAL = (
    "==PROF== Connected to process 12 (/usr/bin/python3)\n"
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target "
    "device 0. For instructions on enabling permissions and to get more information see https://developer.nvidia.com/ERR_NVGPUCTRPERM\n"
)


def fake_ncu(folder: Path, output: str, code: int = 0) -> str:
    """A program that prints `output`; it fails where its last argument is no request that lists launches."""
    (folder / "output").write_text(output)
    program = folder / "ncu"
    program.write_text(
        f"#!{sys.executable}\nimport json, sys\njson.load(open(sys.argv[-1]))['launches']\nassert '--csv' in sys.argv\n"
        f"print(open({str(folder / 'output')!r}).read(), end='')\nsys.exit({code})\n"
    )
    program.chmod(0o755)
    return str(program)


def run(folder: Path, output: str, code: int = 0) -> Profile:
    return ncu.profile(RealSystem(), fake_ncu(folder, output, code), folder, 0, [{"image": "x"}], Matrices.load())


def by_name(profile: Profile) -> dict[str, KernelProfile]:
    return {each.kernel: each for each in profile.kernels}


@pytest.mark.parametrize(
    ("kernel", "bound", "change"),
    [
        ("gemm_bf16_wgmma_sm90a", "bound by compute", ""),
        ("copy_u32_vectors_sm50", "bound by memory", "move fewer bytes"),
        ("gather_u32_strided_sm50", "bound by memory", "touches 32 sectors"),
        ("transpose_u32_conflicted_sm50", "bank conflicts 94%", "Pad or swizzle"),
        ("transpose_u32_padded_sm50", "bound by caches and shared memory", ""),
        ("branch_u32_paths_sm50", "bound by compute", "Only 8.3 of 32 lanes work"),
        ("chase_u32_cycle_sm50_walk", "bound by latency: warps wait for loads", "more loads in flight"),
    ],
)
def test_each_kernel_is_bound_by_what_its_head_predicts(tmp_path: Path, kernel: str, bound: str, change: str) -> None:
    found = by_name(run(tmp_path, SAMPLE.read_text()))[kernel]
    assert bound in found.bound
    assert change in found.change
    if not change:
        assert "Pad or swizzle" not in found.change


def test_numbers_are_read_with_their_commas(tmp_path: Path) -> None:
    metrics = by_name(run(tmp_path, SAMPLE.read_text()))["transpose_u32_conflicted_sm50"].metrics
    assert metrics[ncu.CONFLICTS] == 536_473_009
    assert metrics[ncu.DRAM] == 1.04


def test_a_refused_permission_is_a_finding_with_its_fix(tmp_path: Path) -> None:
    profile = run(tmp_path, REFUSAL, 1)
    assert not profile.kernels
    (finding,) = profile.findings
    assert (finding.code, finding.name) == ("CD513", "perf-counter-permission")
    assert any("NVreg_RestrictProfilingToAdminUsers=0" in command for fix in finding.fixes for command in fix.commands)


@pytest.mark.parametrize(
    ("output", "because"),
    [
        ("==ERROR== The application returned an error code (1).\n", "The application returned an error code (1)."),
        ("", "exit code 9"),
        ('"ID","Kernel Name"\n', "exit code 9"),
        ('"ID","Kernel Name"\n"",""\n"1"\n', "exit code 9"),
        (f'"Kernel Name","{ncu.DRAM}"\n"",""\n"k","n/a"\n"j","nan"\n"i","inf"\n', "exit code 9"),
    ],
)
def test_output_without_figures_is_quoted_and_never_judged(tmp_path: Path, output: str, because: str) -> None:
    profile = run(tmp_path, output, 9)
    assert not profile.kernels
    assert because in profile.because


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    profile = ncu.profile(RealSystem(), str(tmp_path / "none"), tmp_path, 0, [], Matrices.load())
    assert "cannot run" in profile.because
    assert json.loads((tmp_path / "profile.json").read_text())["launches"] == []
