"""Nsight Compute over the kernels: what it counted, what that says about each, and what to change."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudadoctor.bench.model import KernelProfile, Profile
from cudadoctor.gpu.child import child_argv
from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import NOT_ASKED
from cudadoctor.model.finding import Finding
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.process import ProgramNotFoundError
from cudadoctor.rules.engine import Case, evaluate
from cudadoctor.rules.gpu_state import RULES

if TYPE_CHECKING:
    from cudadoctor.system import System

LIMIT_S = 120.0
NO_PERMISSION = "ERR_NVGPUCTRPERM"
DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
SM = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
LANES = "smsp__thread_inst_executed_per_inst_executed.ratio"
SECTORS = "l1tex__average_t_sectors_per_request_pipe_lsu_mem_global_op_ld.ratio"
DURATION = "gpu__time_duration.sum"
STALL_PREFIX, STALL_SUFFIX = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
METRICS = (DRAM, SM, MEMORY, WARPS, CONFLICTS, WAVEFRONTS, LANES, SECTORS, DURATION)
"""Names of Nsight Compute 2025.3 for compute capability 9.0, the same since 7.0 (its documentation, metrics reference)."""
NEAR = 50.0
"""Percent of a peak from which on a unit is what bounds, as in the table's roofline."""
MANY_CONFLICTS, SHOWN_CONFLICTS, FEW_LANES, MOST_SECTORS = 0.3, 0.01, 24.0, 16.0
"""Share of shared memory's turns; lanes of 32 at work; sectors of 32 bytes a load of a warp: 16 are those of 16 bytes a lane."""
NOT_WAITING = frozenset({"selected", "not_selected"})
STALLS = {
    "long_scoreboard": (
        "loads from memory or L2",
        "Have more loads in flight: more warps, or several independent loads a thread.",
    ),
    "short_scoreboard": ("shared memory or special functions", "Do fewer or wider accesses to shared memory."),
    "mio_throttle": ("the queue to shared memory", "Do fewer or wider accesses to shared memory."),
    "lg_throttle": ("the queue to memory", "Load 16 bytes at a time; it is full of narrow requests."),
    "barrier": ("barriers", "Synchronise fewer threads or less often, or give each warp work of its own."),
    "math_pipe_throttle": ("a busy arithmetic unit", "The unit is full: fewer operations, or another unit, are what helps."),
    "wait": ("fixed latencies of instructions", "Have more independent instructions a thread."),
    "branch_resolving": ("branches", "Let whole warps take the same branch."),
    "no_instruction": ("instructions to be fetched", "Make the code smaller, or its loops longer."),
    "drain": ("stores on their way", "Memory takes the stores more slowly than they come: store less."),
    "gmma": ("the tensor cores", "The tensor cores are busy: that is what the kernel is for."),
}
"""What a warp waits for, by the profiler's name, and what helps."""


def find(system: System) -> str:
    """The ncu on the PATH, else that of the default toolkit; empty where there is none."""
    found = system.which("ncu")
    default = "/usr/local/cuda/bin/ncu"
    return found[0] if found else default if system.exists(default) else ""


def profile(
    system: System, program: str, folder: Path, device: int, launches: Sequence[Mapping[str, Any]], matrices: Matrices
) -> Profile:
    """What ncu says about these launches (as profile_child takes them); why not, where it says nothing."""
    request = folder / "profile.json"
    request.write_text(json.dumps({"device": device, "library": None, "launches": list(launches)}), encoding="utf-8")
    stalls = f"regex:{STALL_PREFIX}.*{STALL_SUFFIX}"
    options = ("--csv", "--page", "raw", "--clock-control", "none", "--metrics", ",".join((*METRICS, stalls)))
    try:
        running = system.start((program, *options, *child_argv("profile_child"), str(request)))
    except ProgramNotFoundError as error:
        return Profile(because=str(error))
    done = running.finish(time.monotonic() + LIMIT_S)
    words = f"{done.stdout}\n{done.stderr}"
    if NO_PERMISSION in words:
        return Profile(because="the driver does not let this user read the GPU's counters", findings=_refusal(words, matrices))
    kernels = tuple(parse(done.stdout))
    if kernels:
        return Profile(kernels=kernels)
    return Profile(because=_failure(done.exit_code, words))


def _failure(exit_code: int | None, words: str) -> str:
    told = [line.split("==")[-1].strip() for line in words.splitlines() if line.startswith("==ERROR==")]
    if exit_code is None:
        return f"ncu did not end within {LIMIT_S:.0f} s"
    return f"ncu gave no figures: {told[-1]}" if told else f"ncu gave no figures (exit code {exit_code})"


