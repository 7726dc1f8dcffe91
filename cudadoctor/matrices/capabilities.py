"""Answers about compute capabilities: their architecture, launch limits and features."""

from __future__ import annotations

from datetime import date
from enum import Enum
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.source import Document, Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import ComputeCapability

THREADS_PER_WARP = 32
MAX_THREADS_PER_BLOCK = 1024
"""On every compute capability from 2.0 on: CUDA Programming Guide, table Technical Specifications per Compute Capability."""


class Feature(Enum):
    """What the hardware of a compute capability can do."""

    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    INT8_TENSOR = "int8_tensor"
    FP16_TENSOR = "fp16_tensor"
    FP8 = "fp8"
    FP6_FP4 = "fp6_fp4"
    DP4A = "dp4a"
    FP64_FULL = "fp64_full"
    FP64_TENSOR = "fp64_tensor"
    MMA_SYNC = "mma_sync"
    WGMMA = "wgmma"
    TCGEN05 = "tcgen05"
    BLOCK_SCALED_MMA_SYNC = "block_scaled_mma_sync"
    TMA = "tma"
    CLUSTERS = "clusters"
    CP_ASYNC = "cp_async"


class Limits(Struct, frozen=True):
    """What one multiprocessor (SM) and one block may use; sizes in bytes."""

    max_threads_per_sm: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    max_registers_per_block: int
    max_registers_per_thread: int
    smem_per_sm: int
    smem_per_block: int
    """Without an opt-in."""
    smem_per_block_optin: int
    """With cudaFuncAttributeMaxDynamicSharedMemorySize."""
    smem_reserved_per_block: int
    """Taken by the system for each resident block."""
    smem_per_sm_oversized: int | None
    smem_per_block_optin_oversized: int | None
    """With cudaSharedMemoryModeAllowOversizedSharedMemory; None where the mode does not exist."""
    register_alloc_unit_per_warp: int
    smem_alloc_granularity: int
    sm_subpartitions: int
    max_resident_grids: int
    smem_carveout_kib: tuple[int, ...]
    """Sizes that the shared memory of an SM can be set to, in KiB; empty where it is fixed or not read."""

    @property
    def max_threads_per_block(self) -> int:
        return MAX_THREADS_PER_BLOCK


class Capability(Struct, frozen=True):
    """One compute capability."""

    cc: ComputeCapability
    architecture: str
    tegra: bool
    """Only in Tegra chips (Jetson, DRIVE), whose code is compiled apart from that of other GPUs of the same major."""
    integrated: bool
    """Shares memory with the CPU on one chip: Tegra and GB10."""
    limits: Limits
    features: frozenset[Feature]
    fp32_to_fp64_ratio: int | None
    verified_features: Verified | None
    source_checked: str | None
    origin: Provenance


class CapabilityMatrix(Struct, frozen=True, dict=True):
    """matrices/compute_capabilities.toml."""

    title: str
    as_of: date
    rows: tuple[Capability, ...]

    @cached_property
    def _by_cc(self) -> dict[ComputeCapability, Capability]:
        return {row.cc: row for row in self.rows}

    def capability(self, cc: ComputeCapability) -> Capability | None:
        """The row of a compute capability; None where the table does not know it."""
        return self._by_cc.get(cc)

    def all_ccs(self) -> tuple[ComputeCapability, ...]:
        """Every compute capability of the table, in numeric order."""
        return tuple(row.cc for row in self.rows)

    def limits(self, cc: ComputeCapability) -> Limits | None:
        """Launch limits; None where the table does not know the capability."""
        row = self.capability(cc)
        return row.limits if row else None

    def architecture_name(self, cc: ComputeCapability) -> str | None:
        """E.g. `Ada Lovelace` for 8.9; None where the table does not know the capability."""
        row = self.capability(cc)
        return row.architecture if row else None

    def is_tegra(self, cc: ComputeCapability) -> bool | None:
        """Whether only Tegra chips have this capability; None where the table does not know it."""
        row = self.capability(cc)
        return row.tegra if row else None

    def is_integrated(self, cc: ComputeCapability) -> bool | None:
        """Whether the GPU shares memory with its CPU (Tegra, GB10); None where the table does not know the capability."""
        row = self.capability(cc)
        return row.integrated if row else None

    def has(self, cc: ComputeCapability, feature: Feature) -> bool | None:
        """Whether the hardware has a feature; None where the table does not know the capability."""
        row = self.capability(cc)
        return None if row is None else feature in row.features


def _limits(row: Row) -> Limits:
    return Limits(
        max_threads_per_sm=row.integer("max_threads_per_sm"),
        max_warps_per_sm=row.integer("max_warps_per_sm"),
        max_blocks_per_sm=row.integer("max_blocks_per_sm"),
        registers_per_sm=row.integer("registers_per_sm"),
        max_registers_per_block=row.integer("max_registers_per_block"),
        max_registers_per_thread=row.integer("max_registers_per_thread"),
        smem_per_sm=row.integer("smem_per_sm"),
        smem_per_block=row.integer("smem_per_block"),
        smem_per_block_optin=row.integer("smem_per_block_optin"),
        smem_reserved_per_block=row.integer("smem_reserved_per_block"),
        smem_per_sm_oversized=row.integer_or_none("smem_per_sm_oversized"),
        smem_per_block_optin_oversized=row.integer_or_none("smem_per_block_optin_oversized"),
        register_alloc_unit_per_warp=row.integer("register_alloc_unit_per_warp"),
        smem_alloc_granularity=row.integer("smem_alloc_granularity"),
        sm_subpartitions=row.integer("sm_subpartitions"),
        max_resident_grids=row.integer("max_resident_grids"),
        smem_carveout_kib=row.integers("smem_carveout_kib"),
    )


def _capability(row: Row) -> Capability:
    return Capability(
        cc=row.parsed("cc", ComputeCapability.parse),
        architecture=row.text("architecture"),
        tegra=row.flag("tegra"),
        integrated=row.flag("integrated"),
        limits=_limits(row),
        features=frozenset(row.many("features", Feature)),
        fp32_to_fp64_ratio=row.integer_or_none("fp32_to_fp64_ratio"),
        verified_features=row.grade("features"),
        source_checked=row.text_or_none("source_checked"),
        origin=row.origin(),
    )


CAPABILITIES = Schema(_capability, lambda row: row.cc, Order.ASCENDING)


def load(document: Document) -> CapabilityMatrix:
    """The matrix in a parsed compute_capabilities.toml; raises MatrixError."""
    matrix = CapabilityMatrix(document.title, document.as_of, document.table("capability", CAPABILITIES))
    document.finish()
    return matrix
