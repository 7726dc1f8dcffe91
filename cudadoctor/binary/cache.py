"""Remembers what was read of a file, by path, size and time of change, so that a second scan opens nothing.

One file in the user's cache folder, written at the end under another name and renamed. A cache that cannot be read or written
is no cache: never an error.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from cudadoctor.binary.contents import Contents
from cudadoctor.model import codec
from cudadoctor.paths import is_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = 2
"""Raised whenever the reading of files changes, so that old answers are not used."""
MAX_FILES = 4096
WORTH_CACHING = 1 << 20
"""Smallest file, in bytes, that is remembered; smaller ones are read in less than a millisecond."""
MAX_CACHE_BYTES = 1 << 25


class CachedFile(Struct, frozen=True):
    """One remembered file."""

    size: int
    mtime_ns: int
    contents: Contents


class CacheDocument(Struct, frozen=True):
    """The cache file."""

    format: int
    files: dict[str, CachedFile]


class ScanCache:
    """Contents by path; `save` writes what was added."""

    def __init__(self, folder: str | None) -> None:
        """The cache below `folder`; None remembers nothing."""
        self._path = None if folder is None else Path(folder, "scan.json")
        self._files = self._load()
        self._changed = False

    @classmethod
    def of_environment(cls, environ: Mapping[str, str]) -> ScanCache:
        """The cache of this user: below $XDG_CACHE_HOME or ~/.cache; none where there is no home: none is made for that."""
        home = environ.get("HOME", "")
        base = environ.get("XDG_CACHE_HOME") or (f"{home}/.cache" if home and is_folder(home) else "")
        return cls(f"{base}/cudadoctor" if base.startswith("/") else None)

    def get(self, path: str, status: os.stat_result) -> Contents | None:
        """What was remembered of this very state of the file, else None."""
        known = self._files.get(path)
        if known is None or (known.size, known.mtime_ns) != (status.st_size, status.st_mtime_ns):
            return None
        return known.contents

    def put(self, path: str, status: os.stat_result, contents: Contents) -> None:
        """Remember a file that is large enough to be worth it; beyond MAX_FILES the oldest ones are forgotten."""
        if status.st_size < WORTH_CACHING:
            return
        self._files.pop(path, None)
        self._files[path] = CachedFile(status.st_size, status.st_mtime_ns, contents)
        self._changed = True
        while len(self._files) > MAX_FILES:
            del self._files[next(iter(self._files))]

    def save(self) -> None:
        """Write the cache, if it changed and its folder can be written."""
        if self._path is None or not self._changed:
            return
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=self._path.parent, prefix="scan-", delete=False) as file:
                file.write(codec.to_compact_json(CacheDocument(FORMAT, self._files)))
            Path(file.name).replace(self._path)
            self._changed = False

    def _load(self) -> dict[str, CachedFile]:
        if self._path is None:
            return {}
        try:
            if self._path.stat().st_size > MAX_CACHE_BYTES:
                return {}
            document = codec.from_json(self._path.read_bytes(), CacheDocument)
        except (OSError, codec.DocumentError):
            return {}
        return dict(document.files) if document.format == FORMAT else {}
