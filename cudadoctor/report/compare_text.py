"""A comparison for a terminal, a pipe or a log: what only one machine suffers from and why, then what else differs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import structs
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cudadoctor.compare.comparison import CompareReport, Comparison, Difference, Machine, OneSided, Rank, Side
from cudadoctor.model.report import Verdict
from cudadoctor.report.ink import GAP, Ink
from cudadoctor.report.marks import OF_SEVERITY, Mark
from cudadoctor.report.options import Detail, RenderOptions
from cudadoctor.report.printing import printed

MIN_WIDTH = 60
MOST_ROWS = 12
"""Most differences of one rank; `-v` shows all."""
_OF_VERDICT = {Verdict.PROBLEMS: Mark.ERROR, Verdict.UNDETERMINED: Mark.UNKNOWN, Verdict.HEALTHY: Mark.OK}
_TITLES = {
    Rank.DIFFERS: (Mark.WARNING, "Differs, and no rule objects to either"),
    Rank.BENIGN: (Mark.NOTE, "Benign"),
    Rank.UNKNOWN: (Mark.UNKNOWN, "Known of one only"),
}


def render(report: CompareReport, options: RenderOptions) -> str:
    """The comparisons as lines of at most `options.width` columns."""
    return printed(lambda ink: _parts(report, ink, options.detail), options, MIN_WIDTH)


def _parts(report: CompareReport, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    for comparison in report.comparisons:
        if detail is not Detail.FINDINGS:
            yield _machines(report.reference, comparison.machines, ink)
            yield Text("")
        yield from _comparison(comparison, ink, detail)
    yield ink.prose(report.summary, "bold")


def _machines(reference: Machine, others: Sequence[Machine], ink: Ink) -> RenderableType:
    table = ink.grid()
    for _ in range(3):
        table.add_column(overflow="fold")
    for label, machine in (("A", reference), *(("B", other) for other in others)):
        verdict = ink.mark(_OF_VERDICT[machine.verdict], machine.summary)
        table.add_row(Text(label, style="bold"), ink.value(f"{machine.name} ({machine.kind})"), verdict)
    return Padding(table, (0, 0, 0, GAP))


def _comparison(comparison: Comparison, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    by_fact = {each.fact: each for each in comparison.differences}
    for one_sided in comparison.findings:
        yield from _one_sided(one_sided, by_fact, ink)
    shown = _TITLES if detail is not Detail.FINDINGS else {Rank.DIFFERS: _TITLES[Rank.DIFFERS]}
    for rank, (mark, title) in shown.items():
        rows = [each for each in comparison.differences if each.rank is rank]
        rows = _joined(rows) if rank is Rank.UNKNOWN else rows
        if rows:
            yield ink.mark(mark).append(" ").append(title, style="bold")
            yield from _limited(rows, ink, detail)
            yield Text("")
    if comparison.in_common and detail is not Detail.FINDINGS:
        yield ink.prose(f"Both have: {', '.join(comparison.in_common)}.")
        yield Text("")


def _one_sided(one_sided: OneSided, by_fact: dict[str, Difference], ink: Ink) -> Iterator[RenderableType]:
    finding = one_sided.finding
    side, other = ("A", "B") if one_sided.on is Side.REFERENCE else ("B", "A")
    where = f"only {side}" if one_sided.is_known_of_both else f"{side}; of {other} it cannot be told"
    head = ink.mark(OF_SEVERITY[finding.severity]).append(f" {where}  ").append(finding.code, style="bold").append(" ")
    yield head.append_text(ink.value(finding.name, "bold")).append("  ").append_text(ink.value(finding.subject))
    yield Padding(ink.prose(finding.what), (0, 0, 0, GAP))
    if one_sided.facts and finding.root:
        yield _table([by_fact[fact] for fact in one_sided.facts], ink)
    if one_sided.gone_with and finding.root:
        parts = ", or with its ".join(one_sided.gone_with)
        yield Padding(ink.prose(f"With {other}'s {parts}, the same rule does not find it.", "dim"), (0, 0, 0, GAP))
    yield Text("")


def _joined(rows: Iterable[Difference]) -> list[Difference]:
    """Unknown facts of one part, for the same reason, as one row: `python.torch.torch_version and 7 more`."""
    alike: dict[tuple[str, bool, str], list[Difference]] = {}
    for row in rows:
        alike.setdefault((row.fact.rpartition(".")[0], row.reference is None, row.because), []).append(row)
    return [
        structs.replace(group[0], fact=f"{group[0].fact}, {len(group) - 1} more") if len(group) > 1 else group[0]
        for group in alike.values()
    ]


def _limited(rows: Sequence[Difference], ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    most = MOST_ROWS if detail < Detail.EVIDENCE else len(rows)
    yield _table(rows[:most], ink)
    if len(rows) > most:
        yield Padding(Text(f"and {len(rows) - most:,} more (-v lists them)", style="dim"), (0, 0, 0, GAP))


def _table(rows: Iterable[Difference], ink: Ink) -> RenderableType:
    table = ink.grid()
    for ratio in (3, 3, 3, 2):
        table.add_column(overflow="fold", ratio=ratio)
    for row in rows:
        reference, other = (
            f"{label} {'unknown' if text is None else text}" for label, text in (("A", row.reference), ("B", row.other))
        )
        table.add_row(ink.value(row.fact), ink.value(reference), ink.value(other), ink.prose(row.because, "dim"))
    return Padding(table, (0, 0, 0, GAP))
