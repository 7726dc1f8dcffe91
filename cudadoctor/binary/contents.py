"""What one file holds, small enough to be cached: its modules grouped by what they carry, and the libraries that it names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from cudadoctor.binary.device_code import Module
from cudadoctor.binary.formats import FileKind, open_binary
from cudadoctor.binary.source import BinaryError
from cudadoctor.model.binaries import Code, ModuleGroup
from cudadoctor.model.versions import SmTarget

if TYPE_CHECKING:
    from cudadoctor.binary.formats import OpenedBinary
    from cudadoctor.binary.source import ByteSource


_Key = tuple[str, tuple[str, ...], bool, bool, bool]
"""What makes modules alike: place, labels, tiny, complete, device-linked."""


class Contents(Struct, frozen=True, omit_defaults=True):
    """What was read of a file. `problem` says why reading stopped, where it did: the groups are then not all."""

    kind: FileKind
    groups: tuple[ModuleGroup, ...] = ()
    needed: tuple[str, ...] = ()
    soname: str | None = None
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    has_cuda_sections: bool = False
    named_targets: tuple[SmTarget, ...] = ()
    """Of a ptxas: the targets whose names it has; it knows no other."""
    problem: str = ""


def read_contents(source: ByteSource) -> Contents | None:
    """The contents of a binary; None for a file of no known format. Raises BinaryError where already its headers are damaged."""
    opened = open_binary(source)
    return None if opened is None else _contents(opened)


def _contents(opened: OpenedBinary) -> Contents:
    groups, problem = _groups(opened)
    dynamic = opened.dynamic
    return Contents(
        kind=opened.kind,
        groups=groups,
        needed=opened.imports if dynamic is None else dynamic.needed,
        soname=None if dynamic is None else dynamic.soname,
        rpath=() if dynamic is None else dynamic.rpath,
        runpath=() if dynamic is None else dynamic.runpath,
        has_cuda_sections=opened.has_cuda_sections,
        problem=problem,
    )


def _groups(opened: OpenedBinary) -> tuple[tuple[ModuleGroup, ...], str]:
    first: dict[_Key, Module] = {}
    counts: Counter[_Key] = Counter()
    problem = ""
    try:
        for module in opened.modules:
            labels = tuple([entry.label for entry in module.entries])
            key = (module.place.value, labels, module.is_tiny, module.complete, module.device_linked)
            first.setdefault(key, module)
            counts[key] += 1
    except BinaryError as error:
        problem = str(error)
    return tuple(group_of(first[key], count) for key, count in counts.items()), problem


def group_of(module: Module, count: int = 1) -> ModuleGroup:
    """The group of `count` modules that are like this one."""
    code = tuple(Code(entry.target, entry.ptx_isa) for entry in module.entries)
    return ModuleGroup(module.place, code, count, module.is_tiny, module.complete, module.device_linked)
