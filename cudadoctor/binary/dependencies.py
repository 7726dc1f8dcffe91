"""Walks the NEEDED entries of a library breadth-first as ld.so does, without loading anything."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.binary.loader import LoadedObject, LoaderView, Resolution, Resolved, Unresolved, Via
from cudadoctor.binary.source import BinaryError

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_OBJECTS = 4096
"""Most libraries that one tree may have; ld.so has no such limit, real trees have below 200."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """One NEEDED entry: who asks, for which name, and what it gets."""

    requester: str
    resolution: Resolution


@dataclass(frozen=True, slots=True)
class MissingVersion:
    """A symbol version that `requester` needs and that the winning file of `soname` does not define: loading fails there."""

    requester: str
    soname: str
    version: str
    path: str


@dataclass(frozen=True, slots=True)
class DependencyTree:
    """All that loading one file brings in. `objects` are the files in load order, the file itself first."""

    objects: tuple[LoadedObject, ...]
    dependencies: tuple[Dependency, ...]
    missing_versions: tuple[MissingVersion, ...]

    @property
    def missing(self) -> tuple[Dependency, ...]:
        """The NEEDED entries that nothing satisfies."""
        return tuple(entry for entry in self.dependencies if isinstance(entry.resolution, Unresolved))


def resolve_tree(view: LoaderView, path: str) -> DependencyTree:
    """The tree of one library or program; raises BinaryError where `path` itself is not a readable 64-bit ELF file."""
    first = view.load(path)
    if first is None:
        raise BinaryError(f"not a readable 64-bit ELF file: {path}")
    walk = _Walk(view, first)
    dependencies = tuple(walk.run())
    return DependencyTree(tuple(walk.objects), dependencies, tuple(walk.missing_versions()))


class _Walk:
    """The state of one walk: the objects loaded so far and the names by which they answer."""

    def __init__(self, view: LoaderView, first: LoadedObject) -> None:
        self._view = view
        self.objects: list[LoadedObject] = []
        self._by_name: dict[str, LoadedObject] = {}
        self._by_file: dict[str, LoadedObject] = {}
        self._queue: deque[LoadedObject] = deque()
        self._add(first)

    def run(self) -> Iterator[Dependency]:
        while self._queue:
            asker = self._queue.popleft()
            for name in asker.info.needed:
                yield Dependency(asker.path, self._resolve(name, asker))

    def _resolve(self, name: str, asker: LoadedObject) -> Resolution:
        loaded = self._by_name.get(name)
        if loaded is not None:
            return Resolved(name, loaded.path, loaded.real_path, Via.LOADED, None, (), ())
        resolution = self._view.find(name, asker)
        if isinstance(resolution, Resolved):
            self._enter(name, resolution, asker)
        return resolution

    def _enter(self, name: str, resolution: Resolved, asker: LoadedObject) -> None:
        known = self._by_file.get(resolution.real_path)
        if known is not None:
            self._by_name[name] = known
            return
        item = self._view.load(resolution.path, asker)
        if item is not None and len(self.objects) < MAX_OBJECTS:
            self._by_name[name] = item
            self._add(item)

    def _add(self, item: LoadedObject) -> None:
        self.objects.append(item)
        self._by_file[item.real_path] = item
        self._by_name[item.path] = item
        if item.info.soname:
            self._by_name.setdefault(item.info.soname, item)
        self._queue.append(item)

    def missing_versions(self) -> Iterator[MissingVersion]:
        """Versions that the winner lacks; a winner without any version definitions only makes ld.so warn, so it is left out."""
        for item in self.objects:
            for need in item.info.version_needs:
                winner = self._by_name.get(need.soname)
                if winner is None or need.weak or not winner.info.version_definitions:
                    continue
                if need.version not in winner.info.version_definitions:
                    yield MissingVersion(item.path, need.soname, need.version, winner.path)
