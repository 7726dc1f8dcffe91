"""Turns what a file or a program answered, or failed to answer, into facts: errors keep their words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.versions import VersionError
from cudadoctor.system import Completed, ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.system import System

T = TypeVar("T")

MAX_WORDS = 400
"""Longest error text kept in a fact; tools print whole pages when they fail."""


@dataclass(frozen=True)
class Answer:
    """The text that a source gave, or why it gave none."""

    text: str
    source: str


def short(text: str) -> str:
    """The text without surrounding blanks, cut to a length that a report can show."""
    text = text.strip()
    return text if len(text) <= MAX_WORDS else text[:MAX_WORDS] + " ..."


def missing_file(error: OSError, source: str) -> Missing:
    """Why a file could not be read: not found, permission denied, or failed with the system's words."""
    if isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return Missing(MissingReason.NOT_FOUND, f"{source} does not exist", source)
    if isinstance(error, PermissionError):
        return Missing(MissingReason.PERMISSION_DENIED, f"could not read {source}: {error.strerror or error}", source)
    return Missing(MissingReason.FAILED, f"could not read {source}: {error.strerror or error}", source)


def ask_file(system: System, path: str) -> Answer | Missing:
    """The text of a file, or why it could not be read."""
    try:
        return Answer(system.read_text(path), path)
    except OSError as error:
        return missing_file(error, path)


def folder_names(system: System, path: str) -> tuple[str, ...]:
    """Names in a folder; none where it cannot be listed (for searches, in which an absent folder is no fact)."""
    try:
        return system.list_folder(path)
    except OSError:
        return ()


def not_started(error: ProgramNotFoundError, source: str) -> Missing:
    """Why a program gave no answer: it is not there, or this machine would not start it now."""
    return Missing(MissingReason.NOT_FOUND if error.is_absent else MissingReason.FAILED, str(error), source)


def ask_program(system: System, argv: Sequence[str], timeout: float, source: str) -> Completed | Missing:
    """What a program printed where it ended with success; else the reason, its own words in the detail."""
    try:
        completed = system.run(argv, timeout)
    except ProgramNotFoundError as error:
        return not_started(error, source)
    return unsuccessful(completed, timeout, source) or completed


def unsuccessful(completed: Completed, timeout: float, source: str) -> Missing | None:
    """Why a program's answer does not count: hung, stopped, died of a signal or failed; None where it succeeded."""
    said = short(completed.stderr) or short(completed.stdout)
    if completed.timed_out:
        words = f"no answer within {timeout:.3g} s"
        return Missing(MissingReason.TIMEOUT, f"{words}; it had printed: {said}" if said else words, source)
    if completed.truncated:
        return Missing(MissingReason.FAILED, f"printed more than {len(completed.stdout)} bytes and was stopped", source)
    if completed.signal_name:
        words = f"died of {completed.signal_name}"
        return Missing(MissingReason.CRASHED, f"{words}: {said}" if said else words, source)
    if completed.exit_code != 0:
        words = f"exit code {completed.exit_code}"
        return Missing(MissingReason.FAILED, f"{words}: {said}" if said else words, source)
    return None


def parsed(parse: Callable[[str], T], text: str, source: str) -> Fact[T]:
    """The version or number that `parse` reads from a text, or PARSE_ERROR with the text itself."""
    try:
        return Known(parse(text), source)
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), source)
    except ValueError:
        return Missing(MissingReason.PARSE_ERROR, f"cannot read {short(text)!r}", source)


def not_applicable(detail: str, source: str = "") -> Missing:
    """The question does not arise here."""
    return Missing(MissingReason.NOT_APPLICABLE, detail, source)


def not_found(detail: str, source: str = "") -> Missing:
    """Looked for and not there."""
    return Missing(MissingReason.NOT_FOUND, detail, source)
