"""Metrics of a fleet for the node exporter's textfile collector: few series, whatever the number of healthy nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cudadoctor.fleet.summary import FleetSummary
from cudadoctor.report.options import RenderOptions
from cudadoctor.report.prometheus import Labels, Metric, exposition

Sample = tuple[Labels, float]


def render(summary: FleetSummary, options: RenderOptions) -> str:
    """The exposition format; nodes are named only where something is odd about them."""
    return exposition(_metrics(summary), options.charset)


def _metrics(summary: FleetSummary) -> Iterator[Metric]:
    counts = summary.counts
    verdicts = {"healthy": counts.healthy, "problems": counts.problems, "undetermined": counts.undetermined}
    yield Metric("fleet_nodes", "Nodes by verdict.", [({"verdict": name}, number) for name, number in verdicts.items()])
    reports = {"read": counts.reports, "superseded": counts.superseded, "unreadable": counts.unreadable}
    yield Metric(
        "fleet_reports", "Reports by what became of them.", [({"state": name}, number) for name, number in reports.items()]
    )
    yield Metric("fleet_finding_nodes", "Nodes on which a rule found an error or a warning.", _findings(summary))
    yield Metric("fleet_node_problems", "1 for every node whose verdict is problems.", _nodes(summary))
    yield Metric("fleet_version_nodes", "Nodes by version, of parts that have several.", _versions(summary))
    fewer = [({"node": each.node, "gpu": each.gpu}, float(each.usual - each.count)) for each in summary.fewer_gpus]
    yield Metric("fleet_missing_gpus", "How many GPUs a node has fewer than usual.", fewer)
    slow = [({"node": each.node, "gpu": each.index}, each.ratio) for each in summary.stragglers]
    yield Metric("fleet_slow_gpu_ratio", "Time of a straggler's kernels to the usual time.", slow)
    silent = [({"node": node}, 1.0) for node in (*(each.node for each in summary.no_report), *summary.not_reported)]
    yield Metric("fleet_node_not_reported", "1 for every node that was expected or asked and gave no report.", silent)


def _findings(summary: FleetSummary) -> list[Sample]:
    nodes = Counter[tuple[str, str, str]]()
    for row in summary.classes:
        for finding in row.findings:
            nodes[finding.code, finding.name, finding.severity] += len(row.nodes)
    return [(dict(zip(("code", "name", "severity"), key, strict=True)), float(count)) for key, count in nodes.items()]


def _nodes(summary: FleetSummary) -> list[Sample]:
    return [({"node": node}, 1.0) for row in summary.classes if row.verdict == "problems" for node in row.nodes]


def _versions(summary: FleetSummary) -> list[Sample]:
    return [
        ({"part": drift.part, "gpus": ", ".join(drift.gpus), "version": share.version or "unknown"}, float(len(share.nodes)))
        for drift in summary.drift
        for share in drift.shares
    ]
