"""What NVML's samples say about the conditions of a run: others on the GPU, throttling, power, clocks, the link."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from msgspec import Struct

from cudadoctor.bench.model import Phase, Sample
from cudadoctor.bench.sampling import BUSY_PERCENT

WATCHED = 3
"""Samples at the end of the watching that count: before them a program that has just ended may still show as load."""


class Conditions(Struct, frozen=True):
    """The conditions while kernels were timed. Shares are of the samples that say anything."""

    busy: str = ""
    """How it shows that others were computing; empty where it does not."""
    idle_others: int = 0
    """Other processes that were there without computing."""
    throttle: dict[str, float] = {}
    """Share of the samples for each reason that NVML gave."""
    power_w: float | None = None
    """The highest."""
    temperature_c: int | None = None
    """The highest."""
    clock_mhz: float | None = None
    """The median of the SM clock that NVML gave."""
    utilization_percent: int | None = None
    pcie_generation: int | None = None
    """The highest: links slow down while idle."""
    pcie_width: int | None = None

    @property
    def power_capped(self) -> float:
        return self.throttle.get("sw_power_cap", 0.0)


def conditions_of(samples: Sequence[Sample]) -> Conditions:
    """The conditions of a run; all empty without samples."""
    loaded = [sample for sample in samples if sample.phase is Phase.MEASURING]
    idle = [sample for sample in samples if sample.phase is Phase.IDLE]
    told = [sample.throttle_reasons for sample in loaded if sample.throttle_reasons is not None]
    counts = Counter(reason for reasons in told for reason in reasons)
    clocks = [sample.sm_clock_mhz for sample in loaded if sample.sm_clock_mhz is not None]
    return Conditions(
        busy=_busy(idle, loaded),
        idle_others=max((sample.others or 0 for sample in samples), default=0),
        throttle={reason: count / len(told) for reason, count in counts.items()},
        power_w=max((sample.power_w for sample in loaded if sample.power_w is not None), default=None),
        temperature_c=max((sample.temperature_c for sample in loaded if sample.temperature_c is not None), default=None),
        clock_mhz=median(clocks) if clocks else None,
        utilization_percent=_most([sample.utilization_percent for sample in loaded]),
        pcie_generation=_most([sample.pcie_generation for sample in loaded]),
        pcie_width=_most([sample.pcie_width for sample in loaded]),
    )


def _most(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def _busy(idle: Sequence[Sample], loaded: Sequence[Sample]) -> str:
    """Load before ours began, or a process that came while we measured."""
    before = [sample.utilization_percent for sample in idle[-WATCHED:] if sample.utilization_percent is not None]
    if before and min(before) >= BUSY_PERCENT:
        count = max((sample.others or 0 for sample in idle), default=0)
        who = f"{count} other process{'es' if count > 1 else ''} on it" if count else "programs that NVML does not show here"
        return f"the GPU was at {min(before)}% load before anything was measured, by {who}"
    came = max((sample.others or 0 for sample in loaded), default=0) - max((sample.others or 0 for sample in idle), default=0)
    return f"{came} other process{'es' if came > 1 else ''} came while it was measured" if idle and came > 0 else ""
