"""`check`: examine this machine, or judge one saved elsewhere, and report."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from msgspec import structs

from cudadoctor import plugins
from cudadoctor.assumptions import AssumptionError, assume
from cudadoctor.commands.output import OutputError, OutputOptions, emit, exit_code
from cudadoctor.commands.reading import InputError, named_input, read_input
from cudadoctor.diagnosis import Diagnosis, Selection, SelectionError, diagnose
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import DocumentError, from_json
from cudadoctor.model.proof import Proof
from cudadoctor.model.redact import NOBODY, Identity, redact
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.policy import NO_POLICY, Policy, PolicyError, find_policy, with_policy_shown
from cudadoctor.requirements import RequirementError, parse_requirements
from cudadoctor.saying import say

MAX_REPORT_BYTES = 64 * 1024 * 1024
"""Largest saved report read."""
NODE_VARIABLES = ("SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME")
"""Variables that name the node: Slurm's, and the usual ones of Kubernetes' downward API."""

__all__ = ["CheckOptions", "OutputOptions", "Prove", "Selection", "run"]


class Prove(Enum):
    """Which kernels are run."""

    NOTHING = "nothing"
    QUICK = "quick"
    ALL = "all"


@dataclass(frozen=True)
class CheckOptions:
    """What the command line asked for."""

    python: str | None = None
    snapshot: Path | None = None
    prove: Prove = Prove.QUICK
    timeout: float = 30.0
    node: str | None = None
    output: OutputOptions = field(default_factory=OutputOptions)
    selection: Selection = field(default_factory=Selection)
    assumptions: tuple[str, ...] = ()
    requirements: str = ""
    policy: Path | None = None
    """--policy; None for the working folder's own, where it has one."""
    applied: Policy = NO_POLICY
    """What was found there."""


def run(options: CheckOptions) -> ExitCode:
    """Diagnose, print, and say how it went."""
    try:
        options = _with_policy(options)
        if not plugins.installed():  # their names are known only when they are asked
            options.selection.rules()
        parse_requirements(options.requirements)
        diagnosis = _saved(options, options.snapshot) if options.snapshot is not None else _examine(options)
        emit(redact(diagnosis.report, _identity(options)), options.output)
    except (InputError, SelectionError, OutputError, AssumptionError, RequirementError, PolicyError) as error:
        say(str(error))
        return ExitCode.USAGE
    for crash in diagnosis.crashes:
        say(f"a bug: {crash}; the rest of the report holds")
    return exit_code(diagnosis.report, options.output.fail_on, diagnosis.crashes)


def _with_policy(options: CheckOptions) -> CheckOptions:
    """The options with what the policy demands besides; what the command line says about the exit code counts more."""
    matrices = Matrices.load()
    policy = find_policy(Path(), options.policy, matrices)
    return replace(
        options,
        applied=policy,
        selection=policy.combined(options.selection),
        requirements=",".join(part for part in (policy.machine_requirements(matrices), options.requirements) if part),
        output=replace(options.output, fail_on=options.output.fail_on or policy.fail_on or "error"),
    )


def _identity(options: CheckOptions) -> Identity:
    """The names to hide: this process's, unless the report is about another machine."""
    if options.snapshot is not None:
        return NOBODY
    return Identity.of_this_process()


def _saved(options: CheckOptions, path: Path) -> Diagnosis:
    saved = read_report(path)
    return _judge(saved.snapshot, saved.proofs, Matrices.load(), options, node=options.node or saved.node)


def _judge(
    snapshot: Snapshot,
    proofs: tuple[Proof, ...],
    matrices: Matrices,
    options: CheckOptions,
    *,
    node: str | None,
    started: float | None = None,
) -> Diagnosis:
    shown = assume(with_policy_shown(snapshot, options.applied), options.assumptions, matrices)
    left_s = options.timeout - (time.monotonic() - started) if started is not None else options.timeout
    diagnosis = diagnose(
        shown,
        proofs,
        matrices,
        selection=options.selection,
        requirements=parse_requirements(options.requirements),
        node=node,
        started=started,
        plugins=plugins.ask_plugins(shown, proofs, left_s),
    )
    if not options.applied.path:
        return diagnosis
    sentence = f"{diagnosis.report.summary} Policy: {options.applied.path}."
    return replace(diagnosis, report=structs.replace(diagnosis.report, summary=sentence))


def _examine(options: CheckOptions) -> Diagnosis:
    from cudadoctor.examination import examine
    from cudadoctor.report.progress import progress
    from cudadoctor.system import RealSystem

    started = time.monotonic()
    matrices = Matrices.load()
    with progress() as say:
        snapshot, proofs = examine(
            RealSystem(), matrices, say, python=options.python, run_kernels=options.prove.value, timeout=options.timeout
        )
    return _judge(snapshot, proofs, matrices, options, node=options.node or node_name(os.environ), started=started)


def node_name(environ: Mapping[str, str]) -> str | None:
    """The node's name as the cluster's software sets it."""
    return next((environ[name] for name in NODE_VARIABLES if environ.get(name)), None)


def read_report(path: Path) -> Report:
    """The report saved in a file (`-`: standard input); raises InputError."""
    data = read_input(path, MAX_REPORT_BYTES, "a report")
    try:
        return from_json(data, Report)
    except DocumentError as error:
        raise InputError(f"{named_input(path)} is no cudadoctor report: {error}") from error
