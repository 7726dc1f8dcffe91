"""Says which CUDA libraries a file would load, which copies that hides, and what in that is certain to go wrong."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from msgspec import Struct

from cudadoctor.binary.dependencies import DependencyTree, resolve_tree
from cudadoctor.binary.dlopen_names import dlopen_names
from cudadoctor.binary.loader import Resolved, Via
from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.binary.source import BinaryError, FileSource
from cudadoctor.model.binaries import LibraryProblem, LibraryProblemKind, LibraryUse, Wanted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.loader import LoadedObject, LoaderView, Resolution
    from cudadoctor.matrices.sonames import SonameMatrix

_CUDNN = "libcudnn"


class LibraryReport(Struct, frozen=True):
    """The CUDA libraries, and all missing ones, of one file."""

    uses: tuple[LibraryUse, ...]
    problems: tuple[LibraryProblem, ...]


def describe_libraries(view: LoaderView, path: str, sonames: SonameMatrix) -> LibraryReport:
    """What loading `path` would bring in; raises BinaryError where it is not a readable 64-bit ELF file."""
    tree = resolve_tree(view, path)
    uses = (*_needed(tree), *_may_dlopen(view, tree))
    problems = (*_missing(tree), *_missing_versions(tree), *_several_majors(tree, sonames), *_mixed_cudnn(tree, uses))
    return LibraryReport(uses, problems)


def _use(resolution: Resolution, wanted: Wanted, requester: str) -> LibraryUse:
    rejected = tuple(f"{entry.path}: {entry.reason}" for entry in resolution.rejected)
    if not isinstance(resolution, Resolved):
        return LibraryUse(resolution.name, wanted, requester, rejected=rejected)
    via = resolution.via.value if resolution.owner is None else f"{resolution.via.value} of {resolution.owner}"
    shadowed = tuple(copy.path for copy in resolution.shadowed)
    return LibraryUse(resolution.name, wanted, requester, resolution.path, via, shadowed, rejected)


def _needed(tree: DependencyTree) -> Iterator[LibraryUse]:
    for entry in tree.dependencies:
        resolution = entry.resolution
        if isinstance(resolution, Resolved) and (resolution.via is Via.LOADED or not is_nvidia(resolution.name)):
            continue
        yield _use(resolution, Wanted.NEEDED, entry.requester)


def _may_dlopen(view: LoaderView, tree: DependencyTree) -> Iterator[LibraryUse]:
    """CUDA libraries named in the text of the file itself and of the cuDNN front that it loads."""
    loaded = {entry.resolution.name for entry in tree.dependencies}
    for item in tree.objects:
        if item is not tree.objects[0] and not _is_cudnn_front(item):
            continue
        for name in _names(view, item):
            resolution = _part_of_cudnn(view, item, name) or view.find(name, item)
            if is_nvidia(name) and resolution.name not in loaded:
                loaded.add(resolution.name)
                yield _use(resolution, Wanted.MAY_DLOPEN, item.path)


def _part_of_cudnn(view: LoaderView, front: LoadedObject, name: str) -> Resolved | None:
    """The part that cuDNN's front takes for a name without a number: the one with the front's own number, where it finds one.

    `libcudnn.so.9` holds the text `libcudnn_ops.so` and asks for it with its numbers behind before it asks for it as it stands.
    """
    number = posixpath.basename(front.path).partition(".so.")[2].partition(".")[0]
    if not (_is_cudnn_front(front) and number and name.startswith(f"{_CUDNN}_") and name.endswith(".so")):
        return None
    numbered = view.find(f"{name}.{number}", front)
    return numbered if isinstance(numbered, Resolved) else None


def _names(view: LoaderView, item: LoadedObject) -> tuple[str, ...]:
    try:
        with FileSource(view.root.here(item.real_path)) as source:
            return dlopen_names(source)
    except BinaryError:
        return ()


def _is_cudnn_front(item: LoadedObject) -> bool:
    return posixpath.basename(item.path).startswith(f"{_CUDNN}.so")


def _missing(tree: DependencyTree) -> Iterator[LibraryProblem]:
    for entry in tree.missing:
        name = entry.resolution.name
        yield LibraryProblem(LibraryProblemKind.MISSING, (name,), f"{name}, needed by {entry.requester}, is not found")


def _missing_versions(tree: DependencyTree) -> Iterator[LibraryProblem]:
    for lack in tree.missing_versions:
        what = f"{lack.requester} needs version {lack.version} of {lack.soname}, which {lack.path} does not have"
        yield LibraryProblem(LibraryProblemKind.MISSING_SYMBOL_VERSION, (lack.soname,), what)


def _several_majors(tree: DependencyTree, sonames: SonameMatrix) -> Iterator[LibraryProblem]:
    """One process with libraries of two CUDA majors: works for separate copies, seldom meant."""
    by_major: dict[int, list[str]] = {}
    for item in tree.objects:
        major = sonames.cuda_major_of(posixpath.basename(item.path))
        if major is not None:
            by_major.setdefault(major, []).append(item.path)
    if len(by_major) > 1:
        named = "; ".join(f"CUDA {major}: {', '.join(paths)}" for major, paths in sorted(by_major.items()))
        paths = tuple(path for _, found in sorted(by_major.items()) for path in found)
        yield LibraryProblem(LibraryProblemKind.SEVERAL_CUDA_MAJORS, paths, f"libraries of several CUDA majors: {named}")


def _mixed_cudnn(tree: DependencyTree, uses: tuple[LibraryUse, ...]) -> Iterator[LibraryProblem]:
    fronts = [item.path for item in tree.objects if posixpath.basename(item.path).startswith(_CUDNN)]
    parts = [use.path for use in uses if use.path is not None and use.name.startswith(f"{_CUDNN}_")]
    folders = {posixpath.realpath(posixpath.dirname(path)) for path in (*fronts, *parts)}
    if fronts and len(folders) > 1:
        what = f"the parts of cuDNN come from different folders: {', '.join(sorted(folders))}"
        yield LibraryProblem(LibraryProblemKind.MIXED_CUDNN, tuple(dict.fromkeys((*fronts, *parts))), what)
