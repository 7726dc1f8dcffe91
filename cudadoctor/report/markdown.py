"""The report for a ticket: what is wrong on top, details folded, and a block from which the whole report can be read back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cudadoctor.model.finding import Confidence, Evidence, Finding, Fix, Severity
from cudadoctor.model.report import Report
from cudadoctor.report import inert
from cudadoctor.report.marks import OF_SEVERITY, Mark
from cudadoctor.report.options import Charset, RenderOptions
from cudadoctor.report.outline import Branch, outline, unknown_by_reason
from cudadoctor.report.packed import pack
from cudadoctor.report.places import host_is_elsewhere, place
from cudadoctor.report.proof_table import Cell, proof_rows
from cudadoctor.report.stack import header_parts, stack_rows

_SPECIAL = re.compile(r"[\\`*\[\]<>|~&$]|(?<!\w)_|_(?!\w)|^[#+=-]|(?<=^\d)[.)](?=\s)")
_BACKTICKS = re.compile(r"`+")
_LINK_START = re.compile(r"[@#](?=\w)|:(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
"""Where GitHub would begin a mention, an issue number or a link."""
_PLAIN_URL = re.compile(r"https://[\w./#?=&%+~-]{1,300}", re.ASCII)
_ZERO_WIDTH_SPACE = "\u200b"


def render(report: Report, options: RenderOptions) -> str:
    """The report as GitHub-flavoured Markdown; width and colour play no part."""
    return "\n\n".join(_blocks(report, options.charset)) + "\n"


def _blocks(report: Report, charset: Charset) -> Iterator[str]:
    yield f"**{plain(report.summary) or 'No summary'}**"
    yield plain(" · ".join(header_parts(report)), limit=inert.VALUE_LIMIT)
    rows = [(plain(r.label), plain(r.value), _mark(r.mark, r.words, charset), plain(r.source)) for r in stack_rows(report)]
    if rows:
        yield table(("Part", "Found", "Verdict", "Read from"), rows)
    elsewhere = host_is_elsewhere(report)
    branches = outline(report.findings)
    for branch in branches:
        if branch.finding.severity is not Severity.NOTE:
            yield from _finding(branch, charset, elsewhere)
    notes = [branch.finding for branch in branches if branch.finding.severity is Severity.NOTE]
    if notes:
        title = f"{len(notes)} {'note' if len(notes) == 1 else 'notes'}, nothing to fix"
        yield folded(title, *map(_note, notes))
    proofs = [
        _proof_row(row.layer, row.gpus, row.gemm, row.attention, row.note, charset)
        for row in proof_rows(report.proofs, report.findings)
    ]
    if proofs:
        yield folded("Proofs", table(("Layer", "GEMM", "attention", ""), proofs))
    if report.findings:
        yield folded("Evidence", *_evidence(report.findings))
    if report.unknown:
        yield folded("Could not be judged", "\n".join(_unknown(report)))
    yield folded("Machine-readable report, redacted (cudadoctor triage reads it)", fenced(pack(report), "text"))


def _finding(branch: Branch, charset: Charset, elsewhere: bool) -> Iterator[str]:
    finding = branch.finding
    sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence.value})"
    mark = OF_SEVERITY[finding.severity].sign(charset)
    yield f"### {mark} {plain(finding.code)} {code(finding.name)}: {plain(finding.subject)}{sure}"
    yield f"{plain(finding.what, inert.PROSE_LIMIT)} {plain(finding.why, inert.PROSE_LIMIT)}".strip()
    for number, fix in enumerate(finding.fixes):
        yield from _fix("Fix" if number == 0 else "Or", fix, elsewhere)
    consequences = list(_consequences(branch.consequences, charset))
    if consequences:
        yield "It explains:"
        yield "\n".join(consequences)


def _fix(label: str, fix: Fix, elsewhere: bool) -> Iterator[str]:
    where = place(fix, elsewhere)
    checked = " Re-checked: with this done, the same rules find no error here." if fix.rechecked else ""
    yield f"**{label}**{f' ({where})' if where else ''}: {plain(fix.title.rstrip('.:'))}.{checked}"
    if fix.commands:
        yield fenced("\n".join(inert.command(command) for command in fix.commands), "sh")
    if fix.verify:
        yield "Then check:"
        yield fenced("\n".join(inert.command(command) for command in fix.verify), "sh")


def _consequences(branches: Sequence[Branch], charset: Charset, depth: int = 0) -> Iterator[str]:
    for branch in branches:
        finding = branch.finding
        mark = OF_SEVERITY[finding.severity].sign(charset)
        head = f"{mark} {plain(finding.code)} {code(finding.name)} {plain(finding.subject)}"
        yield f"{'  ' * depth}- {head}: {plain(finding.what, inert.PROSE_LIMIT)}"
        yield from _consequences(branch.consequences, charset, depth + 1)


def _note(finding: Finding) -> str:
    said = f"{plain(finding.what, inert.PROSE_LIMIT)} {plain(finding.why, inert.PROSE_LIMIT)}".strip()
    return f"{plain(finding.code)} {code(finding.name)} {plain(finding.subject)}: {said}"


def _proof_row(layer: str, gpus: str, gemm: Cell | None, attention: Cell | None, note: str, charset: Charset) -> tuple[str, ...]:
    return (plain(f"{layer} {gpus}"), _cell(gemm, charset), _cell(attention, charset), plain(note, inert.VALUE_LIMIT))


def _cell(cell: Cell | None, charset: Charset) -> str:
    return _mark(cell.mark, ", ".join(part for part in (cell.words, cell.rate) if part), charset) if cell else ""


def _mark(mark: Mark, words: str, charset: Charset) -> str:
    return f"{mark.sign(charset)} {plain(words)}"


def _evidence(findings: Sequence[Finding]) -> Iterator[str]:
    rows = [
        (plain(finding.code), code(item.fact), code(item.value), plain(item.source + line_of(item)))
        for finding in findings
        for item in finding.evidence
    ]
    if rows:
        yield table(("Finding", "Fact", "Value", "Read from"), rows)
    references = dict.fromkeys(reference for finding in findings for reference in finding.references)
    if references:
        yield "\n".join(f"- <{text}>" if _PLAIN_URL.fullmatch(text) else f"- {code(text)}" for text in references)


def _unknown(report: Report) -> Iterator[str]:
    for because, rules in unknown_by_reason(report.unknown).items():
        names = ", ".join(f"{plain(rule.code)} {code(rule.name)}" for rule in rules)
        yield f"- {plain(because or 'no reason was given', inert.VALUE_LIMIT)}: {names}"


def line_of(item: Evidence) -> str:
    """`, line 3` where the source is a text."""
    return "" if item.line is None else f", line {item.line}"


# Markdown in which values are inert


def plain(text: str, limit: int = inert.CELL_LIMIT) -> str:
    """A value as running text: no markup, no HTML, no mention of a person or an issue."""
    return _LINK_START.sub(rf"\g<0>{_ZERO_WIDTH_SPACE}", _SPECIAL.sub(_escape, inert.prose(text, limit=limit)))


def _escape(match: re.Match[str]) -> str:
    entity = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}.get(match[0])
    return entity or "\\" + match[0]


def code(text: str, limit: int = inert.VALUE_LIMIT) -> str:
    """A value as a code span, also within a table."""
    shown = inert.value(text, limit=limit).replace("|", "\\|")
    if not shown:
        return ""
    fence = "`" * (1 + max((len(run) for run in _BACKTICKS.findall(shown)), default=0))
    pad = " " if shown.startswith(("`", " ")) or shown.endswith(("`", " ")) else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def fenced(text: str, language: str) -> str:
    """A block of code, its fence longer than any run of backticks inside."""
    fence = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def folded(title: str, *blocks: str) -> str:
    """Blocks that open on a click."""
    body = "\n\n".join(blocks)
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"
