"""The one door to the machine: files, environment and programs, so that a probe can be given another machine."""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

from cudadoctor.process import (
    MAX_OUTPUT_BYTES,
    Completed,
    ProgramNotFoundError,
    RunningProgram,
)

__all__ = [
    "MAX_FILE_BYTES",
    "MAX_OUTPUT_BYTES",
    "Completed",
    "ProgramNotFoundError",
    "RealSystem",
    "RunningProgram",
    "System",
    "Uname",
]

MAX_FILE_BYTES = 4 * 1024 * 1024
"""Longest text file read whole; what lies beyond is cut off (procfs, headers and os-release are far shorter)."""


@dataclass(frozen=True)
class Uname:
    """What the running system calls itself: `Linux`, `6.8.0-45-generic`, `x86_64`."""

    system: str
    release: str
    machine: str


class System(Protocol):
    """What a probe may ask of a machine. File methods raise OSError as the machine does."""

    @property
    def environ(self) -> Mapping[str, str]: ...

    @property
    def platform(self) -> str:
        """As `sys.platform`: linux, win32, darwin."""
        ...

    @property
    def uname(self) -> Uname | None:
        """None for the files of a machine that is not running."""
        ...

    @property
    def files_root(self) -> str:
        """Where the root folder lies on this machine: `/`, or the folder of an unpacked image."""
        ...

    def read_text(self, path: str) -> str: ...

    def list_folder(self, path: str) -> tuple[str, ...]:
        """Names in the folder, sorted."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def real_path(self, path: str) -> str:
        """The path without symbolic links; raises OSError where it is missing or a loop."""
        ...

    def mode(self, path: str) -> int:
        """`st_mode`, links followed."""
        ...

    def access(self, path: str, mode: int) -> bool: ...

    def which(self, program: str) -> tuple[str, ...]:
        """Every executable of that name on the PATH, in its order; the path itself where `program` is one."""
        ...

    def run(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Completed:
        """Run to the end or for `timeout` seconds, messages in English (LC_ALL=C); raises ProgramNotFoundError."""
        ...

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> RunningProgram:
        """Start and do not wait; raises ProgramNotFoundError."""
        ...

    def stop_programs(self) -> None:
        """Kill what is still running of all that was started here: after Ctrl-C, or behind a probe that was given up."""
        ...


class RealSystem:
    """This machine, with the environment of this process or the one given."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ: Mapping[str, str] = dict(os.environ if environ is None else environ)
        self.platform = sys.platform
        self.files_root = "/"
        self._programs: WeakSet[RunningProgram] = WeakSet()
        self._lock = threading.Lock()

    @property
    def uname(self) -> Uname:
        if sys.platform == "win32":
            version = sys.getwindowsversion()
            machine = os.environ.get("PROCESSOR_ARCHITECTURE", "").lower()
            return Uname("Windows", f"{version.major}.{version.minor}.{version.build}", machine)
        name = os.uname()
        return Uname(name.sysname, name.release, name.machine)

    def read_text(self, path: str) -> str:
        return _read_regular_file(path)

    def list_folder(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(os.listdir(_checked(path))))  # noqa: PTH208  # names, not paths, are wanted

    def exists(self, path: str) -> bool:
        return _quiet_stat(path) is not None

    def is_folder(self, path: str) -> bool:
        status = _quiet_stat(path)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def real_path(self, path: str) -> str:
        try:
            return str(Path(_checked(path)).resolve(strict=True))
        except RuntimeError as loop:  # what pathlib raises for a loop before Python 3.13
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path) from loop

    def mode(self, path: str) -> int:
        return Path(_checked(path)).stat().st_mode

    def access(self, path: str, mode: int) -> bool:
        try:
            return os.access(path, mode)
        except ValueError:  # a NUL byte in the path
            return False

    def which(self, program: str) -> tuple[str, ...]:
        return programs_on_path(self, program)

    def run(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Completed:
        deadline = time.monotonic() + timeout
        return self.start(argv, env).finish(deadline)

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> RunningProgram:
        program = RunningProgram(_located(self, argv), _english(self.environ if env is None else env))
        with self._lock:
            self._programs.add(program)
        return program

    def stop_programs(self) -> None:
        with self._lock:
            running = [program for program in self._programs if not program.stopped]
        for program in running:
            program.kill()


def _read_regular_file(path: str) -> str:
    """The text of a regular file (procfs and sysfs included), cut at MAX_FILE_BYTES; never waits for a pipe or a device."""
    if not stat.S_ISREG(os.stat(_checked(path)).st_mode):  # noqa: PTH116  # paths are plain text here
        code = errno.EISDIR if Path(path).is_dir() else errno.EINVAL
        raise OSError(code, "not a regular file" if code == errno.EINVAL else os.strerror(code), path)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was exchanged meanwhile
            raise OSError(errno.EINVAL, "not a regular file", path)
        return b"".join(_chunks(descriptor)).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def _chunks(descriptor: int) -> Iterator[bytes]:
    rest = MAX_FILE_BYTES
    while rest > 0 and (data := os.read(descriptor, rest)):
        rest -= len(data)
        yield data


def _checked(path: str) -> str:
    """The path itself; OSError instead of ValueError where it holds a NUL byte, as no file has such a name."""
    if "\0" in path:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return path


def _quiet_stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116  # paths are plain text here
    except (OSError, ValueError):
        return None


def _english(environ: Mapping[str, str]) -> dict[str, str]:
    return {**environ, "LC_ALL": "C"}


def _located(system: System, argv: Sequence[str]) -> tuple[str, ...]:
    """The command line with its program as a path, looked up on the system's own PATH; raises ProgramNotFoundError."""
    found = system.which(argv[0])
    if found:
        return (found[0], *argv[1:])
    if _is_path(argv[0]):
        return tuple(argv)  # running it gives the precise error
    raise ProgramNotFoundError(f"{argv[0]} is not on the PATH")


def _is_path(program: str) -> bool:
    return "/" in program or "\\" in program


def programs_on_path(system: System, program: str) -> tuple[str, ...]:
    """Every executable file of that name, in the order of the PATH, each path once; of a path, that path."""
    windows = system.platform == "win32"
    separator, slash = (";", "\\") if windows else (":", "/")
    names = (program, f"{program}.exe") if windows and "." not in program else (program,)
    if _is_path(program):
        candidates = [program]
    else:
        folders = [folder for folder in system.environ.get("PATH", "").split(separator) if folder]
        candidates = [folder.rstrip(slash) + slash + name for folder in folders for name in names]
    found = (path for path in candidates if system.access(path, os.X_OK) and not system.is_folder(path))
    return tuple(dict.fromkeys(found))
