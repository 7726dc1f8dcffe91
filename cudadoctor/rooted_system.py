"""The files below a folder as if it were a machine: an unpacked container image, or a fake machine of a test."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from cudadoctor.process import Completed, ProgramNotFoundError, RunningProgram
from cudadoctor.system import RealSystem, Uname, programs_on_path

MAX_LINKS = 40
"""Symbolic links followed in one path before it counts as a loop, as in the Linux kernel."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH of a container image that sets none."""
PATH_LISTS = ("PATH", "LD_LIBRARY_PATH")
"""Variables whose folders are those of the root, and have to be those of this machine for a program that runs here."""


class RootedSystem:
    """The files below `root` as if it were the root folder: an unpacked image, or a fake machine in a test.

    Absolute symbolic links stay inside. Programs run only where a `runner` is given; an unpacked image has none. Windows paths
    (`C:\\Windows`) of a win32 root are looked up below `root/C`.
    """

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str] | None = None,
        *,
        platform: str = "linux",
        uname: Uname | None = None,
        runner: RealSystem | None = None,
    ) -> None:
        self.root = root
        self.environ: Mapping[str, str] = {"PATH": DEFAULT_PATH} if environ is None else dict(environ)
        self.platform = platform
        self.uname = uname
        self.files_root = str(root)
        self._runner = runner
        self._real = RealSystem({})

    def host_path(self, path: str) -> str:
        """Where the file really lies on this machine, links resolved inside the root; raises OSError for a loop."""
        return str(self.root) + self._resolve(path, strict=False)

    def read_text(self, path: str) -> str:
        return self._real.read_text(self.host_path(path))

    def list_folder(self, path: str) -> tuple[str, ...]:
        return self._real.list_folder(self.host_path(path))

    def exists(self, path: str) -> bool:
        try:
            return self._real.exists(self.host_path(path))
        except OSError:
            return False

    def is_folder(self, path: str) -> bool:
        try:
            return self._real.is_folder(self.host_path(path))
        except OSError:
            return False

    def real_path(self, path: str) -> str:
        resolved = self._resolve(path, strict=True)
        return resolved if self.platform != "win32" else _windows_path(resolved)

    def mode(self, path: str) -> int:
        return self._real.mode(self.host_path(path))

    def access(self, path: str, mode: int) -> bool:
        try:
            return self._real.access(self.host_path(path), mode)
        except OSError:
            return False

    def which(self, program: str) -> tuple[str, ...]:
        return programs_on_path(self, program)

    def run(self, argv: Sequence[str], timeout: float, env: Mapping[str, str] | None = None) -> Completed:
        return self._runner_for(argv).run(self._host_argv(argv), timeout, self._host_environ(env))

    def start(self, argv: Sequence[str], env: Mapping[str, str] | None = None) -> RunningProgram:
        return self._runner_for(argv).start(self._host_argv(argv), self._host_environ(env))

    def stop_programs(self) -> None:
        if self._runner is not None:
            self._runner.stop_programs()

    def _runner_for(self, argv: Sequence[str]) -> RealSystem:
        if self._runner is None:
            raise ProgramNotFoundError(f"cannot run {argv[0]}: programs of an unpacked image are not run")
        return self._runner

    def _host_argv(self, argv: Sequence[str]) -> tuple[str, ...]:
        """The command line with its program looked up inside the root; one outside (our own Python) stays as it is."""
        found = self.which(argv[0])
        return (self.host_path(found[0]) if found else argv[0], *argv[1:])

    def _host_environ(self, env: Mapping[str, str] | None) -> dict[str, str]:
        """The environment with the folders of PATH and the like where they really lie; those outside stay as they are."""
        environ = dict(self.environ if env is None else env)
        for name in PATH_LISTS:
            if name in environ:
                folders = environ[name].split(":")
                environ[name] = ":".join(self.host_path(folder) if self.is_folder(folder) else folder for folder in folders)
        return environ

    def _resolve(self, path: str, *, strict: bool) -> str:
        """`path` without links, as seen from inside the root."""
        pending = list(reversed(_posix_parts(path, self.platform)))
        done: list[str] = []
        links = 0
        while pending:
            part = pending.pop()
            if part == "..":
                done = done[:-1]
                continue
            here = "/".join(("", *done, part))
            target = _link_target(str(self.root) + here)
            if target is None:
                done.append(part)
                continue
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            done = [] if target.startswith("/") else done
            pending.extend(reversed(_posix_parts(target, self.platform)))
        resolved = "/".join(("", *done))
        if strict:
            self._real.mode(str(self.root) + resolved)  # for its error
        return resolved or "/"


def _posix_parts(path: str, platform: str) -> list[str]:
    if platform == "win32":
        path = path.replace("\\", "/").replace(":", "", 1)
    return [part for part in PurePosixPath(path).parts if part != "/"]


def _windows_path(resolved: str) -> str:
    drive, _, rest = resolved.lstrip("/").partition("/")
    return f"{drive}:\\" + rest.replace("/", "\\")


def _link_target(host_path: str) -> str | None:
    try:
        return os.readlink(host_path)  # noqa: PTH115  # the text as written
    except (OSError, ValueError):
        return None
