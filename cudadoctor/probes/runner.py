"""Runs probes side by side, each in a thread that may be left behind: one that hangs or crashes costs only its own facts."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudadoctor.background import started
from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.snapshot import ProbeRun

if TYPE_CHECKING:
    from cudadoctor.system import System

LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""Errors by which a system says that this process may have no more of something."""


@dataclass(frozen=True)
class ProbeContext:
    """What a probe needs to know besides the machine."""

    package_folders: Callable[[], tuple[str, ...]]
    """site-packages of the examined Python; may wait a moment for that Python's answer."""
    timeout_s: float
    """For each program that a probe runs, nvidia-smi apart."""
    nvidia_smi_timeout_s: float
    variable_names: frozenset[str]
    """Names of matrices/env_vars.toml."""


@dataclass(frozen=True)
class Probe:
    """One subject: how to read it, and what to put in its place where that gave no answer."""

    name: str
    read: Callable[[System, ProbeContext], Any]
    unanswered: Callable[[Missing], Any]


class RunningProbe:
    """A probe at work in a daemon thread, so that a hung one does not keep the process alive."""

    def __init__(self, probe: Probe, system: System, context: ProbeContext) -> None:
        self._probe = probe
        self._started = time.monotonic()
        self._done: tuple[Any, ProbeRun] | None = None
        self._thread = threading.Thread(target=self._run, args=(system, context), name=f"probe {probe.name}", daemon=True)
        refused = started(self._thread)
        if refused is not None:
            missing = Missing(MissingReason.FAILED, f"the probe could not be started: {refused}", probe.name)
            self._done = probe.unanswered(missing), ProbeRun(probe=probe.name, seconds=0.0, outcome="not started")

    @property
    def name(self) -> str:
        """The probe's name."""
        return self._probe.name

    def unanswered(self, missing: Missing) -> Any:
        """What stands for this probe's part where it is not waited for."""
        return self._probe.unanswered(missing)

    def result(self, deadline: float) -> tuple[Any, ProbeRun]:
        """The part of the snapshot and how the probe went; at `deadline` (time.monotonic()) it is given up."""
        if self._done is None:
            self._thread.join(max(deadline - time.monotonic(), 0))
        if self._done is not None:
            return self._done
        seconds = time.monotonic() - self._started
        missing = Missing(MissingReason.TIMEOUT, f"the probe gave no answer within {seconds:.1f} s", self._probe.name)
        return self._probe.unanswered(missing), ProbeRun(probe=self._probe.name, seconds=seconds, outcome="timeout")

    def _run(self, system: System, context: ProbeContext) -> None:
        name = self._probe.name
        try:
            part, outcome, detail = self._probe.read(system, context), "ok", ""
        except Exception as bug:  # noqa: BLE001  # our own bug must not take the report with it; it is reported as a crash
            outcome, detail = "refused" if _is_a_limit(bug) else "crashed", f"{type(bug).__name__}: {bug}"
            words = f"the system refused what the probe needs: {bug}" if outcome == "refused" else f"the probe crashed: {detail}"
            part = self._probe.unanswered(Missing(MissingReason.FAILED, words, name))
        self._done = part, ProbeRun(probe=name, seconds=time.monotonic() - self._started, outcome=outcome, detail=detail)


def _is_a_limit(error: Exception) -> bool:
    """Did the system run out of what it allows this process? Then any step may fail, the import of a module of ours too."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in LIMITS)


def start_probes(probes: Sequence[Probe], system: System, context: ProbeContext) -> tuple[RunningProbe, ...]:
    """All probes, running."""
    return tuple(RunningProbe(probe, system, context) for probe in probes)
