"""Makes a fault, runs cudadoctor on it as a user would, and compares what it said with what is right."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.hostile.doctor import MARKER, left_running
from tests.hostile.launcher import IMPOSSIBLE
from tests.real_faults.fault import Check, Expected, Fault, Program
from tests.real_faults.machine import PROGRAM_LIMIT_S, Machine, NotHereError

ROOT = Path(__file__).parents[2]
DOCTOR = (sys.executable, "-m", "cudadoctor")
SHOWN = frozenset({"error", "warning"})
"""Severities of findings that claim a fault; a note does not."""


@dataclass(frozen=True)
class Said:
    """What one run of cudadoctor said."""

    exit_code: int
    seconds: float
    report: Mapping[str, Any]
    text: str = ""
    """What the faulty program printed."""
    left_running: Sequence[str] = ()

    def finding(self, name: str) -> Mapping[str, Any] | None:
        """The root finding of that name."""
        return next((one for one in self.report["findings"] if one["name"] == name and one["root"]), None)

    @property
    def claims(self) -> tuple[str, ...]:
        """Names of the roots that say that something is wrong."""
        roots = (one["name"] for one in self.report["findings"] if one["root"] and one["severity"] in SHOWN)
        return tuple(dict.fromkeys(roots))

    @property
    def verdict(self) -> tuple[Any, ...]:
        """What must not differ from run to run: exit code, verdict, and the findings with their severities."""
        findings = [(one["name"], one["severity"], one["root"]) for one in self.report["findings"]]
        return (self.exit_code, self.report["verdict"], *findings)

    def outcomes(self, layer: str) -> set[str]:
        """How the proofs of a layer ended."""
        return {proof["outcome"] for proof in self.report["proofs"] if proof["layer"] == layer}


def run_fault(fault: Fault, machine: Machine, folder: Path) -> Said:
    """Make it below `folder`, run cudadoctor on it, remove it; raises NotHereError."""
    folder.mkdir(parents=True)
    try:
        made = fault.make(machine, folder)
        return check(machine, made, folder) if isinstance(made, Check) else triage(machine, made, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def check(machine: Machine, made: Check, folder: Path) -> Said:
    """`cudadoctor check` in the environment of a fault, with a cache of its own."""
    env = {**_environment(machine, made.env), "XDG_CACHE_HOME": str(folder / "cache")}
    return _run([*made.launcher, *DOCTOR, "check", "--format", "json", *made.options], env)


def triage(machine: Machine, made: Program, folder: Path) -> Said:
    """Run the program, which must fail, and give `cudadoctor triage` what it printed."""
    env = _environment(machine, made.env)
    done = subprocess.run(
        list(made.argv), env=env, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PROGRAM_LIMIT_S
    )
    text = done.stdout.decode("utf-8", "replace")
    if not text.strip():
        raise NotHereError(f"the program ended with {done.returncode} and printed nothing")
    return _run([*DOCTOR, "triage", "-", "--format", "json"], dict(machine.env), text)


def _environment(machine: Machine, changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**machine.env, **changes}
    return {name: value for name, value in merged.items() if value is not None}


def _run(argv: Sequence[str], env: Mapping[str, str], text: str = "") -> Said:
    mark = uuid.uuid4().hex
    marked = {**env, MARKER: mark, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), env.get("PYTHONPATH", ""))))}
    started = time.monotonic()
    done = subprocess.run(argv, env=marked, input=text.encode(), capture_output=True, timeout=PROGRAM_LIMIT_S)
    seconds = time.monotonic() - started
    if done.returncode == IMPOSSIBLE:
        raise NotHereError(done.stderr.decode("utf-8", "replace").strip())
    return Said(done.returncode, seconds, json.loads(done.stdout), text, left_running(mark))


def wrong(expected: Expected, said: Said, healthy: Sequence[str] = ()) -> Iterator[str]:
    """All that is not right in an answer; `healthy` are the claims made of the machine without a fault."""
    found = said.finding(expected.root) if expected.root else None
    if expected.root and found is None:
        yield f"{expected.root} is no root"
    if found is not None and expected.fix:
        yield from _wrong_fix(expected.fix, found)
    false = [name for name in said.claims if name not in (expected.root, *expected.beside, *healthy)]
    if false:
        yield f"false root: {', '.join(false)}"
    for layer, outcome in expected.layers.items():
        if said.outcomes(layer) != {outcome}:
            yield f"{layer}: {', '.join(sorted(said.outcomes(layer))) or 'not run'}, not {outcome}"
    if expected.exit_codes and said.exit_code not in expected.exit_codes:
        yield f"exit code {said.exit_code}"
    if said.left_running:
        yield f"left running: {', '.join(said.left_running)}"


def _wrong_fix(pattern: str, finding: Mapping[str, Any]) -> Iterator[str]:
    """Does a command match, and was its fix re-checked, where re-checking says anything?"""
    commands = [command for fix in finding["fixes"] for command in fix["commands"]]
    if not any(re.search(pattern, command) for command in commands):
        yield f"no fix with {pattern!r} but {commands or 'none'}"
