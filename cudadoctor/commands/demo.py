"""`demo`: replays recorded machines and texts, so that anyone sees real answers without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files

import msgspec
from msgspec import structs

from cudadoctor.commands.output import OutputError, OutputOptions, emit
from cudadoctor.diagnosis import Diagnosis, diagnose
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import from_json
from cudadoctor.model.redact import redact
from cudadoctor.model.report import Report
from cudadoctor.saying import say

_FOLDER = files("cudadoctor").joinpath("demos")


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """A recording: the report of a machine, or a text for `triage`."""

    title: str
    recorded: str
    """How it was made."""
    report: Report | None = None
    text: str = ""


@dataclass(frozen=True)
class DemoOptions:
    """What the command line asked for; no name lists the demos."""

    name: str | None = None
    output: OutputOptions = field(default_factory=OutputOptions)


def names() -> list[str]:
    """The demos there are, in alphabetical order."""
    return sorted(path.name.removesuffix(".json") for path in _FOLDER.iterdir() if path.name.endswith(".json"))


def load(name: str) -> Demo:
    """The demo of that name; raises FileNotFoundError."""
    return from_json(_FOLDER.joinpath(f"{name}.json").read_bytes(), Demo)


def run(options: DemoOptions) -> ExitCode:
    """List the demos or replay one; a replay ends with 0, whatever it shows."""
    known = names()
    if options.name is None:
        print("\n".join(_listing(known)))
        return ExitCode.OK
    if options.name not in known:
        say(f"no demo is called {options.name!r}; `cudadoctor demo` lists them")
        return ExitCode.USAGE
    demo = load(options.name)
    say(f"a replay, not this machine: {demo.title} ({demo.recorded.rstrip('.')})")
    try:
        emit(redact(_marked(judged(demo).report, options.name)), options.output)
    except OutputError as error:
        say(str(error))
        return ExitCode.USAGE
    return ExitCode.OK


def _listing(known: list[str]) -> Iterator[str]:
    width = max(map(len, known))
    yield "Recorded machines; `cudadoctor demo NAME` replays one:\n"
    yield from (f"  {name:<{width}}  {load(name).title}" for name in known)


def judged(demo: Demo) -> Diagnosis:
    """The recording judged by the rules and data of today; what running kernels showed is as it was recorded."""
    from cudadoctor.commands.triage import diagnose_text

    matrices = Matrices.load()
    if demo.report is None:
        return diagnose_text(demo.text, matrices)
    diagnosis = diagnose(demo.report.snapshot, demo.report.proofs, matrices)
    return replace(diagnosis, report=structs.replace(diagnosis.report, seconds=demo.report.seconds))


def _marked(report: Report, name: str) -> Report:
    """The report with a summary that says that it is not about this machine, in every format."""
    return structs.replace(report, summary=f"{report.summary} (Demo {name}: a recording, not this machine.)")
