"""The figures of a run that can be compared with what is expected, each as a range: median, and 10th to 90th percentile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from cudadoctor.bench.model import Row, Section, Timing
from cudadoctor.gpu.catalog import COPY_U32_VECTORS
from cudadoctor.matrices.expected_speed import Figure

UNITS = {Figure.COPY: "GB/s", Figure.TRANSFER: "GB/s"}
TFLOPS = "TFLOPS"


class Reading(Struct, frozen=True):
    """One figure. `fast` is the fast end of its spread."""

    value: float
    fast: float
    row: Row

    def unit(self, figure: Figure) -> str:
        return UNITS.get(figure, TFLOPS)


def readings(rows: Iterable[Row]) -> Mapping[Figure, Reading]:
    """The best reading of each figure that was measured."""
    found: dict[Figure, Reading] = {}
    for row in rows:
        for figure, take in TAKERS.items():
            reading = take(row)
            if reading is not None and (figure not in found or reading.value > found[figure].value):
                found[figure] = reading
    return found


def _rate(row: Row, amount: float, timing: Timing | None, scale: float) -> Reading | None:
    if timing is None or not amount or not 0 < timing.low <= timing.median:
        return None
    return Reading(amount / timing.median * scale, amount / timing.low * scale, row)


def _copy(row: Row) -> Reading | None:
    return _rate(row, row.bytes_moved, row.timing, 1e-6) if row.kernel == COPY_U32_VECTORS.name else None


def _transfer(row: Row) -> Reading | None:
    pinned = row.kernel == "copy to the GPU" and row.problem.startswith("pinned")
    return _rate(row, row.bytes_moved, row.timing, 1e-6) if pinned else None


def _gemm_tensor(row: Row) -> Reading | None:
    return _rate(row, row.flops, row.timing, 1e-9) if row.section is Section.GEMM and row.tensor_cores else None


def _gemm_library(row: Row) -> Reading | None:
    if row.section is not Section.GEMM or not row.tensor_cores or row.reference is None:
        return None
    return _rate(row, row.flops, row.reference.timing, 1e-9)


def _gemm_f32(row: Row) -> Reading | None:
    return _rate(row, row.flops, row.timing, 1e-9) if row.section is Section.GEMM and row.dtype == "f32" else None


def _attention(row: Row) -> Reading | None:
    wanted = row.section is Section.ATTENTION and row.tensor_cores and row.problem.startswith("S2048") and "causal" in row.problem
    return _rate(row, row.flops, row.timing, 1e-9) if wanted else None


TAKERS: Mapping[Figure, Callable[[Row], Reading | None]] = {
    Figure.COPY: _copy,
    Figure.GEMM_TENSOR: _gemm_tensor,
    Figure.GEMM_LIBRARY: _gemm_library,
    Figure.GEMM_F32: _gemm_f32,
    Figure.ATTENTION: _attention,
    Figure.TRANSFER: _transfer,
}
