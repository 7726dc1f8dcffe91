"""The score of a set of diagnoses on the tickets, by the rules of README.md; knows nothing of how a diagnosis is made."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from pathlib import Path

OPEN = Path(__file__).parent / "open.jsonl"
UNSEEN = Path(__file__).parent / "unseen.jsonl"


@dataclass(frozen=True)
class Case:
    """One ticket with what a right diagnosis says."""

    id: str
    kind: str
    confidence: str
    fidelity: str
    pasted: str
    must_find: tuple[str, ...]
    must_not_claim: tuple[str, ...]

    @property
    def benign(self) -> bool:
        return self.must_find[0].startswith("benign-")


@dataclass(frozen=True)
class Verdict:
    """How one diagnosis did."""

    case: Case
    strict: bool
    lenient: bool
    missed: tuple[str, ...]
    false_alarms: tuple[str, ...]


def cases() -> tuple[Case, ...]:
    """All open tickets."""
    return cases_in(OPEN)


@cache
def cases_in(path: Path) -> tuple[Case, ...]:
    """The tickets of one file."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return tuple(
        Case(
            id=row["id"],
            kind=row["kind"],
            confidence=row["confidence"],
            fidelity=row.get("fidelity", "completed"),
            pasted=row["pasted"],
            must_find=tuple(row["must_find"]),
            must_not_claim=tuple(row["must_not_claim"]),
        )
        for row in rows
    )


def judge(case: Case, reported: Collection[str], errors: Collection[str]) -> Verdict:
    """The verdict on names and tags of all findings (`reported`), and of those at error level (`errors`)."""
    alarms = [tag for tag in case.must_not_claim if tag in errors]
    if case.benign:
        alarms += sorted(set(errors) - set(alarms))
    missed = tuple(tag for tag in case.must_find if tag not in reported)
    return Verdict(
        case=case,
        strict=not missed and not alarms,
        lenient=case.must_find[0] in reported and not alarms,
        missed=missed,
        false_alarms=tuple(alarms),
    )


def table(verdicts: Collection[Verdict]) -> str:
    """Strict, lenient and false alarms, in all and by kind, confidence and fidelity, as Markdown."""
    groups = [("all", list(verdicts))]
    for attribute in ("kind", "confidence", "fidelity"):
        names = sorted({str(getattr(verdict.case, attribute)) for verdict in verdicts})
        groups += [(f"{attribute} {name}", [v for v in verdicts if getattr(v.case, attribute) == name]) for name in names]
    lines = ["| group | tickets | strict | lenient | false alarms |", "| --- | --- | --- | --- | --- |"]
    for name, group in groups:
        counts = (
            len(group),
            sum(v.strict for v in group),
            sum(v.lenient for v in group),
            sum(bool(v.false_alarms) for v in group),
        )
        lines.append(f"| {name} | " + " | ".join(str(count) for count in counts) + " |")
    return "\n".join(lines)
