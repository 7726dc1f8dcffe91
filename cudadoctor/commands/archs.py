"""`archs`: the architectures to compile for, on standard output; why, on standard error."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from cudadoctor.archs import ArchPlan, ArchStyle, PtxChoice, WantedGpu, build_limits, plan_archs, ptx_warning
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.named import GpuNameError, capability_of
from cudadoctor.probes import ProbeOptions, collect
from cudadoctor.rules.questions import capability, gpu_name, gpus
from cudadoctor.saying import say
from cudadoctor.system import RealSystem

TORCH_LIMIT_S = 15.0
"""Longest wait for the examined torch to say its version."""


@dataclass(frozen=True)
class ArchsOptions:
    """What the command line asked for; no GPU named means those of this machine."""

    gpus: tuple[str, ...] = ()
    style: ArchStyle = ArchStyle.TORCH
    ptx: PtxChoice = PtxChoice.WHERE_NEEDED
    python: str | None = None


def run(options: ArchsOptions) -> ExitCode:
    """Print the value and the reasons."""
    matrices = Matrices.load()
    try:
        named = tuple(WantedGpu(name, capability_of(name, matrices)) for name in options.gpus)
    except GpuNameError as error:
        say(str(error))
        return ExitCode.USAGE
    snapshot = collect(RealSystem(), ProbeOptions(options.python or "", torch_child_options=("--no-proofs",)), TORCH_LIMIT_S)
    wanted = named or gpus_here(snapshot, matrices)
    if not wanted:
        say("no GPU was found here; name the ones to compile for: cudadoctor archs --gpu 8.9")
        return ExitCode.UNDETERMINED
    plan = plan_archs(wanted, build_limits(snapshot, matrices), options.ptx)
    _explain(plan, snapshot, matrices)
    text = plan.text(options.style)
    if text:
        print(text)
    return ExitCode.OK if plan.archs else ExitCode.PROBLEMS


def gpus_here(snapshot: Snapshot, matrices: Matrices) -> tuple[WantedGpu, ...]:
    """The GPUs of a machine whose compute capability is known."""
    found = ((gpu, capability(gpu, matrices)) for gpu in gpus(snapshot))
    return tuple(WantedGpu(gpu_name(gpu), fact.value) for gpu, fact in found if isinstance(fact, Known))


def _explain(plan: ArchPlan, snapshot: Snapshot, matrices: Matrices) -> None:
    warning = ptx_warning(plan, snapshot, matrices)
    for sentence in (*plan.why, *((warning,) if warning else ())):
        print(sentence, file=sys.stderr)
