"""`bench`: is this GPU as fast as it should be, and what holds it back."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor import __version__
from cudadoctor.bench.changes import changes, differences_of_machine
from cudadoctor.bench.measuring import CannotMeasureError, Measurement, Request
from cudadoctor.bench.model import SCHEMA, BenchReport, Outcome, Profile, Section
from cudadoctor.bench.verdict import judge
from cudadoctor.commands.output import OutputError, OutputOptions, render_options, write
from cudadoctor.commands.reading import InputError, read_input
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import DocumentError, from_json, to_json
from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Tool
from cudadoctor.report import inert
from cudadoctor.saying import say

if TYPE_CHECKING:
    from cudadoctor.gpu.description import DeviceDescription
    from cudadoctor.system import System

MAX_REPORT_BYTES = 16 * 1024 * 1024
DRIVER_LIMIT_S = 10.0
CODES = {
    Outcome.AS_EXPECTED: ExitCode.OK,
    Outcome.SLOW: ExitCode.PROBLEMS,
    Outcome.WRONG: ExitCode.PROBLEMS,
    Outcome.UNDETERMINED: ExitCode.UNDETERMINED,
}


class BenchError(Exception):
    """The bench cannot be done as asked; the text says why, `code` how the command ends."""

    def __init__(self, text: str, code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class BenchOptions:
    """What the command line asked for."""

    what: str = "all"
    quick: bool = False
    gpu: int = 0
    python: str | None = None
    judge: Path | None = None
    against: Path | None = None
    plot: Path | None = None
    ncu: bool = False
    output: OutputOptions = field(default_factory=OutputOptions)

    @property
    def sections(self) -> tuple[Section, ...]:
        return tuple(Section) if self.what == "all" else (Section(self.what),)


def run(options: BenchOptions) -> ExitCode:
    """Measure, or judge a saved run; report."""
    try:
        return _run(options)
    except (BenchError, OutputError) as error:
        say(str(error))
        return error.code if isinstance(error, BenchError) else ExitCode.USAGE


def _run(options: BenchOptions) -> ExitCode:
    matrices = Matrices.load()
    if options.plot is not None:
        _check_plot(options.plot)
    earlier = read_report(options.against) if options.against is not None else None
    report = judged_anew(read_report(options.judge)) if options.judge is not None else measure(options, matrices)
    compared = tuple(changes(earlier, report)) if earlier is not None else None
    report = structs.replace(report, verdict=judge(report, matrices), against=compared)
    for difference in differences_of_machine(earlier, report) if earlier is not None else ():
        say(f"the runs differ in more than time: {inert.value(difference)}")
    write(_rendered(report, options, matrices), options.output.path)
    if options.plot is not None:
        from cudadoctor.bench.plot import draw

        draw(report, matrices, options.plot)
    refused = report.profile is not None and any(each.severity is Severity.ERROR for each in report.profile.findings)
    code = CODES[report.verdict.outcome] if report.verdict is not None else ExitCode.UNDETERMINED
    return ExitCode.PROBLEMS if refused else code


def _rendered(report: BenchReport, options: BenchOptions, matrices: Matrices) -> str:
    if options.output.format == "json":
        return to_json(report).decode()
    from cudadoctor.bench.text import render

    return render(report, matrices, render_options(options.output))


def read_report(path: Path) -> BenchReport:
    """A saved run; raises BenchError for a file that is none."""
    try:
        report = from_json(read_input(path, MAX_REPORT_BYTES, "a saved bench"), BenchReport)
    except InputError as error:
        raise BenchError(str(error)) from error
    except DocumentError as error:
        raise BenchError(f"{path} is no saved bench (cudadoctor bench --format json): {error}") from error
    if report.schema != SCHEMA:
        raise BenchError(f"{path} has schema {report.schema!r}, not {SCHEMA!r}")
    return report


def judged_anew(report: BenchReport) -> BenchReport:
    """A saved run with what its counts say by the rules of today."""
    if report.profile is None:
        return report
    from cudadoctor.bench.ncu import judged

    kernels = tuple(judged(each.kernel, each.metrics) for each in report.profile.kernels)
    return structs.replace(report, profile=structs.replace(report.profile, kernels=kernels))


def _check_plot(path: Path) -> None:
    """Say so before measuring, where the plot could not be drawn afterwards."""
    from cudadoctor.bench.plot import PlotError, check

    try:
        check(path)
    except PlotError as error:
        raise BenchError(str(error)) from error


# Measuring


def measure(options: BenchOptions, matrices: Matrices) -> BenchReport:
    """A run on this machine; raises BenchError where nothing can be measured."""
    from cudadoctor.report.progress import progress
    from cudadoctor.system import RealSystem

    started = time.monotonic()
    system = RealSystem()
    try:
        with progress() as waiting:
            waiting.now("asking the driver")
            measured = Measurement(_request(options, system), system, matrices, waiting.now).run()
    except CannotMeasureError as error:
        raise BenchError(f"nothing can be measured on GPU {options.gpu}: {error}", ExitCode.UNDETERMINED) from error
    finally:
        system.stop_programs()
    for remark in measured.remarks:
        say(remark)
    return BenchReport(
        tool=Tool(version=__version__, matrices_as_of=matrices.speeds.as_of.isoformat()),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(time.monotonic() - started, 3),
        gpu=measured.gpu,
        torch=measured.torch,
        rows=measured.rows,
        samples=measured.samples,
        profile=measured.profile if measured.profile is not None else _no_ncu(options),
    )


def _no_ncu(options: BenchOptions) -> Profile | None:
    because = "there is no ncu on the PATH; it comes with the CUDA toolkit and with Nsight Compute"
    return Profile(because=because) if options.ncu else None


def _request(options: BenchOptions, system: System) -> Request:
    """What to measure with: the driver's word on the GPU, compilers, the user's torch, Nsight Compute."""
    from cudadoctor.bench.ncu import find
    from cudadoctor.examination import nvcc_choices, nvrtc_choices
    from cudadoctor.probes import ProbeOptions, start_collection

    device = _device(options, dict(system.environ))
    collection = start_collection(system, ProbeOptions(python=options.python or "", torch_child_options=("--no-proofs",)))
    try:
        machine = collection.without("nvidia-smi")
        python = collection.torch.chosen.executable
    finally:
        collection.stop()
    release = maybe(machine.driver.driver_release)
    return Request(
        sections=options.sections,
        device=device,
        driver_release=str(release) if release is not None else "",
        env=dict(system.environ),
        nvrtc=tuple(nvrtc_choices(machine)),
        nvcc=tuple(nvcc_choices(machine)),
        python=python,
        quick=options.quick,
        ncu=find(system) if options.ncu else "",
    )


def _device(options: BenchOptions, env: dict[str, str]) -> DeviceDescription:
    """The GPU to measure; raises BenchError where the driver shows none."""
    from cudadoctor.gpu.driver_session import describe_driver

    driver = describe_driver(env, timeout_s=DRIVER_LIMIT_S)
    refused = driver.refusal
    if driver.failure_text is not None:
        raise BenchError(f"nothing can be measured: asking the driver: {driver.failure_text}", ExitCode.UNDETERMINED)
    if refused is not None or not driver.devices:
        because = refused["because"] if refused is not None else "no CUDA device is visible"
        raise BenchError(f"nothing can be measured: {because}. `cudadoctor check` says why.", ExitCode.UNDETERMINED)
    if not 0 <= options.gpu < len(driver.devices):
        raise BenchError(f"there is no GPU {options.gpu}: CUDA sees {len(driver.devices)}")
    return driver.devices[options.gpu]
