"""Says which file ld.so would load for a name, by which rule, and which other copies that hides. Loads nothing.

The search order is glibc's. How known: `ld.so --list` of glibc 2.36 agrees with this module on system libraries, on the
torch wheels with LD_LIBRARY_PATH set to rival CUDA folders, and on constructed RPATH, RUNPATH, hwcaps and symlink cases
(tests and benchmarks/scan_vs_ldso.py). Not covered: musl, the legacy hwcaps folders of glibc before 2.37.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from cudadoctor.binary.dynamic import DynamicInfo, read_dynamic
from cudadoctor.binary.elf import Machine, read_header
from cudadoctor.binary.rootfs import RootFolder
from cudadoctor.binary.search_path import DEFAULT_FOLDERS, MAX_CACHE_SIZE, CacheEntry, parse_cache, with_hwcaps, x86_levels
from cudadoctor.binary.source import BinaryError, FileSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class Via(Enum):
    """The rule of ld.so that named a file."""

    PATH = "path"
    """The name has a slash: it is the path."""
    LOADED = "already loaded"
    RPATH = "RPATH"
    LD_LIBRARY_PATH = "LD_LIBRARY_PATH"
    RUNPATH = "RUNPATH"
    CACHE = "ld.so.cache"
    DEFAULT = "default folders"


@dataclass(frozen=True, slots=True)
class LibraryCopy:
    """One file that carries the wanted name. `owner` is the file whose RPATH or RUNPATH named its folder."""

    path: str
    real_path: str
    via: Via
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file of the wanted name that ld.so passes over, or stops at, and why."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The file that wins, and the other copies in the order in which the search would have met them."""

    name: str
    path: str
    real_path: str
    via: Via
    owner: str | None
    shadowed: tuple[LibraryCopy, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class Unresolved:
    """No file of that name would be loaded; `rejected` are those that were met and not taken."""

    name: str
    rejected: tuple[Rejected, ...]


Resolution = Resolved | Unresolved


@dataclass(frozen=True, slots=True)
class LoadedObject:
    """A library in the process that is imagined: the path by which it was found, and who asked for it first."""

    path: str
    real_path: str
    info: DynamicInfo
    loader: LoadedObject | None = None

    @property
    def origin(self) -> str:
        """The value of $ORIGIN: the folder of the path that was used, links not followed."""
        return posixpath.dirname(self.path)


class _NotALibraryError(Exception):
    """A file on the path is no library at all: ld.so gives up there instead of looking further."""


def _absolute(path: str) -> str:
    """The path from the root on, of this machine or of an image's; links stay, as they decide what $ORIGIN is."""
    return path if posixpath.isabs(path) else os.path.abspath(path)


def host_machine() -> Machine:
    """The processor of this machine; x86-64 where it is another one than the two that CUDA supports."""
    return Machine.AARCH64 if _processor() in {"aarch64", "arm64"} else Machine.X86_64


def _processor() -> str:
    return os.uname().machine if hasattr(os, "uname") else os.environ.get("PROCESSOR_ARCHITECTURE", "").lower()


def host_hwcaps() -> tuple[str, ...]:
    """The glibc-hwcaps folders that this machine's ld.so searches, best first; empty where that is not known."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return x86_levels(file.read(1 << 16))
    except OSError:
        return ()


def split_library_path(text: str) -> tuple[str, ...]:
    """The folders of an LD_LIBRARY_PATH: ld.so splits at `:` and `;`, and takes an empty entry for the current folder."""
    return tuple(text.replace(";", ":").split(":")) if text else ()


class LoaderView:
    """ld.so as one process would see it: a root folder, an LD_LIBRARY_PATH, an executable.

    Answers are remembered per file for the life of the object, so make a new one after installing something.
    """

    def __init__(
        self,
        root: str = "/",
        ld_library_path: Iterable[str] = (),
        executable: str | None = None,
        machine: Machine | None = None,
        hwcaps: tuple[str, ...] | None = None,
    ) -> None:
        self.root = RootFolder(root)
        self.machine = host_machine() if machine is None else machine
        self.hwcaps = host_hwcaps() if hwcaps is None else hwcaps
        self._library_path = tuple(ld_library_path)
        self._default_folders = DEFAULT_FOLDERS.get(self.machine, ())
        self._folders: dict[str, bool] = {}
        self._verdicts: dict[str, str] = {}
        self._objects: dict[str, DynamicInfo] = {}
        self._cache: dict[str, tuple[CacheEntry, ...]] | None = None
        self.executable = None if executable is None else self.load(executable)

    @classmethod
    def of_environment(cls, environ: Mapping[str, str], executable: str | None = None) -> LoaderView:
        """The view of a program started here with these environment variables."""
        return cls(ld_library_path=split_library_path(environ.get("LD_LIBRARY_PATH", "")), executable=executable)

    def find(self, name: str, requester: str | LoadedObject | None = None) -> Resolution:
        """The file that dlopen(name), or a NEEDED entry of `requester`, would get. Never raises for what it meets on the way."""
        asker = self.load(requester) if isinstance(requester, str) else requester
        rejected: list[Rejected] = []
        copies: list[LibraryCopy] = []
        try:
            for candidate in self._candidates(name, asker):
                self._take(candidate, copies, rejected)
        except _NotALibraryError:
            pass
        if not copies:
            return Unresolved(name, tuple(rejected))
        winner = copies[0]
        return Resolved(name, winner.path, winner.real_path, winner.via, winner.owner, tuple(copies[1:]), tuple(rejected))

    def load(self, path: str, loader: LoadedObject | None = None) -> LoadedObject | None:
        """The object that a path would become; None where it is not a readable 64-bit ELF file."""
        absolute = _absolute(path)
        real = self.root.real_path(absolute)
        if real is None:
            return None
        info = self._objects.get(real)
        if info is None:
            try:
                with FileSource(self.root.here(real)) as source:
                    info = read_dynamic(source)
            except BinaryError:
                return None
            self._objects[real] = info
        return LoadedObject(absolute, real, info, loader)

    def _take(self, candidate: LibraryCopy, copies: list[LibraryCopy], rejected: list[Rejected]) -> None:
        if any(candidate.real_path == copy.real_path for copy in copies):
            return
        reason = self._verdict(candidate.real_path)
        if not reason:
            copies.append(candidate)
            return
        if any(candidate.path == other.path for other in rejected):
            return
        rejected.append(Rejected(candidate.path, reason))
        if not copies and reason not in _PASSED_OVER:
            raise _NotALibraryError

    def _verdict(self, real_path: str) -> str:
        """Why ld.so does not take a file; empty where it does."""
        if real_path not in self._verdicts:
            self._verdicts[real_path] = self._inspect(self.root.here(real_path))
        return self._verdicts[real_path]

    def _inspect(self, here: str) -> str:
        if os.path.islink(here):  # a real path is a link only where links go in circles
            return "symbolic links that go in circles"
        if not os.access(here, os.R_OK):
            return _UNREADABLE
        try:
            with FileSource(here) as source:
                head = source.read(0, 20)
                if len(head) >= 20 and head[:4] == b"\x7fELF" and head[4] != 2:
                    return _WRONG_CLASS
                return "" if read_header(source).machine_number == self.machine else _WRONG_MACHINE
        except BinaryError as error:
            return str(error)

    def _candidates(self, name: str, asker: LoadedObject | None) -> Iterator[LibraryCopy]:
        """Every existing file of that name, in ld.so's order."""
        if "/" in name:
            yield from self._existing((self._expand(name, asker),), Via.PATH, None)
            return
        yield from self._by_rpath(name, asker)
        yield from self._in_folders(name, (folder or "." for folder in self._library_path), Via.LD_LIBRARY_PATH)
        if asker is not None:
            runpath = (self._expand(folder, asker) for folder in asker.info.runpath)
            yield from self._in_folders(name, runpath, Via.RUNPATH, asker.path)
        no_defaults = asker is not None and asker.info.no_default_folders
        cached = (entry.path for entry in self._cached(name))
        yield from self._existing((path for path in cached if not (no_defaults and self._is_default(path))), Via.CACHE, None)
        if not no_defaults:
            yield from self._in_folders(name, self._default_folders, Via.DEFAULT)

    def _by_rpath(self, name: str, asker: LoadedObject | None) -> Iterator[LibraryCopy]:
        if asker is not None and asker.info.runpath:
            return
        chain: list[LoadedObject] = []
        while asker is not None:
            chain.append(asker)
            asker = asker.loader
        if self.executable is not None and all(link.real_path != self.executable.real_path for link in chain):
            chain.append(self.executable)
        for link in chain:
            folders = (self._expand(folder, link) for folder in link.info.rpath)
            yield from self._in_folders(name, folders, Via.RPATH, link.path)

    def _in_folders(self, name: str, folders: Iterable[str], via: Via, owner: str | None = None) -> Iterator[LibraryCopy]:
        existing = (folder for folder in with_hwcaps(folders, self.hwcaps) if self._is_folder(folder))
        yield from self._existing((posixpath.join(folder, name) for folder in existing), via, owner)

    def _existing(self, paths: Iterable[str], via: Via, owner: str | None) -> Iterator[LibraryCopy]:
        for path in paths:
            absolute = _absolute(path)
            real = self.root.real_path(absolute)
            if real is not None:
                yield LibraryCopy(absolute, real, via, owner)
            elif self.root.is_circle(absolute):
                yield LibraryCopy(absolute, absolute, via, owner)

    def _is_folder(self, path: str) -> bool:
        if path not in self._folders:
            self._folders[path] = self.root.is_folder(path)
        return self._folders[path]

    def _is_default(self, path: str) -> bool:
        return posixpath.dirname(path) in self._default_folders

    def _expand(self, text: str, asker: LoadedObject | None) -> str:
        """A search path entry with $ORIGIN and $LIB filled in; an empty entry is the current folder."""
        if "$" not in text:
            return text or "."
        multiarch = next((folder for folder in self._default_folders[:1] if self._is_folder(folder)), "/lib64")
        origin = asker.origin if asker is not None else ""
        values = {"ORIGIN": origin, "LIB": multiarch.lstrip("/"), "PLATFORM": _processor()}
        for key, value in values.items():
            text = text.replace(f"${{{key}}}", value).replace(f"${key}", value)
        return text

    def _cached(self, name: str) -> tuple[CacheEntry, ...]:
        if self._cache is None:
            self._cache = self._read_cache()
        return self._cache.get(name, ())

    def _read_cache(self) -> dict[str, tuple[CacheEntry, ...]]:
        """The rows of /etc/ld.so.cache by name, best hwcaps first; empty where there is no readable cache."""
        real = self.root.real_path("/etc/ld.so.cache")
        if real is None:
            return {}
        try:
            with FileSource(self.root.here(real)) as source:
                data = source.read(0, min(source.size, MAX_CACHE_SIZE))
        except BinaryError:
            return {}
        order = {level: rank for rank, level in enumerate((*self.hwcaps, ""))}
        rows: dict[str, list[CacheEntry]] = {}
        for entry in parse_cache(data, self.machine):
            if entry.hwcap in order:
                rows.setdefault(entry.soname, []).append(entry)
        return {name: tuple(sorted(entries, key=lambda entry: order[entry.hwcap])) for name, entries in rows.items()}


_UNREADABLE = "not readable by this user"
_WRONG_CLASS = "a 32-bit library"
_WRONG_MACHINE = "a library for another processor"
_PASSED_OVER = frozenset({_UNREADABLE, _WRONG_CLASS, _WRONG_MACHINE})
"""Reasons for which ld.so goes on searching; at anything else of that name it gives up (seen with glibc 2.36)."""
