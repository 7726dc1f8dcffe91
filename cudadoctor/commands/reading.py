"""Files that the user names, read up to a bound: the input of `triage`, `check --snapshot`, `compare`, `bench --judge`."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

MIB = 2**20


class InputError(Exception):
    """An input of the user's cannot be used; the text says why."""


def read_input(path: Path | str, limit_bytes: int, too_large_for: str) -> bytes:
    """All of a regular file, or of standard input (`-`); raises InputError, also for more than `limit_bytes`."""
    try:
        with open_input(path) as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > limit_bytes:
        raise InputError(f"{named_input(path)} is larger than {limit_bytes // MIB} MiB, too large for {too_large_for}")
    return data


def open_input(path: Path | str) -> BinaryIO:
    """A regular file, or standard input (`-`); raises OSError, and InputError for what might never end or never begin."""
    if str(path) == "-":
        return open(0, "rb", closefd=False)  # the caller closes it; the descriptor stays
    file = Path(path)
    if not file.is_file():
        file.stat()
        kind = "is a folder" if file.is_dir() else "is not a regular file; to read a pipe, name - and pipe it in"
        raise InputError(f"{path} {kind}")
    return file.open("rb")


def named_input(path: Path | str) -> str:
    """What an input is called in a message."""
    return "standard input" if str(path) == "-" else str(path)
