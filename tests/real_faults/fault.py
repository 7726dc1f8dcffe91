"""What a fault is: something changed for one process, and what is right to say of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.real_faults.machine import Machine


@dataclass(frozen=True)
class Check:
    """A fault of the machine as one process sees it: `cudadoctor check` is run in it."""

    env: Mapping[str, str | None] = field(default_factory=dict)
    """Variables that are set, or with None unset; the rest of the environment stays."""
    options: Sequence[str] = ()
    launcher: Sequence[str] = ()
    """A program that is started with the doctor's command line behind its own arguments."""


@dataclass(frozen=True)
class Program:
    """A fault of a program: it is run, and what it prints goes through `cudadoctor triage`."""

    argv: Sequence[str]
    env: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Expected:
    """The right answer."""

    root: str
    """Name of the finding that must be a root; empty: nothing is wrong, so neither errors nor warnings."""
    fix: str = ""
    """Regular expression that a command of its fixes matches; empty where a finding has no command to give."""
    beside: Sequence[str] = ()
    """Other errors and warnings that are true as well and do not follow from the root."""
    layers: Mapping[str, str] = field(default_factory=dict)
    """Outcomes of proofs, which show that the fault was real: `{"nvcc": "failed"}`, all of a layer."""
    exit_codes: Sequence[int] = ()


@dataclass(frozen=True)
class Fault:
    """One fault; `make` may raise NotHereError where this machine has nothing to make it of."""

    name: str
    make: Callable[[Machine, Path], Check | Program]
    """Prepares the fault in a folder of its own."""
    expected: Expected
