from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import PORTABLE, KernelSpec
from cudadoctor.gpu.shipped_ptx import PTX_VERSION, source_digest
from cudadoctor.resources import kernels_folder

kernels = pytest.mark.parametrize("kernel", PORTABLE, ids=lambda kernel: kernel.name)


@kernels
def test_the_ptx_belongs_to_the_source(kernel: KernelSpec) -> None:
    first, version, target = (kernels_folder() / kernel.ptx_file).read_text(encoding="ascii").splitlines()[:3]
    assert first == f"// source sha256 {source_digest(kernels_folder(), kernel)}", "run tools/make_ptx.py (its head says how)"
    assert version == f".version {PTX_VERSION}"
    assert target == f".target sm_{kernel.lowest_target.number}"


@kernels
def test_the_entry_is_there(kernel: KernelSpec) -> None:
    text = (kernels_folder() / kernel.ptx_file).read_text(encoding="ascii")
    assert all(f".visible .entry {entry}(" in text for entry in kernel.entries)


def test_no_file_is_left_over() -> None:
    assert {path.name for path in (kernels_folder() / "ptx").iterdir()} == {Path(kernel.ptx_file).name for kernel in PORTABLE}


@pytest.mark.nvcc
@kernels
def test_ptxas_accepts_it_at_its_version(kernel: KernelSpec, tmp_path: Path) -> None:
    """A feature that came after PTX_VERSION would be refused: the version line was set back by hand."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc here")
    source = kernels_folder() / kernel.ptx_file
    command = [nvcc, "-cubin", "-arch=sm_90", "-o", str(tmp_path / "out.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
