"""The report as one self-contained page: verdict, the stack as layers, what breaks it, how to mend it, evidence folded."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files

from cudadoctor.model.fact import Known
from cudadoctor.model.finding import Confidence, Finding, Fix, Severity
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import inert
from cudadoctor.report.html_page import element, page, table, text
from cudadoctor.report.html_roofline import rooflines
from cudadoctor.report.marks import OF_OUTCOME, OF_SEVERITY, Mark
from cudadoctor.report.options import Charset, RenderOptions
from cudadoctor.report.outline import Branch, outline, unknown_by_reason
from cudadoctor.report.places import host_is_elsewhere, place
from cudadoctor.report.proof_table import LAYER_NAMES, WORST_FIRST, Cell, proof_rows
from cudadoctor.report.stack import StackRow, header_parts, stack_rows

_KINDS = {
    Mark.OK: "ok",
    Mark.ERROR: "error",
    Mark.WARNING: "warning",
    Mark.NOTE: "note",
    Mark.UNKNOWN: "unknown",
    Mark.ABSENT: "absent",
}
_VERDICTS = {
    Verdict.HEALTHY: (Mark.OK, "Healthy"),
    Verdict.PROBLEMS: (Mark.ERROR, "Problems found"),
    Verdict.UNDETERMINED: (Mark.UNKNOWN, "Undetermined"),
}
_PROVES = {
    "Links": (ProofLayer.PEER,),
    "Driver": (ProofLayer.DRIVER_JIT,),
    "Toolkit": (ProofLayer.NVRTC, ProofLayer.NVCC),
    "torch": (ProofLayer.TORCH,),
    "Packages": (ProofLayer.TORCH_EXTENSION,),
    "NCCL": (ProofLayer.NCCL,),
}
"""The layers of proof that speak of a row of the stack."""
_URL = re.compile(r"https?://[\w./#?=&%+~:@,-]{1,300}", re.ASCII)


def render(report: Report, options: RenderOptions) -> str:  # noqa: ARG001  # every renderer has this signature
    """The page; width, colour and amount play no part."""
    return page(report.summary or "cudadoctor report", _parts(report), _resource("html_report.css"), _resource("html_report.js"))


def _resource(name: str) -> str:
    return files("cudadoctor.report").joinpath(name).read_text(encoding="utf-8")


def _parts(report: Report) -> Iterator[str]:
    yield '<a class="skip" href="#findings">Skip to what was found</a>'
    yield _header(report)
    yield '<main>\n<p id="copied" class="skip" role="status"></p>'
    yield from _section("stack", "The stack", _stack(report))
    yield from _section("findings", "What was found", _findings(report))
    yield from _section("proofs", "Proofs: kernels compiled and run here", _proofs(report))
    yield from _section("unknown", "Could not be judged", _unknown(report))
    yield "</main>"
    seconds = f", {report.seconds:.1f} s" if report.seconds is not None else ""
    yield element("footer", f"cudadoctor {report.tool.version}, {report.created}{seconds}. Redacted; this page loads nothing.")


def _header(report: Report) -> str:
    mark, words = _VERDICTS[report.verdict]
    badge = f'<span class="verdict mark {_KINDS[mark]}">{mark.sign(Charset.UNICODE)} {words}</span>'
    about = "\n".join(element("p", part, "about") for part in header_parts(report))
    title = element("h1", report.summary, limit=inert.PROSE_LIMIT)
    return f'<header class="{report.verdict.value}">\n{badge}\n{title}\n{about}\n</header>'


def _section(name: str, title: str, parts: Iterable[str]) -> Iterator[str]:
    """A titled part of the page; nothing where there is nothing to show."""
    body = "\n".join(parts)
    if body:
        yield f'<section aria-labelledby="{name}">\n<h2 id="{name}">{title}</h2>\n{body}\n</section>'


def _mark(mark: Mark, words: str) -> str:
    return f'<span class="mark {_KINDS[mark]}">{mark.sign(Charset.UNICODE)} {text(words)}</span>'


# The stack


def _stack(report: Report) -> Iterator[str]:
    rows = list(_with_libcuda(report))
    proven = {row.label: row for row in reversed(rows)}  # of several toolkits the first, which builds and proofs use
    if rows:
        layers = (_layer(row, _proven(row, report) if proven[row.label] is row else "") for row in reversed(rows))
        yield '<ol class="stack" reversed>' + "\n".join(layers) + "\n</ol>"


def _with_libcuda(report: Report) -> Iterator[StackRow]:
    """The rows of the stack, and after the driver's the library through which programs reach it."""
    driver = report.snapshot.driver
    loaded, init = driver.libcuda_loaded, driver.cu_init
    for row in stack_rows(report):
        yield row
        if row.label == "Driver" and isinstance(loaded, Known) and isinstance(init, Known):
            works = init.value.code == 0
            mark = Mark.OK if works else Mark.UNKNOWN if row.mark is Mark.OK else row.mark
            words = "cuInit ok" if works else f"cuInit: {init.value.code} {init.value.name}"
            yield StackRow("libcuda", loaded.value, mark, words, loaded.source)


