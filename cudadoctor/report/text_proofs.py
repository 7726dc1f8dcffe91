"""The proofs for a terminal: one line per layer, and on request one per kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.report import Report
from cudadoctor.report import inert
from cudadoctor.report.ink import GAP, Ink
from cudadoctor.report.marks import OF_OUTCOME
from cudadoctor.report.options import Detail
from cudadoctor.report.outline import joined_subjects
from cudadoctor.report.proof_table import LAYER_NAMES, Cell, proof_reason, proof_rows

RATE_WIDTH = 100
"""Columns from which the table has room for TFLOPS."""

GPUS_WIDTH = 20
"""Columns that the GPUs' own column takes from it."""


def proofs_part(report: Report, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    """The table of layers; with evidence asked for, every proof with its figures."""
    rows = proof_rows(report.proofs, report.findings)
    if not rows:
        return
    several = any(row.gpus for row in rows)
    with_rate = ink.width >= RATE_WIDTH + (GPUS_WIDTH if several else 0)
    table = ink.grid()
    table.add_column(overflow="fold")
    for _ in range(4 if several else 3):
        table.add_column(overflow="fold")
    head = ["Proofs", *([""] if several else []), "GEMM", "attention", ""]
    table.add_row(*(Text(word, style="bold") for word in head))
    for row in rows:
        names = [Text(f"  {row.layer}"), *([ink.value(row.gpus)] if several else [])]
        cells = [_cell(cell, ink, with_rate=with_rate) for cell in (row.gemm, row.attention)]
        table.add_row(*names, *cells, ink.value(row.note, "dim", inert.VALUE_LIMIT))
    yield table
    yield Text("")
    if detail >= Detail.EVIDENCE:
        yield from _every_proof(report.proofs, ink)


def _cell(cell: Cell | None, ink: Ink, *, with_rate: bool) -> Text:
    if cell is None:
        return Text("")
    return ink.mark(cell.mark, ", ".join(part for part in (cell.words, cell.rate if with_rate else "") if part))


def _every_proof(proofs: Sequence[Proof], ink: Ink) -> Iterator[RenderableType]:
    several = len({proof.gpu for proof in proofs if proof.gpu is not None}) > 1
    passed = [proof for proof in proofs if proof.outcome is ProofOutcome.PASSED]
    if passed:
        yield Padding(_figures(passed, ink, several=several), (0, 0, 0, GAP))
        yield Text("")
    groups: dict[tuple[str, str, ProofOutcome], list[Proof]] = {}
    for proof in proofs:
        if proof.outcome is not ProofOutcome.PASSED:
            groups.setdefault((_layer(proof, several=several), proof_reason(proof), proof.outcome), []).append(proof)
    for (layer, reason, outcome), alike in groups.items():
        text = ink.mark(OF_OUTCOME[outcome], f"{layer} {outcome.value}").append("  ")
        text.append_text(ink.value(joined_subjects(_name(proof) for proof in alike), limit=inert.VALUE_LIMIT))
        yield Padding(text.append(": ").append_text(ink.prose(reason or "no reason was given")), (0, 0, 0, GAP))
    if groups:
        yield Text("")


def _layer(proof: Proof, *, several: bool) -> str:
    peer = f" to {proof.peer}" if proof.peer is not None else ""
    return f"{LAYER_NAMES[proof.layer]} GPU {proof.gpu}{peer}" if several and proof.gpu is not None else LAYER_NAMES[proof.layer]


def _name(proof: Proof) -> str:
    return " ".join(part for part in (proof.kernel, proof.target) if part)


def _figures(passed: Sequence[Proof], ink: Ink, *, several: bool) -> RenderableType:
    """Kernel, times, rate and error of each passed proof."""
    table = ink.grid()
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    between = any(proof.gb_s is not None for proof in passed)
    for _ in range(6 if between else 5):
        table.add_column(overflow="fold", justify="right")
    head = ("passed", "kernel", "run ms", "TFLOPS", "error", "allowed", "build s", *(("GB/s",) if between else ()))
    table.add_row(*(Text(word, style="dim") for word in head))
    for proof in passed:
        numbers = (
            _number(proof.run_ms, ".3f"),
            _number(proof.tflops, ".2f"),
            _number(proof.max_error, ".1e"),
            _number(proof.tolerance, ".1e"),
            _number(proof.compile_s, ".2f"),
            *((_number(proof.gb_s, ".1f"),) if between else ()),
        )
        mark = ink.mark(OF_OUTCOME[proof.outcome], _layer(proof, several=several))
        table.add_row(mark, ink.value(_name(proof)), *map(Text, numbers))
    return table


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
