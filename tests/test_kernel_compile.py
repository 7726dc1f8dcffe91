"""Every kernel compiles for every architecture that each compiler here knows, without spills and within its budget."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import CATALOG, PORTABLE, KernelSpec
from cudadoctor.gpu.child import Child, child_argv
from cudadoctor.gpu.sources import inlined_source
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.resources import kernels_folder
from tests.fakes.nvrtc_wheels import NVRTC_12_4, NVRTC_13_0, nvrtc_library

TIMEOUT_S = 120.0
PTXAS_VERBOSE = re.compile(
    r"(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?:.*?(?P<smem>\d+) bytes smem)?",
    re.DOTALL,
)
"""ptxas info    : Compiling entry function 'gemm_f32_tiled_sm50' for 'sm_90'
ptxas info    : Function properties for gemm_f32_tiled_sm50
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 123 registers, used 1 barriers, 16896 bytes smem"""

every_kernel = pytest.mark.parametrize("kernel", CATALOG, ids=lambda kernel: kernel.name)


def check_budget(kernel: KernelSpec, log: str) -> None:
    """What ptxas reports is within the kernel's row in the catalogue."""
    entries = list(PTXAS_VERBOSE.finditer(log))
    assert len(entries) == len(kernel.entries), log
    for found in entries:
        assert max(int(found[name]) for name in ("stack", "stores", "loads")) <= kernel.max_spill_bytes, log
        assert int(found["registers"]) <= kernel.max_registers, log
        assert int(found["smem"] or 0) == kernel.smem_bytes, log
    warnings = [line for line in log.lower().splitlines() if "warning" in line]
    assert not [line for line in warnings if "spill" not in line or not kernel.max_spill_bytes], log
    assert "C75" not in log, f"ptxas had to serialise wgmma or to ignore setmaxnreg: {log}"


def targets_of(kernel: KernelSpec, known: Sequence[int]) -> list[str]:
    """What to compile for: the portable kernels for all, the others for their first, Hopper and the newest, to save time."""
    if kernel.target_suffix:
        return [f"sm_{kernel.lowest_target.number}{kernel.target_suffix}"]
    possible = [number for number in known if kernel.runs_on(ComputeCapability.from_number(number))]
    chosen = possible if kernel in PORTABLE else sorted({possible[0], 90, possible[-1]})
    return [f"sm_{number}" for number in chosen]


@every_kernel
@pytest.mark.parametrize("requirement", [NVRTC_12_4, NVRTC_13_0])
def test_nvrtc_compiles_it_for_every_target(requirement: str, kernel: KernelSpec, tmp_path: Path) -> None:
    library = nvrtc_library(requirement)
    output = tmp_path / "kernel.cubin"
    with Child(child_argv("nvrtc_child"), os.environ) as child:
        known = child.ask({"do": "load", "library": str(library)}, TIMEOUT_S)["architectures"]
        assert len(known) > 10
        for target in targets_of(kernel, known):
            answer = child.ask(
                {
                    "do": "compile",
                    "source": inlined_source(kernels_folder(), kernel.file),
                    "name": kernel.file,
                    "options": [
                        f"-arch={target}",
                        "-std=c++17",
                        "--ptxas-options=-v",
                        *(f"-D{macro}" for macro in kernel.defines),
                    ],
                    "kind": "cubin",
                    "output": str(output),
                },
                TIMEOUT_S,
            )
            assert "compile_s" in answer, answer
            assert output.read_bytes().startswith(b"\x7fELF")
            check_budget(kernel, answer["log"])


@pytest.mark.nvcc
@every_kernel
def test_nvcc_compiles_the_file_as_it_lies(kernel: KernelSpec, tmp_path: Path) -> None:
    """Without our inlining, for the newest plain target that this nvcc names."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, timeout=60, check=True).stdout
    known = sorted(ComputeCapability.parse(line).number for line in listed.split() if re.fullmatch(r"sm_\d+", line))
    newest = targets_of(kernel, known)[-1]
    command = [nvcc, "-std=c++17", f"-I{kernels_folder()}", "-cubin", f"-arch={newest}", "-lineinfo", "-Xptxas=-v,-warn-spills"]
    command += [
        *(f"-D{macro}" for macro in kernel.defines),
        "-o",
        str(tmp_path / "out.cubin"),
        str(kernels_folder() / kernel.file),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    check_budget(kernel, done.stderr)
