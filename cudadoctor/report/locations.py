"""Where in a file a finding is to be shown: the line of the Dockerfile or of the pasted text that it rests on."""

from __future__ import annotations

from dataclasses import dataclass

from cudadoctor.model.finding import Finding
from cudadoctor.model.report import Report
from cudadoctor.report import inert
from cudadoctor.report.options import JudgedFile

DOCKERFILE_READING = "dockerfile"


@dataclass(frozen=True, slots=True)
class Location:
    """A file, and the lines of it, counted from 1, most telling first; no line where the file as a whole is meant."""

    path: str
    lines: tuple[int, ...] = ()


def location(finding: Finding, file: JudgedFile | None) -> Location | None:
    """The place of a finding; None where no file was judged, but a machine."""
    if file is None or not file.path:
        return None
    lines = (item.line for item in finding.evidence if item.line is not None and file.source in ("", item.source))
    return Location(file.path, tuple(dict.fromkeys(line for line in lines if line > 0)))


def judged_file(report: Report, given: JudgedFile | None) -> JudgedFile | None:
    """The file as the command names it, else the Dockerfile that the report says it is about."""
    if given is not None:
        return given
    for reading in report.snapshot.readings:
        name = reading.values.get("file")
        if reading.kind == DOCKERFILE_READING and isinstance(name, str):
            return JudgedFile(inert.value(name), name)
    return None
