from __future__ import annotations

import pytest

from cudadoctor.binary.contents import Contents
from cudadoctor.binary.coverage import Gpu
from cudadoctor.binary.formats import FileKind
from cudadoctor.binary.report import SCHEMA, FileReport, ScanReport, cannot_run, code_counts, file_report, unreadable_report
from cudadoctor.exit_codes import ExitCode
from cudadoctor.model import codec
from cudadoctor.model.binaries import ModuleGroup, Place
from cudadoctor.model.versions import ComputeCapability
from tests.binary.test_coverage import group

GPU = Gpu(ComputeCapability(9, 0))


def report(*groups: ModuleGroup, argument: str = "a", gpu: Gpu | None = GPU) -> FileReport:
    return file_report("/a.so", argument, 1, Contents(FileKind.ELF, groups), gpu)


def document(*files: FileReport) -> ScanReport:
    return ScanReport(SCHEMA, ComputeCapability(9, 0), None, files)


def test_code_is_counted_in_modules() -> None:
    groups = (
        group("sm_80", "sm_80", "compute_80@8.0", count=3),
        group("sm_120a", count=2),
        group("sm_80", "unknown", count=1),
    )
    assert list(code_counts(groups).items()) == [("compute_80", 3), ("sm_80", 4), ("sm_120a", 2), ("unknown", 1)]


def test_relocatable_code_is_counted_apart() -> None:
    found = report(group("sm_80", count=2), group("sm_90", "compute_90@8.4", place=Place.RELOCATABLE, count=5))
    assert (found.modules, found.code) == (2, {"sm_80": 2})
    assert (found.relocatable_modules, found.relocatable_code) == (5, {"compute_90": 5, "sm_90": 5})
    assert [str(isa) for isa in found.ptx_isa] == ["8.4"]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ((), ExitCode.OK),
        ((report(group("sm_90")),), ExitCode.OK),
        ((report(group("sm_80")),), ExitCode.PROBLEMS),
        ((report(group("sm_80"), gpu=None),), ExitCode.OK),
        ((report(group("sm_80"), group("sm_90")),), ExitCode.OK),
        ((report(group("unknown")),), ExitCode.OK),
        ((report(),), ExitCode.OK),
        ((report(group("sm_80")), report(group("sm_90"))), ExitCode.OK),
        ((report(group("sm_80", count=400)), report(group("sm_90", count=2))), ExitCode.PROBLEMS),
        ((report(group("sm_90"), argument="a"), report(group("sm_80"), argument="b")), ExitCode.PROBLEMS),
        ((unreadable_report("/x", "x", "not found"),), ExitCode.USAGE),
        ((unreadable_report("/x", "x", "cut"), report(group("sm_90"))), ExitCode.OK),
    ],
)
def test_exit_code(files: tuple[FileReport, ...], code: ExitCode) -> None:
    assert document(*files).exit_code is code


def test_cannot_run_needs_something_to_judge() -> None:
    assert not cannot_run(())
    assert not cannot_run((report(group("sm_80", is_tiny=True)),))


def test_document_travels_through_json() -> None:
    found = document(report(group("sm_90a", "compute_90@8.4", count=7)), unreadable_report("/x", "x", "cut"))
    assert codec.from_json(codec.to_json(found), ScanReport) == found
    tree = codec.to_builtins(found)
    assert tree["schema"] == "cudadoctor.scan/1"
    assert tree["gpu"] == "9.0"
    first = tree["files"][0]
    assert (first["path"], first["modules"], first["needed"]) == ("/a.so", 7, ())
    assert first["code"] == {"compute_90": 7, "sm_90a": 7}
    assert first["judgement"]["verdict"] == "runs"
    assert first["judgement"]["prediction"] is True