def _layer(row: StackRow, proven: str) -> str:
    broken = " broken" if row.mark is Mark.ERROR else ""
    return (
        f'<li class="layer {_KINDS[row.mark]}{broken}">{element("span", row.label, "label")}'
        f"{element('span', row.value, 'value', inert.CELL_LIMIT)}{_mark(row.mark, row.words)}"
        f"{element('span', row.source, 'source') if row.source else ''}{proven}</li>"
    )


def _proven(row: StackRow, report: Report) -> str:
    """What running kernels showed of a layer, the worst outcome of each proof."""
    shown = []
    for layer in _PROVES.get(row.label, ()):
        proofs = [proof for proof in report.proofs if proof.layer is layer]
        if proofs:
            worst = min((proof.outcome for proof in proofs), key=WORST_FIRST.index)
            words = "proven" if worst is ProofOutcome.PASSED else worst.value
            shown.append(_mark(OF_OUTCOME[worst], f"{LAYER_NAMES[layer]} {words}{_share(proofs, worst)}"))
    return f'<span class="proof">{" ".join(shown)}</span>' if shown else ""


def _share(proofs: Sequence[Proof], outcome: ProofOutcome) -> str:
    """On how many of the GPUs it was so; empty where on all."""
    gpus, alike = {proof.gpu for proof in proofs}, {proof.gpu for proof in proofs if proof.outcome is outcome}
    return f" on {len(alike)} of {len(gpus)} GPUs" if len(alike) < len(gpus) else ""


# Findings


def _findings(report: Report) -> Iterator[str]:
    branches = outline(report.findings)
    elsewhere = host_is_elsewhere(report)
    notes = [branch for branch in branches if branch.finding.severity is Severity.NOTE]
    for number, branch in enumerate(branch for branch in branches if branch.finding.severity is not Severity.NOTE):
        yield _finding(branch, number, elsewhere)
    if notes:
        count = "1 note, nothing to fix" if len(notes) == 1 else f"{len(notes)} notes, nothing to fix"
        yield _folded(count, [_finding(branch, 1000 + number, elsewhere) for number, branch in enumerate(notes)])
    if not branches:
        yield '<p class="prose">Nothing.</p>'


def _finding(branch: Branch, number: int, elsewhere: bool) -> str:
    finding = branch.finding
    sure = "" if finding.confidence is Confidence.CERTAIN else f" ({finding.confidence.value})"
    title = f"{_mark(OF_SEVERITY[finding.severity], f'{finding.severity.value} {finding.code}')} {element('code', finding.name)}"
    parts = [
        f"<h3>{title} {text(finding.subject + sure)}</h3>",
        element("p", " ".join(f"{finding.what} {finding.why}".split()), "prose", inert.PROSE_LIMIT),
        *(_fix("Fix" if place_ == 0 else "Or", fix, elsewhere) for place_, fix in enumerate(finding.fixes)),
        _consequences(branch.consequences),
        _basis(finding),
    ]
    body = "\n".join(part for part in parts if part)
    kind = _KINDS[OF_SEVERITY[finding.severity]]
    return f'<article class="finding {kind}" aria-label="finding {number + 1}">\n{body}\n</article>'


