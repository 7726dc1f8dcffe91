"""Findings as a tree: identical ones of several GPUs merged, consequences under the cause that explains them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from cudadoctor.model.finding import Finding, UnknownRule
from cudadoctor.report.ranges import number_ranges


@dataclass(frozen=True, slots=True)
class Branch:
    """A finding and, below it, what it explains."""

    finding: Finding
    consequences: tuple[Branch, ...] = field(default=())


def outline(findings: Sequence[Finding]) -> tuple[Branch, ...]:
    """Roots first, in the report's order; every finding appears once, a consequence that nothing explains at the end."""
    waiting = merged(findings)
    roots = [finding for finding in waiting if finding.root]
    waiting = [finding for finding in waiting if not finding.root]
    branches = [_branch(root, waiting) for root in roots]
    while waiting:
        branches.append(_branch(waiting.pop(0), waiting))
    return tuple(branches)


def _branch(cause: Finding, waiting: list[Finding]) -> Branch:
    """The branch of `cause`; takes its consequences out of `waiting`, so that none is shown twice and no cycle is followed."""
    mine = [finding for finding in waiting if finding.code in cause.explains]
    for finding in mine:
        waiting.remove(finding)
    return Branch(cause, tuple(_branch(finding, waiting) for finding in mine))


def merged(findings: Iterable[Finding]) -> list[Finding]:
    """The findings, those that differ only in their subject as one with all subjects, `GPU 0..7`; evidence is joined."""
    groups: dict[Finding, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(structs.replace(finding, subject="", evidence=()), []).append(finding)
    return [group[0] if len(group) == 1 else _merge(group) for group in groups.values()]


def _merge(group: Sequence[Finding]) -> Finding:
    joined = tuple(dict.fromkeys(item for finding in group for item in finding.evidence))
    return structs.replace(group[0], subject=joined_subjects([finding.subject for finding in group]), evidence=joined)


def joined_subjects(subjects: Iterable[str]) -> str:
    """`GPU 0..7` for eight GPUs, else the subjects with commas."""
    names = list(dict.fromkeys(subjects))
    numbers = [name.removeprefix("GPU ") for name in names]
    if all(name.startswith("GPU ") for name in names) and all(number.isdecimal() for number in numbers):
        return f"GPU {number_ranges(map(int, numbers))}"
    return ", ".join(names)


def unknown_by_reason(unknown: Iterable[UnknownRule]) -> dict[str, list[UnknownRule]]:
    """The rules that could not be judged, under each reason, in the report's order."""
    reasons: dict[str, list[UnknownRule]] = {}
    for rule in unknown:
        reasons.setdefault(rule.because, []).append(rule)
    return reasons
