"""Facts of several sources about the same thing become one fact that remembers what the others said."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeVar

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason, OtherSource

T = TypeVar("T")

INFORMATIVE = (
    MissingReason.TIMEOUT,
    MissingReason.CRASHED,
    MissingReason.FAILED,
    MissingReason.PERMISSION_DENIED,
    MissingReason.PARSE_ERROR,
    MissingReason.NOT_SUPPORTED,
    MissingReason.NOT_FOUND,
    MissingReason.NOT_APPLICABLE,
    MissingReason.NOT_ASKED,
)
"""Reasons for a missing fact, the one that says most first."""


def combine(*facts: Fact[T]) -> Fact[T]:
    """The first known fact, with the values of the later ones as `others`; where none is known, the most telling reason."""
    known = [fact for fact in facts if isinstance(fact, Known)]
    if not known:
        missing = [fact for fact in facts if isinstance(fact, Missing)]
        return min(missing, key=lambda fact: INFORMATIVE.index(fact.reason)) if missing else NOT_ASKED
    first, others = known[0], list(known[0].others)
    for fact in known[1:]:
        others.append(OtherSource(fact.source, as_text(fact.value)))
        others.extend(fact.others)
    return Known(first.value, first.source, first.line, tuple(others))


def first_known(*facts: Fact[T]) -> Fact[T]:
    """As `combine`, but without the other values: for readings that change from moment to moment."""
    return next((fact for fact in facts if isinstance(fact, Known)), combine(*facts))


def as_text(value: Any) -> str:
    """A fact's value as a report spells it."""
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(as_text(part) for part in value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
