"""`cudadoctor scan`: which GPUs binaries carry code for, how that fares on a given GPU, and which libraries they would load.

Nothing that is scanned is loaded or run. Files are read one after the other and reported as they come, so huge trees stream.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import msgspec

from cudadoctor.binary.contents import Contents, read_contents
from cudadoctor.binary.coverage import Gpu
from cudadoctor.binary.formats import open_binary
from cudadoctor.binary.inputs import (
    InputKind,
    Interpreter,
    ScanInput,
    folder_files,
    locate,
    may_be_binary,
    process,
)
from cudadoctor.binary.libraries import describe_libraries
from cudadoctor.binary.live import LiveReport, import_live
from cudadoctor.binary.report import SCHEMA, FileReport, ScanReport, file_report, module_report, unreadable_report
from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.binary.source import BinaryError, FileSource
from cudadoctor.binary.zip_member import wheel_members

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cudadoctor.binary.cache import ScanCache
    from cudadoctor.binary.loader import LoaderView
    from cudadoctor.binary.source import ByteSource
    from cudadoctor.matrices.sonames import SonameMatrix
    from cudadoctor.matrices.toolkits import ToolkitMatrix
    from cudadoctor.model.versions import ComputeCapability, CudaVersion


class Detail(Enum):
    """How finely a file is reported."""

    FILE = "file"
    MODULE = "module"


@dataclass(frozen=True, slots=True)
class LibrarySearch:
    """How libraries are resolved, and the table that tells their CUDA major."""

    view: LoaderView
    sonames: SonameMatrix


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """What to scan and what to say about it. Without `libraries`, no library is resolved; without `gpu`, nothing is judged."""

    arguments: tuple[str, ...]
    interpreter: Interpreter
    cache: ScanCache
    pid: int | None = None
    gpu: Gpu | None = None
    detail: Detail = Detail.FILE
    libraries: LibrarySearch | None = None
    live_timeout: float | None = None
    """Seconds for importing each package in a child (this runs its code); None: nothing is imported."""
    on_file: Callable[[str], None] | None = None
    """Called with each path before it is read: progress."""

    def announce(self, path: str) -> None:
        if self.on_file is not None:
            self.on_file(path)


def gpu_of(compute_capability: ComputeCapability, driver_cuda: CudaVersion | None, toolkits: ToolkitMatrix) -> Gpu:
    """The GPU to judge for. A driver that is unknown, or newer than the table, is taken to know every PTX version."""
    return Gpu(compute_capability, None if driver_cuda is None else toolkits.ptx_isa(driver_cuda))


def run_scan(options: ScanOptions) -> ScanReport:
    """The whole report; raises InputError for an argument that names nothing."""
    gpu = options.gpu
    files = tuple(scan(options))
    live = () if options.live_timeout is None else tuple(_import_live(files, options, options.live_timeout))
    if gpu is None:
        return ScanReport(SCHEMA, None, None, files, live)
    return ScanReport(SCHEMA, gpu.compute_capability, gpu.driver_ptx_isa, files, live)


def _import_live(files: tuple[FileReport, ...], options: ScanOptions, timeout: float) -> Iterator[LiveReport]:
    """Import each argument that is a package; its name is taken as the module's, with underscores."""
    for argument in options.arguments:
        if locate(argument, options.interpreter).kind is InputKind.PACKAGE:
            predicted = [file.libraries for file in files if file.argument == argument and file.libraries is not None]
            yield import_live(argument.replace("-", "_"), options.interpreter, predicted, timeout)


def scan(options: ScanOptions) -> Iterator[FileReport]:
    """The reports one by one, in the order of the arguments; raises InputError for an argument that names nothing."""
    for item in _inputs(options):
        yield from _scan_input(item, options)
    options.cache.save()


def _inputs(options: ScanOptions) -> Iterator[ScanInput]:
    if options.pid is not None:
        yield process(options.pid)
    for argument in options.arguments:
        yield locate(argument, options.interpreter)


def _scan_input(item: ScanInput, options: ScanOptions) -> Iterator[FileReport]:
    if item.kind is InputKind.WHEEL:
        yield from _scan_wheel(item, options)
    elif item.kind is InputKind.FILE:
        problem = "not a file of a known binary format"
        yield _scan_file(item.path, item, options) or unreadable_report(item.path, item.name, problem)
    else:
        for path in folder_files(item.path) if item.kind is InputKind.FOLDER else item.files:
            report = _scan_file(path, item, options)
            if report is not None and _is_of_interest(report):
                yield report


def _is_of_interest(report: FileReport) -> bool:
    """Files of a tree that have nothing to do with CUDA are not reported."""
    if report.modules or report.relocatable_modules or any(is_nvidia(name) for name in report.needed):
        return True
    return bool(report.problem) and is_nvidia(os.path.basename(report.path))  # noqa: PTH119 - names inside wheels too


def _scan_file(path: str, item: ScanInput, options: ScanOptions) -> FileReport | None:
    """The report of one file; None for a file of no known format."""
    options.announce(path)
    try:
        with FileSource(path) as source:
            contents = _remembered_contents(path, source, options.cache)
            if contents is None:
                return None
            report = file_report(path, item.name, source.size, contents, options.gpu)
            return _with_libraries(_with_modules(report, source, options), contents, options)
    except BinaryError as error:
        return unreadable_report(path, item.name, str(error))


def _remembered_contents(path: str, source: FileSource, cache: ScanCache) -> Contents | None:
    key = os.path.realpath(path)
    known = cache.get(key, source.status)
    if known is not None:
        return known
    contents = read_contents(source)
    if contents is not None and not contents.problem:
        cache.put(key, source.status, contents)
    return contents


def _with_modules(report: FileReport, source: ByteSource, options: ScanOptions) -> FileReport:
    if options.detail is not Detail.MODULE:
        return report
    opened = open_binary(source)
    modules = () if opened is None else tuple(module_report(module, options.gpu) for module in opened.modules)
    return msgspec.structs.replace(report, by_module=modules)


def _with_libraries(report: FileReport, contents: Contents, options: ScanOptions) -> FileReport:
    if options.libraries is None or not contents.needed:
        return report
    search = options.libraries
    return msgspec.structs.replace(report, libraries=describe_libraries(search.view, report.path, search.sonames))


def _scan_wheel(item: ScanInput, options: ScanOptions) -> Iterator[FileReport]:
    try:
        with FileSource(item.path) as source:
            for member in wheel_members(item.path, source):
                if may_be_binary(member.name) and member.size:
                    yield from _scan_member(f"{item.path}!{member.name}", member.source, item, options)
    except BinaryError as error:
        yield unreadable_report(item.path, item.name, str(error))


def _scan_member(path: str, source: ByteSource, item: ScanInput, options: ScanOptions) -> Iterator[FileReport]:
    options.announce(path)
    try:
        contents = read_contents(source)
        if contents is None:
            return
        report = file_report(path, item.name, source.size, contents, options.gpu)
        if _is_of_interest(report):
            yield _with_modules(report, source, options)
    except BinaryError as error:
        yield unreadable_report(path, item.name, str(error))
