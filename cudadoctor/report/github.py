"""Workflow commands that GitHub Actions turns into annotations: `::error file=Dockerfile,line=3,title=...::...`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import inert
from cudadoctor.report.locations import judged_file, location
from cudadoctor.report.options import Charset, RenderOptions
from cudadoctor.report.outline import Branch, outline
from cudadoctor.report.places import host_is_elsewhere
from cudadoctor.report.plain_findings import consequence_lines, fix_lines, sentences, title

COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_DATA = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"})


def render(report: Report, options: RenderOptions) -> str:
    """One line a finding with what it explains, the worst first, since GitHub shows ten of a kind; and one for the verdict."""
    ranked = sorted(((_worst(branch), branch) for branch in outline(report.findings)), key=lambda each: each[0].rank)
    lines = [_annotation(severity, branch, report, options) for severity, branch in ranked]
    first_note = sum(severity is not Severity.NOTE for severity, _ in ranked)
    lines.insert(0 if report.verdict is Verdict.UNDETERMINED else first_note, _verdict(report, options.charset))
    return "".join(f"{line}\n" for line in lines)


def _worst(branch: Branch) -> Severity:
    """The severity of the finding or of something that it explains."""
    severities = [branch.finding.severity, *(_worst(consequence) for consequence in branch.consequences)]
    return min(severities, key=lambda severity: severity.rank)


def _annotation(severity: Severity, branch: Branch, report: Report, options: RenderOptions) -> str:
    finding, charset = branch.finding, options.charset
    fixes = fix_lines(finding, charset, host_is_elsewhere(report))
    message = "\n".join([sentences(finding, charset), *fixes, *consequence_lines(branch, charset)])
    place = location(finding, judged_file(report, options.judged))
    properties: dict[str, str] = {}
    if place is not None:
        properties["file"] = inert.value(place.path, charset)
        if place.lines:
            properties["line"] = str(place.lines[0])
    return _command(COMMANDS[severity], {**properties, "title": title(finding, charset)}, message)


def _verdict(report: Report, charset: Charset) -> str:
    """The sentence of the report; a verdict that is open warns, so that nobody takes silence for health."""
    command = "warning" if report.verdict is Verdict.UNDETERMINED else "notice"
    lines = [inert.prose(report.summary, charset), *_open_questions(report, charset)]
    return _command(command, {"title": f"cudadoctor: {report.verdict.value}"}, "\n".join(lines))


def _open_questions(report: Report, charset: Charset) -> Iterator[str]:
    if report.verdict is Verdict.UNDETERMINED:
        reasons = dict.fromkeys(rule.because for rule in report.unknown)
        yield from (f"Not determined: {inert.value(reason, charset)}" for reason in reasons)


def _command(name: str, properties: Mapping[str, str], message: str) -> str:
    """A workflow command; in properties a colon and a comma are escaped too."""
    shown = ",".join(f"{key}={value.translate(_PROPERTY)}" for key, value in properties.items())
    return f"::{name} {shown}::{message.translate(_DATA)}"
