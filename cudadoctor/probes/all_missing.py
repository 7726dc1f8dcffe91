"""A part of the snapshot of which nothing is known, for one reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import structs

from cudadoctor.model.fact import NOT_ASKED, Missing
from cudadoctor.model.snapshot import Record

R = TypeVar("R", bound=Record)


def all_missing(kind: type[R]) -> Callable[[Missing], R]:
    """What stands for a part of the snapshot of which nothing is known: every fact missing for the one reason."""

    def build(missing: Missing) -> R:
        return kind(**{field.name: missing for field in structs.fields(kind) if field.default is NOT_ASKED})

    return build
