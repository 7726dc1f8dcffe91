"""A fact is either known, with its source, or missing, with the reason: never None, never an empty string."""

from enum import Enum
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

T = TypeVar("T")
C = TypeVar("C", covariant=True)


class MissingReason(Enum):
    """Why a fact has no value."""

    NOT_ASKED = "not_asked"
    """Nothing looked for it: a partial snapshot, read from a pasted text for example."""
    NOT_FOUND = "not_found"
    PERMISSION_DENIED = "permission_denied"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    """The program or child that was asked died of a signal."""
    FAILED = "failed"
    """The source answered, with an error; its words are in the detail."""
    PARSE_ERROR = "parse_error"
    NOT_SUPPORTED = "not_supported"
    NOT_APPLICABLE = "not_applicable"


class OtherSource(Struct, frozen=True):
    """What another source said about the same fact; kept so that rules can see disagreement."""

    source: str
    value: str


class Known(Struct, Generic[C], frozen=True, omit_defaults=True, tag_field="state", tag="known"):
    """A value and where it was read; `line` (from 1) where the source is a text."""

    value: C
    source: str
    line: int | None = None
    others: tuple[OtherSource, ...] = ()


class Missing(Struct, frozen=True, omit_defaults=True, tag_field="state", tag="missing"):
    """No value: the reason, and the real words of the error."""

    reason: MissingReason
    detail: str = ""
    source: str = ""


Fact: TypeAlias = Known[T] | Missing

NOT_ASKED = Missing(MissingReason.NOT_ASKED)
"""The value of every fact of a snapshot that nothing has filled in."""


class UnknownFactError(Exception):
    """A rule needs a fact that is missing; only the rule engine catches this."""

    def __init__(self, missing: Missing) -> None:
        super().__init__(missing.detail or missing.reason.value)
        self.missing = missing


def known(fact: Fact[T]) -> T:
    """The value of a fact; raises UnknownFactError where it is missing."""
    if isinstance(fact, Missing):
        raise UnknownFactError(fact)
    return fact.value


def maybe(fact: Fact[T]) -> T | None:
    """The value of a fact, or None: for rules to which the absence itself means something."""
    return None if isinstance(fact, Missing) else fact.value


def describe_missing(missing: Missing) -> str:
    """The reason in words, e.g. `timeout (nvidia-smi): no answer within 4 s`."""
    reason = missing.reason.value.replace("_", " ")
    source = f" ({missing.source})" if missing.source else ""
    return f"{reason}{source}: {missing.detail}" if missing.detail else f"{reason}{source}"
