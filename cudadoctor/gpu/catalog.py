"""The kernels that ship with cudadoctor, one frozen row each. Budgets are those in the head of the kernel's file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from cudadoctor.model.versions import ComputeCapability, SmTarget


class Operation(Enum):
    """What a kernel computes; all kernels of an operation take the same parameters."""

    GEMM = "gemm"
    """(a [M,K], b [N,K], d [M,N], int M, int N, int K): D = A B^T."""
    ATTENTION = "attention"
    """(q, k, v, o, kv_lengths, int heads, kv_heads, Lq, Lk, float scale, int causal); see the head of the kernel."""


class DataType(Enum):
    """How elements are stored; sums are fp32."""

    F32 = "f32"
    F16 = "f16"


class Method(Enum):
    """The rung of the ladder: each adds one idea to the one before."""

    NAIVE = "naive"
    TILED = "tiled"
    FUSED = "fused"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel and its budget.

    `file` is relative to the folder of kernels; `entry` the function in it; `block` the threads of a CTA; `tile` what a CTA
    computes: rows and columns of D, or queries of a head. `max_registers` holds for a thread on every architecture.
    """

    op: Operation
    dtype: DataType
    method: Method
    lowest_target: ComputeCapability
    file: str
    entry: str
    block: tuple[int, int, int]
    tile: tuple[int, ...]
    smem_bytes: int
    max_registers: int
    head_dim: int | None = None

    @property
    def name(self) -> str:
        """The entry's name; with the head dimension where it is not the default."""
        return self.entry if self.head_dim in (None, DEFAULT_HEAD_DIM) else f"{self.entry}_d{self.head_dim}"

    @property
    def defines(self) -> tuple[str, ...]:
        """Macros to compile it with, as `NAME=VALUE`."""
        return () if self.head_dim is None else (f"HEAD_DIM={self.head_dim}",)

    @property
    def ptx_file(self) -> str:
        """The PTX that ships for the layer driver-jit, relative to the folder of kernels."""
        return f"ptx/{self.name}.ptx"

    def request(self) -> dict[str, Any]:
        """What the driver child needs to know to launch and check it."""
        return {
            "op": self.op.value,
            "dtype": self.dtype.value,
            "entry": self.entry,
            "block": list(self.block),
            "tile": list(self.tile),
            "head_dim": self.head_dim,
        }


DEFAULT_HEAD_DIM = 64
SM50 = ComputeCapability(5, 0)


def _gemm(
    dtype: DataType, method: Method, block: tuple[int, int, int], tile: int, smem_bytes: int, max_registers: int
) -> KernelSpec:
    entry = f"gemm_{dtype.value}_{method.value}_sm50"
    file = f"gemm/{entry}.cu"
    return KernelSpec(Operation.GEMM, dtype, method, SM50, file, entry, block, (tile, tile), smem_bytes, max_registers)


def _attention(dtype: DataType, head_dim: int, block_q: int, smem_bytes: int) -> KernelSpec:
    entry = f"attn_fwd_{dtype.value}_fused_sm50"
    file = f"attention/{entry}.cu"
    return KernelSpec(
        Operation.ATTENTION, dtype, Method.FUSED, SM50, file, entry, (128, 1, 1), (block_q,), smem_bytes, 168, head_dim
    )


GEMM_F32_NAIVE = _gemm(DataType.F32, Method.NAIVE, (16, 16, 1), 16, 0, 64)
GEMM_F16_NAIVE = _gemm(DataType.F16, Method.NAIVE, (16, 16, 1), 16, 0, 64)
GEMM_F32_TILED = _gemm(DataType.F32, Method.TILED, (256, 1, 1), 128, 16896, 128)
GEMM_F16_TILED = _gemm(DataType.F16, Method.TILED, (256, 1, 1), 128, 16896, 128)
ATTN_F32_FUSED = _attention(DataType.F32, 64, 64, 43520)
ATTN_F16_FUSED = _attention(DataType.F16, 64, 64, 43520)
ATTN_F32_FUSED_D128 = _attention(DataType.F32, 128, 32, 39168)
ATTN_F16_FUSED_D128 = _attention(DataType.F16, 128, 32, 39168)

CATALOG = (
    GEMM_F32_NAIVE,
    GEMM_F32_TILED,
    GEMM_F16_NAIVE,
    GEMM_F16_TILED,
    ATTN_F32_FUSED,
    ATTN_F16_FUSED,
    ATTN_F32_FUSED_D128,
    ATTN_F16_FUSED_D128,
)
"""Every kernel, in the order of the ladder."""

QUICK = (GEMM_F32_TILED, ATTN_F16_FUSED)
"""One kernel an operation, both data types: what `check` runs through each layer."""

FULL = (GEMM_F32_NAIVE, GEMM_F32_TILED, GEMM_F16_NAIVE, GEMM_F16_TILED, ATTN_F32_FUSED, ATTN_F16_FUSED)
"""What `check --full` runs through each layer."""

TEGRA = frozenset(ComputeCapability(*pair) for pair in ((5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)))
"""Capabilities of Tegra, which run only code made for exactly them (CUDA C++ Programming Guide, binary compatibility)."""


def choose_target(device: ComputeCapability, offered: tuple[SmTarget, ...]) -> SmTarget | None:
    """The target of `offered` whose machine code suits `device`: exact, else the same major's next lower, else None."""
    plain = [target for target in offered if target == target.compute_capability.sm]
    runnable = [target for target in plain if _runs_on(target.compute_capability, device)]
    return max(runnable, default=None, key=lambda target: target.compute_capability)


def _runs_on(built: ComputeCapability, device: ComputeCapability) -> bool:
    if built == device:
        return True
    return built.major == device.major and built.minor < device.minor and not TEGRA & {built, device}
