"""The roofs of a GPU, rated and measured, and what limits each kernel below them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from msgspec import Struct

from cudadoctor.bench.figures import readings
from cudadoctor.bench.model import BenchGpu, Row
from cudadoctor.gpu.catalog import BRANCH_U32_PATHS, CHASE_U32_CYCLE, TRANSPOSE_U32_CONFLICTED, TRANSPOSE_U32_PADDED
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.expected_speed import Figure
from cudadoctor.matrices.gpus import GpuModel, Peaks

NEAR = 0.5
"""Share of a roof from which on it is what limits."""


class Bound(Enum):
    """What a kernel waits for."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LATENCY = "latency"
    """Neither roof is near: instructions wait for each other, for barriers or for loads."""
    LINK = "PCIe link"
    SHARED = "shared memory"


BY_DESIGN = {
    TRANSPOSE_U32_CONFLICTED.name: Bound.SHARED,
    TRANSPOSE_U32_PADDED.name: Bound.SHARED,
    BRANCH_U32_PATHS.name: Bound.COMPUTE,
    CHASE_U32_CYCLE.name: Bound.LATENCY,
}
"""What kernels wait for that were made to wait for it: their traffic says nothing about them."""


class Roof(Struct, frozen=True):
    """TFLOPS with and without tensor cores, and GB/s; None where not known."""

    tensor: float | None
    plain: float | None
    gb_s: float | None

    def tflops(self, row: Row) -> float | None:
        """The arithmetic roof over a row."""
        return self.tensor if row.tensor_cores else self.plain


def model_of(gpu: BenchGpu, matrices: Matrices) -> GpuModel | None:
    """The catalogue's row of this GPU: by PCI id, else by a name that leaves only one."""
    by_id = matrices.gpus.by_pci_id(gpu.pci_device) if gpu.pci_device else None
    if by_id is not None and (by_id.peaks.fp32 is not None or by_id.peaks.bandwidth_gb_s is not None):
        return by_id
    named = matrices.gpus.by_name(gpu.name) if gpu.name else ()
    return named[0] if len(named) == 1 else by_id


def rated_roof(peaks: Peaks) -> Roof:
    """The vendor's figures; tensor cores in bf16, or fp16 where there is no bf16."""
    return Roof(peaks.bf16_tensor or peaks.fp16_tensor, peaks.fp32, peaks.bandwidth_gb_s)


def measured_roof(rows: Iterable[Row]) -> Roof:
    """The best that this run saw of each: our kernels' and the library's products, our copy."""
    found = readings(rows)
    tensor = [found[figure].value for figure in (Figure.GEMM_TENSOR, Figure.GEMM_LIBRARY) if figure in found]
    plain, copy = found.get(Figure.GEMM_F32), found.get(Figure.COPY)
    return Roof(max(tensor, default=None), plain.value if plain else None, copy.value if copy else None)


def intensity(row: Row) -> float | None:
    """FLOP a byte of the least traffic; None without either."""
    return row.flops / row.bytes_moved if row.flops and row.bytes_moved else None


def share_of(row: Row, roof: Roof) -> float | None:
    """Speed over the roof above it at its intensity: min(arithmetic, bandwidth x intensity); None where that is not known."""
    tflops, gb_s, arithmetic = row.tflops, row.gb_s, roof.tflops(row)
    if row.kernel in BY_DESIGN or is_transfer(row):
        return None
    if tflops is None:
        return gb_s / roof.gb_s if gb_s is not None and roof.gb_s else None
    if arithmetic is None:
        return None
    limits = [arithmetic]
    if roof.gb_s is not None and (per_byte := intensity(row)) is not None:
        limits.append(roof.gb_s * per_byte * 1e-3)
    return tflops / min(limits)


def is_transfer(row: Row) -> bool:
    """Is it a copy between host and GPU?"""
    return row.kernel.startswith("copy to ")


def bound_of(row: Row, roof: Roof) -> Bound | None:
    """What limits a row, by the measured roofs; None where nothing was measured or they are not known."""
    if row.timing is None:
        return None
    if is_transfer(row):
        return Bound.LINK
    if row.kernel in BY_DESIGN:
        return BY_DESIGN[row.kernel]
    shares = {}
    if (tflops := row.tflops) is not None and (arithmetic := roof.tflops(row)):
        shares[Bound.COMPUTE] = tflops / arithmetic
    if (gb_s := row.gb_s) is not None and roof.gb_s:
        shares[Bound.MEMORY] = gb_s / roof.gb_s
    if not shares:
        return None
    nearest = max(shares, key=lambda each: shares[each])
    return nearest if shares[nearest] >= NEAR else Bound.LATENCY
