"""Compiled kernels kept between runs, under a key of all that could change them.

No cache is a valid state: nothing depends on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from cudadoctor.paths import is_folder


def cache_key(*parts: object) -> str:
    """A file name that stands for exactly these parts (JSON values)."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def file_identity(path: Path) -> tuple[str, int, int]:
    """Real path, size in bytes and modification time in ns: what tells one installed compiler from its successor."""
    try:
        status = path.stat()
    except OSError:
        return (str(path), -1, -1)
    return (os.path.realpath(path), status.st_size, status.st_mtime_ns)


def identities(paths: Sequence[Path]) -> list[tuple[str, int, int]]:
    """The identity of each file."""
    return [file_identity(path) for path in paths]


def user_cache_folder(env: Mapping[str, str]) -> Path | None:
    """Where compiled kernels are kept for this user, or None where the user has no home: none is made for that."""
    if env.get("XDG_CACHE_HOME", "").startswith("/"):  # a relative one is invalid (XDG base directory specification)
        return Path(env["XDG_CACHE_HOME"]) / "cudadoctor" / "kernels"
    home = env.get("LOCALAPPDATA" if sys.platform == "win32" else "HOME", "")
    base = Path(home) if sys.platform == "win32" else Path(home) / ".cache"
    return base / "cudadoctor" / "kernels" if Path(home).is_absolute() and is_folder(home) else None


class CompileCache:
    """A folder with one folder a key, in it one file named by the digest of its content."""

    def __init__(self, folder: Path | None) -> None:
        """Use `folder`, which need not exist or be writable; None keeps nothing."""
        self._folder = folder

    def get(self, key: str) -> Path | None:
        """The file kept under `key`, if it is there and undamaged."""
        if self._folder is None:
            return None
        try:
            for file in (self._folder / key).iterdir():
                if file.stem == _digest(file):
                    return file
        except OSError:
            return None
        return None

    def put(self, key: str, compiled: Path) -> None:
        """Keep a copy of `compiled`; one that cannot be kept (no space, no permission) is not."""
        if self._folder is None:
            return
        target = self._folder / key / (_digest(compiled) + compiled.suffix)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=target.parent, suffix=".part")
        except OSError:
            return
        os.close(handle)
        try:
            shutil.copyfile(compiled, name)
            Path(name).replace(target)
        except OSError:
            Path(name).unlink(missing_ok=True)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
