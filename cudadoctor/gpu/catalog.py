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
    """(q, k, v, o, kv_lengths, int heads, kv_heads, Lq, Lk, float scale, int causal); see the head of the kernel.

    Kernels on Grid.LINE take int batch besides, those on Grid.PERSISTENT int batch and head_group, the naive ones float* scores.
    """
    SOFTMAX = "softmax"
    """(x [rows, columns], y, int rows, int columns): each row of Y is the softmax of that of X."""
    ROTARY = "rotary"
    """(x [rows, columns], cosines, sines [length, columns / 2], y, int rows, int columns, int length)."""
    COPY = "copy"
    """(x [vectors], y [vectors], int vectors) of 16 bytes each: Y = X."""
    GATHER = "gather"
    """(x [elems], y [elems], int elems, int stride): Y takes every stride-th element of X, then the next of each."""
    TRANSPOSE = "transpose"
    """(x [rows, columns], y [columns, rows], int rows, int columns, int rounds): Y = X^T."""
    BRANCH = "branch"
    """(x [elems], y [elems], int elems, int group, int steps): one of four congruences, the same for `group` in a row."""
    CHASE = "chase"
    """(next [elems], ends [CTAs * 32], int elems, int steps, int lanes): where each chain of links ends."""
    CLOCK = "clock"
    """(out [2], int nanoseconds): cycles and nanoseconds that passed."""


class DataType(Enum):
    """How elements are stored; sums are fp32, of integers modulo 2^32."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    U32 = "u32"


class Method(Enum):
    """The rung of the ladder: each adds one idea to the one before."""

    NAIVE = "naive"
    TILED = "tiled"
    BLOCKED = "blocked"
    MMA = "mma"
    WGMMA = "wgmma"
    FUSED = "fused"
    ONLINE = "online"
    HALVES = "halves"
    VECTORS = "vectors"
    STRIDED = "strided"
    CONFLICTED = "conflicted"
    PADDED = "padded"
    PATHS = "paths"
    CYCLE = "cycle"
    WINDOW = "window"


class Grid(Enum):
    """How CTAs are laid over the tiles of D."""

    PLANE = "plane"
    """x over columns of tiles, y over rows."""
    LINE = "line"
    """One CTA a tile, in one dimension."""
    PERSISTENT = "persistent"
    """As LINE, but no more CTAs than the GPU has multiprocessors."""


class Operands(Enum):
    """What a kernel takes for its matrices."""

    POINTERS = "pointers"
    TENSOR_MAPS = "tensor_maps"


class LayoutOfB(Enum):
    """How B of a GEMM is stored."""

    NK = "nk"
    KN = "kn"


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel and its budget.

    `file` is relative to the folder of kernels; `entry` the function in it; `block` the threads of a CTA; `tile` what a CTA
    computes: rows and columns of D, or queries of a head. `max_registers` holds for a thread on every architecture.
    `target_suffix` "a" binds it to exactly `lowest_target`. `smem_bytes` is static, `dynamic_smem_bytes` asked for at launch.
    Rows of the matrices must be multiples of `row_multiple` elements. `tile_n` is the macro GEMM_TILE_N, `block_q` the macro
    ATTENTION_BLOCK_Q, where it has one. `highest_major` is the newest generation that it is made for, where newer ones do better
    with another kernel. `passes` are the suffixes of kernels that run one after the other, if several.
    `max_spill_bytes` is what ptxas may spill on any architecture, if the head of the file says that it pays.
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
    target_suffix: str = ""
    grid: Grid = Grid.PLANE
    operands: Operands = Operands.POINTERS
    dynamic_smem_bytes: int = 0
    row_multiple: int = 1
    tile_n: int | None = None
    layout_of_b: LayoutOfB = LayoutOfB.NK
    highest_major: int | None = None
    block_q: int | None = None
    passes: tuple[str, ...] = ("",)
    max_spill_bytes: int = 0

    @property
    def name(self) -> str:
        """The entry's name; with the head dimension or the width of the tile where it is not the default."""
        if self.tile_n not in (None, DEFAULT_TILE_N):
            return f"{self.entry}_n{self.tile_n}"
        width = "" if self.head_dim in (None, DEFAULT_HEAD_DIM) else f"_d{self.head_dim}"
        return f"{self.entry}{width}" + (f"_q{self.block_q}" if self.block_q else "")

    @property
    def entries(self) -> tuple[str, ...]:
        """The functions to launch, in order."""
        return tuple(f"{self.entry}{suffix}" for suffix in self.passes)

    @property
    def weights(self) -> DataType:
        """How an attention kernel stores softmax's weights: tensor cores take them in the type of V."""
        return self.dtype if self.method in (Method.MMA, Method.WGMMA) else DataType.F32

    @property
    def defines(self) -> tuple[str, ...]:
        """Macros to compile it with, as `NAME=VALUE`."""
        values = {"HEAD_DIM": self.head_dim, "GEMM_TILE_N": self.tile_n, "ATTENTION_BLOCK_Q": self.block_q}
        return tuple(f"{name}={value}" for name, value in values.items() if value is not None)

    def runs_on(self, device: ComputeCapability) -> bool:
        """True if code made from it for `device` can use the instructions that it needs."""
        if self.target_suffix:
            return device == self.lowest_target
        return self.lowest_target <= device and (self.highest_major is None or device.major <= self.highest_major)

    @property
    def ptx_file(self) -> str:
        """The PTX that ships for the layer driver-jit, relative to the folder of kernels."""
        return f"ptx/{self.name}.ptx"

    def request(self) -> dict[str, Any]:
        """What the driver child needs to know to launch and check it."""
        return {
            "op": self.op.value,
            "dtype": self.dtype.value,
            "entries": list(self.entries),
            "block": list(self.block),
            "tile": list(self.tile),
            "head_dim": self.head_dim,
            "grid": self.grid.value,
            "operands": self.operands.value,
            "dynamic_smem_bytes": self.dynamic_smem_bytes,
            "row_multiple": self.row_multiple,
            "layout_of_b": self.layout_of_b.value,
            "weights": self.weights.value,
        }


