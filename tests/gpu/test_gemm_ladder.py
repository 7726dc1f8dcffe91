"""Which rung of the GEMM ladder is chosen, and that each is launched as it wants to be."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import (
    CATALOG,
    GEMM_BF16_WGMMA,
    GEMM_F32_BLOCKED,
    GEMM_F32_BLOCKED_NN,
    GEMM_F32_BLOCKED_SM50,
    GEMM_F32_TILED,
    LADDER,
    PORTABLE,
    KernelSpec,
    Operation,
    rungs,
)
from cudadoctor.gpu.driver_session import DriverSession, describe_driver
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice, ProofRequest, prove_layers
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.resources import kernels_folder
from tests.fakes.compilers import fake_nvcc

Machine = Callable[..., dict[str, str]]
GEMM_RUNGS = [kernel for kernel in CATALOG if kernel.op is Operation.GEMM and kernel not in PORTABLE]


@pytest.mark.parametrize(
    ("device", "names"),
    [
        ("6.1", []),
        ("7.0", []),
        ("7.5", ["gemm_f16_mma_sm75"]),
        ("8.0", ["gemm_bf16_mma_sm80_n64", "gemm_f16_mma_sm75"]),
        ("8.9", ["gemm_bf16_mma_sm80_n64", "gemm_f16_mma_sm75"]),
        ("9.0", ["gemm_bf16_wgmma_sm90a_n128", "gemm_bf16_mma_sm80_n64", "gemm_f16_mma_sm75"]),
        ("10.0", ["gemm_bf16_mma_sm80_n64", "gemm_f16_mma_sm75"]),
        ("12.1", ["gemm_bf16_mma_sm80_n64", "gemm_f16_mma_sm75"]),
    ],
)
def test_the_rungs_of_a_gpu(device: str, names: list[str]) -> None:
    chosen = rungs(GEMM_F32_TILED, ComputeCapability.parse(device), LADDER)
    assert [kernel.name for kernel in chosen] == [*names, "gemm_f32_tiled_sm50"]


def test_a_rung_that_newer_gpus_do_without_is_not_for_them() -> None:
    assert GEMM_F32_BLOCKED.runs_on(ComputeCapability(9, 0)) and not GEMM_F32_BLOCKED.runs_on(ComputeCapability(10, 0))
    assert GEMM_F32_BLOCKED_SM50.runs_on(ComputeCapability(10, 0)) and GEMM_F32_BLOCKED_NN.runs_on(ComputeCapability(10, 0))


def test_small_shared_memory_holds_the_rungs_of_its_architectures() -> None:
    """8.6, 8.9 and 12.x allow 101,376 bytes a CTA (CUDA C++ Programming Guide, compute capabilities)."""
    assert all(kernel.dynamic_smem_bytes <= 101376 for kernel in LADDER if not kernel.target_suffix)


@pytest.mark.parametrize("kernel", GEMM_RUNGS, ids=lambda kernel: kernel.name)
def test_a_rung_is_launched_as_its_row_says(kernel: KernelSpec, fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    """Parameters, tensor maps and shared memory suit a strict driver; another kernel's PTX stands for the code."""
    image = tmp_path / "kernel.ptx"
    image.write_text((kernels_folder() / GEMM_F32_TILED.ptx_file).read_text().replace(GEMM_F32_TILED.entry, kernel.entry))
    request = {**kernel.request(), "layout_of_b": "nk"}  # the stand-in computes nothing else
    with DriverSession(machine(FAKE_CUDA_COMPUTE=1), fake_libcuda) as session:
        answer = session.prove(image, request, 0, 1, 60)
    assert answer["outcome"] == "passed", answer


def test_more_shared_memory_than_there_is_fails_before_the_launch(fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    kernel = GEMM_BF16_WGMMA
    image = tmp_path / "kernel.ptx"
    image.write_text((kernels_folder() / GEMM_F32_TILED.ptx_file).read_text().replace(GEMM_F32_TILED.entry, kernel.entry))
    with DriverSession(machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_SHARED_MEMORY=101376), fake_libcuda) as session:
        answer = session.prove(image, kernel.request(), 0, 1, 60)
    assert (answer["outcome"], answer["because"]) == ("failed", "cuFuncSetAttribute failed"), answer


def prove(env: dict[str, str], libcuda: str, nvrtc: str, nvcc: Path) -> tuple[Proof, ...]:
    driver = describe_driver(env, libcuda, 5.0)
    compilers = {"nvrtc": (NvrtcChoice(nvrtc, "NVRTC"),), "nvcc": (NvccChoice(str(nvcc), "nvcc 11.8"),)}
    request = ProofRequest(env, driver, libcuda, kernels=(GEMM_F32_TILED,), ladder=LADDER, **compilers)  # type: ignore[arg-type]  # by name
    return prove_layers(request, time.monotonic() + 60)


def test_the_highest_rung_runs_where_the_compiler_reaches_it(
    fake_libcuda: str, nvrtc_12_4: str, machine: Machine, tmp_path: Path
) -> None:
    """The driver alone gets the portable kernel; an nvcc that knows no sm_90a leaves the next rung."""
    nvcc = fake_nvcc(
        tmp_path / "bin", 'case "$*" in *sm_90a*) echo "nvcc fatal : Unsupported gpu architecture" >&2; esac; exit 1'
    )
    proofs = prove(machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_CC="9.0"), fake_libcuda, nvrtc_12_4, nvcc)
    by_layer = {proof.layer: proof for proof in proofs}
    jit, nvrtc, failed = (by_layer[layer] for layer in (ProofLayer.DRIVER_JIT, ProofLayer.NVRTC, ProofLayer.NVCC))
    assert (jit.kernel, jit.outcome) == ("gemm_f32_naive_sm50", ProofOutcome.PASSED)
    assert (nvrtc.kernel, nvrtc.target, nvrtc.outcome) == ("gemm_bf16_wgmma_sm90a_n128", "sm_90a", ProofOutcome.PASSED), nvrtc
    assert failed.outcome is ProofOutcome.FAILED and "gemm_bf16_mma_sm80_n64: nvcc ended" in str(failed.because), failed


def test_a_driver_without_tensor_maps_gets_the_rung_below(
    fake_libcuda: str, nvrtc_12_4: str, machine: Machine, tmp_path: Path
) -> None:
    env = machine(FAKE_CUDA_COMPUTE=1, FAKE_CUDA_CC="9.0", FAKE_CUDA_DRIVER_VERSION=11080)
    proofs = prove(env, fake_libcuda, nvrtc_12_4, fake_nvcc(tmp_path / "bin", "exit 1"))
    assert "gemm_bf16_mma_sm80_n64" in {proof.kernel for proof in proofs if proof.layer is ProofLayer.NVRTC}


def test_the_ladder_holds_one_rung_for_each_generation() -> None:
    assert [kernel.lowest_target.number for kernel in LADDER if kernel.op is Operation.GEMM] == [90, 80, 75]
