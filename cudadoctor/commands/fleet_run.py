"""`fleet run`: `check` on every node through an engine that the cluster has, one report a node, then their summary."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Generator, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime, timezone
from enum import Enum
from itertools import chain
from pathlib import Path

from cudadoctor.commands.fleet_summary import SummaryOptions, sum_up
from cudadoctor.commands.output import OutputError, OutputOptions
from cudadoctor.exit_codes import ExitCode
from cudadoctor.fleet.hostlist import HostlistError, nodes_of
from cudadoctor.fleet.launchers import Asking, LauncherError, ask_nodes, slurm_nodes, srun, ssh
from cudadoctor.fleet.node_answer import Answer
from cudadoctor.fleet.node_report import NoReport
from cudadoctor.model.codec import to_compact_json
from cudadoctor.saying import say

NO_REPORT = "no-report.jsonl"
"""In the folder, read by `fleet summary`: each node that gave no report, and why, a line."""
RAY_ATTEMPTS = "RAY_NUM_REDIS_GET_RETRIES"
"""Variable of Ray (_private/ray_constants.py): how often an address where nothing answers is tried, 40 s each; 20 by default."""
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")


class Engine(Enum):
    """What runs a command on a node."""

    SLURM = "slurm"
    SSH = "ssh"
    RAY = "ray"


class FleetRunError(Exception):
    """The fleet cannot be asked; the text says why."""


@dataclass(frozen=True)
class RunOptions:
    """What the command line asked for; times in seconds."""

    engine: Engine
    folder: Path
    nodes: str | None = None
    command: str | None = None
    """How cudadoctor is called on a node; None: as here, for ssh by its name."""
    run_kernels: bool = True
    timeout_s: float = 30.0
    start_s: float = 60.0
    at_once: int = 32
    engine_options: tuple[str, ...] = ()
    output: OutputOptions = field(default_factory=OutputOptions)


def run(options: RunOptions) -> ExitCode:
    """Ask all nodes, write what they answer as it comes, then sum up."""
    try:
        _make_folder(options.folder)
        expected, down, answers = _asked(options)
        with closing(answers):  # at a Ctrl-C, wherever it comes, what runs on the nodes is ended
            _save(chain(down, answers), options.folder, len(expected), quiet=options.output.quiet)
        return sum_up(SummaryOptions((str(options.folder),), output=options.output), expected)
    except (FleetRunError, LauncherError, HostlistError, OutputError) as error:
        say(str(error))
        return ExitCode.USAGE


def _make_folder(folder: Path) -> None:
    """Earlier reports would be taken for answers of nodes that are silent now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FleetRunError(f"the folder {folder} is not empty: name a new one")
    except OSError as error:
        raise FleetRunError(f"cannot use the folder {folder}: {error.strerror}") from error


Asked = tuple[list[str], tuple[Answer, ...], Generator[Answer, None, None]]
"""The names of all nodes, what is said of those that cannot be asked, and the answers of the others to come."""


def _asked(options: RunOptions) -> Asked:
    named = nodes_of(options.nodes) if options.nodes is not None else None
    asking = _asking(options)
    if options.engine is Engine.RAY:
        return _asked_by_ray(named, asking)
    down: tuple[Answer, ...] = ()
    if named is None and options.engine is Engine.SSH:
        raise FleetRunError("ssh knows no list of nodes: name them with --nodes")
    if named is None:
        named, down = slurm_nodes(options.engine_options)
    nodes = [_checked(node) for node in named]
    launcher = srun if options.engine is Engine.SLURM else ssh
    return [*nodes, *(answer.node for answer in down)], down, ask_nodes(nodes, launcher, asking)


def _asked_by_ray(named: tuple[str, ...] | None, asking: Asking) -> Asked:
    os.environ.setdefault(RAY_ATTEMPTS, "1")  # Ray reads it when it is imported
    try:
        from cudadoctor.fleet.ray_cluster import ask_ray, cluster_nodes, connect
    except ModuleNotFoundError as error:
        raise FleetRunError(f"the engine ray needs the package {error.name}: pip install 'cudadoctor[ray]'") from error
    connect()
    live, dead = cluster_nodes()
    if named is not None:
        known = {*live, *(answer.node for answer in dead)}
        unknown = tuple(Answer(node, because="Ray has no node of this name") for node in named if node not in known)
        dead = (*(answer for answer in dead if answer.node in named), *unknown)
        live = {node: identity for node, identity in live.items() if node in named}
    return [*live, *(answer.node for answer in dead)], dead, ask_ray(live, asking)


def _asking(options: RunOptions) -> Asking:
    usual = "cudadoctor" if options.engine is Engine.SSH else shlex.join((sys.executable, "-m", "cudadoctor"))
    try:
        called = shlex.split(options.command or usual)
    except ValueError as error:
        raise FleetRunError(f"--command {options.command!r} cannot be read: {error}") from error
    check = ("check", "--format", "json", "--fail-on", "never", "--timeout", f"{options.timeout_s:g}")
    command = (*called, *check, *(() if options.run_kernels else ("--no-run",)))
    return Asking(command, options.engine_options, options.start_s, options.timeout_s, options.at_once)


def _checked(node: str) -> str:
    if not _SAFE.fullmatch(node):
        raise FleetRunError(f"{node[:60]!r} is no name of a node")
    return node


def _save(answers: Iterable[Answer], folder: Path, number: int, *, quiet: bool) -> None:
    """Writes each as it comes: a report as `NODE.json`, else the reason, and as `NODE.out` what the node printed instead."""
    for done, answer in enumerate(answers, 1):
        if answer.report:
            _write(folder / f"{answer.node}.json", answer.report + "\n")
        else:
            now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
            said = to_compact_json(NoReport(node=answer.node, created=now, because=answer.because))
            _write(folder / NO_REPORT, said.decode() + "\n", "a")
            if answer.output:
                _write(folder / f"{answer.node}.out", answer.output)
        if not quiet and sys.stderr.isatty():
            print(f"\r{done} of {number} nodes", end="\n" if done == number else "", file=sys.stderr, flush=True)


def _write(path: Path, text: str, mode: str = "w") -> None:
    try:
        with path.open(mode, encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise FleetRunError(f"cannot write {path}: {error.strerror}") from error