def _refusal(words: str, matrices: Matrices) -> tuple[Finding, ...]:
    """The finding about restricted counters, as `check` and `triage` have it."""
    from cudadoctor.probes import recognised

    rules = [rule for rule in RULES if rule.name == "perf-counter-permission"]
    snapshot = Snapshot(gpus=NOT_ASKED, errors=recognised([(words, "ncu")]))
    return evaluate(Case(snapshot, matrices), rules).findings


def parse(text: str) -> Iterator[KernelProfile]:
    """The kernels of `ncu --csv --page raw`: names, units, then a line a launch; of each kernel the last launch counts."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    table = list(csv.reader(lines))
    if len(table) < 3 or "Kernel Name" not in table[0]:
        return
    names, name_at = table[0], table[0].index("Kernel Name")
    last = {row[name_at]: row for row in table[2:] if len(row) == len(names)}
    for kernel, row in last.items():
        metrics = {
            name: number
            for name, cell in zip(names, row, strict=True)
            if _is_asked(name) and (number := _number(cell)) is not None
        }
        if metrics:
            yield judged(kernel.split("(")[0], metrics)


def _is_asked(name: str) -> bool:
    return name in METRICS or (name.startswith(STALL_PREFIX) and name.endswith(STALL_SUFFIX))


def _number(cell: str) -> float | None:
    """`4,482,150` or `0.51`; None for `n/a` and anything else that is no finite number."""
    try:
        number = float(cell.replace(",", ""))
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def judged(kernel: str, metrics: dict[str, float]) -> KernelProfile:
    """What bounds a kernel with these counts, and what to change."""
    conflicts = metrics.get(CONFLICTS, 0.0) / metrics[WAVEFRONTS] if metrics.get(WAVEFRONTS) else 0.0
    bound = f"{_bound(metrics, conflicts)}; {_seen(metrics, conflicts)}"
    return KernelProfile(kernel=kernel, metrics=metrics, bound=bound, change=" ".join(_advice(metrics, conflicts)))


def _bound(metrics: Mapping[str, float], conflicts: float) -> str:
    dram, sm, memory = (metrics.get(name, 0.0) for name in (DRAM, SM, MEMORY))
    if dram >= NEAR and dram >= sm:
        return "bound by memory"
    if memory >= NEAR and memory > sm and conflicts >= MANY_CONFLICTS:
        return "bound by bank conflicts in shared memory"
    if sm >= NEAR and sm >= memory:
        return "bound by compute"
    if memory >= NEAR:
        return "bound by caches and shared memory"
    stall = _top_stall(metrics)
    return f"bound by latency: warps wait for {STALLS[stall][0]}" if stall in STALLS else "bound by latency"


def _top_stall(metrics: Mapping[str, float]) -> str:
    """The reason for which warps wait most, by the profiler's name; empty where none was read."""
    stalls = {
        name[len(STALL_PREFIX) : -len(STALL_SUFFIX)]: value for name, value in metrics.items() if name.startswith(STALL_PREFIX)
    }
    waiting = {name: value for name, value in stalls.items() if name not in NOT_WAITING and value > 0}
    return max(waiting, key=lambda name: waiting[name], default="")


def _seen(metrics: Mapping[str, float], conflicts: float) -> str:
    parts = [
        f"{label} {metrics[name]:.0f}%"
        for label, name in (("SM", SM), ("DRAM", DRAM), ("warps active", WARPS))
        if name in metrics
    ]
    if conflicts >= SHOWN_CONFLICTS:
        parts.append(f"bank conflicts {conflicts:.0%} of shared memory's turns")
    stall = _top_stall(metrics)
    return ", ".join([*parts, f"most stalls: {stall}"] if stall else parts)


def _advice(metrics: Mapping[str, float], conflicts: float) -> Iterator[str]:
    """What to change, the clearest first."""
    lanes, sectors = metrics.get(LANES), metrics.get(SECTORS)
    if conflicts >= MANY_CONFLICTS:
        yield "Pad or swizzle the tile in shared memory, so that the lanes of a warp meet different banks."
    if lanes is not None and lanes < FEW_LANES:
        yield f"Only {lanes:.1f} of 32 lanes work: let whole warps take the same branch, or give idle lanes work."
    if sectors is not None and sectors > MOST_SECTORS:
        yield f"A load of a warp touches {sectors:.0f} sectors: let neighbouring lanes read neighbouring words."
    if metrics.get(DRAM, 0.0) >= NEAR:
        yield "Memory is nearly full: move fewer bytes."
    elif max(metrics.get(SM, 0.0), metrics.get(MEMORY, 0.0)) < NEAR and (stall := _top_stall(metrics)) in STALLS:
        yield STALLS[stall][1]
