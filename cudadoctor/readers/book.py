"""Collects facts from readings: the first source of a fact gives its value, later ones that disagree are kept beside it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, OtherSource
from cudadoctor.model.snapshot import DeviceNode, LibraryCopy, LibraryOrigin, Package
from cudadoctor.model.versions import VersionError
from cudadoctor.readers.text import PlainText

T = TypeVar("T")

MAX_GPUS = 64
"""GPUs of one text that are kept."""


@dataclass
class ToolkitSeen:
    """A toolkit as a text shows it; `rank` says how surely builds would take it (1 is surest)."""

    root: str
    rank: int
    source: str
    version: str | None = None
    nvcc: str | None = None
    line: int | None = None


RANK_OF_FOLDERS = 9
"""The rank of a folder of which only the name was listed: builds take it last."""


@dataclass
class FactBook:
    """What the readings of one text say, before it becomes a snapshot."""

    text: PlainText
    source: str = ""
    """The reader that speaks at the moment."""
    slots: dict[str, Known[Any]] = field(default_factory=dict)
    gpus: dict[int, dict[str, Known[Any]]] = field(default_factory=dict)
    gpu_errors: dict[int, str] = field(default_factory=dict)
    packages: dict[str, Package] = field(default_factory=dict)
    toolkits: list[ToolkitSeen] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    libraries: list[LibraryCopy] = field(default_factory=list)
    device_nodes: dict[str, DeviceNode] = field(default_factory=dict)
    modules: list[str] = field(default_factory=list)
    compilers: dict[str, Known[Any]] = field(default_factory=dict)

    def line(self, words: str) -> int | None:
        """The original line that first holds these words."""
        position = self.text.lowered.find(" ".join(words.split()).lower()) if words else -1
        return self.text.line_at(position) if position >= 0 else None

    def known(self, value: T, words: str) -> Known[T]:
        """The value as a fact of the reader that speaks."""
        return Known(value, self.source, self.line(words))

    def say(self, slot: str, value: object, words: str | None = None) -> None:
        """Record a fact; None is no value. A value that differs from the one known is kept as another source's."""
        if value is None:
            return
        fact = self.known(value, words if words is not None else str(value))
        self.slots[slot] = _agreed(self.slots.get(slot), fact)

    def suggest(self, slot: str, value: object, words: str | None = None) -> None:
        """Record a fact of a weak source: only where nothing better is known."""
        if slot not in self.slots:
            self.say(slot, value, words)

    def parse(self, slot: str, parser: Callable[[str], object], text: str | None) -> None:
        """Record a version in a text, where there is one."""
        parsed = parsed_or_none(parser, text)
        if parsed is not None and text is not None:
            self.say(slot, parsed, text)

    def gpu(self, index: int | None, **facts: object) -> None:
        """Record facts of one GPU; None is no value, and a GPU without a readable number is none."""
        if index is None or (index not in self.gpus and len(self.gpus) >= MAX_GPUS):
            return
        gpu = self.gpus.setdefault(index, {})
        for name, value in facts.items():
            if value is None:
                continue
            fact = self.known(value, str(value))
            gpu[name] = _longer_name(gpu.get(name), fact) if name == "name" else _agreed(gpu.get(name), fact)

    def package(self, name: str, version: str, build: str = "", channel: str = "") -> None:
        """Record a Python package; the first that names it counts."""
        normal = re.sub(r"[-_.]+", "-", name).lower()
        self.packages.setdefault(normal, Package(name=normal, package_version=version, build=build, channel=channel))

    def fact(self, slot: str) -> Fact[Any]:
        """The fact in a slot, or not asked."""
        return self.slots.get(slot, NOT_ASKED)


def parsed_or_none(parser: Callable[[str], object], text: str | None) -> object | None:
    """What the parser makes of the text, or None where the text is no version of its kind."""
    if not text:
        return None
    try:
        return parser(text)
    except VersionError:
        return None


def _agreed(known: Known[Any] | None, fact: Known[Any]) -> Known[Any]:
    if known is None:
        return fact
    other = OtherSource(fact.source, str(fact.value))
    if known.value == fact.value or other in known.others or len(known.others) >= 8:
        return known
    return Known(known.value, known.source, known.line, (*known.others, other))


def _longer_name(known: Known[Any] | None, fact: Known[Any]) -> Known[Any]:
    """nvidia-smi shortens names (`NVIDIA GeForce ...`): a full name replaces its own beginning."""
    if known is None or str(known.value).startswith("ERR"):
        return fact
    short, full = str(known.value).removesuffix("...").strip(), str(fact.value)
    if str(known.value).endswith("...") and full.startswith(short):
        return fact
    if full.endswith("...") and str(known.value).startswith(full.removesuffix("...").strip()):
        return known
    return _agreed(known, fact)


_ORIGINS = (
    (LibraryOrigin.STUB, "/stubs/"),
    (LibraryOrigin.COMPAT, "/compat/"),
    (LibraryOrigin.WSL, "/usr/lib/wsl/"),
    (LibraryOrigin.WHEEL, "/site-packages/"),
    (LibraryOrigin.WHEEL, "/dist-packages/"),
    (LibraryOrigin.CONDA, "conda"),
    (LibraryOrigin.CONDA, "/envs/"),
    (LibraryOrigin.TOOLKIT, "/cuda"),
)
_DRIVER_LIBRARY = re.compile(r"lib(?:cuda|nvidia-[\w-]+|nvcuvid)\.so")


def origin_of(path: str) -> LibraryOrigin:
    """Who put a library there, judged from its path."""
    for origin, part in _ORIGINS:
        if part in path:
            return origin
    if _DRIVER_LIBRARY.search(path):
        return LibraryOrigin.DRIVER
    return LibraryOrigin.SYSTEM if path.startswith(("/usr/lib", "/lib")) else LibraryOrigin.OTHER
