"""What one node answered to `check`: the report in its output, or why there is none."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from cudadoctor.fleet.node_report import NodeReport, read_node_report
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

    What else stands on standard output, such as a banner of the login shell, is dropped; of several reports the newest counts. A
    report that is cut short is none, nor is that of another node: a summary would take it for that node's.
    """
    reports, damage = _reports_in(stdout)
    own = [text for read, text in sorted(reports, key=lambda pair: made_at(pair[0].created) or 0.0) if read.node in (None, node)]
    if own:
        return Answer(node, own[-1])
    if reports:
        damage = f"its report is of the node {reports[0][0].node!r}"[:_SHOWN]
    said = "" if damage else _last_line(stderr) or _last_line(stdout)
    because = ": ".join(part for part in (ending or ("" if damage else "printed no report"), damage or said) if part)
    return Answer(node, because=because, output=stdout + stderr)


def _reports_in(stdout: str) -> tuple[list[tuple[NodeReport, str]], str]:
    """Each whole report with its text, and what is wrong with the last that is not whole."""
    reports, damage = [], ""
    for start in _REPORT_START.finditer(stdout):
        text = _document_at(stdout, start.start())
        try:
            reports.append((read_node_report(text), text))
        except DocumentError as error:  # of mostly one
            damage = str(error) if text else "its report is cut short or damaged"
    return reports, damage


def _document_at(stdout: str, start: int) -> str:
    """The JSON that begins there; empty where it does not end."""
    try:
        _, end = json.JSONDecoder().raw_decode(stdout, start)
    except (ValueError, RecursionError):
        return ""
    return stdout[start:end]


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _EXITED.search(line)]
    return lines[-1][:_SHOWN] if lines else ""
