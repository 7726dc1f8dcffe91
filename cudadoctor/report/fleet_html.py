"""The summary of a fleet as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudadoctor.fleet.hostlist import compress
from cudadoctor.fleet.summary import FleetSummary, NodeClass
from cudadoctor.report.fleet_text import (
    drift_words,
    fewer_words,
    finding_words,
    gpu_words,
    row_mark,
    silent_words,
    slow_words,
    unreadable_words,
)
from cudadoctor.report.html_page import bullets, element, page, table
from cudadoctor.report.inert import PROSE_LIMIT
from cudadoctor.report.marks import Mark
from cudadoctor.report.options import Charset, RenderOptions

_KINDS = {Mark.ERROR: "error", Mark.WARNING: "warning", Mark.UNKNOWN: "unknown", Mark.OK: "ok"}
_HEADS = ("", "Nodes", "", "GPUs", "Driver", "Toolkit", "torch", "Verdict")


def render(summary: FleetSummary, options: RenderOptions) -> str:  # noqa: ARG001  # every renderer has this signature
    """The page; what the text shows in short is whole here."""
    return page(summary.summary, _parts(summary))


def _parts(summary: FleetSummary) -> Iterator[str]:
    counts = summary.counts
    yield element("h1", summary.summary)
    yield table(_HEADS, map(_row, summary.classes))
    yield from _part("Versions", [drift_words(drift) for drift in summary.drift])
    yield from _part("GPUs missing", fewer_words(summary.fewer_gpus))
    yield from _part("Slow GPUs", [slow_words(slow) for slow in summary.stragglers])
    yield from _part("No report", silent_words(summary.no_report))
    yield from _part("Never reported", [compress(summary.not_reported)] if summary.not_reported else [])
    yield from _part("Not in --nodes", [compress(summary.not_listed)] if summary.not_listed else [])
    yield from _part("Unreadable", [unreadable_words(each) for each in summary.unreadable])
    made = f"cudadoctor {summary.tool.version}, {counts.nodes:,} nodes in {counts.reports:,} reports"
    yield element("footer", f"{made}; {counts.superseded:,} older reports left out; {counts.unreadable:,} unreadable")


def _row(row: NodeClass) -> tuple[str, ...]:
    mark = row_mark(row)
    verdict = ", ".join(finding_words(finding, row) for finding in row.findings)
    return (
        element("td", mark.sign(Charset.UNICODE), _KINDS[mark]),
        element("td", f"{len(row.nodes):,}"),
        element("td", compress(row.nodes), limit=PROSE_LIMIT),
        element("td", gpu_words(row)),
        *(element("td", version or "unknown") for version in (row.driver_release, row.toolkit_version, row.torch_version)),
        element("td", verdict or row.verdict, _KINDS[mark]),
    )


def _part(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield element("h2", title)
        yield bullets(lines)
