"""Reads the files of installed packages: their GPU code, and the CUDA libraries that loading them would bring in."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from cudadoctor.binary.cache import ScanCache
from cudadoctor.binary.dependencies import resolve_tree
from cudadoctor.binary.formats import FileKind
from cudadoctor.binary.libraries import describe_libraries
from cudadoctor.binary.loader import LoaderView, Resolved, Via, split_library_path
from cudadoctor.binary.packages import FoundFile, InstalledPackage, PackageFiles, installed_packages, read_package
from cudadoctor.binary.rootfs import RootFolder
from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.binary.source import BinaryError
from cudadoctor.binary.torch_code import TORCH_LIBRARIES
from cudadoctor.model.binaries import BinaryFile, BinaryPackage, LibraryProblemKind, LibraryUse, MissingLibrary
from cudadoctor.probes.libraries import library_places

if TYPE_CHECKING:
    from cudadoctor.binary.libraries import LibraryReport
    from cudadoctor.matrices.sonames import SonameMatrix
    from cudadoctor.system import System

OF_TORCH = re.compile(r"lib(?:torch|c10)(?:_\w+)?\.so")
OF_DRIVER = re.compile(r"lib(?:cuda|nvidia-\w+|nvcuvid)\.so")
"""Libraries that only the driver brings; whether it is there is another probe's question."""
VERSIONED = re.compile(r"lib[\w-]+\.so\.\d")
"""A name without a number is asked for as a fallback only."""
MOST_PLACES = 3
"""Copies that are named for a library that the loader does not find."""


class PackageReader:
    """Reads packages one after the other, with one view of the loader and one cache for all."""

    def __init__(self, system: System, folders: Sequence[str], sonames: Callable[[], SonameMatrix], executable: str) -> None:
        """Packages lie in `folders`; `executable` is the Python that would load them, as paths of the system."""
        self._system = system
        self._folders = tuple(folders)
        self._sonames = sonames
        self._executable = executable
        self._root = RootFolder(system.files_root)
        self._cache = ScanCache.of_environment(system.environ if system.uname is not None else {})

    def installed(self, without_metadata: Sequence[str]) -> tuple[InstalledPackage, ...]:
        """The packages, with the paths of their files on this machine."""
        real = (self._root.real_path(folder) for folder in self._folders)
        return installed_packages(tuple(self._root.here(folder) for folder in real if folder is not None), without_metadata)

    def read(self, package: InstalledPackage, is_over: Callable[[], bool]) -> BinaryPackage:
        """What the package holds and would load, as far as it was read before `is_over`."""
        found = read_package(package, self._cache, is_over)
        files = tuple(self._described(file, found) for file in found.files)
        return BinaryPackage(found.name, files, found.complete, package.version)

    def save(self) -> None:
        """Write the cache."""
        self._cache.save()

    def _inside(self, path: str) -> str:
        """The path as the system names it."""
        root = self._root.folder.rstrip("/")
        return path.removeprefix(root) if root else path

    def _described(self, file: FoundFile, package: PackageFiles) -> BinaryFile:
        path, contents = self._inside(file.path), file.contents
        if contents is None:
            return BinaryFile(path, file.size, unread=file.problem)
        needed = tuple(name for name in contents.needed if is_nvidia(name) or OF_TORCH.match(name))
        plain = BinaryFile(path, file.size, contents.groups, needed, assembles=contents.named_targets, unread=file.problem)
        if contents.kind is not FileKind.ELF or not (needed or contents.groups) or not self._is_asked(path, package.name):
            return plain
        try:
            report = describe_libraries(self._view, path, self._sonames())
        except BinaryError:
            return plain
        return BinaryFile(
            path=path,
            size=file.size,
            modules=contents.groups,
            needed=needed,
            missing=tuple(self._missing(report, plain, package)),
            shadowing=tuple(use for use in report.uses if _hides_others(use)),
            problems=tuple(problem for problem in report.problems if problem.kind is not LibraryProblemKind.MISSING),
            unread=file.problem,
        )

    @staticmethod
    def _is_asked(path: str, package: str) -> bool:
        """Of torch only the library with its kernels: it brings in the others."""
        return package != "torch" or posixpath.basename(path) in TORCH_LIBRARIES

    @cached_property
    def _view(self) -> LoaderView:
        library_path = split_library_path(self._system.environ.get("LD_LIBRARY_PATH", ""))
        return LoaderView(self._system.files_root, library_path, self._executable or None)

    @cached_property
    def _places(self) -> tuple[str, ...]:
        return tuple(library_places(self._system, self._folders))

    @cached_property
    def _brought_by_torch(self) -> frozenset[str]:
        """The names by which libraries answer once torch is imported."""
        candidates = (f"{folder}/torch/lib/{name}" for folder in self._folders for name in TORCH_LIBRARIES)
        library = next((path for path in candidates if self._system.exists(path)), None)
        if library is None:
            return frozenset()
        try:
            tree = resolve_tree(self._view, library)
        except BinaryError:
            return frozenset()
        names = {posixpath.basename(item.path) for item in tree.objects}
        names |= {entry.resolution.name for entry in tree.dependencies if isinstance(entry.resolution, Resolved)}
        return frozenset(names)

    def _missing(self, report: LibraryReport, file: BinaryFile, package: PackageFiles) -> Iterator[MissingLibrary]:
        loaded = self._brought_by_torch if any(OF_TORCH.match(name) for name in file.needed) else frozenset()
        named: set[str] = set(loaded)
        for use in report.uses:
            if (
                use.path is None
                and use.name not in named
                and is_nvidia(use.name)
                and VERSIONED.match(use.name)
                and not OF_DRIVER.match(use.name)
            ):
                named.add(use.name)
                yield MissingLibrary(use.name, use.requester, use.wanted, tuple(self._elsewhere(use.name, package))[:MOST_PLACES])

    def _elsewhere(self, name: str, package: PackageFiles) -> Iterator[str]:
        own = {posixpath.dirname(self._inside(file.path)) for file in package.files}
        for place in dict.fromkeys((*self._places, *sorted(own))):
            if self._system.exists(f"{place}/{name}"):
                yield f"{place}/{name}"


def _hides_others(use: LibraryUse) -> bool:
    return use.via.startswith(Via.LD_LIBRARY_PATH.value) and bool(use.shadowed) and is_nvidia(use.name)
