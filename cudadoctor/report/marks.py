"""The one-character verdicts; each always stands beside words."""

from __future__ import annotations

from enum import Enum

from cudadoctor.model.finding import Severity
from cudadoctor.model.proof import ProofOutcome
from cudadoctor.report.options import Charset


class Mark(Enum):
    """A verdict on one line of a report: its sign, the sign in ASCII, and its colour."""

    OK = ("✓", "+", "green")
    ERROR = ("✗", "X", "red")
    WARNING = ("!", "!", "yellow")
    NOTE = ("i", "i", "cyan")
    UNKNOWN = ("?", "?", "magenta")
    ABSENT = ("\N{EN DASH}", "-", "dim")

    @property
    def colour(self) -> str:
        """A rich style."""
        return self.value[2]

    def sign(self, charset: Charset) -> str:
        """The character to print."""
        return self.value[0] if charset is Charset.UNICODE else self.value[1]


OF_SEVERITY = {Severity.ERROR: Mark.ERROR, Severity.WARNING: Mark.WARNING, Severity.NOTE: Mark.NOTE}

OF_OUTCOME = {
    ProofOutcome.PASSED: Mark.OK,
    ProofOutcome.FAILED: Mark.ERROR,
    ProofOutcome.UNKNOWN: Mark.UNKNOWN,
    ProofOutcome.SKIPPED: Mark.ABSENT,
}
