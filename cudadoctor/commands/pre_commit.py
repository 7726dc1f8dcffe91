"""`cudadoctor-pre-commit`: preflight for each Dockerfile of a commit, as the hook of the pre-commit framework calls it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from cudadoctor.exit_codes import ExitCode

USAGE = "usage: cudadoctor-pre-commit [OPTIONS OF preflight] -- DOCKERFILE...   (in the hook: args: [--gpu, H100, --])"
WORST_FIRST = (ExitCode.INTERNAL, ExitCode.USAGE, ExitCode.PROBLEMS, ExitCode.UNDETERMINED, ExitCode.OK)


def main() -> None:
    """Judge, and end with the worst of the exit codes."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """The worst exit code of the Dockerfiles after `--`; the options before it hold for each."""
    options, files = split(arguments)
    if options and not files and "--" not in arguments:
        print(USAGE, file=sys.stderr)
        return ExitCode.USAGE
    codes = [_preflight(options, file, heading=len(files) > 1) for file in files]
    return min(codes, key=_rank, default=ExitCode.OK)


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options and files. pre-commit puts the files last, and only `--` tells them from the values of options."""
    given = list(arguments)
    if "--" in given:
        end = given.index("--")
        return given[:end], given[end + 1 :]
    return (given, []) if given and given[0].startswith("-") else ([], given)


def _rank(code: int) -> int:
    known = [int(each) for each in WORST_FIRST]
    return known.index(code) if code in known else -1


def _preflight(options: Sequence[str], file: str, *, heading: bool) -> int:
    """The exit code of one preflight. A name that begins with a dash is one all the same."""
    from cudadoctor.cli import app

    if heading:
        print(f"== {file}", flush=True)
    try:
        app(["preflight", *options, f"--dockerfile={file}"], prog_name="cudadoctor")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.INTERNAL
    return ExitCode.OK
