"""Where a report goes and which exit code it gives: shared by every command that ends in a report."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Report, Verdict
from cudadoctor.report import RENDERERS, Charset, Detail, JudgedFile, RenderOptions
from cudadoctor.saying import say

FILE_WIDTH = 100
"""Columns of a text report that goes to a file or a pipe."""
MOST_DIGITS = 9
"""Of a number in a variable; longer ones are no widths, and Python refuses to read those of some thousand digits."""
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"
SUMMARY_LIMIT_BYTES = 1024 * 1024
"""GitHub refuses a step's summary that is larger."""
CHECKOUT_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR", "WORKSPACE")
"""Where GitHub Actions, GitLab and Jenkins say that the checkout is: what paths in annotations are relative to."""


@dataclass(frozen=True)
class OutputOptions:
    """Format, destination and amount of a report, and what counts as a failure."""

    format: str = "text"
    path: Path | None = None
    fail_on: str = "error"
    quiet: bool = False
    verbosity: int = 0
    judged: JudgedFile | None = None
    """The file whose text is judged, for formats that point at its lines."""

    @property
    def detail(self) -> Detail:
        """How much the renderer shows."""
        if self.quiet:
            return Detail.FINDINGS
        return (Detail.NORMAL, Detail.EVIDENCE, Detail.PROBE_RUNS)[min(self.verbosity, 2)]


class OutputError(Exception):
    """The report could not be written; the text says why."""


def exit_code(report: Report, fail_on: str, bugs: tuple[str, ...] = ()) -> ExitCode:
    """The code of design.md section 2: problems before undetermined; a bug of ours before everything."""
    if bugs:
        return ExitCode.INTERNAL
    worst = {"error": (Severity.ERROR,), "warning": (Severity.ERROR, Severity.WARNING), "never": ()}[fail_on]
    if any(finding.severity in worst for finding in report.findings):
        return ExitCode.PROBLEMS
    return ExitCode.UNDETERMINED if report.verdict is Verdict.UNDETERMINED and fail_on != "never" else ExitCode.OK


def write(text: str, path: Path | None) -> None:
    """To the file, whole or not at all, or to standard output; raises OutputError."""
    if path is None:
        _print(text)
        return
    try:
        _write_file(text, Path(os.path.realpath(path)))  # a link stays one
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _print(text: str) -> None:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # whoever read it has enough
    except OSError as error:
        drop(sys.stdout)
        raise OutputError(f"cannot write to standard output: {error.strerror or error}") from error


def drop(stream: TextIO) -> None:
    """Point standard output or standard error nowhere, so that the interpreter's last flush cannot fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write_file(text: str, path: Path) -> None:
    """A regular file whole or not at all; what is there and is none (a device, a pipe) is written to and stays what it is."""
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    if path.is_symlink():  # still one after all links were followed
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def emit(report: Report, options: OutputOptions) -> None:
    """Render and write a report that is already redacted; raises OutputError."""
    write(RENDERERS[options.format](report, render_options(options)), options.path)
    summary = os.environ.get(SUMMARY_VARIABLE)
    if options.format == "github" and summary:
        _append_step_summary(report, Path(summary))


def _append_step_summary(report: Report, path: Path) -> None:
    """Add the report as Markdown to what the step shows; where that fails, say so and go on: the annotations are out."""
    data = RENDERERS["markdown"](report, RenderOptions()).encode()
    try:
        room = SUMMARY_LIMIT_BYTES - (path.stat().st_size if path.exists() else 0)
        if len(data) + 1 > room:
            say(f"the report ({len(data):,} bytes) does not fit into the step summary")
            return
        with path.open("ab") as file:
            file.write(data + b"\n")
    except OSError as error:
        say(f"cannot write the step summary {path}: {error.strerror or error}")


def absolute_of(path: Path | str) -> Path:
    """The path from the root on; as it is where the working folder is gone."""
    try:
        return Path(os.path.abspath(path))  # noqa: PTH100  # a link in the checkout is shown as the link, so nothing is resolved
    except OSError:
        return Path(path)


def judged_file(path: Path, source: str = "") -> JudgedFile:
    """The file as annotations name it: relative to the checkout or the working folder; of one outside of both, its name."""
    absolute = absolute_of(path)
    folders = [os.environ[name] for name in CHECKOUT_VARIABLES if os.environ.get(name)]
    for folder in (*map(Path, folders), absolute_of("")):
        if absolute.is_relative_to(folder):
            return JudgedFile(absolute.relative_to(folder).as_posix(), source)
    return JudgedFile(path.name, source)


def render_options(options: OutputOptions) -> RenderOptions:
    """Width, colour and charset of the destination (NO_COLOR, FORCE_COLOR and a pipe are respected)."""
    if options.path is not None:
        return RenderOptions(
            width=FILE_WIDTH, colour=False, charset=Charset.UNICODE, detail=options.detail, judged=options.judged
        )
    terminal = sys.stdout.isatty()
    columns = shutil.get_terminal_size((FILE_WIDTH, 24)).columns if terminal else int_or(os.environ.get("COLUMNS"), FILE_WIDTH)
    return RenderOptions(
        width=max(40, min(columns, 120)),
        colour=_colour(sys.stdout),
        charset=Charset.of_encoding(sys.stdout.encoding),
        detail=options.detail,
        judged=options.judged,
    )


def int_or(text: str | None, default: int) -> int:
    """The number in the text, or the default where it holds none."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else default


def _colour(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"
