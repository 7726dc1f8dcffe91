"""Builds fake root folders: files, links and empty places of a machine that is not this one."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path

from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import RealSystem, Uname

LINUX = Uname("Linux", "6.8.0-45-generic", "x86_64")
WSL2 = Uname("Linux", "5.15.167.4-microsoft-standard-WSL2", "x86_64")
WINDOWS = Uname("Windows", "10.0.22631", "amd64")


def fill(root: Path, files: Mapping[str, str | bytes | None], links: Mapping[str, str] | None = None) -> Path:
    """Write `files` (None: an empty folder) and symbolic `links` (path: target) below `root`; Windows paths below `root`/C."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / inside(name)
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    for name, target in (links or {}).items():
        path = root / inside(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)
    return root


def linux(
    root: Path,
    files: Mapping[str, str | bytes | None] | None = None,
    links: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    uname: Uname | None = LINUX,
) -> RootedSystem:
    """A Linux machine of these files, whose programs run here; without `uname` an unpacked image, whose programs do not."""
    fill(root, files or {}, links)
    return RootedSystem(root, environ, uname=uname, runner=RealSystem({}) if uname is not None else None)


class Forbidding(RootedSystem):
    """A machine on which /proc, /sys, /dev and /etc may not be read, also to the super-user who runs the tests."""

    def read_text(self, path: str) -> str:
        _deny(path)
        return super().read_text(path)

    def list_folder(self, path: str) -> tuple[str, ...]:
        _deny(path)
        return super().list_folder(path)


def _deny(path: str) -> None:
    if path.startswith(("/proc", "/sys", "/dev", "/etc")):
        raise PermissionError(errno.EACCES, "Permission denied", path)


def windows(root: Path, files: Mapping[str, str | bytes | None], environ: Mapping[str, str] | None = None) -> RootedSystem:
    """A Windows machine of these files; executables need no mode there, so all files get it."""
    fill(root, files)
    for path in root.rglob("*.exe"):
        path.chmod(0o755)
    return RootedSystem(root, environ or {"PATH": r"C:\Windows\System32"}, platform="win32", uname=WINDOWS, runner=RealSystem({}))


def inside(name: str) -> str:
    """The path below the root folder."""
    return name.replace("\\", "/").replace(":", "", 1).lstrip("/") if name[1:2] == ":" else name.lstrip("/")
