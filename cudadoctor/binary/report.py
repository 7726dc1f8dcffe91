"""The document of `cudadoctor scan --format json` and how one file's part of it is made."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from cudadoctor.binary.contents import Contents, group_of
from cudadoctor.binary.coverage import Gpu, Judgement, Verdict, deciding, judge, judge_module
from cudadoctor.binary.device_code import UNKNOWN_LABEL
from cudadoctor.binary.libraries import LibraryReport
from cudadoctor.binary.live import LiveReport
from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.binaries import ModuleGroup, Place
from cudadoctor.model.versions import ComputeCapability, PtxIsa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudadoctor.binary.device_code import Module

SCHEMA = "cudadoctor.scan/1"


class ModuleReport(Struct, frozen=True, omit_defaults=True):
    """One module, for `--by module`; offset and size in bytes."""

    place: Place
    section: str
    offset: int
    size: int
    code: tuple[str, ...]
    is_tiny: bool = False
    is_complete: bool = True
    is_device_linked: bool = False
    outcome: str | None = None
    """How it fares on the GPU that was asked for, relinking by the driver left aside."""


class FileReport(Struct, frozen=True, omit_defaults=True):
    """One file. `code` counts, per target, the modules that have it; relocatable code is counted apart."""

    path: str
    argument: str
    kind: str
    size: int
    modules: int
    code: dict[str, int]
    needed: tuple[str, ...]
    judgement: Judgement | None
    relocatable_modules: int = 0
    relocatable_code: dict[str, int] = {}
    ptx_isa: tuple[PtxIsa, ...] = ()
    """The PTX versions that occur, oldest first."""
    stubs: int = 0
    """Modules so small that they probably hold no kernels; counted in `modules`."""
    by_module: tuple[ModuleReport, ...] = ()
    libraries: LibraryReport | None = None
    problem: str = ""
    """Why the file could not be read, or not to its end; the counts are then what was read."""


class ScanReport(Struct, frozen=True):
    """The whole document."""

    schema: str
    gpu: ComputeCapability | None
    driver_ptx_isa: PtxIsa | None
    files: tuple[FileReport, ...]
    live: tuple[LiveReport, ...] = ()
    """What importing the packages really loaded, where that was asked for."""

    @property
    def exit_code(self) -> ExitCode:
        """1 where an argument certainly cannot run on the GPU; 2 where nothing could be read; 0 otherwise."""
        if self.files and all(report.problem and not report.modules for report in self.files):
            return ExitCode.USAGE
        arguments = dict.fromkeys(report.argument for report in self.files)
        cannot = any(cannot_run(report for report in self.files if report.argument == name) for name in arguments)
        return ExitCode.PROBLEMS if cannot else ExitCode.OK


def cannot_run(reports: Iterable[FileReport]) -> bool:
    """True where no file of an argument has code that the GPU can use, small helper files aside."""
    of_files = deciding(report.judgement for report in reports if report.judgement is not None)
    return bool(of_files) and all(judgement.verdict is Verdict.FAILS for judgement in of_files)


def file_report(path: str, argument: str, size: int, contents: Contents, gpu: Gpu | None) -> FileReport:
    """The part of one file, without modules and libraries one by one."""
    relocatable = tuple(group for group in contents.groups if group.place is Place.RELOCATABLE)
    loaded = tuple(group for group in contents.groups if group.place is not Place.RELOCATABLE)
    isas = {code.ptx_isa for group in contents.groups for code in group.code if code.ptx_isa is not None}
    return FileReport(
        path=path,
        argument=argument,
        kind=contents.kind.value,
        size=size,
        modules=sum(group.count for group in loaded),
        code=code_counts(loaded),
        needed=contents.needed,
        judgement=None if gpu is None else judge(contents.groups, gpu),
        relocatable_modules=sum(group.count for group in relocatable),
        relocatable_code=code_counts(relocatable),
        ptx_isa=tuple(sorted(isas)),
        stubs=sum(group.count for group in loaded if group.is_tiny),
        problem=contents.problem,
    )


def unreadable_report(path: str, argument: str, problem: str) -> FileReport:
    """The part of a file that could not be read at all."""
    return FileReport(path, argument, "unknown", 0, 0, {}, (), None, problem=problem)


def code_counts(groups: Iterable[ModuleGroup]) -> dict[str, int]:
    """How many modules have each target, lowest architecture first, code of unknown kind last."""
    counts: Counter[str] = Counter()
    order = {}
    for group in groups:
        for target in {code.target for code in group.code}:
            name = UNKNOWN_LABEL if target is None else str(target)
            counts[name] += group.count
            order[name] = (target is None, () if target is None else (target.compute_capability.number, str(target)))
    return {name: counts[name] for name in sorted(counts, key=lambda name: order[name])}


def module_report(module: Module, gpu: Gpu | None) -> ModuleReport:
    """The part of one module."""
    group = group_of(module)
    return ModuleReport(
        place=module.place,
        section=module.section,
        offset=module.offset,
        size=module.size,
        code=tuple(entry.label for entry in module.entries),
        is_tiny=module.is_tiny,
        is_complete=module.complete,
        is_device_linked=module.device_linked,
        outcome=None if gpu is None else judge_module(group, gpu).value,
    )
