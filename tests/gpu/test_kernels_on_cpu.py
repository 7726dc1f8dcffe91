"""The real kernel sources, compiled for the CPU, through the whole driver child: indices, tails, masks and numbers are right.

And the other way round: a kernel with a typical mistake in it is caught.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.gpu.catalog import (
    ATTN_F16_FUSED,
    ATTN_F16_NAIVE,
    ATTN_F32_FUSED,
    BRANCH_U32_PATHS,
    CHASE_U32_CYCLE,
    CLOCK_U32_WINDOW,
    COPY_U32_VECTORS,
    GATHER_U32_STRIDED,
    GEMM_F16_TILED,
    GEMM_F32_NAIVE,
    GEMM_F32_TILED,
    PORTABLE,
    ROTARY_F32_HALVES,
    SOFTMAX_F32_ONLINE,
    TRANSPOSE_U32_CONFLICTED,
    TRANSPOSE_U32_PADDED,
    KernelSpec,
)
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.resources import kernels_folder
from tests.fakes.build import build_kernel_on_cpu

Machine = Callable[..., dict[str, str]]


def run(kernel: KernelSpec, libraries: Path, libcuda: str, machine: Machine) -> dict[str, Any]:
    with DriverSession(machine(FAKE_CUDA_KERNELS=libraries), libcuda) as session:
        return session.prove(kernels_folder() / kernel.ptx_file, kernel.request(), 0, 20261130, 120)


@pytest.mark.parametrize("kernel", PORTABLE, ids=lambda kernel: kernel.name)
def test_every_kernel_computes_the_right_numbers(kernel: KernelSpec, fake_libcuda: str, machine: Machine, tmp_path: Path) -> None:
    build_kernel_on_cpu(kernel, tmp_path)
    answer = run(kernel, tmp_path, fake_libcuda, machine)
    assert answer["outcome"] == "passed", answer


MISTAKES = [
    (GEMM_F32_NAIVE, "gemm/naive.cuh", "k < K;", "k < K - 1;"),
    (GEMM_F32_NAIVE, "gemm/naive.cuh", "row >= M || col >= N", "row >= M || col >= N - 1"),
    (GEMM_F32_TILED, "gemm/tiled.cuh", "k0 + k + j < K ?", "k0 + k + j <= K ?"),
    (GEMM_F16_TILED, "gemm/tiled.cuh", "const bool vectors = K % VEC == 0;", "const bool vectors = false; K -= K % 16;"),
    (GEMM_F32_TILED, "gemm/tiled.cuh", "if (col < N)", "if (col <= N)"),
    (ATTN_F32_FUSED, "attention/fused.cuh", "query + r + shift", "query + r + shift + 1"),
    (
        ATTN_F32_FUSED,
        "attention/fused.cuh",
        "const float m_safe = m_new == negative_infinity() ? 0.0f : m_new;",
        "const float m_safe = m_new;",
    ),
    (ATTN_F32_FUSED, "attention/fused.cuh", "acc.o[r][c] *= rescale;", ";"),
    (ATTN_F16_FUSED, "attention/fused.cuh", "if (row < rows) vecs", "vecs"),
    (ATTN_F16_FUSED, "attention/attn_fwd_f16_fused_sm50.cu", "/ (heads / kv_heads)", "% kv_heads"),
    (ATTN_F16_FUSED, "attention/fused.cuh", "key0 + BLOCK_KV > seen_by_all", "key0 > seen_by_all"),
    (ATTN_F16_NAIVE, "attention/naive.cuh", "query + 1 + Lk - Lq", "query + Lk - Lq"),
    (SOFTMAX_F32_ONLINE, "attention/softmax_f32_online_sm50.cu", "part.sum * expf(part.maximum - maximum)", "part.sum"),
    (
        SOFTMAX_F32_ONLINE,
        "attention/softmax_f32_online_sm50.cu",
        "whole.sum > 0.0f ? 1.0f / whole.sum : 0.0f",
        "1.0f / whole.sum",
    ),
    (ROTARY_F32_HALVES, "attention/rotary_f32_halves_sm50.cu", "static_cast<unsigned>(row) % length", "row"),
    (ROTARY_F32_HALVES, "attention/rotary_f32_halves_sm50.cu", "min(QUAD, half - i)", "QUAD"),
    (SOFTMAX_F32_ONLINE, "attention/softmax_f32_online_sm50.cu", "column = vecs * VEC + threadIdx.x", "column = threadIdx.x"),
    (ATTN_F32_FUSED, "attention/fused.cuh", "sum > 0.0f ? 1.0f / sum : 0.0f", "1.0f / sum"),
    (COPY_U32_VECTORS, "memory/copy_u32_vectors_sm50.cu", "= x[i]", "= x[i / 2 * 2]"),
    (GATHER_U32_STRIDED, "memory/gather_u32_strided_sm50.cu", "stride + pass]", "stride]"),
    (TRANSPOSE_U32_PADDED, "memory/transpose.cuh", "row < columns && col < rows", "row < columns"),
    (
        TRANSPOSE_U32_CONFLICTED,
        "memory/transpose.cuh",
        "shared.tile[lane][warp + p * STEP] = part",
        "shared.tile[warp + p * STEP][lane] = part",
    ),
    (BRANCH_U32_PATHS, "memory/branch_u32_paths_sm50.cu", "i / group % 4", "i % 4"),
    (CHASE_U32_CYCLE, "memory/chase_u32_cycle_sm50.cu", "step < steps", "step <= steps"),
    (CLOCK_U32_WINDOW, "memory/clock_u32_window_sm50.cu", "out[0] = ", "out[1] = "),
]


@pytest.mark.parametrize(
    ("kernel", "file", "right", "wrong"), MISTAKES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_mistake_is_caught(
    kernel: KernelSpec, file: str, right: str, wrong: str, fake_libcuda: str, machine: Machine, tmp_path: Path
) -> None:
    kernels = tmp_path / "kernels"
    shutil.copytree(kernels_folder(), kernels)
    text = (kernels / file).read_text()
    assert right in text, "the mistake is made where the source still says so"
    (kernels / file).write_text(text.replace(right, wrong))
    build_kernel_on_cpu(kernel, tmp_path, kernels)
    answer = run(kernel, tmp_path, fake_libcuda, machine)
    assert answer["outcome"] == "failed", answer
    assert answer["step"] == "verify"
