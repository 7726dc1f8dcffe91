"""Gathers streamed reports: one small row a node, of several reports of one node the newest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cudadoctor.fleet.documents import SUFFIXES, Found, Item, Unreadable
from cudadoctor.fleet.hostlist import natural
from cudadoctor.fleet.node_report import LONGEST_TEXT, NodeReport, NoReport
from cudadoctor.fleet.summary import FindingName, SilentNode, UnreadableInput
from cudadoctor.fleet.timings import Timings
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import made_at

MOST_UNREADABLE = 1000


@dataclass(frozen=True, slots=True)
class Traits:
    """What two nodes of one class have in common."""

    gpus: tuple[tuple[str, int], ...] | None
    driver: str | None
    toolkit: str | None
    torch: str | None
    verdict: str
    findings: tuple[FindingName, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """The names of the GPUs."""
        return tuple(name for name, _ in self.gpus or ())


@dataclass(frozen=True, slots=True)
class Row:
    """What is kept of a report; nodes of one class share their traits."""

    number: int
    made: float
    traits: Traits
    subjects: tuple[str, ...]
    unnamed_file: str | None
    """The file of a report that names no node."""


@dataclass
class Gathered:
    """All nodes seen so far."""

    rows: dict[str, Row] = field(default_factory=dict)
    timings: Timings = field(default_factory=Timings)
    no_reports: dict[str, NoReport] = field(default_factory=dict)
    unreadable: list[UnreadableInput] = field(default_factory=list)
    reports: int = 0
    newer_schema: int = 0
    unreadable_count: int = 0
    _traits: dict[Traits, Traits] = field(default_factory=dict)

    def add_all(self, stream: Iterable[Item]) -> None:
        """Take everything of a stream."""
        for item in stream:
            if isinstance(item, Unreadable):
                self._refuse(item)
            elif isinstance(item, Found):
                self._add(item)
            else:
                self._add_silent(item)

    @property
    def silent(self) -> tuple[SilentNode, ...]:
        """The nodes that gave no report when they were last asked, and why."""
        rows = self.rows
        last = {
            name: said
            for name, said in self.no_reports.items()
            if name not in rows or rows[name].made < (made_at(said.created) or 0.0)
        }
        return tuple(SilentNode(name, last[name].because) for name in sorted(last, key=natural))

    def _add_silent(self, said: NoReport) -> None:
        name = said.node[:LONGEST_TEXT]
        older = self.no_reports.get(name)
        if older is None or (made_at(older.created) or 0.0) <= (made_at(said.created) or 0.0):
            self.no_reports[name] = said

    def _refuse(self, item: Unreadable) -> None:
        self.unreadable_count += 1
        if len(self.unreadable) < MOST_UNREADABLE:
            self.unreadable.append(UnreadableInput(item.file, item.line, item.because))

    def _add(self, found: Found) -> None:
        report, number = found.report, self.reports
        self.reports += 1
        self.newer_schema += report.is_newer
        made = made_at(report.created) or 0.0
        name, unnamed_file = self._name(found), None if report.node else found.file
        older = self.rows.get(name)
        if older is not None and older.made > made:
            return
        traits = _traits(report)
        subjects = tuple(f"{finding.code} {finding.subject}"[:LONGEST_TEXT] for finding in report.problems)
        self.rows[name] = Row(number, made, self._traits.setdefault(traits, traits), subjects, unnamed_file)
        self.timings.add(number, report)

    def _name(self, found: Found) -> str:
        """The node's own name, else the file's (with its folder where another file has the same), else the number of the line."""
        if found.report.node:
            return found.report.node[:LONGEST_TEXT]
        if not found.file:
            return f"line {found.line}"
        name = _file_stem(found.file)
        other = self.rows.get(name)
        if other is not None and other.unnamed_file not in (None, found.file):
            name = found.file
        return name if found.line == 1 else f"{name} line {found.line}"


def _file_stem(file: str) -> str:
    """`node01` of `results/node01.json.gz`."""
    name = Path(file).name
    for suffix in sorted(SUFFIXES, key=len, reverse=True):
        name = name.removesuffix(suffix)
    return name


def _traits(report: NodeReport) -> Traits:
    findings = {
        FindingName(finding.code[:LONGEST_TEXT], finding.name[:LONGEST_TEXT], finding.severity) for finding in report.problems
    }
    worst_first = tuple(sorted(findings, key=lambda finding: (finding.severity != Severity.ERROR.value, finding)))
    return Traits(report.gpus, report.driver_release, report.toolkit, report.torch, report.verdict, worst_first)
