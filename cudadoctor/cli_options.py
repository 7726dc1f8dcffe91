"""The options that commands share, and the words that they take."""

from __future__ import annotations

import math
import re
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer


class FailOn(str, Enum):
    """From which severity on a finding makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NEVER = "never"


class ReportFormat(str, Enum):
    """How a report is printed."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"
    HTML = "html"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"
    PROMETHEUS = "prometheus"


class ListFormat(str, Enum):
    """How a list or an answer is printed."""

    TEXT = "text"
    JSON = "json"


class FleetFormat(str, Enum):
    """How the summary of a fleet is printed."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"
    PROMETHEUS = "prometheus"


class EngineName(str, Enum):
    """What `fleet run` runs a command on a node by."""

    SLURM = "slurm"
    SSH = "ssh"
    RAY = "ray"


class ArchStyleName(str, Enum):
    """How `archs` writes its list."""

    TORCH = "torch"
    CMAKE = "cmake"
    NVCC = "nvcc"
    JSON = "json"


class ScanDetail(str, Enum):
    """How finely `scan` reports."""

    FILE = "file"
    MODULE = "module"


class BenchPart(str, Enum):
    """What `bench` measures."""

    GEMM = "gemm"
    ATTENTION = "attention"
    MEMORY = "memory"
    ALL = "all"


class MatrixChoice(str, Enum):
    """The matrices that `matrix` shows."""

    GPUS = "gpus"
    CAPABILITIES = "capabilities"
    DRIVERS = "drivers"
    TOOLKITS = "toolkits"
    COMPILERS = "compilers"
    TORCH = "torch"
    CUDNN = "cudnn"
    ECOSYSTEM = "ecosystem"
    ERRORS = "errors"
    ENV = "env"
    SONAMES = "sonames"
    IMAGES = "images"
    SPEEDS = "speeds"


class PlatformName(str, Enum):
    """The platforms that torch has wheels for."""

    LINUX_X86_64 = "linux-x86_64"
    LINUX_AARCH64 = "linux-aarch64"
    WINDOWS = "windows"


def _option(name: str, help_text: str, metavar: str | None = None, short: str | None = None) -> typer.models.OptionInfo:
    names = (name, short) if short is not None else (name,)
    info: typer.models.OptionInfo = typer.Option(*names, help=help_text, metavar=metavar)
    return info


FormatOption = Annotated[ReportFormat, typer.Option("--format", help="How to print the report.")]
OutputOption = Annotated[Path | None, _option("--output", "Write to this file instead of standard output.", "FILE", "-o")]


def _startable(wanted: str | None) -> str | None:
    """The interpreter as it was given; BadParameter where nothing can be started there."""
    if wanted is not None:
        from cudadoctor.named import PythonNameError, check_interpreter

        try:
            check_interpreter(wanted)
        except PythonNameError as error:
            raise typer.BadParameter(str(error)) from error
    return wanted


def _seconds(text: str | float) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 1 <= seconds <= 86400:
        raise typer.BadParameter(f"{text!r} is not a number of seconds from 1 to 86400")
    return seconds


def _ordinal(text: str | int) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", str(text)):
        raise typer.BadParameter(f"{text!r} is not the number of a GPU, such as 0")
    return int(text)


def _python_version(text: str | None) -> str | None:
    if text is not None and not re.fullmatch(r"\d\.\d{1,2}", text):
        raise typer.BadParameter(f"{text!r} is not a Python release such as 3.12")
    return text


PYTHON_HELP = "Interpreter, or its environment's folder; default: the active environment."
PythonOption = Annotated[str | None, typer.Option("--python", help=PYTHON_HELP, metavar="PATH", callback=_startable)]
PreflightPythonOption = Annotated[str | None, _option("--python", PYTHON_HELP, "PATH")]
"""With --root, a path inside of the image."""
PythonVersionOption = Annotated[
    str | None,
    typer.Option("--python-version", metavar="3.X", help="The Python to install for.", callback=_python_version),
]
PlatformOption = Annotated[PlatformName | None, typer.Option("--platform", help="The platform to install on; default: this one.")]
SelectOption = Annotated[list[str] | None, _option("--select", "Only these rules (name, code, or block such as CD4).", "RULE")]
IgnoreOption = Annotated[list[str] | None, _option("--ignore", "All but these rules.", "RULE")]
FailOnOption = Annotated[FailOn, typer.Option("--fail-on", help="Lowest severity that makes the exit code 1.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", parser=_seconds, help="Deadline of the whole command, from 1 to 86400."),
]
OrdinalOption = Annotated[int, typer.Option("--gpu", metavar="N", parser=_ordinal, help="CUDA's number of the GPU.")]
NodeOption = Annotated[str | None, _option("--node", "Name of this machine in the report.", "NAME")]
AssumeOption = Annotated[
    list[str] | None,
    _option("--assume", "Judge as if this had been detected: gpu, driver, torch, toolkit ... (repeatable).", "KEY=VALUE"),
]
RequireOption = Annotated[
    list[str] | None, _option("--require", "Conditions to meet, such as 'cc>=8.0,driver>=550'.", "CONDITIONS")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Findings only.")]
VerboseOption = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="-v: evidence and what was not determined; -vv: how each probe went.",
    ),
]
GpuOption = Annotated[
    list[str] | None, _option("--gpu", "A GPU: part of its name, or a compute capability (repeatable).", "NAME|CC")
]
DriverOption = Annotated[str | None, _option("--driver", "A driver release or branch, such as 550 or 550.54.15.", "RELEASE")]
ScanPaths = Annotated[
    list[str] | None, typer.Argument(metavar="PATH|PACKAGE...", help="Files, folders, wheels, installed packages.")
]
PidOption = Annotated[int | None, typer.Option("--pid", metavar="N", min=1, help="Scan what a running process has loaded.")]
ScanGpuOption = Annotated[str | None, _option("--gpu", "Judge for this GPU; exit code 1 if it certainly cannot run.", "NAME|CC")]
ScanDetailOption = Annotated[ScanDetail, typer.Option("--by", help="One row a file, or a module.")]
LibrariesOption = Annotated[
    bool, typer.Option("--libraries", help="Also say which libraries would be loaded, and what is wrong with them.")
]
LiveOption = Annotated[
    bool, typer.Option("--live", help="Import the package in a child and compare with what was loaded (runs its code).")
]
ListFormatOption = Annotated[ListFormat, typer.Option("--format", help="How to print the result.")]
PolicyOption = Annotated[
    Path | None,
    _option("--policy", "Policy to apply; default: cudadoctor.toml, or [tool.cudadoctor] of pyproject.toml, here.", "FILE"),
]
GateFailOnOption = Annotated[
    FailOn | None,
    typer.Option("--fail-on", help="Lowest severity that makes the exit code 1; default: the policy's, else error."),
]
RootOption = Annotated[Path | None, _option("--root", "Judge the unpacked image in this folder; nothing there is run.", "DIR")]
DockerfileOption = Annotated[
    Path | None, _option("--dockerfile", "Judge what this Dockerfile would build; it is only read.", "FILE")
]
StageOption = Annotated[str | None, _option("--stage", "With --dockerfile: the stage to judge; default: the last.", "NAME")]
BuildArgOption = Annotated[list[str] | None, _option("--build-arg", "With --dockerfile: the value of an ARG.", "NAME=VALUE")]
ImageVariableOption = Annotated[list[str] | None, _option("--env", "With --root: a variable of the image.", "NAME=VALUE")]
BuildOption = Annotated[bool, typer.Option("--build", help="An extension of torch will be compiled here: judge that too.")]
ReportPaths = Annotated[
    list[str], typer.Argument(metavar="PATH...|-", help="Folders and files of reports (.json, .jsonl, .gz), or - for a stream.")
]
NodesOption = Annotated[
    str | None, _option("--nodes", "Nodes that should have reported: a list such as node[01-16,20], or a file.", "FILE|LIST")
]
MachinesToCompare = Annotated[
    list[str], typer.Argument(metavar="A B...", help="Reports, snapshots or pasted texts (one may be -); A is the reference.")
]
