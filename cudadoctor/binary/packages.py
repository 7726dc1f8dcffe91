"""The CUDA binaries of installed packages, read within a time limit: the part of the scanner that `check` uses.

No interpreter is asked. Packages are known by their metadata folders, else, like conda's, by the folder of their module.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor.binary.contents import read_contents
from cudadoctor.binary.elf import is_elf, read_header, read_sections
from cudadoctor.binary.elf_code import has_cuda_sections
from cudadoctor.binary.inputs import InputError, folder_files, normalised, recorded_files
from cudadoctor.binary.ptxas import named_targets
from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.binary.source import BinaryError, FileSource
from cudadoctor.paths import exists, is_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from cudadoctor.binary.cache import ScanCache
    from cudadoctor.binary.contents import Contents

_LIBRARY = re.compile(r"\.(?:so(?:\.\d{1,4}){0,3}|pyd|dll)$")
_NOT_LOADED = (".a", ".o", ".lib", ".obj")
_FOLDER_NAMES = {"llama-cpp-python": "llama_cpp", "sglang-kernel": "sgl_kernel", "onnxruntime-gpu": "onnxruntime"}
"""Module folders that are not called like their package, for packages without a list of files."""


@dataclass(frozen=True, slots=True)
class InstalledPackage:
    """A package by its normalised name, and where the list of its files is; without one, the folder of its module."""

    name: str
    folder: str
    version: str = ""
    """Empty where nothing says it."""
    record: Path | None = None
    module: str = ""

    def files(self) -> Iterator[str]:
        """The files that may be binaries; raises InputError where their list cannot be read."""
        if self.record is not None:
            return recorded_files(self.record, self.folder)
        return folder_files(os.path.join(self.folder, self.module))


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that has GPU code or needs CUDA libraries; `problem` says why it could not be read."""

    path: str
    size: int
    contents: Contents | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PackageFiles:
    """Such files of one package; `complete` is False where time ran out, or the list of files cannot be read."""

    name: str
    files: tuple[FoundFile, ...]
    complete: bool


def installed_packages(folders: Sequence[str], modules: Sequence[str] = ()) -> tuple[InstalledPackage, ...]:
    """All packages with metadata in these site-packages folders, the first of a name counts; and `modules` that have none."""
    found: dict[str, InstalledPackage] = {}
    for folder in folders:
        names = _listed(folder)
        for entry in names:
            if entry.endswith(".dist-info"):
                package = _of_metadata(folder, entry, names)
                found.setdefault(package.name, package)
        for name in modules:
            if not _has_metadata(name, found) and _module(name) in names and is_folder(Path(folder, _module(name))):
                found[name] = InstalledPackage(name, folder, module=_module(name))
    return tuple(found.values())


def _of_metadata(folder: str, entry: str, names: frozenset[str]) -> InstalledPackage:
    """The package of a `name-version.dist-info`; distributions install some without the list of files."""
    stem, _, version = entry.removesuffix(".dist-info").rpartition("-")
    name = normalised(stem)
    record = Path(folder, entry, "RECORD")
    if exists(record) or _module(name) not in names:
        return InstalledPackage(name, folder, version, record)
    return InstalledPackage(name, folder, version, module=_module(name))


def _has_metadata(name: str, found: Iterable[str]) -> bool:
    """Is the module of this name one of these packages, perhaps of a build for one CUDA (cupy-cuda12x, faiss-gpu-cu12)?"""
    return any(other == name or re.fullmatch(rf"{name}-(?:gpu|cpu|cu\w+)(?:-cu\w+)?", other) for other in found)


def _module(name: str) -> str:
    return _FOLDER_NAMES.get(name, name.replace("-", "_"))


def _listed(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))
    except OSError:
        return frozenset()


def has_gpu_code(package: InstalledPackage, is_over: Callable[[], bool]) -> bool:
    """Has any library of the package a section that the CUDA compiler makes? Looks at section tables only."""
    try:
        return any(not is_over() and _LIBRARY.search(path) and _has_cuda_sections(path) for path in package.files())
    except InputError:
        return False


def _has_cuda_sections(path: str) -> bool:
    try:
        with FileSource(path) as source:
            if not is_elf(source.read(0, 4)):
                return path.endswith((".pyd", ".dll"))
            return has_cuda_sections(read_sections(source, read_header(source)))
    except BinaryError:
        return False


def read_package(package: InstalledPackage, cache: ScanCache, is_over: Callable[[], bool]) -> PackageFiles:
    """What the package holds; `is_over` is asked before each file, and ends the reading."""
    found: list[FoundFile] = []
    try:
        for path in package.files():
            if is_over():
                return PackageFiles(package.name, tuple(found), complete=False)
            file = _read_file(path, cache)
            if file is not None:
                found.append(file)
    except InputError as error:
        return PackageFiles(package.name, (FoundFile(package.folder, 0, None, str(error)),), complete=False)
    return PackageFiles(package.name, tuple(found), complete=True)


def _read_file(path: str, cache: ScanCache) -> FoundFile | None:
    """One file; None where it has nothing to do with CUDA, is not loaded at run time, or is a library of NVIDIA's own.

    Those pick their kernels by GPU: what they hold says nothing of the package's code.
    """
    if path.endswith(_NOT_LOADED) or is_nvidia(os.path.basename(path)):
        return None
    try:
        with FileSource(path) as source:
            contents = cache.get(os.path.realpath(path), source.status)
            if contents is None:
                contents = _contents(path, source)
                if contents is not None and not contents.problem:
                    cache.put(os.path.realpath(path), source.status, contents)
            if contents is None or not _is_of_interest(contents):
                return None
            return FoundFile(path, source.size, contents, contents.problem)
    except BinaryError as error:
        return FoundFile(path, 0, None, str(error)) if _LIBRARY.search(path) else None


def _contents(path: str, source: FileSource) -> Contents | None:
    """What the file holds; of a ptxas (Triton brings its own) also the targets that it names."""
    contents = read_contents(source)
    if contents is None or not os.path.basename(path).startswith("ptxas"):
        return contents
    return structs.replace(contents, named_targets=named_targets(source))


def _is_of_interest(contents: Contents) -> bool:
    return bool(contents.groups or contents.named_targets) or any(is_nvidia(name) for name in contents.needed)
