"""A finding as plain lines, for formats that carry text and no layout of their own."""

from __future__ import annotations

from collections.abc import Iterator

from cudadoctor.model.finding import Confidence, Evidence, Finding, Fix
from cudadoctor.report import inert
from cudadoctor.report.options import Charset
from cudadoctor.report.outline import Branch
from cudadoctor.report.places import place

INDENT = "  "


def title(finding: Finding, charset: Charset) -> str:
    """`CD412 arch-missing-in-wheel: GPU 0 (likely)`."""
    sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence.value})"
    name = inert.value(finding.name, charset, inert.CELL_LIMIT)
    return f"{finding.code} {name}: {inert.value(finding.subject, charset, inert.CELL_LIMIT)}{sure}"


def sentences(finding: Finding, charset: Charset) -> str:
    """What is wrong, and why it matters."""
    return f"{inert.prose(finding.what, charset)} {inert.prose(finding.why, charset)}".strip()


def fix_lines(finding: Finding, charset: Charset, elsewhere: bool) -> Iterator[str]:
    """Every fix with its commands, and how to see that it helped."""
    for number, fix in enumerate(finding.fixes):
        yield from _fix("Fix" if number == 0 else "Or", fix, charset, elsewhere)


def _fix(label: str, fix: Fix, charset: Charset, elsewhere: bool) -> Iterator[str]:
    where = place(fix, elsewhere)
    yield f"{label}: {inert.prose(fix.title.rstrip('.:'), charset)}{f' ({where})' if where else ''}{':' if fix.commands else '.'}"
    yield from (INDENT + inert.command(command, charset) for command in fix.commands)
    if fix.verify:
        yield "Then check:"
        yield from (INDENT + inert.command(command, charset) for command in fix.verify)


def evidence_lines(finding: Finding, charset: Charset) -> Iterator[str]:
    """`Seen: python.torch.arch_list = sm_50, sm_60 (torch child)`."""
    for item in finding.evidence:
        yield f"Seen: {evidence(item, charset)}"


def evidence(item: Evidence, charset: Charset) -> str:
    """One piece of evidence: fact, value, source and line."""
    line = f", line {item.line}" if item.line is not None else ""
    fact, source = inert.value(item.fact, charset), inert.value(item.source, charset)
    return f"{fact} = {inert.value(item.value, charset)} ({source}{line})"


def consequence_lines(branch: Branch, charset: Charset) -> Iterator[str]:
    """What the finding explains, one line each, deepest last."""
    for consequence in branch.consequences:
        yield f"It explains: {title(consequence.finding, charset)}: {inert.prose(consequence.finding.what, charset)}"
        yield from consequence_lines(consequence, charset)


def explained_by(finding: Finding, findings: tuple[Finding, ...]) -> str:
    """`Explained by CD412.` for a consequence; empty for a root."""
    causes = dict.fromkeys(cause.code for cause in findings if finding.code in cause.explains)
    return f"Explained by {', '.join(causes)}." if causes and not finding.root else ""
