"""SARIF 2.1.0: findings as results, with the rules' documentation, at the lines of the Dockerfile or of the text judged."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import inert
from cudadoctor.report.locations import Location, judged_file, location
from cudadoctor.report.options import Charset, RenderOptions
from cudadoctor.report.outline import merged
from cudadoctor.report.places import host_is_elsewhere
from cudadoctor.report.plain_findings import evidence_lines, explained_by, fix_lines, sentences
from cudadoctor.rules.engine import Rule
from cudadoctor.rules.registry import RULES

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
ROOT = "%SRCROOT%"
"""The name that CI services give the checkout."""
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
UNDETERMINED = "undetermined"
"""Id of the result that stands for an open verdict, so that an empty list always means health."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
_PLACEHOLDER = re.compile(r"\{(\d+)\}", re.ASCII)

Json = dict[str, Any]


def render(report: Report, options: RenderOptions) -> str:
    """One run; findings that differ only in the GPU are one result. Width, colour and amount play no part."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(report, options)]}
    return json.dumps(log, indent=2, ensure_ascii=options.charset is Charset.ASCII) + "\n"


def _run(report: Report, options: RenderOptions) -> Json:
    charset = options.charset
    descriptors = _descriptors(report, charset)
    index = {descriptor["id"]: number for number, descriptor in enumerate(descriptors)}
    results = [_result(finding, report, options, index[finding.code]) for finding in merged(report.findings)]
    if report.verdict is Verdict.UNDETERMINED:
        results.append(_undetermined(report, options, index[UNDETERMINED]))
    driver = {"name": "cudadoctor", "version": inert.value(report.tool.version, charset) or "unknown", "rules": descriptors}
    return {
        "tool": {"driver": driver},
        "invocations": [_invocation(report, index, charset)],
        "columnKind": "utf16CodeUnits",
        "results": results,
        "properties": {"verdict": report.verdict.value, "summary": inert.prose(report.summary, charset)},
    }


def _invocation(report: Report, index: Mapping[str, int], charset: Charset) -> Json:
    """How the judgement went: what could not be judged is no result, but must not be passed over."""
    time = {"endTimeUtc": report.created} if _TIME.fullmatch(report.created) else {}
    notices = [
        {
            "level": "note",
            "message": message(f"Not judged: {inert.value(rule.because, charset) or 'no reason was given'}"),
            "associatedRule": {"id": rule.code, "index": index[rule.code]},
        }
        for rule in report.unknown
    ]
    return {"executionSuccessful": True, **time, "toolExecutionNotifications": notices}


# Rules


def _descriptors(report: Report, charset: Charset) -> list[Json]:
    """The rules that the run speaks of, each once, in the order of their codes."""
    known = {rule.code: rule for rule in RULES}
    spoken = {rule.code: rule.name for rule in report.unknown} | {finding.code: finding.name for finding in report.findings}
    rules = [_descriptor(known[code]) if code in known else _stand_in(code, spoken[code], charset) for code in sorted(spoken)]
    return [*rules, *([_undetermined_rule()] if report.verdict is Verdict.UNDETERMINED else [])]


def _descriptor(rule: Rule) -> Json:
    """A rule as `explain` shows it."""
    help_text = inspect.cleandoc(rule.check.__doc__ or rule.summary)
    return {
        "id": rule.code,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": " ".join(help_text.partition("\n\n")[0].split())},
        "help": {"text": help_text},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": ["cuda"], "problem.severity": _problem_severity(rule.severity)},
    }


def _stand_in(code: str, name: str, charset: Charset) -> Json:
    """A rule of another release, of which only the name is known."""
    name = inert.value(name, charset, inert.CELL_LIMIT) or code
    return {"id": code, "name": name, "shortDescription": {"text": name}, "help": {"text": name}}


def _undetermined_rule() -> Json:
    text = "No problem was found, but something essential could not be determined: the machine may or may not work."
    return {
        "id": UNDETERMINED,
        "name": UNDETERMINED,
        "shortDescription": {"text": text},
        "help": {"text": text},
        "defaultConfiguration": {"level": "warning"},
    }


def _problem_severity(severity: Severity) -> str:
    """The words that GitHub code scanning has for it."""
    return "recommendation" if severity is Severity.NOTE else severity.value


# Results


def _result(finding: Finding, report: Report, options: RenderOptions, rule_index: int) -> Json:
    charset = options.charset
    place = location(finding, judged_file(report, options.judged))
    parts = [
        f"{inert.value(finding.subject, charset, inert.CELL_LIMIT)}: {sentences(finding, charset)}",
        explained_by(finding, report.findings),
        *fix_lines(finding, charset, host_is_elsewhere(report)),
        *evidence_lines(finding, charset),
    ]
    return {
        "ruleId": finding.code,
        "ruleIndex": rule_index,
        "level": LEVELS[finding.severity],
        "message": message("\n".join(part for part in parts if part)),
        **_places(place, finding.subject, charset),
        "partialFingerprints": {"cudadoctor/v1": _fingerprint(finding, place)},
        "properties": {
            "name": inert.value(finding.name, charset, inert.CELL_LIMIT),
            "confidence": finding.confidence.value,
            "root": finding.root,
        },
    }


def _undetermined(report: Report, options: RenderOptions, rule_index: int) -> Json:
    file = judged_file(report, options.judged)
    place = Location(file.path) if file is not None and file.path else None
    return {
        "ruleId": UNDETERMINED,
        "ruleIndex": rule_index,
        "level": "warning",
        "message": message(inert.prose(report.summary, options.charset) or UNDETERMINED),
        **_places(place, "verdict", options.charset),
    }


def _places(place: Location | None, subject: str, charset: Charset) -> Json:
    """The first line as the location, the others as related ones; a machine has only a name."""
    name = {"name": inert.value(subject, charset, inert.CELL_LIMIT) or "machine", "kind": "resource"}
    if place is None:
        return {"locations": [{"logicalLocations": [name]}]}
    physical = list(_physical(place))
    related = [{"physicalLocation": each} for each in physical[1:]]
    first = {"physicalLocation": physical[0], "logicalLocations": [name]}
    return {"locations": [first], **({"relatedLocations": related} if related else {})}


def _physical(place: Location) -> Iterator[Json]:
    uri = quote(place.path.encode("utf-8", "surrogatepass"), safe="/~")
    artifact = {"artifactLocation": {"uri": uri, "uriBaseId": ROOT}}
    lines: Sequence[int | None] = place.lines or (None,)
    for line in lines:
        yield {**artifact, "region": {"startLine": line}} if line is not None else artifact


def _fingerprint(finding: Finding, place: Location | None) -> str:
    """The same for the same problem in the next run, also where lines have moved."""
    parts = (finding.name, finding.subject, place.path if place is not None else "")
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def message(text: str) -> Json:
    """A plain message in which nothing is read as a link or as a placeholder (sections 3.11.5 and 3.11.6 of the standard)."""
    return {"text": _PLACEHOLDER.sub(r"{{\1}}", text).replace("](", "\\](")}