DEFAULT_HEAD_DIM = 64
DEFAULT_TILE_N = 256
SM50 = ComputeCapability(5, 0)
SM75 = ComputeCapability(7, 5)
SM80 = ComputeCapability(8, 0)
SM90 = ComputeCapability(9, 0)


def _gemm(
    dtype: DataType, method: Method, block: tuple[int, int, int], tile: int, smem_bytes: int, max_registers: int
) -> KernelSpec:
    entry = f"gemm_{dtype.value}_{method.value}_sm50"
    file = f"gemm/{entry}.cu"
    return KernelSpec(Operation.GEMM, dtype, method, SM50, file, entry, block, (tile, tile), smem_bytes, max_registers)


def _gemm_blocked(entry: str, tile: tuple[int, int], row_multiple: int, layout_of_b: LayoutOfB) -> KernelSpec:
    return KernelSpec(
        Operation.GEMM,
        DataType.F32,
        Method.BLOCKED,
        SM80,
        f"gemm/{entry}.cu",
        entry,
        block=(256, 1, 1),
        tile=tile,
        smem_bytes=0,
        max_registers=255,
        grid=Grid.LINE,
        dynamic_smem_bytes=75264,
        row_multiple=row_multiple,
        layout_of_b=layout_of_b,
        highest_major=9 if layout_of_b is LayoutOfB.NK else None,
    )


def _gemm_mma_sm80(dtype: DataType, tile_n: int, threads: int, dynamic_smem_bytes: int) -> KernelSpec:
    entry = f"gemm_{dtype.value}_mma_sm80"
    return KernelSpec(
        Operation.GEMM,
        dtype,
        Method.MMA,
        SM80,
        f"gemm/{entry}.cu",
        entry,
        block=(threads, 1, 1),
        tile=(128, tile_n),
        smem_bytes=0,
        max_registers=255,
        grid=Grid.LINE,
        dynamic_smem_bytes=dynamic_smem_bytes,
        row_multiple=8,
        tile_n=tile_n,
    )


def _gemm_wgmma(dtype: DataType, tile: tuple[int, int], threads: int, dynamic_smem_bytes: int, max_registers: int) -> KernelSpec:
    entry = f"gemm_{dtype.value}_wgmma_sm90a"
    return KernelSpec(
        Operation.GEMM,
        dtype,
        Method.WGMMA,
        SM90,
        f"gemm/{entry}.cu",
        entry,
        block=(threads, 1, 1),
        tile=tile,
        smem_bytes=0,
        max_registers=max_registers,
        target_suffix="a",
        grid=Grid.PERSISTENT,
        operands=Operands.TENSOR_MAPS,
        dynamic_smem_bytes=dynamic_smem_bytes,
        row_multiple=8,
        tile_n=tile[1],
    )


