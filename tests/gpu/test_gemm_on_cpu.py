"""The GEMM rungs below wgmma, compiled for the CPU with stand-ins for their instructions: indices, tails, numbers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import CATALOG, GEMM_F32_TILED, PORTABLE, KernelSpec, Method, Operation
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.resources import kernels_folder
from tests.fakes.build import build_kernel_on_cpu

Machine = Callable[..., dict[str, str]]
RUNGS = [
    kernel for kernel in CATALOG if kernel.op is Operation.GEMM and kernel not in PORTABLE and kernel.method is not Method.WGMMA
]


def build(kernel: KernelSpec, folder: Path, right: str = "", wrong: str = "", file: str = "") -> None:
    """The kernel for the CPU, whose dynamic shared memory is an array there; with a mistake in `file`, if any."""
    kernels = folder / "kernels"
    shutil.copytree(kernels_folder(), kernels)
    source = kernels / kernel.file
    dynamic, static = "extern __shared__ Gemm::SharedStorage shared[];", "__shared__ Gemm::SharedStorage shared[1];"
    source.write_text(source.read_text().replace(dynamic, static))
    if file:
        text = (kernels / file).read_text()
        assert right in text, "the mistake is made where the source still says so"
        (kernels / file).write_text(text.replace(right, wrong))
    build_kernel_on_cpu(kernel, folder, kernels)


def outcome(kernel: KernelSpec, folder: Path, libcuda: str, machine: Machine) -> str:
    image = folder / "kernel.ptx"
    image.write_text((kernels_folder() / GEMM_F32_TILED.ptx_file).read_text().replace(GEMM_F32_TILED.entry, kernel.entry))
    with DriverSession(machine(FAKE_CUDA_KERNELS=folder), libcuda) as session:
        answer = session.prove(image, kernel.request(), 0, 20261201, 120)
    assert answer["step"] != "launch" or answer["outcome"] == "passed", answer
    return str(answer["outcome"])


@pytest.mark.parametrize("kernel", RUNGS, ids=lambda kernel: kernel.name)
def test_the_rung_computes_the_right_numbers(kernel: KernelSpec, fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    build(kernel, tmp_path)
    assert outcome(kernel, tmp_path, fake_libcuda, machine) == "passed"


MISTAKES = [
    ("gemm_f32_blocked_sm80", "gemm/blocked_sm80.cuh", "left > i * PASS_ROWS ? 4 : 0", "4"),
    ("gemm_f32_blocked_nn_sm80", "gemm/blocked_sm80.cuh", "k_left -= TILE_K;", "k_left -= 0;"),
    ("gemm_f32_blocked_sm50", "gemm/blocked_sm50.cuh", "read ^= 1;", "read ^= 0;"),
    ("gemm_f16_mma_sm75", "gemm/mma_sm75.cuh", "elems_left > 0", "true"),
    ("gemm_bf16_mma_sm80_n64", "gemm/mma_tile.cuh", "if (d_row < M)", "if (d_row < M - 1)"),
    ("gemm_bf16_mma_sm80", "gemm/mma_sm80.cuh", "copies.next_slice();\n                    cp_async", "cp_async"),
    ("gemm_f16_mma_sm80", "gemm/raster.cuh", "first_m + in_group % rows", "first_m + in_group % GROUP_M"),
]


@pytest.mark.parametrize(("name", "file", "right", "wrong"), MISTAKES, ids=[f"{row[0]}-{row[2]}" for row in MISTAKES])
def test_a_mistake_is_caught(
    name: str, file: str, right: str, wrong: str, fake_libcuda: str, machine: Machine, tmp_path: Path
) -> None:
    kernel = next(kernel for kernel in RUNGS if kernel.name == name)
    build(kernel, tmp_path, right, wrong, file)
    assert outcome(kernel, tmp_path, fake_libcuda, machine) != "passed"
