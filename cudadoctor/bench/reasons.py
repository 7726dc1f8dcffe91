"""Why a GPU is slow: findings of the rules that `check` has, and what only a run under load shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from cudadoctor.bench.conditions import Conditions
from cudadoctor.bench.model import BenchGpu
from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import NOT_ASKED, Fact, Known
from cudadoctor.model.finding import Confidence, Evidence, Finding, Fix, Severity
from cudadoctor.model.snapshot import Gpu, Snapshot
from cudadoctor.rules.engine import Case, evaluate
from cudadoctor.rules.gpu_state import RULES

T = TypeVar("T")

OFTEN = 0.1
"""Share of the samples from which a reason for lowered clocks counts."""
LOWERED = 0.98
"""Of the default power limit."""
CLEARLY_LOWER_CLOCK = 0.9
"""Of the highest SM clock, without a reason of heat or power."""
SOURCE = "NVML, under load"
THROTTLED, LINK = "gpu-throttled", "pcie-link-degraded"
NAMES = (THROTTLED, LINK)


def reasons_for(gpu: BenchGpu, conditions: Conditions, below: Sequence[str], matrices: Matrices) -> Iterator[Finding]:
    """The findings about a run, the likeliest cause first. Those with `tags` are causes only where the GPU is slow."""
    yield from _by_rules(gpu, conditions, matrices)
    if any("host" not in figure for figure in below):
        yield from _power(gpu, conditions)
        yield from _clocks(gpu, conditions)
    if any("host" in figure for figure in below):
        yield from _generation(gpu, conditions)


def _by_rules(gpu: BenchGpu, conditions: Conditions, matrices: Matrices) -> Sequence[Finding]:
    """What the rules of `check` say about this GPU as it was under load."""
    reasons = tuple(reason for reason, share in conditions.throttle.items() if share >= OFTEN)
    described = Gpu(
        index=gpu.index,
        name=_fact(gpu.name or None),
        throttle_reasons=_fact(reasons),
        temperature_c=_fact(conditions.temperature_c),
        utilization_percent=_fact(conditions.utilization_percent),
        pcie_width=_fact(conditions.pcie_width),
        pcie_width_max=_fact(gpu.pcie_width_max),
    )
    rules = [rule for rule in RULES if rule.name in NAMES]
    return evaluate(Case(Snapshot(gpus=Known((described,), SOURCE)), matrices), rules).findings


def _fact(value: T | None) -> Fact[T]:
    return Known(value, SOURCE) if value is not None else NOT_ASKED


def _power(gpu: BenchGpu, conditions: Conditions) -> Iterator[Finding]:
    """A power limit below the default, or one that holds the clocks down."""
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    if limit is None or conditions.power_capped < OFTEN:
        return
    lowered = default is not None and limit < LOWERED * default
    whose = f"lowered to {limit:.0f} W from {default:.0f} W" if lowered and default is not None else f"{limit:.0f} W, the default"
    yield _throttled(
        gpu,
        "power-limit",
        f"Its power limit ({whose}) held the clocks down in {conditions.power_capped:.0%} of the samples.",
        "The driver lowers clocks until the power fits; work is slower in proportion.",
        (_shown("power_limit_w", f"{limit:.0f}"), _shown("sw_power_cap", f"{conditions.power_capped:.0%} of samples")),
        Fix(
            title=f"Give it its default limit of {default:.0f} W back"
            if lowered and default is not None
            else "Look at the limits",
            commands=(f"sudo nvidia-smi -i {gpu.index} -pl {default:.0f}",)
            if lowered and default is not None
            else ("nvidia-smi -q -d POWER,PERFORMANCE",),
            needs_root=lowered,
        ),
        Confidence.CERTAIN if lowered else Confidence.POSSIBLE,
    )


def _clocks(gpu: BenchGpu, conditions: Conditions) -> Iterator[Finding]:
    """Clocks below their highest without heat or power as the reason: locked, or set for applications."""
    clock, highest = conditions.clock_mhz, gpu.sm_clock_max_mhz
    explained = any(share >= OFTEN for reason, share in conditions.throttle.items() if reason not in SETTINGS)
    if clock is None or not highest or explained or clock >= CLEARLY_LOWER_CLOCK * highest:
        return
    yield _throttled(
        gpu,
        "clocks-lowered",
        f"Its SM clock was {clock:,.0f} MHz under load, {highest:,} MHz at most; neither heat nor power is the reason.",
        "Clocks are locked or set for applications: everything that computes is slower in proportion.",
        (_shown("sm_clock_mhz", f"{clock:.0f}"), _shown("sm_clock_max_mhz", str(highest))),
        Fix(
            title="Unlock the clocks",
            commands=(f"sudo nvidia-smi -i {gpu.index} -rgc", f"sudo nvidia-smi -i {gpu.index} -rac"),
            needs_root=True,
            verify=("nvidia-smi -q -d CLOCK",),
        ),
        Confidence.LIKELY,
    )


SETTINGS = ("gpu_idle", "applications_clocks_setting", "display_clock_setting", "sync_boost")
"""Reasons that are settings, neither heat nor power."""


def _generation(gpu: BenchGpu, conditions: Conditions) -> Iterator[Finding]:
    """A link that stays below its highest generation under load."""
    seen, highest = conditions.pcie_generation, gpu.pcie_generation_max
    if seen is None or highest is None or seen >= highest:
        return
    yield Finding(
        code=_code(LINK),
        name=LINK,
        severity=Severity.WARNING,
        tags=("pcie-generation",),
        subject=f"GPU {gpu.index}",
        what=f"Its PCIe link ran at generation {seen} of {highest} under load.",
        why="Copies between host and GPU are slower in proportion.",
        evidence=(_shown("pcie_generation", str(seen)), _shown("pcie_generation_max", str(highest))),
        fixes=(
            Fix(
                title="See the link as GPU and slot offer it, under load",
                commands=("sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'",),
                needs_root=True,
            ),
        ),
    )


def _throttled(
    gpu: BenchGpu, tag: str, what: str, why: str, evidence: tuple[Evidence, ...], fix: Fix, confidence: Confidence
) -> Finding:
    return Finding(
        code=_code(THROTTLED),
        name=THROTTLED,
        severity=Severity.WARNING,
        tags=(tag,),
        subject=f"GPU {gpu.index}",
        what=what,
        why=why,
        confidence=confidence,
        evidence=evidence,
        fixes=(fix,),
    )


def _shown(fact: str, value: str) -> Evidence:
    return Evidence(fact=fact, value=value, source=SOURCE)


def _code(name: str) -> str:
    return next(rule.code for rule in RULES if rule.name == name)