def _attention(dtype: DataType, head_dim: int) -> KernelSpec:
    entry = f"attn_fwd_{dtype.value}_fused_sm50"
    file = f"attention/{entry}.cu"
    return KernelSpec(Operation.ATTENTION, dtype, Method.FUSED, SM50, file, entry, (128, 1, 1), (64,), 49152, 255, head_dim)


def _by_rows(op: Operation, method: Method, smem_bytes: int, max_registers: int) -> KernelSpec:
    entry = f"{op.value}_f32_{method.value}_sm50"
    file = f"attention/{entry}.cu"
    return KernelSpec(op, DataType.F32, method, SM50, file, entry, (256, 1, 1), (1,), smem_bytes, max_registers)


def _attention_naive(dtype: DataType, head_dim: int) -> KernelSpec:
    entry = f"attn_fwd_{dtype.value}_naive_sm50"
    return KernelSpec(
        Operation.ATTENTION,
        dtype,
        Method.NAIVE,
        SM50,
        f"attention/{entry}.cu",
        entry,
        block=(256, 1, 1),
        tile=(256,),
        smem_bytes=0,
        max_registers=64,
        head_dim=head_dim,
        passes=("_scores", "_softmax", "_values"),
    )


def _attention_mma(dtype: DataType, head_dim: int) -> KernelSpec:
    entry = f"attn_fwd_{dtype.value}_mma_sm80"
    return KernelSpec(
        Operation.ATTENTION,
        dtype,
        Method.MMA,
        SM80,
        f"attention/{entry}.cu",
        entry,
        block=(128, 1, 1),
        tile=(128,),
        smem_bytes=0,
        max_registers=255,
        head_dim=head_dim,
        grid=Grid.LINE,
        dynamic_smem_bytes=65536 if head_dim == 128 else 49152,
        max_spill_bytes=48 if head_dim == 128 else 0,
    )


def _attention_wgmma(
    dtype: DataType, head_dim: int, tile: tuple[int, int], smem_bytes: int, block_q: int | None = None
) -> KernelSpec:
    entry = f"attn_fwd_{dtype.value}_wgmma_sm90a"
    return KernelSpec(
        Operation.ATTENTION,
        dtype,
        Method.WGMMA,
        SM90,
        f"attention/{entry}.cu",
        entry,
        block=(2 * tile[0] + 128, 1, 1),
        tile=tile,
        smem_bytes=0,
        max_registers=168,
        head_dim=head_dim,
        target_suffix="a",
        grid=Grid.PERSISTENT,
        operands=Operands.TENSOR_MAPS,
        dynamic_smem_bytes=smem_bytes,
        block_q=block_q,
    )


def _memory(
    op: Operation,
    method: Method,
    tile: tuple[int, ...],
    *,
    threads: int = 256,
    smem_bytes: int = 0,
    passes: tuple[str, ...] = ("",),
) -> KernelSpec:
    entry = f"{op.value}_u32_{method.value}_sm50"
    file = f"memory/{entry}.cu"
    block = (threads, 1, 1)
    return KernelSpec(op, DataType.U32, method, SM50, file, entry, block, tile, smem_bytes, 32, passes=passes)


