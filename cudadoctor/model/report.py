"""The report: what `--format json` prints and what every renderer is given."""

from datetime import datetime, timezone
from enum import Enum
from typing import Final, Literal

from msgspec import Struct, field

from cudadoctor.model.finding import Finding, UnknownRule
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import Snapshot

SCHEMA: Final = "cudadoctor.report/1"


class Verdict(Enum):
    """The one-word answer."""

    HEALTHY = "healthy"
    PROBLEMS = "problems"
    UNDETERMINED = "undetermined"


class Tool(Struct, frozen=True, kw_only=True):
    """Which cudadoctor made the report, on data of which day (of the compatibility matrices)."""

    version: str
    matrices_as_of: str = ""


class Report(Struct, frozen=True, kw_only=True):
    """One machine's report; fields in the order in which they are printed."""

    schema: Literal["cudadoctor.report/1"] = field(default=SCHEMA)
    tool: Tool
    created: str
    """UTC, ISO 8601, `Z` at the end."""
    node: str | None = None
    verdict: Verdict
    summary: str
    findings: tuple[Finding, ...] = ()
    unknown: tuple[UnknownRule, ...] = ()
    proofs: tuple[Proof, ...] = ()
    snapshot: Snapshot = Snapshot()
    seconds: float | None = None
    """How long the whole command took; null where the report was read from a file."""


def made_at(created: str) -> float | None:
    """When a report was made, in seconds since 1970 (a time without a zone is UTC); None where the text is no time."""
    try:
        made = datetime.fromisoformat(created.replace("Z", "+00:00"))
        return (made if made.tzinfo else made.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        return None
