"""`preflight`: judge what is installed here, in an unpacked image or by a Dockerfile, for GPUs and a driver elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from cudadoctor.assumptions import AssumptionError, assume
from cudadoctor.commands.output import OutputError, OutputOptions, emit, exit_code, judged_file
from cudadoctor.diagnosis import Diagnosis, Selection, SelectionError
from cudadoctor.dockerfile.parser import DockerfileError
from cudadoctor.dockerfile.reading import read_dockerfile
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.redact import NOBODY, Identity, redact
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.model.versions import VersionError
from cudadoctor.named import GpuNameError, PythonNameError, check_interpreter
from cudadoctor.paths import is_folder
from cudadoctor.policy import Policy, PolicyError, find_policy, with_policy_shown
from cudadoctor.preflight import Target, assumed, image_system, installed_below, installed_here, target_of
from cudadoctor.preflight_judgement import judge, target_sentence
from cudadoctor.requirements import RequirementError, parse_requirements
from cudadoctor.saying import say

PLANNED_HERE: Mapping[str, Any] = {
    "package": "an extension of torch",
    "command": "--build",
    "line": None,
    "certainly": True,
    "arch_variable": "TORCH_CUDA_ARCH_LIST",
    "for_torch": True,
    "without_cuda": False,
}
"""What --build says will be compiled."""


@dataclass(frozen=True)
class PreflightOptions:
    """What the command line asked for."""

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    root: Path | None = None
    dockerfile: Path | None = None
    stage: str | None = None
    build_arguments: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    builds: bool = False
    python: str | None = None
    timeout: float = 30.0
    node: str | None = None
    output: OutputOptions = field(default_factory=OutputOptions)
    fail_on: str | None = None
    selection: Selection = field(default_factory=Selection)
    assumptions: tuple[str, ...] = ()
    requirements: str = ""
    policy: Path | None = None


__all__ = ["OutputOptions", "PreflightOptions", "Selection", "run"]


class UsageError(ValueError):
    """The options do not go together, or one cannot be read; the text says why."""


def run(options: PreflightOptions) -> ExitCode:
    """Judge, print, and say how it went."""
    started = time.monotonic()
    matrices = Matrices.load()
    try:
        policy = find_policy(Path(), options.policy, matrices)
        diagnosis = _diagnosis(options, policy, matrices, started)
        file = judged_file(options.dockerfile, options.dockerfile.name) if options.dockerfile is not None else None
        output = replace(options.output, fail_on=options.fail_on or policy.fail_on or "error", judged=file)
        emit(redact(diagnosis.report, _identity(options)), output)
    except DockerfileError as error:
        return _refused(f"{options.dockerfile}: {error}")
    except (
        UsageError,
        PolicyError,
        GpuNameError,
        PythonNameError,
        VersionError,
        SelectionError,
        RequirementError,
        AssumptionError,
        OutputError,
    ) as error:
        return _refused(str(error))
    for crash in diagnosis.crashes:
        say(f"a bug: {crash}; the rest of the report holds")
    return exit_code(diagnosis.report, output.fail_on, diagnosis.crashes)


def _refused(message: str) -> ExitCode:
    say(message)
    return ExitCode.USAGE


def _identity(options: PreflightOptions) -> Identity:
    if options.root is not None or options.dockerfile is not None:
        return NOBODY
    return Identity.of_this_process()


def _diagnosis(options: PreflightOptions, policy: Policy, matrices: Matrices, started: float) -> Diagnosis:
    target = _target(options, policy, matrices)
    selection = policy.combined(options.selection)
    selection.rules()
    requirements = parse_requirements(",".join(part for part in (policy.installed_requirements, options.requirements) if part))
    image, builders = _snapshots(options, target, matrices)
    diagnosis = judge(
        assume(with_policy_shown(image, policy), options.assumptions, matrices),
        [assume(stage, options.assumptions, matrices) for stage in builders],
        matrices,
        selection=selection,
        requirements=requirements,
        node=options.node,
        started=started,
    )
    sentence = f"{diagnosis.report.summary} {target_sentence(target.words, policy.path)}"
    return Diagnosis(structs.replace(diagnosis.report, summary=sentence), diagnosis.results)


def _target(options: PreflightOptions, policy: Policy, matrices: Matrices) -> Target:
    """What the command line names, and for what it does not name the policy."""
    given = target_of(options.gpus, options.driver, matrices)
    wanted = target_of(policy.gpus, policy.driver, matrices, source=policy.path)
    target = given if given.gpus else replace(given, gpus=wanted.gpus, gpu_source=wanted.gpu_source)
    return target if target.driver is not None else replace(target, driver=wanted.driver, driver_source=wanted.driver_source)


def _snapshots(options: PreflightOptions, target: Target, matrices: Matrices) -> tuple[Snapshot, tuple[Snapshot, ...]]:
    """What is judged, and the stages that build for it; all with the target's GPUs and driver."""
    if options.root is not None and options.dockerfile is not None:
        raise UsageError("--root and --dockerfile judge different things; give one of them")
    if options.dockerfile is not None:
        variables = _pairs(options.build_arguments, "--build-arg")
        read = read_dockerfile(options.dockerfile, matrices, build_arguments=variables, target=options.stage)
        return assumed(read.image, target, matrices), tuple(assumed(stage, target, matrices) for stage in read.builders)
    if options.build_arguments or options.stage is not None:
        raise UsageError("--build-arg and --stage belong to --dockerfile")
    snapshot = _installed(options, matrices)
    builds = [_planned(snapshot)] if options.builds else []
    return assumed(snapshot, target, matrices, builds), ()


def _planned(snapshot: Snapshot) -> Mapping[str, Any]:
    from cudadoctor.rules.questions import environment

    return {**PLANNED_HERE, "arch_list": environment(snapshot).get("TORCH_CUDA_ARCH_LIST")}


def _installed(options: PreflightOptions, matrices: Matrices) -> Snapshot:
    variables = _pairs(options.variables, "--env")
    if options.root is None:
        if variables:
            raise UsageError("--env belongs to --root; this machine's variables are those of the shell")
        if options.python is not None:
            check_interpreter(options.python)
        return installed_here(matrices, options.python, options.timeout)
    if not is_folder(options.root):
        raise UsageError(f"{options.root} is no folder that can be read")
    system = image_system(options.root, variables)
    return installed_below(system, matrices, options.python, options.timeout)


def _pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    bad = next((name for name, equals, _ in pairs if not equals or not name), None)
    if bad is not None:
        raise UsageError(f"{option} {bad}: write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}
