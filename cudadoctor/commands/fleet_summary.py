"""`fleet summary`: many reports in one table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from msgspec import structs

from cudadoctor.commands.output import OutputError, OutputOptions, render_options, write
from cudadoctor.exit_codes import ExitCode
from cudadoctor.fleet.documents import read_all
from cudadoctor.fleet.gathering import Gathered
from cudadoctor.fleet.hostlist import HostlistError, nodes_of
from cudadoctor.fleet.summarising import summarise
from cudadoctor.fleet.summary import FleetSummary
from cudadoctor.saying import say

__all__ = ["SummaryOptions", "exit_code", "run", "sum_up"]

RENDERERS: Mapping[str, str] = {
    "text": "cudadoctor.report.fleet_text",
    "json": "cudadoctor.report.fleet_json",
    "html": "cudadoctor.report.fleet_html",
    "prometheus": "cudadoctor.report.fleet_prometheus",
}
"""Format to the module whose `render` writes it."""


@dataclass(frozen=True)
class SummaryOptions:
    """What the command line asked for; `nodes` is a list, or a file of lists, of the nodes that should have reported."""

    paths: tuple[str, ...]
    nodes: str | None = None
    output: OutputOptions = field(default_factory=OutputOptions)


def run(options: SummaryOptions) -> ExitCode:
    """Read, sum up, print."""
    try:
        return sum_up(options, nodes_of(options.nodes) if options.nodes is not None else ())
    except (HostlistError, OutputError) as error:
        say(str(error))
        return ExitCode.USAGE


def sum_up(options: SummaryOptions, expected: Sequence[str]) -> ExitCode:
    """The summary of all reports, with the nodes of `expected` that gave none; raises OutputError."""
    started = time.perf_counter()
    gathered = Gathered()
    gathered.add_all(read_all(options.paths))
    summary = structs.replace(
        summarise(gathered, expected),
        seconds=round(time.perf_counter() - started, 3),
        peak_memory_bytes=peak_memory_bytes(),
    )
    render: Callable[..., str] = import_module(RENDERERS[options.output.format]).render
    write(render(summary, render_options(options.output)), options.output.path)
    return exit_code(summary, options.output.fail_on)


def exit_code(summary: FleetSummary, fail_on: str) -> ExitCode:
    """Unreadable input before problems, since it may hide some; nodes that are silent or could not be judged last."""
    counts = summary.counts
    if counts.unreadable or not (counts.nodes or summary.no_report):
        return ExitCode.USAGE
    if fail_on == "never":
        return ExitCode.OK
    odd = bool(summary.drift or summary.fewer_gpus or summary.stragglers or any(row.findings for row in summary.classes))
    if counts.problems or (odd and fail_on == "warning"):
        return ExitCode.PROBLEMS
    silent = summary.no_report or summary.not_reported
    return ExitCode.UNDETERMINED if counts.undetermined or silent else ExitCode.OK


def peak_memory_bytes() -> int | None:
    """The most memory that this process ever held; None where the system does not say (Windows).

    Linux counts what the parent held into `ru_maxrss`, so its own figure for the process comes first.
    """
    try:
        words = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").partition("VmHWM:")[2].split()
        return int(words[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