GEMM_F32_NAIVE = _gemm(DataType.F32, Method.NAIVE, (16, 16, 1), 16, 0, 64)
GEMM_F16_NAIVE = _gemm(DataType.F16, Method.NAIVE, (16, 16, 1), 16, 0, 64)
GEMM_F32_TILED = _gemm(DataType.F32, Method.TILED, (256, 1, 1), 128, 16896, 128)
GEMM_F16_TILED = _gemm(DataType.F16, Method.TILED, (256, 1, 1), 128, 16896, 128)
ATTN_F32_NAIVE = _attention_naive(DataType.F32, 64)
ATTN_F16_NAIVE = _attention_naive(DataType.F16, 64)
ATTN_F32_NAIVE_D128 = _attention_naive(DataType.F32, 128)
ATTN_F16_NAIVE_D128 = _attention_naive(DataType.F16, 128)
ATTN_F32_FUSED = _attention(DataType.F32, 64)
ATTN_F16_FUSED = _attention(DataType.F16, 64)
ATTN_F32_FUSED_D128 = _attention(DataType.F32, 128)
ATTN_F16_FUSED_D128 = _attention(DataType.F16, 128)
ATTN_F16_MMA = _attention_mma(DataType.F16, 64)
ATTN_BF16_MMA = _attention_mma(DataType.BF16, 64)
ATTN_F16_MMA_D128 = _attention_mma(DataType.F16, 128)
ATTN_BF16_MMA_D128 = _attention_mma(DataType.BF16, 128)
ATTN_F16_WGMMA = _attention_wgmma(DataType.F16, 64, (192, 128), 115712)
ATTN_BF16_WGMMA = _attention_wgmma(DataType.BF16, 64, (192, 128), 115712)
ATTN_F16_WGMMA_D128 = _attention_wgmma(DataType.F16, 128, (128, 128), 197632)
ATTN_BF16_WGMMA_D128 = _attention_wgmma(DataType.BF16, 128, (128, 128), 197632)
ATTN_F16_WGMMA_D128_Q192 = _attention_wgmma(DataType.F16, 128, (192, 80), 181248, 192)
ATTN_BF16_WGMMA_D128_Q192 = _attention_wgmma(DataType.BF16, 128, (192, 80), 181248, 192)

GEMM_F32_BLOCKED_SM50 = KernelSpec(
    Operation.GEMM,
    DataType.F32,
    Method.BLOCKED,
    SM50,
    "gemm/gemm_f32_blocked_sm50.cu",
    "gemm_f32_blocked_sm50",
    block=(256, 1, 1),
    tile=(256, 128),
    smem_bytes=49152,
    max_registers=255,
    grid=Grid.LINE,
    row_multiple=4,
)
GEMM_F32_BLOCKED = _gemm_blocked("gemm_f32_blocked_sm80", (256, 128), 1, LayoutOfB.NK)
GEMM_F32_BLOCKED_NN = _gemm_blocked("gemm_f32_blocked_nn_sm80", (128, 256), 4, LayoutOfB.KN)
GEMM_F16_MMA_SM75 = KernelSpec(
    Operation.GEMM,
    DataType.F16,
    Method.MMA,
    SM75,
    "gemm/gemm_f16_mma_sm75.cu",
    "gemm_f16_mma_sm75",
    block=(256, 1, 1),
    tile=(128, 128),
    smem_bytes=40960,
    max_registers=192,
    grid=Grid.LINE,
    row_multiple=8,
)
GEMM_BF16_MMA_SM80 = _gemm_mma_sm80(DataType.BF16, 256, 256, 147456)
GEMM_BF16_MMA_SM80_N64 = _gemm_mma_sm80(DataType.BF16, 64, 128, 98304)
GEMM_F16_MMA_SM80 = _gemm_mma_sm80(DataType.F16, 256, 256, 147456)
GEMM_F16_MMA_SM80_N64 = _gemm_mma_sm80(DataType.F16, 64, 128, 98304)
GEMM_BF16_WGMMA = _gemm_wgmma(DataType.BF16, (128, 256), 384, 230400, 168)
GEMM_BF16_WGMMA_N128 = _gemm_wgmma(DataType.BF16, (64, 128), 256, 164864, 240)
GEMM_F16_WGMMA = _gemm_wgmma(DataType.F16, (128, 256), 384, 230400, 168)
GEMM_F16_WGMMA_N128 = _gemm_wgmma(DataType.F16, (64, 128), 256, 164864, 240)
SOFTMAX_F32_ONLINE = _by_rows(Operation.SOFTMAX, Method.ONLINE, 64, 48)
ROTARY_F32_HALVES = _by_rows(Operation.ROTARY, Method.HALVES, 0, 40)
COPY_U32_VECTORS = _memory(Operation.COPY, Method.VECTORS, (256,))
GATHER_U32_STRIDED = _memory(Operation.GATHER, Method.STRIDED, (256,))
TRANSPOSE_U32_CONFLICTED = _memory(Operation.TRANSPOSE, Method.CONFLICTED, (32, 32), smem_bytes=4096)
TRANSPOSE_U32_PADDED = _memory(Operation.TRANSPOSE, Method.PADDED, (32, 32), smem_bytes=4224)
BRANCH_U32_PATHS = _memory(Operation.BRANCH, Method.PATHS, (256,))
CHASE_U32_CYCLE = _memory(Operation.CHASE, Method.CYCLE, (32,), threads=32, passes=("_fill", "_walk"))
CLOCK_U32_WINDOW = _memory(Operation.CLOCK, Method.WINDOW, (1,), threads=32)

