"""Which rules have nothing to say of a snapshot, told without running them.

Most pasted texts speak of little, and most rules end at the first thing they ask for. A rule is pure, so it is enough to watch
it once on a snapshot in which nothing is known: where all that it asked for there is as absent in another snapshot, it takes
the same path and ends the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from msgspec import Struct

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Missing
from cudadoctor.model.snapshot import ErrorSeen, Snapshot
from cudadoctor.rules.case import Case

_NOTHING_KNOWN = Snapshot()


def _is_part(value: object) -> bool:
    """Is this a group of facts (the driver, the host), and not a fact?"""
    return isinstance(value, Struct) and not isinstance(value, Missing)


_DEFAULTS: tuple[tuple[str, tuple[tuple[str, str, object], ...]], ...] = tuple(
    (
        name,
        tuple((field, f"{name}.{field}", getattr(part, field)) for field in part.__struct_fields__) if _is_part(part) else (),
    )
    for name in Snapshot.__struct_fields__
    for part in (getattr(_NOTHING_KNOWN, name),)
)
"""Each part of a snapshot; its fields, their paths and what stands there where nothing is known."""


class UnwatchedError(Exception):
    """A rule looks at something whose absence cannot be noted: it is always run."""


def topics(snapshot: Snapshot) -> set[str]:
    """What a snapshot speaks of: paths of facts, kinds of errors and of readings."""
    found = {f"errors {error.kind}" for error in snapshot.errors}
    found.update(f"readings {reading.kind}" for reading in snapshot.readings)
    for name, fields in _DEFAULTS:
        part = getattr(snapshot, name)
        if not fields and part is not getattr(_NOTHING_KNOWN, name):
            found.add(name)
        for inner, path, default in fields:
            value = getattr(part, inner)
            if value is not default and value != default:
                found.add(path)
    return found


@dataclass(frozen=True)
class WatchedCase(Case):
    """A case in which nothing is known and that notes, as `topics` names it, what a rule asks for."""

    asked: set[str] = field(default_factory=set)

    def errors(self, *kinds: str) -> tuple[ErrorSeen, ...]:
        """None, noted."""
        self.asked.update(f"errors {kind}" for kind in kinds)
        return ()

    def saw(self, *kinds: str) -> bool:
        """False, noted."""
        return bool(self.errors(*kinds))


def watched_case() -> WatchedCase:
    """A new case to run one rule on."""
    asked: set[str] = set()
    return WatchedCase(
        cast(Snapshot, _Watched(_NOTHING_KNOWN, "", asked)), cast(Matrices, _Watched(None, "", asked)), asked=asked
    )


class _Watched:
    """Stands for a part of the snapshot, and notes each fact that is taken from it; for the matrices, it refuses."""

    __slots__ = ("_asked", "_part", "_path")
    __hash__ = None  # type: ignore[assignment]  # a rule that compares whole parts is always run

    def __init__(self, part: Struct | None, path: str, asked: set[str]) -> None:
        self._part, self._path, self._asked = part, path, asked

    def __getattr__(self, name: str) -> Any:
        if self._part is None or name not in self._part.__struct_fields__:
            raise UnwatchedError(name)
        value = getattr(self._part, name)
        if _is_part(value) and not self._path:
            return _Watched(value, f"{name}.", self._asked)
        self._asked.add(f"{self._path}{name}")
        return value

    def __eq__(self, other: object) -> bool:
        raise UnwatchedError("comparison")

    def values_read(self, kind: str) -> Mapping[str, Any]:
        """As `Snapshot.values_read`: none, noted."""
        self._asked.add(f"readings {kind}")
        return {}
