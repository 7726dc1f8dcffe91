"""Findings, their fixes and the rules that could not be judged, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cudadoctor.model.finding import Confidence, Evidence, Finding, Fix, Severity, Where
from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import inert
from cudadoctor.report.ink import Ink
from cudadoctor.report.marks import OF_SEVERITY, Mark
from cudadoctor.report.options import Charset, Detail
from cudadoctor.report.outline import Branch, outline, unknown_by_reason
from cudadoctor.report.places import host_is_elsewhere, place
from cudadoctor.report.shell_lines import shell_lines

FIX_COLUMN = 7
"""Where the text beside `Fix` begins."""


def findings_part(report: Report, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    """Every finding, roots with what they explain, an empty line after each; the notes of a machine in one line."""
    elsewhere = host_is_elsewhere(report)
    in_short = detail < Detail.EVIDENCE and not report.snapshot.readings
    notes = []
    for branch in outline(report.findings):
        if in_short and branch.finding.severity is Severity.NOTE and not branch.consequences:
            notes.append(branch.finding)
            continue
        yield from _branch(branch, ink, detail, elsewhere)
        yield Text("")
    if notes:
        yield from _notes(notes, ink)


def _notes(notes: list[Finding], ink: Ink) -> Iterator[RenderableType]:
    """The notes of a machine by name only; of a pasted text they are the answer, and shown whole."""
    count = "1 note" if len(notes) == 1 else f"{len(notes)} notes"
    names = ", ".join(f"{note.code} {note.name}" for note in notes)
    words = ink.prose(f"{count}, nothing to fix (-v explains): {names}")
    yield ink.labelled(ink.mark(OF_SEVERITY[Severity.NOTE]).plain, words, indent=0, gap=1)
    yield Text("")


def _branch(branch: Branch, ink: Ink, detail: Detail, elsewhere: bool) -> Iterator[RenderableType]:
    finding = branch.finding
    yield _headline(finding, ink)
    yield Padding(ink.prose(f"{finding.what} {finding.why}"), (0, 0, 0, 2))
    shows_fixes = finding.severity is not Severity.NOTE or detail >= Detail.EVIDENCE
    for number, fix in enumerate(finding.fixes if shows_fixes else ()):
        yield from _fix("Fix" if number == 0 else "Or", fix, ink, elsewhere)
    if detail >= Detail.EVIDENCE:
        yield from _basis(finding, ink)
    for consequence in branch.consequences:
        yield from _consequence(consequence, ink, detail, depth=1)


def _headline(finding: Finding, ink: Ink) -> Text:
    mark = OF_SEVERITY[finding.severity]
    text = ink.mark(mark).append(" ").append(finding.code, style=f"bold {mark.colour}").append(" ")
    text.append_text(ink.value(finding.name, style="bold")).append("  ").append_text(ink.value(finding.subject))
    if finding.confidence is not Confidence.CERTAIN:
        text.append(f"  ({finding.confidence.value})", style="dim")
    return text


def _fix(label: str, fix: Fix, ink: Ink, elsewhere: bool) -> Iterator[RenderableType]:
    where = place(fix, elsewhere)
    yield ink.labelled(f"{label:<3}", ink.prose(fix.title + (f" ({where})" if where else "") + (":" if fix.commands else "")))
    for command in fix.commands:
        yield from _command(command, fix, ink)
    if fix.rechecked:
        yield Padding(Text("re-checked: with this done, the same rules find no error here", style="dim"), (0, 0, 0, FIX_COLUMN))
    for command in fix.verify:
        yield Padding(Text("then check:", style="dim"), (0, 0, 0, FIX_COLUMN))
        yield from _command(command, fix, ink)


def _command(command: str, fix: Fix, ink: Ink) -> Iterator[RenderableType]:
    """The command, never broken by anything that a shell would not join again."""
    shown = inert.command(command, ink.charset)
    indent = " " * (FIX_COLUMN + 2)
    room = ink.width - len(indent)
    for line in [shown] if fix.where is Where.WINDOWS else shell_lines(shown, room):
        yield Text(indent + line, style="bold", no_wrap=True, overflow="ignore")


def _basis(finding: Finding, ink: Ink) -> Iterator[RenderableType]:
    for number, item in enumerate(finding.evidence):
        yield ink.labelled("Seen" if number == 0 else "    ", ink.value(evidence_line(item), limit=inert.VALUE_LIMIT), gap=1)
    for number, reference in enumerate(finding.references):
        yield ink.labelled("See " if number == 0 else "    ", ink.value(reference, limit=inert.VALUE_LIMIT), gap=1)


def evidence_line(item: Evidence) -> str:
    """`torch.arch_list = sm_50, sm_60 (torch child, line 3)`."""
    line = f", line {item.line}" if item.line is not None else ""
    return f"{item.fact} = {inert.clipped(item.value, inert.VALUE_LIMIT)} ({item.source}{line})"


def _consequence(branch: Branch, ink: Ink, detail: Detail, depth: int) -> Iterator[RenderableType]:
    """What the cause above explains: one line or two, without fixes of its own, since the cause's fix mends it."""
    finding = branch.finding
    arrow = "\N{BOX DRAWINGS LIGHT UP AND RIGHT}" if ink.charset is Charset.UNICODE else "`-"
    text = ink.mark(OF_SEVERITY[finding.severity], f"{finding.code} {finding.name}").append("  ")
    text.append_text(ink.value(finding.subject)).append(": ").append_text(ink.prose(finding.what))
    yield ink.labelled(arrow, text, indent=2 * depth, gap=1)
    if detail >= Detail.EVIDENCE:
        for part in _basis(finding, ink):
            yield Padding(part, (0, 0, 0, 2 * depth + 2))
    for consequence in branch.consequences:
        yield from _consequence(consequence, ink, detail, depth + 1)


def unknown_part(report: Report, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    """The rules that could not be judged: with reasons where the verdict hangs on them or `-v` asks, else a count."""
    if not report.unknown:
        return
    if detail < Detail.EVIDENCE and report.verdict is not Verdict.UNDETERMINED:
        count = len({rule.code for rule in report.unknown})
        number = "1 rule" if count == 1 else f"{count} rules"
        yield ink.mark(Mark.UNKNOWN, f"{number} could not be judged: some facts are missing (-v lists them)")
        yield Text("")
        return
    yield ink.mark(Mark.UNKNOWN, "Could not be judged")
    for because, rules in unknown_by_reason(report.unknown).items():
        names = ", ".join(f"{rule.code} {rule.name}" for rule in rules)
        yield Padding(ink.prose(because or "no reason was given"), (0, 0, 0, 2))
        yield Padding(ink.value(names, "dim", inert.VALUE_LIMIT), (0, 0, 0, 4))
    yield Text("")
