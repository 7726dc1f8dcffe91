"""What one node answered to `check`: the report in its output, or why there is none."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from cudadoctor.fleet.node_report import read_node_report
from cudadoctor.model.codec import DocumentError

_REPORT_START = re.compile(r'\{\s{0,8}"schema"\s{0,4}:\s{0,4}"cudadoctor\.report/')
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

    What else stands on standard output, such as a banner of the login shell, is dropped; a report that is cut short is none.
    """
    start = _REPORT_START.search(stdout)
    if start is None:
        said = _last_line(stderr) or _last_line(stdout)
        because = ": ".join(part for part in (ending or "printed no report", said) if part)
        return Answer(node, because=because, output=stdout + stderr)
    try:
        _, end = json.JSONDecoder().raw_decode(stdout, start.start())
        report = stdout[start.start() : end]
        read_node_report(report)
    except (ValueError, RecursionError, DocumentError) as error:
        words = str(error) if isinstance(error, DocumentError) else "its report is cut short or damaged"
        return Answer(node, because=f"{ending}; {words}" if ending else words, output=stdout + stderr)
    return Answer(node, report)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:_SHOWN] if lines else ""
