"""Machines to compare, judged as the command judges them."""

from __future__ import annotations

from pathlib import Path

from cudadoctor.commands.compare import read_machine
from cudadoctor.compare.comparing import Judged, compare
from cudadoctor.compare.comparison import CompareReport, Comparison, Rank
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import to_json
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Snapshot

MATRICES = Matrices.load()


def report_of(snapshot: Snapshot, node: str) -> Report:
    """A saved report of a machine; its verdict is not read."""
    return Report(
        tool=Tool(version="0"), created="2026-11-30T00:00:00Z", node=node, verdict=Verdict.HEALTHY, summary="", snapshot=snapshot
    )


def judged(folder: Path, machine: Report | Snapshot | str, node: str) -> Judged:
    """A report, a snapshot or a pasted text, read from a file."""
    path = folder / node
    if isinstance(machine, str):
        path.write_text(machine, encoding="utf-8")
    else:
        path.write_bytes(to_json(report_of(machine, node) if isinstance(machine, Snapshot) else machine))
    return read_machine(str(path), MATRICES)


def compared(folder: Path, reference: Report | Snapshot | str, *others: Report | Snapshot | str) -> CompareReport:
    """The machines A, B, C ... compared."""
    names = "ABCDEFG"
    machines = [judged(folder, machine, names[at]) for at, machine in enumerate((reference, *others))]
    return compare(machines[0], machines[1:], MATRICES)


def ranks(comparison: Comparison) -> dict[str, Rank]:
    """Fact to the rank of its difference."""
    return {each.fact: each.rank for each in comparison.differences}
