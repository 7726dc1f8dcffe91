"""`triage`: diagnose pasted text offline. Nothing that the text names is opened, run or fetched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec import structs

from cudadoctor import plugins
from cudadoctor.commands.output import OutputError, OutputOptions, emit, exit_code, judged_file
from cudadoctor.commands.reading import InputError, open_input, read_input
from cudadoctor.diagnosis import Diagnosis, Selection, SelectionError, diagnose
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model import codec
from cudadoctor.model.fact import Known
from cudadoctor.model.proof import Proof
from cudadoctor.model.redact import redact
from cudadoctor.model.report import Verdict
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.plugins import NO_WORD, PluginWord
from cudadoctor.readers.paste import MAX_PASTE_BYTES, PasteError, read_paste
from cudadoctor.rules.engine import RuleSet
from cudadoctor.rules.registry import RULES
from cudadoctor.saying import say

MAX_LINE_BYTES = 4 * MAX_PASTE_BYTES
"""Longest line of a dump of tickets: a paste with every character escaped."""
MAX_DROPPED = 16


BAD_LINES_SHOWN = 5
"""Of a dump whose lines are no tickets, how many are told one by one."""
ASK_FOR = "What `cudadoctor report` prints on the machine answers most questions at once."


@dataclass(frozen=True)
class TriageOptions:
    """What the command line asked for."""

    path: Path
    output: OutputOptions = field(default_factory=OutputOptions)
    selection: Selection = field(default_factory=Selection)


class Ticket(msgspec.Struct, frozen=True):
    """One line of a dump."""

    id: str
    text: str


def run(options: TriageOptions) -> ExitCode:
    """Diagnose one pasted text."""
    try:
        if not plugins.installed():  # their names are known only when they are asked
            options.selection.rules()
        diagnosis = diagnose_text(_pasted(options.path), Matrices.load(), selection=options.selection, ask=plugins.ask_plugins)
        file = judged_file(options.path) if str(options.path) != "-" else None
        emit(redact(diagnosis.report), replace(options.output, judged=file))
    except (InputError, PasteError, SelectionError, OutputError) as error:
        return _refused(str(error))
    return exit_code(diagnosis.report, options.output.fail_on, diagnosis.crashes)


def _pasted(path: Path) -> bytes:
    data = read_input(path, MAX_PASTE_BYTES, "one text; give the part around the error")
    if not data.strip():
        raise InputError("there is nothing to diagnose: the text is empty")
    return data


def _refused(message: str) -> ExitCode:
    say(message)
    return ExitCode.USAGE


def diagnose_text(
    data: bytes | str,
    matrices: Matrices,
    rules: RuleSet = RULES,
    *,
    selection: Selection | None = None,
    ask: Callable[[Snapshot, tuple[Proof, ...]], PluginWord] = lambda *_: NO_WORD,
) -> Diagnosis:
    """The diagnosis of one pasted text; raises PasteError where it is no text or too large. `ask` asks plugins what they say."""
    paste = read_paste(data)
    diagnosis = diagnose(
        paste.snapshot,
        paste.proofs,
        matrices,
        node=paste.node,
        rules=rules,
        selection=selection,
        plugins=ask(paste.snapshot, paste.proofs),
    )
    if diagnosis.report.verdict is not Verdict.UNDETERMINED or diagnosis.report.findings:
        return diagnosis
    return replace(diagnosis, report=structs.replace(diagnosis.report, summary=what_would_help(paste.snapshot)))


def what_would_help(snapshot: Snapshot) -> str:
    """What a text lacks from which nothing could be concluded, and the command that prints it."""
    if not (snapshot.errors or snapshot.readings):
        return "Nothing in this text is known to cudadoctor. " + ASK_FOR
    machine_known = isinstance(snapshot.gpus, Known) and isinstance(snapshot.driver.driver_release, Known)
    wanted = (
        ("the error itself, with the lines around it", bool(snapshot.errors)),
        ("the GPU and the driver (nvidia-smi)", machine_known),
        ("torch and its build (python -m torch.utils.collect_env)", isinstance(snapshot.python.torch, Known)),
    )
    missing = ", ".join(what for what, is_there in wanted if not is_there)
    return "No problem can be seen in this text. " + (f"Not in it: {missing}." if missing else ASK_FOR)


def run_dump(options: TriageOptions) -> ExitCode:
    """Diagnose a dump of tickets, one JSON result a line as it goes; a bad line is reported on standard error and skipped."""
    if options.output.format not in ("text", "json"):
        return _refused(f"--jsonl writes one JSON result a line; it has no format {options.output.format}")
    matrices, bad, count = Matrices.load(), 0, 0
    try:
        rules = options.selection.rules()
        with open_input(options.path) as stream, _destination(options.output.path) as results:
            for number, line in enumerate(_lines(stream), 1):
                if not line.strip():
                    continue
                count += 1
                try:
                    result = result_line(line, matrices, rules)
                except (PasteError, codec.DocumentError) as error:
                    bad += 1
                    if bad <= BAD_LINES_SHOWN:
                        say(f"line {number} skipped: {error}")
                    continue
                _put(results, result)
    except OSError as error:
        return _refused(f"cannot read {options.path}: {error.strerror or error}")
    except (InputError, OutputError, SelectionError) as error:
        return _refused(str(error))
    if bad > BAD_LINES_SHOWN:
        say(f"{bad} of {count} lines skipped, of which {BAD_LINES_SHOWN} are shown above")
    return ExitCode.USAGE if bad and bad == count else ExitCode.OK


def _destination(path: Path | None) -> FileIO:
    """Where results go, without a buffer that would be written once more at the end; raises OutputError."""
    try:
        return FileIO(path, "w") if path is not None else FileIO(1, "w", closefd=False)
    except OSError as error:
        raise OutputError(f"cannot write {path or 'to standard output'}: {error.strerror or error}") from error


def _put(results: FileIO, line: bytes) -> None:
    """Write one result at once, so that whoever reads along has it; raises OutputError."""
    try:
        rest = memoryview(line + b"\n")
        while rest:
            rest = rest[results.write(rest) :]
    except BrokenPipeError:
        raise SystemExit(ExitCode.OK) from None  # whoever read the results has enough
    except OSError as error:
        raise OutputError(f"cannot write the results: {error.strerror or error}") from error


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines of bounded length; of a longer one the rest is dropped, so that it is reported as a bad line.

    Raises InputError where MAX_DROPPED such lengths hold no end of the line: such a stream is no dump.
    """
    while line := stream.readline(MAX_LINE_BYTES):
        whole, dropped = line, 0
        while not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES and (line := stream.readline(MAX_LINE_BYTES)):
            whole, dropped = b"{", dropped + 1
            if dropped == MAX_DROPPED:
                raise InputError(f"a line is longer than {MAX_DROPPED * MAX_LINE_BYTES // 2**20} MiB: this is no dump of tickets")
        yield whole


def result_line(line: bytes, matrices: Matrices, rules: RuleSet = RULES) -> bytes:
    """The redacted report, as one line of JSON, on one line of a dump; raises DocumentError or PasteError where it is none."""
    ticket = codec.from_json(line, Ticket)
    report: dict[str, Any] = codec.to_builtins(redact(diagnose_text(ticket.text, matrices, rules).report))
    return msgspec.json.encode({"id": ticket.id, **report})
