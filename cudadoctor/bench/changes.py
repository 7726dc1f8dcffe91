"""What changed between two runs, their noise taken into account."""

from __future__ import annotations

import math
from collections.abc import Iterator

from cudadoctor.bench.model import BenchReport, Change, Row, Timing


def changes(old: BenchReport, new: BenchReport) -> Iterator[Change]:
    """One for each kernel and problem that both runs timed, in the order of the new one."""
    before = {_same(row): row.timing for row in old.rows if row.timing is not None}
    for row in new.rows:
        then, now = before.get(_same(row)), row.timing
        if then is not None and now is not None and now.median > 0:
            faster = then.median / now.median - 1.0
            yield Change(kernel=row.kernel, problem=row.problem, faster=faster, noise=_noise(then, now))


def _same(row: Row) -> tuple[object, ...]:
    """What two rows have in common that measured the same: a quick run takes smaller problems under the same name."""
    return (*row.key, row.flops, row.bytes_moved)


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
