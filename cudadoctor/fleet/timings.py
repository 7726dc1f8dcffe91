"""How long each kernel took on each GPU of a fleet, kept compactly, and which GPUs are slower than their equals.

Of every kernel (same GPU model, layer, target and compiler) the median over all GPUs is the usual time, and 1.4826 times the
median absolute deviation from it is the usual spread: half of the values may be wild without moving either. A time is slow if
it is more than SLOW_RATIO and more than SLOW_SPREADS spreads above the usual one. A GPU is a straggler if at least half of its
kernels, and no fewer than LEAST_KERNELS, are slow: a single noisy value makes none.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from statistics import median

from cudadoctor.fleet.node_report import NodeReport
from cudadoctor.model.proof import ProofOutcome

SLOW_RATIO = 1.1
SLOW_SPREADS = 5.0
LEAST_KERNELS = 2
LEAST_GPUS = 8
"""Fewer GPUs of one model have no usual time to be compared with."""
SHORTEST_MS, LONGEST_MS = 1e-6, 1e9
"""A time outside of this is no measurement."""
PASSED = ProofOutcome.PASSED.value
SPREAD_OF_DEVIATION = 1.4826
"""Median absolute deviation to standard deviation, for a normal distribution."""

Kernel = tuple[str, str, str, str]
"""Layer, kernel, target, compiler."""
BETWEEN_GPUS = frozenset({"peer", "nccl"})
"""Layers whose times belong to links, which differ within one machine as its topology does."""


@dataclass(frozen=True, slots=True)
class Usual:
    """What is usual for one kernel on one model of GPU; times in milliseconds."""

    gpu: str
    kernel: Kernel
    gpus: int
    median_ms: float
    spread_ms: float
    slowest_ms: float
    slowest_owner: int

    @property
    def limit_ms(self) -> float:
        """A longer time is slow."""
        return max(self.median_ms * SLOW_RATIO, self.median_ms + SLOW_SPREADS * self.spread_ms)


@dataclass(frozen=True, slots=True)
class Straggler:
    """A GPU that is slower than its equals: `ratio` is the median over its slow kernels, `worst` the slowest of them."""

    owner: int
    index: int
    gpu: str
    ratio: float
    slow: int
    judged: int
    worst: Usual
    worst_ms: float


@dataclass(slots=True)
class _Rows:
    """The times of GPUs that ran the same kernels: one row of `times` a GPU."""

    times: array[float] = field(default_factory=lambda: array("f"))
    owners: array[int] = field(default_factory=lambda: array("L"))
    indexes: array[int] = field(default_factory=lambda: array("q"))


class Timings:
    """All times of a fleet, some four bytes each."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, tuple[Kernel, ...]], _Rows] = {}

    def add(self, owner: int, report: NodeReport) -> None:
        """Take the times of a report; `owner` is its number."""
        names = {gpu.index: gpu.name.text for gpu in report.snapshot.gpus.value or ()}
        times: dict[int, dict[Kernel, float]] = {}
        for proof in report.proofs:
            time = None if proof.layer in BETWEEN_GPUS else proof.run_ms
            if time is None or proof.gpu is None or proof.outcome != PASSED or not SHORTEST_MS < time < LONGEST_MS:
                continue
            kernel = (proof.layer, proof.kernel, proof.target or "", proof.compiler or "")
            times.setdefault(proof.gpu, {}).setdefault(kernel, time)
        for index, of_gpu in times.items():
            name = names.get(index)
            if name is not None and abs(index) < 2**31:
                rows = self._rows.setdefault((name, tuple(of_gpu)), _Rows())
                rows.times.extend(of_gpu.values())
                rows.owners.append(owner)
                rows.indexes.append(index)

    def usual(self, owners: Collection[int]) -> list[Usual]:
        """The usual time of every kernel that enough GPUs of these reports ran, slowest against the usual first."""
        columns: dict[tuple[str, Kernel], list[tuple[_Rows, int, int]]] = {}
        for (name, kernels), rows in self._rows.items():
            for position, kernel in enumerate(kernels):
                columns.setdefault((name, kernel), []).append((rows, position, len(kernels)))
        found = (_usual(name, kernel, parts, owners) for (name, kernel), parts in columns.items())
        return sorted((usual for usual in found if usual is not None), key=lambda u: -u.slowest_ms / u.median_ms)

    def stragglers(self, usual: list[Usual], owners: Collection[int]) -> list[Straggler]:
        """The GPUs that are slower than their equals, the slowest first."""
        by_kernel = {(each.gpu, each.kernel): each for each in usual}
        found = [
            straggler
            for (name, kernels), rows in self._rows.items()
            for straggler in _stragglers(name, [by_kernel.get((name, kernel)) for kernel in kernels], rows, owners)
        ]
        return sorted(found, key=lambda straggler: -straggler.ratio)


def _usual(name: str, kernel: Kernel, parts: list[tuple[_Rows, int, int]], owners: Collection[int]) -> Usual | None:
    times, of = array("f"), array("L")
    for rows, position, width in parts:
        for time, owner in zip(rows.times[position::width], rows.owners, strict=True):
            if owner in owners:
                times.append(time)
                of.append(owner)
    if len(times) < LEAST_GPUS:
        return None
    middle, slowest = median(times), max(times)
    spread = SPREAD_OF_DEVIATION * median(array("f", (abs(time - middle) for time in times)))
    return Usual(name, kernel, len(times), middle, spread, slowest, of[times.index(slowest)])


def _stragglers(name: str, usual: list[Usual | None], rows: _Rows, owners: Collection[int]) -> Iterator[Straggler]:
    width, judged = len(usual), sum(each is not None for each in usual)
    limits = [each.limit_ms if each is not None else math.inf for each in usual]
    for number, owner in enumerate(rows.owners):
        times = rows.times[number * width : (number + 1) * width]
        slow = [
            (time / each.median_ms, time, each)
            for time, limit, each in zip(times, limits, usual, strict=True)
            if each is not None and time > limit
        ]
        if len(slow) >= max(LEAST_KERNELS, judged / 2) and owner in owners:
            _, time, worst = max(slow, key=lambda each: each[0])
            ratio = median(each[0] for each in slow)
            yield Straggler(owner, rows.indexes[number], name, ratio, len(slow), judged, worst, time)
