"""Runs `cudadoctor check` on a machine as a process and keeps all that can be seen of it: report, time, processes, files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.hostile.launcher import IMPOSSIBLE

LAUNCHER = Path(__file__).with_name("launcher.py")
MARKER = "HOSTILE_RUN"
"""Variable with a value of this run's own: every process that the doctor starts inherits it."""
KILLED_AFTER_S = 60.0
"""Seconds beyond the deadline after which a doctor that hangs is killed."""
LEFTOVER_GRACE_S = 1.5
"""How long processes that were just killed may take to disappear."""
RECORDS = ("run.stdout", "run.stderr", ".calls")
"""Ends of the names of files that the run itself and the fake programs write."""
ENTRY_POINT = Path(__file__).with_name("script") / "run_cudadoctor.py"
"""What the installed `cudadoctor` script does, in a folder without other modules."""
PLAIN_PROGRAM = (sys.executable, str(ENTRY_POINT), "check")


class ImpossibleHereError(Exception):
    """This machine does not let a test make the conditions; the text says which."""


@dataclass
class Run:
    """One run of the doctor, and what it left behind."""

    timeout: float
    exit_code: int
    seconds: float
    stdout: bytes
    stderr: str
    left_running: list[str]
    written: list[str]
    """Paths of the watched folders that appeared, changed or went, the cache apart."""
    report: dict[str, Any] | None = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.report = json.loads(self.stdout)
        except ValueError:
            self.report = None


@dataclass(frozen=True)
class Place:
    """Where and how the doctor is run."""

    env: Mapping[str, str]
    cwd: Path
    watched: Sequence[Path]
    """Folders in which nothing may be written."""
    cache: Sequence[Path] = ()
    """Folders that may be written to."""
    conditions: Mapping[str, Any] = field(default_factory=dict)
    options: Sequence[str] = ()
    program: Sequence[str] = PLAIN_PROGRAM


def run_doctor(place: Place, timeout: float) -> Run:
    """Run `check --format json`; raises ImpossibleHereError."""
    mark = uuid.uuid4().hex
    argv = [sys.executable, "-IS", str(LAUNCHER), json.dumps(dict(place.conditions))]
    argv += [*place.program, "--format", "json", "--timeout", str(timeout), *place.options]
    env = {**place.env, MARKER: mark}
    before = listing(place)
    scratch = place.cwd.parent
    started = time.monotonic()
    with (scratch / "run.stdout").open("w+b") as stdout, (scratch / "run.stderr").open("w+b") as stderr:
        process = subprocess.Popen(argv, env=env, cwd=place.cwd, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr)
        try:
            exit_code = process.wait(timeout + KILLED_AFTER_S)
        except subprocess.TimeoutExpired:
            process.kill()
            exit_code = process.wait()
        seconds = time.monotonic() - started
        left = left_running(mark)
        stdout.seek(0)
        stderr.seek(0)
        run = Run(timeout, exit_code, seconds, stdout.read(), stderr.read().decode("utf-8", "replace"), left, [])
    if exit_code == IMPOSSIBLE:
        raise ImpossibleHereError(run.stderr.strip())
    after = listing(place)
    run.written = sorted(path for path in after.keys() | before.keys() if before.get(path) != after.get(path))
    return run


def left_running(mark: str) -> list[str]:
    """The processes with this run's marker that still run, which are then ended."""
    give_up = time.monotonic() + LEFTOVER_GRACE_S
    while found := [process for process in psutil.process_iter() if _has(process, mark)]:
        if time.monotonic() > give_up:
            names = [_command(process) for process in found]
            for process in found:
                process.kill()
            return names
        time.sleep(0.05)
    return []


def _has(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(MARKER) == mark
    except psutil.Error:
        return False


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return str(process.pid)


def listing(place: Place) -> dict[str, tuple[int, int]]:
    """Every folder and file of the watched folders with size and time of change; without the cache and the run's own records."""
    found: dict[str, tuple[int, int]] = {}
    for top in place.watched:
        for folder, folders, files in os.walk(top):
            folders[:] = [name for name in folders if Path(folder, name) not in place.cache]
            found.update({f"{folder}/{name}": (0, 0) for name in folders if not _leads_to(Path(folder, name), place.cache)})
            for name in files:
                if not name.endswith(RECORDS):
                    status = Path(folder, name).lstat()
                    found[f"{folder}/{name}"] = (status.st_size, status.st_mtime_ns)
    return found


def _leads_to(folder: Path, below: Sequence[Path]) -> bool:
    return any(folder in path.parents for path in below)
