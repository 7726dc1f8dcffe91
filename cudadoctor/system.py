"""The one door to the machine: files, environment and programs, so that a probe can be given another machine."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Longest text file read whole; what lies beyond is cut off (procfs, headers and os-release are far shorter)."""
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""Longest output taken from a program; one that prints more is stopped."""


@dataclass(frozen=True)
class Completed:
    """A program that was started and ended by itself or by its deadline; output decoded with replacement."""

    argv: tuple[str, ...]
    exit_code: int | None
    """Negative: died of that signal. None: did not end within its time and was killed."""
    stdout: str
    stderr: str
    seconds: float
    truncated: bool = False

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None

    @property
    def signal_name(self) -> str:
        """`SIGSEGV` where the program died of one, else empty."""
        if self.exit_code is None or self.exit_code >= 0:
            return ""
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


class ProgramNotFoundError(Exception):
    """There is no such program, or it cannot be executed; the text says which and why."""


class System(Protocol):
    """What a probe may ask of a machine. File methods raise OSError as the machine does."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    def read_text(self, path: str) -> str: ...

    def list_folder(self, path: str) -> tuple[str, ...]: ...

    def exists(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def real_path(self, path: str) -> str: ...

    def access(self, path: str, mode: int) -> bool: ...

    def which(self, program: str) -> tuple[str, ...]: ...

    def run(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Completed: ...
