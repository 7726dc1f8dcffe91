"""`compare`: what differs between machines, and matters."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cudadoctor.commands.output import OutputError, OutputOptions, render_options, write
from cudadoctor.commands.reading import InputError, read_input
from cudadoctor.compare.comparing import Judged, compare
from cudadoctor.compare.comparison import CompareReport, Machine
from cudadoctor.diagnosis import diagnose
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model import codec
from cudadoctor.model.redact import redact
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.readers.paste import MAX_PASTE_BYTES, Paste, PasteError, read_paste
from cudadoctor.rules.engine import UNDECIDED
from cudadoctor.saying import say


@dataclass(frozen=True)
class CompareOptions:
    """What the command line asked for: the reference, and the others."""

    paths: tuple[str, ...]
    output: OutputOptions = field(default_factory=OutputOptions)


def run(options: CompareOptions) -> ExitCode:
    """Read, judge, compare, print."""
    try:
        matrices = Matrices.load()
        reference, *others = (read_machine(path, matrices) for path in _checked(options.paths))
        report = compare(reference, others, matrices)
        write(_rendered(report, options.output), options.output.path)
    except (InputError, PasteError, OutputError) as error:
        say(str(error))
        return ExitCode.USAGE
    return ExitCode.PROBLEMS if any(each.matters for each in report.comparisons) else ExitCode.OK


def _checked(paths: tuple[str, ...]) -> tuple[str, ...]:
    if len(paths) < 2:
        raise InputError("name two machines or more: reports, snapshots or pasted texts")
    if paths.count("-") > 1:
        raise InputError("only one of them can come from standard input")
    return paths


def _rendered(report: CompareReport, output: OutputOptions) -> str:
    if output.format == "json":
        from cudadoctor.report.compare_json import render as as_json

        return as_json(report)
    from cudadoctor.report.compare_text import render

    return render(report, render_options(output))


def read_machine(path: str, matrices: Matrices) -> Judged:
    """The machine of a file (`-`: standard input), judged and redacted; raises InputError or PasteError."""
    data = _read(path)
    try:
        paste, kind = _understood(data)
    except PasteError as error:
        raise PasteError(f"{path}: {error}") from error
    if paste.snapshot == Snapshot():
        raise InputError(f"{path}: nothing in it is known to cudadoctor")
    diagnosis = diagnose(paste.snapshot, paste.proofs, matrices, node=paste.node)
    report = redact(diagnosis.report)
    name = report.node or ("standard input" if path == "-" else path)
    return Judged(
        Machine(name=name, kind=kind, verdict=report.verdict, summary=report.summary),
        report,
        frozenset(result.rule.code for result in diagnosis.results.outcomes if result.outcome not in UNDECIDED),
        is_partial=kind == "text",
    )


def _read(path: str) -> bytes:
    if Path(path).is_dir():
        raise InputError(f"{path} is a folder; `cudadoctor fleet summary` reads folders")
    return read_input(path, MAX_PASTE_BYTES, "a report or a text")


def _understood(data: bytes) -> tuple[Paste, str]:
    """What the data says, and what it is: a report (also one within a ticket), a bare snapshot, or any text."""
    if data.lstrip()[:1] == b"{":
        try:
            report = codec.from_json(data, Report)
        except codec.DocumentError:
            return _snapshot_or_text(data)
        return Paste(snapshot=report.snapshot, proofs=report.proofs, node=report.node), "report"
    paste = read_paste(data)
    return paste, "text" if paste.snapshot.readings or paste.snapshot.errors else "report"


def _snapshot_or_text(data: bytes) -> tuple[Paste, str]:
    try:
        snapshot = codec.from_json(data, Snapshot)
    except codec.DocumentError:
        snapshot = Snapshot()
    if snapshot != Snapshot():
        return Paste(snapshot=snapshot), "snapshot"
    return read_paste(data), "text"
