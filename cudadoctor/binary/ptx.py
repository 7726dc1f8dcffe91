"""Reads the target and the language version of PTX text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudadoctor.binary.device_code import PTX_KIND, Compression, Entry, Module
from cudadoctor.model.binaries import Place
from cudadoctor.model.versions import CodeKind, PtxIsa, SmTarget, VersionError

if TYPE_CHECKING:
    from cudadoctor.binary.source import ByteSource

_VERSION = re.compile(rb"(?m)^[ \t]*\.version[ \t]+(\d{1,2}\.\d{1,2})\b")
_TARGET = re.compile(rb"(?m)^[ \t]*\.target[ \t]+(sm_\d{2,3}[af]?)\b")
_SEARCHED = 1 << 16


def read_ptx(source: ByteSource) -> Module | None:
    """The module that a PTX text is; None where its first 64 kB have no `.version` and `.target`."""
    head = source.read(0, _SEARCHED)
    version = _VERSION.search(head)
    named = None if version is None else _TARGET.search(head, version.end())
    if version is None or named is None:
        return None
    try:
        isa = PtxIsa.parse(version[1].decode())
        plain = SmTarget.parse(named[1].decode())
    except VersionError:
        return None
    target = SmTarget(CodeKind.PTX, plain.compute_capability, plain.suffix)
    entry = Entry(target, isa, f"{target} PTX {isa}", PTX_KIND, Compression.NONE, 0, source.size, source.size)
    return Module(Place.FILE, "", 0, source.size, (entry,))
