"""What `cudadoctor triage` reaches on the tickets: every known one right, and no false alarm on any."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.commands.triage import diagnose_text
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Severity
from tests.tickets.scoring import OPEN, UNSEEN, Case, Verdict, cases_in, judge, table

NOT_YET = frozenset({"c201-poetry-index"})
"""Tickets whose first tag is not found yet."""


def verdict(case: Case) -> Verdict:
    findings = diagnose_text(case.pasted, Matrices.load()).report.findings
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    return judge(
        case,
        {word for finding in findings for word in (finding.name, *finding.tags)},
        {word for finding in errors for word in (finding.name, *finding.tags)},
    )


@pytest.mark.parametrize("path", [OPEN, UNSEEN], ids=lambda path: str(path.stem))
def test_every_ticket_is_diagnosed_without_a_false_alarm(path: Path) -> None:
    verdicts = [verdict(case) for case in cases_in(path)]
    wrong = {each.case.id: (each.missed, each.false_alarms) for each in verdicts if not each.strict}
    assert set(wrong) <= NOT_YET, (wrong, table(verdicts))
    assert not [each.case.id for each in verdicts if each.false_alarms]


def test_ids_are_unique() -> None:
    ids = [case.id for path in (OPEN, UNSEEN) for case in cases_in(path)]
    assert len(set(ids)) == len(ids)
