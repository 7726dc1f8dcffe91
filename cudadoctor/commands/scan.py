"""`scan`: which GPUs binaries carry code for, and which libraries they would load; nothing scanned is loaded or run."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cudadoctor.binary.cache import ScanCache
from cudadoctor.binary.inputs import InputError, Interpreter
from cudadoctor.binary.loader import LoaderView
from cudadoctor.commands.output import OutputError, OutputOptions, render_options, write
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import to_json
from cudadoctor.model.versions import VersionError
from cudadoctor.named import GpuNameError, capability_of, release_of
from cudadoctor.probes.python_env import choose_python
from cudadoctor.saying import say
from cudadoctor.scan import Detail, LibrarySearch, ScanOptions, gpu_of, run_scan
from cudadoctor.system import RealSystem

if TYPE_CHECKING:
    from cudadoctor.binary.coverage import Gpu
    from cudadoctor.binary.report import ScanReport
    from cudadoctor.report.progress import Progress

LIVE_TIMEOUT_S = 60.0
"""Longest wait for a package to be imported with --live."""


@dataclass(frozen=True)
class ScanRequest:
    """What the command line asked for."""

    arguments: tuple[str, ...]
    pid: int | None = None
    gpu: str | None = None
    driver: str | None = None
    by_module: bool = False
    libraries: bool = False
    live: bool = False
    python: str | None = None
    output: OutputOptions = field(default_factory=OutputOptions)


def run(request: ScanRequest) -> ExitCode:
    """Scan, print, and say whether anything certainly cannot run on the GPU named."""
    from cudadoctor.report.progress import progress

    if not request.arguments and request.pid is None:
        return _refused("name a file, folder, wheel or package to scan, or --pid")
    matrices = Matrices.load()
    try:
        with progress() as say:
            report = run_scan(_options(request, matrices, say))
        text = to_json(report).decode() + "\n" if request.output.format == "json" else _text(report, request.output)
        write(text, request.output.path)
    except (InputError, GpuNameError, VersionError, OutputError) as error:
        return _refused(str(error))
    return ExitCode(report.exit_code)


def _refused(message: str) -> ExitCode:
    say(message)
    return ExitCode.USAGE


def _text(report: ScanReport, output: OutputOptions) -> str:
    from cudadoctor.report.scan_text import render

    return render(report, render_options(output))


def _options(request: ScanRequest, matrices: Matrices, say: Progress) -> ScanOptions:
    system = RealSystem()
    wants_libraries = request.libraries or request.live
    return ScanOptions(
        arguments=request.arguments,
        interpreter=Interpreter(choose_python(system, request.python or "").executable, system),
        cache=ScanCache.of_environment(os.environ),
        pid=request.pid,
        gpu=_gpu(request, matrices),
        detail=Detail.MODULE if request.by_module else Detail.FILE,
        libraries=LibrarySearch(LoaderView.of_environment(os.environ), matrices.sonames) if wants_libraries else None,
        live_timeout=LIVE_TIMEOUT_S if request.live else None,
        on_file=lambda path: say.now(Path(path).name),
    )


def _gpu(request: ScanRequest, matrices: Matrices) -> Gpu | None:
    if request.gpu is None:
        return None
    release = release_of(request.driver, matrices) if request.driver is not None else None
    driver_cuda = matrices.drivers.max_cuda(release) if release is not None else None
    return gpu_of(capability_of(request.gpu, matrices), driver_cuda, matrices.toolkits)
