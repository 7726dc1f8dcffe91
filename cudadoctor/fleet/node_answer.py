"""What one node answered to `check`: the report in its output, or why there is none."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NamedTuple

from cudadoctor.fleet.node_report import read_node_report
from cudadoctor.model.codec import DocumentError
from cudadoctor.model.report import made_at

_REPORT_START = re.compile(r'\{\s{0,8}"schema"\s{0,4}:\s{0,4}"cudadoctor\.report/')
_EXITED = re.compile(r"^srun: error: .*: task \d+: Exited with exit code \d+$")
"""Hides the line before it, which says why."""
_SHOWN = 200


@dataclass(frozen=True)
class Answer:
    """A node's report as its text, empty where it gave none; then `because` says why, and `output` is what it printed instead."""

    node: str
    report: str = ""
    because: str = ""
    output: str = ""


def answer_of(node: str, stdout: str, stderr: str, ending: str) -> Answer:
    """The answer in a program's output; `ending` says how the program ended, where it did not end well.

    What else stands on standard output, such as a banner of the login shell, is dropped; a report that is cut short, or that of
    another node, is none. Of several reports the newest counts.
    """
    reports, faults = _reports(node, stdout)
    if reports:
        return Answer(node, max(reports, key=lambda report: (report.made, report.start)).text)
    if faults:
        return Answer(node, because=f"{ending}; {faults[-1]}" if ending else faults[-1], output=stdout + stderr)
    said = _last_line(stderr) or _last_line(stdout)
    because = ": ".join(part for part in (ending or "printed no report", said) if part)
    return Answer(node, because=because, output=stdout + stderr)


class _Report(NamedTuple):
    text: str
    start: int
    made: float


def _reports(node: str, stdout: str) -> tuple[list[_Report], list[str]]:
    """The reports of the node in a text, and what is wrong with what looks like one."""
    reports, faults = [], []
    for match in _REPORT_START.finditer(stdout):
        start = match.start()
        try:
            _, end = json.JSONDecoder().raw_decode(stdout, start)
            report = read_node_report(stdout[start:end])
        except (ValueError, RecursionError) as error:
            faults.append(str(error) if isinstance(error, DocumentError) else "its report is cut short or damaged")
            continue
        if report.node in (None, node):
            reports.append(_Report(stdout[start:end], start, made_at(report.created) or 0.0))
        else:
            faults.append(f"its report says that it is of {report.node!r}")
    return reports, faults


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _EXITED.search(line)]
    return lines[-1][:_SHOWN] if lines else ""