MEMORY = (
    COPY_U32_VECTORS,
    GATHER_U32_STRIDED,
    TRANSPOSE_U32_CONFLICTED,
    TRANSPOSE_U32_PADDED,
    BRANCH_U32_PATHS,
    CHASE_U32_CYCLE,
    CLOCK_U32_WINDOW,
)
"""Kernels that each show one thing that matters on a GPU; what `bench` measures besides the ladders."""

PORTABLE = (
    GEMM_F32_NAIVE,
    GEMM_F32_TILED,
    GEMM_F16_NAIVE,
    GEMM_F16_TILED,
    ATTN_F32_NAIVE,
    ATTN_F16_NAIVE,
    ATTN_F32_FUSED,
    ATTN_F16_FUSED,
    ATTN_F32_FUSED_D128,
    ATTN_F16_FUSED_D128,
    SOFTMAX_F32_ONLINE,
    ROTARY_F32_HALVES,
    *MEMORY,
)
"""Kernels for every GPU; their PTX ships, for the layer driver-jit."""

CATALOG = (
    *PORTABLE,
    GEMM_F32_BLOCKED_SM50,
    GEMM_F32_BLOCKED,
    GEMM_F32_BLOCKED_NN,
    GEMM_F16_MMA_SM75,
    GEMM_BF16_MMA_SM80,
    GEMM_BF16_MMA_SM80_N64,
    GEMM_F16_MMA_SM80,
    GEMM_F16_MMA_SM80_N64,
    GEMM_BF16_WGMMA,
    GEMM_BF16_WGMMA_N128,
    GEMM_F16_WGMMA,
    GEMM_F16_WGMMA_N128,
    ATTN_F32_NAIVE_D128,
    ATTN_F16_NAIVE_D128,
    ATTN_F16_MMA,
    ATTN_BF16_MMA,
    ATTN_F16_MMA_D128,
    ATTN_BF16_MMA_D128,
    ATTN_F16_WGMMA,
    ATTN_BF16_WGMMA,
    ATTN_F16_WGMMA_D128,
    ATTN_BF16_WGMMA_D128,
    ATTN_F16_WGMMA_D128_Q192,
    ATTN_BF16_WGMMA_D128_Q192,
)
"""Every kernel, in the order of the ladder."""

LADDER = (GEMM_BF16_WGMMA_N128, GEMM_BF16_MMA_SM80_N64, GEMM_F16_MMA_SM75, ATTN_F16_WGMMA, ATTN_F16_MMA)
"""The highest rungs for the small problems of `check`, highest first: each took part in a run on a GPU (kernels/RESULTS*.md).

Newer architectures than those take the highest one that runs there; none is claimed to reach their speed.
"""

QUICK = (GEMM_F32_TILED, ATTN_F16_FUSED)
"""One kernel an operation, both data types: what `check` runs through each layer."""


def jit_rung(kernel: KernelSpec, asked: tuple[KernelSpec, ...]) -> KernelSpec:
    """What the driver compiles where `kernel` is among those asked for: of GEMM the naive rung, whose PTX takes it no time.

    The tiled one took 0.28 s of a check's second (H200, driver 580.159.04, 2026-11-30); the layers above it run that or better.
    """
    return GEMM_F32_NAIVE if kernel is GEMM_F32_TILED and GEMM_F32_NAIVE not in asked else kernel


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


def rungs(kernel: KernelSpec, device: ComputeCapability, ladder: tuple[KernelSpec, ...]) -> tuple[KernelSpec, ...]:
    """What to run on `device` where `kernel` was asked for, best first: rungs of `ladder` of its operation, then itself."""
    return (*(rung for rung in ladder if rung.op is kernel.op and rung.runs_on(device)), kernel)