def _fix(label: str, fix: Fix, elsewhere: bool) -> str:
    where = place(fix, elsewhere)
    checked = " Re-checked: with this done, the same rules find no error here." if fix.rechecked else ""
    title = f"{fix.title.rstrip('.:')}{f' ({where})' if where else ''}.{checked}"
    commands = _commands(fix.commands) if fix.commands else ""
    verify = f"<p>Then check:</p>{_commands(fix.verify)}" if fix.verify else ""
    return f'<div class="fix"><p><strong>{label}</strong> {text(title, inert.PROSE_LIMIT)}</p>{commands}{verify}</div>'


def _commands(commands: Sequence[str]) -> str:
    shown = "\n".join(text(inert.command(command), inert.COMMAND_LIMIT + 100) for command in commands)
    return (
        f'<div class="command"><pre>{shown}</pre>'
        '<button type="button" data-copy hidden aria-label="Copy the command">Copy</button></div>'
    )


def _consequences(branches: Sequence[Branch]) -> str:
    if not branches:
        return ""
    items = "\n".join(
        f"<li>{_mark(OF_SEVERITY[b.finding.severity], b.finding.code)} {element('code', b.finding.name)} "
        f"{text(f'{b.finding.subject}: {b.finding.what}', inert.PROSE_LIMIT)}{_consequences(b.consequences)}</li>"
        for b in branches
    )
    return f"<p>It explains:</p>\n<ul>{items}</ul>"


def _basis(finding: Finding) -> str:
    """The evidence and the references, folded."""
    rows = [
        (element("td", item.fact), element("td", item.value), element("td", item.source + _line(item.line)))
        for item in finding.evidence
    ]
    evidence = [f'<div class="scroll">{table(("Fact", "Value", "Read from"), rows)}</div>'] if rows else []
    links = [f"<li>{_reference(reference)}</li>" for reference in finding.references]
    if not evidence and not links:
        return ""
    return _folded("Evidence", [*evidence, *([f"<ul>{''.join(links)}</ul>"] if links else [])])


def _line(line: int | None) -> str:
    return "" if line is None else f", line {line}"


def _reference(reference: str) -> str:
    """A link where it is plainly one, else text."""
    shown = text(reference)
    return f'<a href="{shown}" rel="noreferrer noopener">{shown}</a>' if _URL.fullmatch(reference) else shown


def _folded(title: str, parts: Sequence[str]) -> str:
    return f"<details><summary>{text(title)}</summary>\n{chr(10).join(parts)}\n</details>"


# Proofs and what is unknown


def _proofs(report: Report) -> Iterator[str]:
    rows = [
        (
            element("td", f"{row.layer} {row.gpus}".strip()),
            _cell(row.gemm),
            _cell(row.attention),
            element("td", row.note),
        )
        for row in proof_rows(report.proofs, report.findings)
    ]
    if rows:
        yield f'<div class="scroll">{table(("Layer", "GEMM", "attention", "Remarks"), rows)}</div>'
    yield from rooflines(report)


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    return f"<td>{_mark(cell.mark, ', '.join(part for part in (cell.words, cell.rate) if part))}</td>"


def _unknown(report: Report) -> Iterator[str]:
    reasons = unknown_by_reason(report.unknown)
    for because, rules in reasons.items():
        names = ", ".join(f"{rule.code} {rule.name}" for rule in rules)
        yield f"<p>{_mark(Mark.UNKNOWN, because or 'no reason was given')}</p>\n{element('p', names, 'about', inert.PROSE_LIMIT)}"
