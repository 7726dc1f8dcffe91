"""A handful of reports that shows every part of a summary."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from cudadoctor.fleet.documents import Found, Item, Unreadable
from cudadoctor.fleet.gathering import Gathered
from cudadoctor.fleet.node_report import NoReport, read_node_report
from cudadoctor.fleet.summarising import summarise
from cudadoctor.fleet.summary import FleetSummary
from cudadoctor.model.codec import to_compact_json
from cudadoctor.model.report import Report
from tests.report.sample_reports import SAMPLES, healthy_h100

SLOW, NOISY = 1.5, 4.0


def found(report: Report, file: str = "", line: int = 1) -> Found:
    """As it is read from a file."""
    return Found(file, line, read_node_report(to_compact_json(report)))


def no_report(node: str, because: str, created: str = "2026-11-30T12:00:00Z") -> NoReport:
    """A node that was asked in vain."""
    return NoReport(node=node, created=created, because=because)


def timed(node: str, factors: tuple[float, ...] = ()) -> Report:
    """A healthy node; its first kernels take so many times the usual."""
    report = healthy_h100()
    proofs = [
        structs.replace(proof, run_ms=proof.run_ms * (factors[at] if at < len(factors) else 1)) if proof.run_ms else proof
        for at, proof in enumerate(report.proofs)
    ]
    return structs.replace(report, node=node, proofs=tuple(proofs))


def small_fleet() -> Iterator[Item]:
    """Ten alike, one straggler, one with a noisy value, the sample machines, an older report, nodes without one, and garbage."""
    for number in range(1, 11):
        yield found(timed(f"node{number:02d}"))
    yield found(timed("node11", (SLOW,) * 100))
    yield found(timed("node12", (NOISY,)))
    for name, report in SAMPLES.items():
        if name != "healthy_h100":
            yield found(structs.replace(report(), node=name.replace("_", "-")))
    yield found(structs.replace(SAMPLES["no_gpu"](), node="node01", created="2026-11-29T12:00:00Z"))
    for name in ("node15", "node16"):
        yield no_report(name, "gave no answer within 105 s")
    yield no_report("node17", "exit code 1: srun: error: Unable to allocate resources: Requested nodes are busy")
    yield Unreadable("node13.json", 1, "is no whole report: Input data was truncated")
    yield Unreadable("", 7, "no JSON: 'srun: error'")


def small_summary() -> FleetSummary:
    """Its summary, as of a run that took no time."""
    gathered = Gathered()
    gathered.add_all(small_fleet())
    return summarise(gathered, tuple(f"node{number:02d}" for number in range(1, 15)))
