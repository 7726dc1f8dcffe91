"""What a kernel launch fits into: blocks per multiprocessor, what limits them, what forbids the launch.

The rules are those of cuda_occupancy.h (nvidia-cuda-runtime 13.0): warps, registers (allocated per warp, checked per block as
if all sub-partitions were filled), shared memory (rounded up, with what the system reserves) and the block limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cudadoctor.matrices.capabilities import THREADS_PER_WARP, Limits


@dataclass(frozen=True, slots=True)
class KernelNeeds:
    """What one launch asks for; sizes in bytes."""

    threads_per_block: int
    registers_per_thread: int = 0
    static_smem: int = 0
    dynamic_smem: int = 0
    opt_in: bool = True
    """Whether the host code raises the limit with cudaFuncAttributeMaxDynamicSharedMemorySize."""

    @property
    def smem(self) -> int:
        return self.static_smem + self.dynamic_smem


class Violation(Enum):
    """Why a launch fails."""

    NO_THREADS = "no-threads"
    TOO_MANY_THREADS = "too-many-threads"
    TOO_MANY_REGISTERS_PER_THREAD = "too-many-registers-per-thread"
    TOO_MANY_REGISTERS_PER_BLOCK = "too-many-registers-per-block"
    """Error 701."""
    NEEDS_OPT_IN = "needs-opt-in"
    """More shared memory than the default limit, but the GPU has enough."""
    TOO_MUCH_SHARED_MEMORY = "too-much-shared-memory"


class Limiter(Enum):
    """What keeps more blocks from residing on one multiprocessor."""

    WARPS = "warps"
    REGISTERS = "registers"
    SHARED_MEMORY = "shared-memory"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True)
class Occupancy:
    """How a launch fits one multiprocessor."""

    blocks_per_sm: int
    """0 where the launch is not possible."""
    warps_per_sm: int
    max_warps_per_sm: int
    limiters: tuple[Limiter, ...]
    """Those that allow the fewest blocks; empty where the launch is not possible."""
    violations: tuple[Violation, ...]
    registers_per_block: int
    smem_per_block: int
    """As allocated, in bytes."""

    @property
    def fits(self) -> bool:
        return not self.violations

    @property
    def fraction(self) -> float:
        """Resident warps over the most that a multiprocessor holds."""
        return self.warps_per_sm / self.max_warps_per_sm


def block_occupancy(limits: Limits, needs: KernelNeeds) -> Occupancy:
    """How many blocks of a launch reside on one multiprocessor, and what limits or forbids them."""
    warps = -(-needs.threads_per_block // THREADS_PER_WARP)
    registers_per_warp = _round_up(needs.registers_per_thread * THREADS_PER_WARP, limits.register_alloc_unit_per_warp)
    smem = _round_up(needs.smem + limits.smem_reserved_per_block, limits.smem_alloc_granularity)
    violations = tuple(_violations(limits, needs, warps, registers_per_warp))
    blocks, limiters = (0, ()) if violations else _resident(limits, warps, registers_per_warp, smem)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        max_warps_per_sm=limits.max_warps_per_sm,
        limiters=limiters,
        violations=violations,
        registers_per_block=registers_per_warp * warps,
        smem_per_block=smem,
    )


_PARTITIONS_IN_BLOCK_CHECK = 4
"""The check for one block counts registers as if warps were dealt to four sub-partitions, on GP100 too, which has two."""


def _violations(limits: Limits, needs: KernelNeeds, warps: int, registers_per_warp: int) -> list[Violation]:
    found = []
    if needs.threads_per_block < 1:
        found.append(Violation.NO_THREADS)
    if needs.threads_per_block > limits.max_threads_per_block:
        found.append(Violation.TOO_MANY_THREADS)
    if needs.registers_per_thread > limits.max_registers_per_thread:
        found.append(Violation.TOO_MANY_REGISTERS_PER_THREAD)
    if registers_per_warp * _round_up(warps, _PARTITIONS_IN_BLOCK_CHECK) > limits.max_registers_per_block:
        found.append(Violation.TOO_MANY_REGISTERS_PER_BLOCK)
    return [*found, *_smem_violations(limits, needs)]


def _smem_violations(limits: Limits, needs: KernelNeeds) -> list[Violation]:
    asked = _round_up(needs.smem + limits.smem_reserved_per_block, limits.smem_alloc_granularity)
    if asked > limits.smem_per_block_optin + limits.smem_reserved_per_block or needs.static_smem > limits.smem_per_block:
        return [Violation.TOO_MUCH_SHARED_MEMORY]
    if asked > limits.smem_per_block + limits.smem_reserved_per_block and not needs.opt_in:
        return [Violation.NEEDS_OPT_IN]
    return []


def _resident(limits: Limits, warps: int, registers_per_warp: int, smem: int) -> tuple[int, tuple[Limiter, ...]]:
    allowed = {Limiter.WARPS: limits.max_warps_per_sm // warps, Limiter.BLOCKS: limits.max_blocks_per_sm}
    if registers_per_warp:
        per_partition = limits.registers_per_sm // limits.sm_subpartitions // registers_per_warp
        allowed[Limiter.REGISTERS] = per_partition * limits.sm_subpartitions // warps
    if smem:
        allowed[Limiter.SHARED_MEMORY] = limits.smem_per_sm // smem
    blocks = min(allowed.values())
    return blocks, tuple(limiter for limiter in Limiter if allowed.get(limiter) == blocks)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit
