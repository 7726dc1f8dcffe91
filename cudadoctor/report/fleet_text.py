"""The summary of a fleet for a terminal, a pipe or a log: one row a class of equal nodes, the odd ones first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cudadoctor.fleet.hostlist import compress
from cudadoctor.fleet.summary import Drift, FewerGpus, FindingName, FleetSummary, NodeClass, SilentNode, SlowGpu, UnreadableInput
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Verdict
from cudadoctor.report import inert
from cudadoctor.report.ink import GAP, Ink
from cudadoctor.report.marks import OF_SEVERITY, Mark
from cudadoctor.report.options import Detail, RenderOptions
from cudadoctor.report.printing import printed

MIN_WIDTH = 60
NODES_LIMIT = 80
"""Longest list of names, in characters; the JSON has them all."""
MOST_ROWS = 20
"""Most lines of one part; `-v` shows all."""

_OF_VERDICT = {Verdict.PROBLEMS.value: Mark.ERROR, Verdict.UNDETERMINED.value: Mark.UNKNOWN, Verdict.HEALTHY.value: Mark.OK}


def render(summary: FleetSummary, options: RenderOptions) -> str:
    """The summary as lines of at most `options.width` columns."""
    return printed(lambda ink: _parts(summary, ink, options.detail), options, MIN_WIDTH)


def _parts(summary: FleetSummary, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    counts = summary.counts
    if detail is not Detail.FINDINGS:
        yield ink.value(f"cudadoctor {summary.tool.version}   {counts.nodes:,} nodes in {counts.reports:,} reports")
        yield Text("")
    shown = [row for row in summary.classes if detail is not Detail.FINDINGS or not row.is_usual]
    if shown:
        yield _classes(shown, ink)
        yield Text("")
    most = MOST_ROWS if detail < Detail.EVIDENCE else max(len(summary.unreadable), counts.nodes)
    yield from _part("Versions", [drift_words(drift) for drift in summary.drift], Mark.WARNING, ink, most)
    yield from _part("GPUs missing", fewer_words(summary.fewer_gpus), Mark.WARNING, ink, most)
    yield from _part("Slow GPUs", [slow_words(each) for each in summary.stragglers], Mark.WARNING, ink, most)
    yield from _part("No report", silent_words(summary.no_report), Mark.UNKNOWN, ink, most)
    yield from _part("Never reported", _lists(summary.not_reported), Mark.UNKNOWN, ink, most)
    yield from _part("Not in --nodes", _lists(summary.not_listed), Mark.NOTE, ink, most)
    unreadable = [unreadable_words(each) for each in summary.unreadable]
    yield from _part("Unreadable", unreadable, Mark.UNKNOWN, ink, most, counts.unreadable)
    yield from _closing(summary, ink)


def _classes(rows: Sequence[NodeClass], ink: Ink) -> RenderableType:
    table = ink.grid()
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    for _ in range(6):
        table.add_column(overflow="fold")
    heads = ("", "", "GPUs", "driver", "toolkit", "torch", "verdict", "nodes")
    table.add_row(*(Text(head, style="bold") for head in heads))
    for row in rows:
        table.add_row(
            ink.mark(row_mark(row)),
            Text(f"{len(row.nodes):,}"),
            ink.value(gpu_words(row)),
            *(ink.value(text or "unknown") for text in (row.driver_release, row.toolkit_version, row.torch_version)),
            verdict_words(row, ink),
            Text("the usual", style="dim") if row.is_usual else ink.value(_names(row.nodes)),
        )
    return table


def row_mark(row: NodeClass) -> Mark:
    """The worst of a class: its verdict, or a warning."""
    if row.verdict == Verdict.HEALTHY.value and row.findings:
        return Mark.WARNING
    return _OF_VERDICT[row.verdict]


def gpu_words(row: NodeClass) -> str:
    """`8 x NVIDIA H200`; `none`, or `unknown` where they could not be read."""
    if row.gpus is None:
        return "unknown"
    return ", ".join(f"{gpu.count} x {gpu.name}" for gpu in row.gpus) or "none"


def verdict_words(row: NodeClass, ink: Ink) -> Text:
    """The findings, of a single node with what they are about; the verdict where there are none."""
    if not row.findings:
        return ink.value(row.verdict)
    text = Text()
    for number, finding in enumerate(row.findings):
        text.append("\n" if number else "").append_text(
            ink.value(finding_words(finding, row), OF_SEVERITY[Severity.ERROR if _is_error(finding) else Severity.WARNING].colour)
        )
    return text


def _is_error(finding: FindingName) -> bool:
    return finding.severity == Severity.ERROR.value


def finding_words(finding: FindingName, row: NodeClass) -> str:
    """`CD501 gpu-lost (GPU 3)`; what it is about only where one node has it."""
    words = f"{finding.code} {finding.name}"
    subjects = row.about[0].subjects if len(row.about) == 1 else ()
    about = [subject.removeprefix(f"{finding.code} ") for subject in subjects if subject.startswith(f"{finding.code} ")]
    return f"{words} ({', '.join(dict.fromkeys(about))})" if any(about) else words


def drift_words(drift: Drift) -> str:
    """`driver: 580.95.05 on 90 nodes, 575.57.08 on 10 (node[01-10])`."""
    most, *others = drift.shares
    shares = [f"{most.version or 'unknown'} on {len(most.nodes):,}"]
    shares += [f"{share.version or 'unknown'} on {len(share.nodes):,} ({_names(share.nodes)})" for share in others]
    return f"{drift.part} of nodes with {', '.join(drift.gpus)}: {', '.join(shares)}"


def fewer_words(fewer: Iterable[FewerGpus]) -> list[str]:
    """`7 of 8 x NVIDIA H200: node[03,17]`, one for nodes that miss as many."""
    alike: dict[str, list[str]] = {}
    for each in fewer:
        alike.setdefault(f"{each.count} of {each.usual} x {each.gpu}", []).append(each.node)
    return [f"{words} on {compress(nodes)}" for words, nodes in alike.items()]


def slow_words(slow: SlowGpu) -> str:
    """How slow, in how many kernels, and the worst with its figures."""
    how_slow = f"{slow.ratio:.2f} x the usual time in {slow.slow_kernels} of {slow.judged_kernels} kernels"
    return (
        f"{slow.node} GPU {slow.index}: {how_slow}; "
        f"{slow.worst_kernel} {slow.worst_ms:.3g} ms, median of {slow.gpus_compared:,} x {slow.gpu} {slow.usual_ms:.3g} ms"
    )


def silent_words(silent: Iterable[SilentNode]) -> list[str]:
    """`node[03,17]: gave no answer within 105 s`, one for nodes with the same reason."""
    alike: dict[str, list[str]] = {}
    for each in silent:
        alike.setdefault(each.because, []).append(each.node)
    return [f"{compress(nodes)}: {because}" for because, nodes in alike.items()]


def unreadable_words(item: UnreadableInput) -> str:
    """`node07.json line 1: is no whole report: …`."""
    place = " ".join(part for part in (item.file or "standard input", f"line {item.line}" if item.line else "") if part)
    return f"{place}: {item.because}"


def _names(nodes: Iterable[str]) -> str:
    """The names in short, with an ellipsis where they are more than fit; how many there are stands beside them."""
    names = compress(nodes)
    return names if len(names) <= NODES_LIMIT else f"{names[:NODES_LIMIT]}\N{HORIZONTAL ELLIPSIS}"


def _lists(nodes: Sequence[str]) -> list[str]:
    return [f"{len(nodes):,}: {compress(nodes)}"] if nodes else []


def _part(
    title: str, lines: Sequence[str], mark: Mark, ink: Ink, most: int, total: int | None = None
) -> Iterator[RenderableType]:
    """A titled list; what is beyond `most` lines is counted."""
    if not lines:
        return
    yield ink.mark(mark).append(" ").append(title, style="bold")
    for line in lines[:most]:
        yield Padding(ink.value(line, limit=inert.VALUE_LIMIT), (0, 0, 0, GAP))
    left = (total if total is not None else len(lines)) - min(most, len(lines))
    if left > 0:
        yield Padding(Text(f"and {left:,} more (--format json)", style="dim"), (0, 0, 0, GAP))
    yield Text("")


def _closing(summary: FleetSummary, ink: Ink) -> Iterator[RenderableType]:
    counts = summary.counts
    if counts.superseded:
        yield ink.prose(f"{counts.superseded:,} older reports of nodes that reported again were left out.")
    if counts.newer_schema:
        yield ink.prose(f"{counts.newer_schema:,} reports have a newer schema and were read as far as this cudadoctor knows it.")
    cost = [] if summary.seconds is None else [f"{summary.seconds:.1f} s"]
    cost += [] if summary.peak_memory_bytes is None else [f"{summary.peak_memory_bytes / 1e6:.0f} MB"]
    yield ink.prose(summary.summary, "bold").append(f"   {', '.join(cost)}" if cost else "", style="dim")
