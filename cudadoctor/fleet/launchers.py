"""Programs by which a command is run on a node of a cluster: Slurm's srun, and ssh. Each node is asked by its own process."""

from __future__ import annotations

import math
import os
import shlex
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

from cudadoctor.fleet.hostlist import expand
from cudadoctor.fleet.node_answer import Answer, answer_of
from cudadoctor.process import Completed, ProgramNotFoundError, RunningProgram

MARGIN_S = 15.0
"""Beyond the time to start and the time to check: for the way there and back."""
SINFO_LIMIT_S = 30.0
LOOK_EVERY_S = 0.05
ENDED_BY_TIMEOUT = (124, 137)
"""Exit codes of timeout(1): the limit was reached, and the program was killed after it."""
UP = ("idle", "mixed", "allocated", "completing", "reserved", "planned")
"""States of a Slurm node in which it runs jobs, now or when it is free (man sinfo, NODE STATE CODES)."""
ALLOCATION = "SLURM_JOB_NODELIST"
"""Set inside a job: its nodes."""
SILENT = "*"
FLAGS = "*~#!%$@^-+"
"""What sinfo puts behind a state; the first means that the node does not respond."""


class LauncherError(Exception):
    """The cluster cannot be asked for its nodes; the text says why."""


@dataclass(frozen=True)
class Asking:
    """What to run on each node (a command that prints a report) and how long to wait for it, in seconds."""

    command: tuple[str, ...]
    options: tuple[str, ...]
    """Of the launcher, as the user gave them."""
    start_s: float
    """For the node to be free and to start."""
    check_s: float
    at_once: int


def srun(node: str, asking: Asking) -> tuple[str, ...]:
    """Slurm runs one task on the node. An interrupt at the deadline makes srun cancel the job; killed, it would leave it behind.

    Where srun itself is gone, the job ends by its time limit, of which Slurm counts whole minutes. Inside a job it runs a step
    beside the job's other steps.
    """
    inside = ("--overlap",) if os.environ.get(ALLOCATION) else ()
    until = ("timeout", "--signal=INT", f"--kill-after={MARGIN_S / 2:g}", f"{asking.start_s + asking.check_s + MARGIN_S:g}")
    where = (f"--nodelist={node}", "--nodes=1", "--ntasks=1", "--quit-on-interrupt", "--quiet")
    limits = (f"--immediate={math.ceil(asking.start_s)}", f"--time={math.ceil((asking.check_s + MARGIN_S) / 60)}")
    return (*until, "srun", *where, *inside, *limits, *asking.options, *asking.command, "--node", node)


def ssh(node: str, asking: Asking) -> tuple[str, ...]:
    """ssh runs it by the login shell of the node; nobody is asked for a password."""
    settings = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={math.ceil(asking.start_s)}")
    return ("ssh", *settings, *asking.options, "--", node, shlex.join((*asking.command, "--node", node)))


Launcher = Callable[[str, Asking], tuple[str, ...]]


class Running:
    """The programs that run now, and whether they shall."""

    def __init__(self) -> None:
        self._programs: set[RunningProgram] = set()
        self._is_over = threading.Event()

    def finish(self, program: RunningProgram, deadline: float) -> Completed:
        """As the program's own; it is asked to end at once where all have been."""
        self._programs.add(program)
        if self._is_over.is_set():
            program.ask_to_end()
        try:
            return program.finish(deadline)
        finally:
            self._programs.discard(program)

    def end(self, grace_s: float) -> None:
        """Ask all to end, those that begin now too, and kill what does not within the time."""
        self._is_over.set()
        for program in tuple(self._programs):
            program.ask_to_end()
        until = time.monotonic() + grace_s
        while self._programs and time.monotonic() < until:
            time.sleep(LOOK_EVERY_S)
        for program in tuple(self._programs):
            program.kill()


def ask_nodes(nodes: Sequence[str], launcher: Launcher, asking: Asking) -> Generator[Answer, None, None]:
    """Each node's answer as it comes, `at_once` nodes side by side.

    Closed before the last, as by Ctrl-C, it ends what runs and starts no more: srun cancels its job when it is told to end.
    """
    running = Running()
    pool = ThreadPoolExecutor(max_workers=asking.at_once)
    futures = [pool.submit(_ask, node, launcher, asking, running) for node in nodes]
    try:
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        running.end(MARGIN_S)


def _ask(node: str, launcher: Launcher, asking: Asking, running: Running) -> Answer:
    limit_s = asking.start_s + asking.check_s + MARGIN_S
    try:
        program = RunningProgram(launcher(node, asking), os.environ)
    except ProgramNotFoundError as error:
        return Answer(node, because=str(error))
    done = running.finish(program, time.monotonic() + limit_s + MARGIN_S)
    return answer_of(node, done.stdout, done.stderr, _ending(done, limit_s))


def _ending(done: Completed, limit_s: float) -> str:
    """How it ended, where not as `check` does; empty for its usual exit codes."""
    if done.truncated:
        return "printed too much"
    if done.timed_out or done.exit_code in ENDED_BY_TIMEOUT:
        return f"gave no answer within {limit_s:.0f} s"
    if done.signal_name:
        return f"died of {done.signal_name}"
    return f"exit code {done.exit_code}" if done.exit_code else ""


def slurm_nodes(options: Sequence[str]) -> tuple[tuple[str, ...], tuple[Answer, ...]]:
    """The nodes of the allocation that this runs in, else all that Slurm has, or a partition where the options name one; of the
    latter two, those that are down apart, with Slurm's reason. Raises LauncherError.
    """
    if allocated := os.environ.get(ALLOCATION):
        return expand(allocated), ()
    chosen = [option for option in options if option.startswith(("--partition=", "--clusters="))]
    try:
        running = RunningProgram(("sinfo", "--noheader", "--Node", "--format=%N|%T|%E", *chosen), os.environ)
    except ProgramNotFoundError as error:
        raise LauncherError(str(error)) from error
    done = running.finish(time.monotonic() + SINFO_LIMIT_S)
    if done.exit_code != 0:
        raise LauncherError(f"sinfo failed: {_ending(done, SINFO_LIMIT_S)}: {done.stderr.strip()[:200]}")
    states = {row[0]: row[1:] for line in done.stdout.splitlines() if len(row := line.split("|", 2)) == 3}
    if not states:
        raise LauncherError("Slurm has no node there: sinfo names none")
    up = tuple(node for node, (state, _) in states.items() if state.rstrip(FLAGS) in UP and not state.endswith(SILENT))
    return up, tuple(Answer(node, because=_of_state(*states[node])) for node in states if node not in up)


def _of_state(state: str, reason: str) -> str:
    silent = ", and that it does not respond" if state.endswith(SILENT) else ""
    return f"Slurm says that it is {state.rstrip(FLAGS)}{silent}" + ("" if reason in ("none", "") else f": {reason}")
