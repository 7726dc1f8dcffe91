"""What changed between two runs, their noise taken into account."""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec import Struct

from cudadoctor.bench.model import BenchReport, Timing

LEAST = 0.005
"""Changes of a median below this share are not named, however quiet both runs were: GPUs of one model differ by more."""


class Change(Struct, frozen=True):
    """One kernel with one problem in both runs. Positive is faster now."""

    kernel: str
    problem: str
    faster: float
    """Old time over new time, minus one."""
    noise: float
    """The spreads of both runs, combined: below it a difference means nothing."""

    @property
    def counts(self) -> bool:
        return abs(self.faster) > max(self.noise, LEAST)


def changes(old: BenchReport, new: BenchReport) -> Iterator[Change]:
    """One for each kernel and problem that both runs timed, in the order of the new one."""
    before = {row.key: row.timing for row in old.rows if row.timing is not None}
    for row in new.rows:
        then, now = before.get(row.key), row.timing
        if then is not None and now is not None and now.median > 0:
            yield Change(row.kernel, row.problem, then.median / now.median - 1.0, _noise(then, now))


def _noise(then: Timing, now: Timing) -> float:
    """Root of the sum of the squares: the two runs err independently."""
    return math.hypot(then.spread, now.spread)


def differences_of_machine(old: BenchReport, new: BenchReport) -> Iterator[str]:
    """What makes the two runs no like for like."""
    for what, then, now in (
        ("GPU", old.gpu.name, new.gpu.name),
        ("driver", old.gpu.driver_release, new.gpu.driver_release),
        ("power limit", old.gpu.power_limit_w, new.gpu.power_limit_w),
        ("torch", old.torch, new.torch),
    ):
        if then and now and then != now:
            yield f"{what}: {then} then, {now} now"
