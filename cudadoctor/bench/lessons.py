"""What the memory kernels of a run say about this GPU, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudadoctor.bench.model import Row
from cudadoctor.gpu.catalog import (
    BRANCH_U32_PATHS,
    CHASE_U32_CYCLE,
    GATHER_U32_STRIDED,
    TRANSPOSE_U32_CONFLICTED,
    TRANSPOSE_U32_PADDED,
)

WORD_BYTES = 4
TURNS = "33 turns"


def loads(row: Row) -> float:
    """Loads of a pointer chase."""
    return row.bytes_moved / WORD_BYTES


def lessons(rows: Sequence[Row]) -> Iterator[str]:
    """One sentence for each pair of rows that was measured."""
    times = {row.key: row.timing.median for row in rows if row.timing is not None and row.timing.median > 0}
    for slow, fast, sentence in (
        (
            (GATHER_U32_STRIDED.name, "stride 32"),
            (GATHER_U32_STRIDED.name, "stride 1"),
            "Reading every 32nd word takes {:.1f}x the time of neighbouring words.",
        ),
        (
            (TRANSPOSE_U32_CONFLICTED.name, TURNS),
            (TRANSPOSE_U32_PADDED.name, TURNS),
            "Bank conflicts of 32 lanes in shared memory take {:.1f}x the time of a padded tile.",
        ),
        (
            (BRANCH_U32_PATHS.name, "1 agree"),
            (BRANCH_U32_PATHS.name, "32 agree"),
            "Four branches inside a warp take {:.1f}x the time of one for the whole warp.",
        ),
        (
            ("copy to the GPU", "pageable memory"),
            ("copy to the GPU", "pinned memory"),
            "Pageable host memory takes {:.1f}x the time of pinned memory to the GPU.",
        ),
    ):
        if slow in times and fast in times:
            yield sentence.format(times[slow] / times[fast])
    yield from _latency(
        [row for row in rows if row.kernel == CHASE_U32_CYCLE.name and row.timing is not None and row.timing.median > 0]
    )


def _latency(chases: Sequence[Row]) -> Iterator[str]:
    """How long one load takes, and how many warps hide that."""
    single = [row for row in chases if "load" in row.problem]
    rates = {row.problem: loads(row) / row.timing.median for row in chases if "warp" in row.problem and row.timing is not None}
    for row in single:
        if row.timing is not None and row.bytes_moved:
            yield f"A load from memory takes {row.timing.median * 1e6 / loads(row):,.0f} ns when nothing else is in flight."
    if len(rates) > 1:
        first, best = next(iter(rates)), max(rates, key=lambda each: rates[each])
        yield f"{best} do {rates[best] / rates[first]:.1f}x the loads of {first}."
