"""A comparison, as data: what `compare --format json` prints and the text shows."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from msgspec import Struct, field

from cudadoctor.model.finding import Finding
from cudadoctor.model.report import Tool, Verdict

SCHEMA: Final = "cudadoctor.compare/1"


class Side(Enum):
    """Which machine."""

    REFERENCE = "reference"
    OTHER = "other"


class Rank(Enum):
    """How much a difference matters, most first."""

    FINDING = "finding"
    """The evidence of a finding that only one of the machines has names it."""
    DIFFERS = "differs"
    """Rules read it, and none objects to either value."""
    BENIGN = "benign"
    """Harmless by itself, or it follows from another difference."""
    UNKNOWN = "unknown"
    """Known of one machine only."""


class Machine(Struct, frozen=True, kw_only=True):
    """One of the inputs."""

    name: str
    """The node's, else the file's."""
    kind: str
    """report, snapshot or text."""
    verdict: Verdict
    summary: str


class Difference(Struct, frozen=True, kw_only=True):
    """One fact with two values; a value is null where it is unknown, and `none` where there is no such thing."""

    rank: Rank
    fact: str
    reference: str | None
    other: str | None
    because: str = ""
    """Why it is benign, or unknown."""
    codes: tuple[str, ...] = ()
    """Of the findings that name it."""


class OneSided(Struct, frozen=True, kw_only=True):
    """An error or a warning that only one of the machines has."""

    on: Side
    finding: Finding
    is_known_of_both: bool
    """False where the rule could not be judged on the other machine: then it is no difference that matters by itself."""
    facts: tuple[str, ...]
    """The differing facts that its evidence names."""
    gone_with: tuple[str, ...]
    """Parts (driver, gpus, python.torch ...) with which, taken from the other machine, the same rule finds nothing."""


class Comparison(Struct, frozen=True, kw_only=True):
    """The reference against machines that differ from it in the same way."""

    machines: tuple[Machine, ...]
    findings: tuple[OneSided, ...]
    differences: tuple[Difference, ...]
    """In the order of their ranks."""
    in_common: tuple[str, ...]
    """Errors and warnings that both have, as `CD412 arch-missing-in-wheel`."""

    @property
    def matters(self) -> bool:
        """Is there a difference that matters?"""
        return any(each.is_known_of_both for each in self.findings) or any(
            each.rank in (Rank.FINDING, Rank.DIFFERS) for each in self.differences
        )


class CompareReport(Struct, frozen=True, kw_only=True):
    """All comparisons with one reference; fields in the order in which they are printed."""

    schema: Literal["cudadoctor.compare/1"] = field(default=SCHEMA)
    tool: Tool
    summary: str
    reference: Machine
    comparisons: tuple[Comparison, ...]
