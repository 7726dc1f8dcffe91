"""JUnit XML: findings, open questions and proofs as test cases, in the form that Ant's and Jenkins's schemas share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from xml.etree import ElementTree

from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import inert
from cudadoctor.report.options import Charset, RenderOptions
from cudadoctor.report.places import host_is_elsewhere
from cudadoctor.report.plain_findings import evidence_lines, explained_by, fix_lines, sentences, title
from cudadoctor.report.proof_table import proof_reason

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", re.ASCII)
NO_TIME = "1970-01-01T00:00:00"


class Ending(Enum):
    """How a test case ended; the value names its element and the count in the suite."""

    PASSED = ("", "")
    FAILED = ("failure", "failures")
    ERRED = ("error", "errors")
    SKIPPED = ("skipped", "skipped")


@dataclass(frozen=True, slots=True)
class TestCase:
    """One test case of inert texts; `details` is what a person reads of a failure."""

    group: str
    name: str
    ending: Ending = Ending.PASSED
    message: str = ""
    kind: str = ""
    details: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Suite:
    """Test cases, what is said beside them, and how long they took in all."""

    name: str
    cases: Sequence[TestCase]
    seconds: float
    said: str = ""


def render(report: Report, options: RenderOptions) -> str:
    """Errors as failures, what could not be judged as skipped, an open verdict as an error; width and colour play no part."""
    charset = options.charset
    findings = [*_verdict(report, charset), *(_finding(finding, report, charset) for finding in report.findings)]
    unknown = [_unknown(rule.code, rule.name, rule.because, charset) for rule in report.unknown]
    proofs = [_proof(proof, charset) for proof in report.proofs]
    suites = (
        Suite("cudadoctor.findings", findings, report.seconds or 0.0, "\n\n".join(_harmless(report, charset))),
        Suite("cudadoctor.unknown", unknown, 0.0),
        Suite("cudadoctor.proofs", proofs, sum(case.seconds for case in proofs)),
    )
    root = ElementTree.Element("testsuites")
    root.extend(_suite(number, suite, report, charset) for number, suite in enumerate(suites))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def _verdict(report: Report, charset: Charset) -> Iterator[TestCase]:
    """The verdict, unless findings say it: nothing that a report lists tells a sound machine from one that never answered."""
    if report.verdict is Verdict.PROBLEMS:
        return
    ending = Ending.PASSED if report.verdict is Verdict.HEALTHY else Ending.ERRED
    summary = inert.prose(report.summary, charset)
    yield TestCase("cudadoctor.verdict", report.verdict.value, ending, summary, report.verdict.value)


def _finding(finding: Finding, report: Report, charset: Charset) -> TestCase:
    name = title(finding, charset)
    if finding.severity is not Severity.ERROR:
        return TestCase(f"cudadoctor.{finding.severity.value}", name)
    return TestCase(
        "cudadoctor.error",
        name,
        Ending.FAILED,
        inert.prose(finding.what, charset),
        inert.value(finding.name, charset, inert.CELL_LIMIT),
        "\n".join(_details(finding, report, charset)),
    )


def _details(finding: Finding, report: Report, charset: Charset) -> Iterator[str]:
    yield sentences(finding, charset)
    cause = explained_by(finding, report.findings)
    yield from (cause,) if cause else ()
    yield from fix_lines(finding, charset, host_is_elsewhere(report))
    yield from evidence_lines(finding, charset)


def _harmless(report: Report, charset: Charset) -> Iterator[str]:
    """Warnings and notes, which are no failures; the schema has room for their text in the suite only."""
    for finding in report.findings:
        if finding.severity is not Severity.ERROR:
            lines = [f"{finding.severity.value} {title(finding, charset)}", *_details(finding, report, charset)]
            yield "\n".join(lines)


def _unknown(code: str, name: str, because: str, charset: Charset) -> TestCase:
    shown = f"{code} {inert.value(name, charset, inert.CELL_LIMIT)}"
    reason = inert.value(because, charset) or "no reason was given"
    return TestCase("cudadoctor.unknown", shown, Ending.SKIPPED, f"could not be judged: {reason}")


_OF_PROOF = {
    ProofOutcome.PASSED: Ending.PASSED,
    ProofOutcome.FAILED: Ending.FAILED,
    ProofOutcome.SKIPPED: Ending.SKIPPED,
    ProofOutcome.UNKNOWN: Ending.SKIPPED,
}


def _proof(proof: Proof, charset: Charset) -> TestCase:
    gpu = f"GPU {proof.gpu}" if proof.gpu is not None else ""
    peer = f"to GPU {proof.peer}" if proof.peer is not None else ""
    parts = (gpu, peer, proof.kernel, proof.target or "", f"({proof.compiler})" if proof.compiler else "")
    reason = inert.prose(proof_reason(proof), charset) or "no reason was given"
    return TestCase(
        f"cudadoctor.proofs.{proof.layer.value}",
        inert.value(" ".join(part for part in parts if part), charset, inert.CELL_LIMIT) or "all",
        _OF_PROOF[proof.outcome],
        f"{proof.outcome.value}: {reason}",
        inert.value(proof.error.name, charset) if proof.error is not None else proof.outcome.value,
        seconds=(proof.run_ms or 0.0) / 1000,
    )


# Elements


def _suite(number: int, suite: Suite, report: Report, charset: Charset) -> ElementTree.Element:
    time = _TIME.match(report.created)
    attributes = {
        "name": suite.name,
        "package": suite.name,
        "id": str(number),
        "timestamp": time[0] if time is not None else NO_TIME,
        "hostname": inert.value(report.node or "", charset, inert.CELL_LIMIT) or "localhost",
        "time": f"{suite.seconds:.3f}",
        "tests": str(len(suite.cases)),
        **{ending.value[1]: str(_count(suite.cases, ending)) for ending in Ending if ending.value[1]},
    }
    element = ElementTree.Element("testsuite", attributes)
    properties = ElementTree.SubElement(element, "properties")
    for name, value in _properties(report) if number == 0 else ():
        ElementTree.SubElement(properties, "property", {"name": name, "value": inert.prose(value, charset)})
    element.extend(_case(case) for case in suite.cases)
    ElementTree.SubElement(element, "system-out").text = suite.said
    ElementTree.SubElement(element, "system-err").text = ""
    return element


def _count(cases: Iterable[TestCase], ending: Ending) -> int:
    return sum(case.ending is ending for case in cases)


def _properties(report: Report) -> Iterator[tuple[str, str]]:
    yield "cudadoctor.version", report.tool.version
    yield "cudadoctor.verdict", report.verdict.value
    yield "cudadoctor.summary", report.summary


def _case(case: TestCase) -> ElementTree.Element:
    attributes = {"classname": case.group, "name": case.name, "time": f"{case.seconds:.6f}"}
    element = ElementTree.Element("testcase", attributes)
    if case.ending is not Ending.PASSED:
        kind = {"type": case.kind} if case.ending is not Ending.SKIPPED else {}
        ElementTree.SubElement(element, case.ending.value[0], {**kind, "message": case.message}).text = case.details
    return element
