"""The report for a terminal, a pipe or a log: the stack, what is wrong with it, what was proven, one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import inert
from cudadoctor.report.ink import GAP, Ink
from cudadoctor.report.marks import Mark
from cudadoctor.report.options import Detail, RenderOptions
from cudadoctor.report.printing import printed
from cudadoctor.report.stack import header_parts, stack_rows
from cudadoctor.report.text_findings import findings_part, unknown_part
from cudadoctor.report.text_proofs import proofs_part

MIN_WIDTH = 40
"""Columns below which a table cannot be read; a narrower terminal gets lines of this width."""


def render(report: Report, options: RenderOptions) -> str:
    """The report as lines of at most `options.width` columns, save for single words and commands that are longer."""
    return printed(lambda ink: _parts(report, ink, options.detail), options, MIN_WIDTH)


def _parts(report: Report, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    if detail is Detail.FINDINGS:
        yield from findings_part(report, ink, detail)
        if report.verdict is Verdict.UNDETERMINED:
            yield from unknown_part(report, ink, detail)
        return
    yield from ink.flowing(tuple(ink.value(part, limit=inert.VALUE_LIMIT) for part in header_parts(report)))
    yield Text("")
    yield from _stack_part(report, ink)
    yield from findings_part(report, ink, detail)
    yield from unknown_part(report, ink, detail)
    yield from proofs_part(report, ink, detail)
    if detail >= Detail.PROBE_RUNS:
        yield from _probes_part(report, ink)
    yield from _closing(report, ink)


def _stack_part(report: Report, ink: Ink) -> Iterator[RenderableType]:
    rows = stack_rows(report)
    if not rows:
        return
    table = ink.grid()
    table.add_column(overflow="fold", min_width=8, max_width=18)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    sources = max(12, ink.width // 4)
    table.add_column(overflow="fold", max_width=sources)
    for row in rows:
        verdict = ink.mark(row.mark, row.words)
        table.add_row(ink.value(row.label, "bold"), ink.value(row.value), verdict, ink.paths(row.source, sources, "dim"))
    yield Padding(table, (0, 0, 0, GAP))
    yield Text("")


def _probes_part(report: Report, ink: Ink) -> Iterator[RenderableType]:
    if not report.snapshot.probe_runs:
        return
    table = ink.grid()
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", justify="right")
    table.add_column(overflow="fold")
    table.add_row(Text("Probes", style="bold"), Text(""), Text(""))
    for run in report.snapshot.probe_runs:
        mark = Mark.OK if run.outcome == "ok" else Mark.UNKNOWN
        outcome = " ".join(part for part in (run.outcome, run.detail) if part)
        table.add_row(Text("  ").append_text(ink.value(run.probe)), Text(f"{run.seconds:.2f} s"), ink.mark(mark, outcome))
    yield table
    yield Text("")


def _closing(report: Report, ink: Ink) -> Iterator[RenderableType]:
    """The sentence, and at the right end of the line the time that it all took."""
    sentence = ink.prose(report.summary, "bold")
    if report.seconds is None:
        yield sentence
        return
    table = Table.grid(expand=True, padding=(0, 0, 0, GAP))
    table.add_column(overflow="fold", ratio=1)
    table.add_column(no_wrap=True, justify="right", vertical="bottom")
    table.add_row(sentence, Text(f"{report.seconds:.1f} s", style="dim"))
    yield table
