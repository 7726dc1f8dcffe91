"""The rows of the stack: a mark is the worst of findings, missing values and unjudged rules; an unknown is never a tick."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.binaries import BinaryFile, BinaryPackage
from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, OtherSource
from cudadoctor.model.finding import Finding, Severity, UnknownRule
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import (
    CudnnHeader,
    Driver,
    Gpu,
    Libraries,
    LibraryCopy,
    LibraryOrigin,
    Snapshot,
    Toolkit,
    Torch,
    TorchBuild,
    Wsl,
)
from cudadoctor.model.versions import DottedVersion, DriverRelease
from cudadoctor.report.marks import Mark
from cudadoctor.report.stack import StackRow, header_parts, stack_rows
from tests.report.sample_reports import gpu, healthy_h100, no_gpu, nvml, sick_node, toolkit, undetermined


def rows(report: Report) -> dict[str, StackRow]:
    return {row.label: row for row in stack_rows(report)}


def finding(code: str, severity: Severity = Severity.ERROR, *, subject: str = "machine", name: str = "x") -> Finding:
    return Finding(code=code, name=name, severity=severity, subject=subject, what="It is.")


def with_findings(*findings: Finding) -> Report:
    return structs.replace(healthy_h100(), findings=findings)


def with_snapshot(**parts: object) -> Report:
    report = healthy_h100()
    return structs.replace(report, snapshot=structs.replace(report.snapshot, **parts))


def test_a_healthy_machine_has_ticks_only() -> None:
    assert {row.mark for row in stack_rows(healthy_h100())} == {Mark.OK}


@pytest.mark.parametrize(
    ("code", "label"),
    [("CD102", "Driver"), ("CD207", "Toolkit"), ("CD412", "torch"), ("CD510", "GPU 0")],
)
def test_a_finding_marks_the_row_of_its_area(code: str, label: str) -> None:
    marked = rows(with_findings(finding(code)))
    assert (marked[label].mark, marked[label].words) == (Mark.ERROR, code)
    assert {row.mark for name, row in marked.items() if name != label} == {Mark.OK}


def test_the_worst_finding_is_named_and_others_are_counted() -> None:
    row = rows(with_findings(finding("CD120", Severity.WARNING), finding("CD102"), finding("CD199", Severity.NOTE)))["Driver"]
    assert (row.mark, row.words) == (Mark.ERROR, "CD102 +1")


def test_a_note_leaves_the_tick() -> None:
    assert rows(with_findings(finding("CD424", Severity.NOTE)))["torch"].mark is Mark.OK


@pytest.mark.parametrize("reason", [reason for reason in MissingReason if reason is not MissingReason.NOT_ASKED])
def test_a_missing_value_is_never_a_tick(reason: MissingReason) -> None:
    missing = Missing(reason, "its words", "its source")
    driver = Driver(driver_release=missing, driver_cuda_version=missing)
    report = with_snapshot(gpus=missing, driver=driver, toolkits=missing)
    absent = reason in (MissingReason.NOT_FOUND, MissingReason.NOT_APPLICABLE)
    for label in ("GPU", "Driver", "Toolkit"):
        row = rows(report)[label]
        assert row.mark is (Mark.ABSENT if absent else Mark.UNKNOWN)
        assert "its words" in row.value
        assert row.source == "its source"


def test_what_nobody_looked_for_has_no_row() -> None:
    assert stack_rows(structs.replace(healthy_h100(), snapshot=Snapshot())) == ()


def test_what_nobody_looked_for_has_a_row_if_a_finding_is_about_it() -> None:
    report = structs.replace(with_findings(finding("CD102")), snapshot=Snapshot())
    assert [(row.label, row.mark) for row in stack_rows(report)] == [("Driver", Mark.ERROR)]


def test_rules_that_could_not_be_judged_take_the_tick_away() -> None:
    one = structs.replace(healthy_h100(), unknown=(UnknownRule("CD103", "x", "y"),))
    two = structs.replace(healthy_h100(), unknown=(UnknownRule("CD103", "x", "y"), UnknownRule("CD120", "x", "y")))
    assert (rows(one)["Driver"].mark, rows(one)["Driver"].words) == (Mark.UNKNOWN, "CD103 not judged")
    assert rows(two)["Driver"].words == "2 not judged"
    assert rows(one)["torch"].mark is Mark.OK


def test_identical_gpus_are_one_row_and_the_sick_one_another() -> None:
    marked = rows(sick_node())
    assert marked["GPU 0..2, 4..7"].value.startswith("7 x NVIDIA H100")
    assert (marked["GPU 3"].mark, marked["GPU 3"].words) == (Mark.ERROR, "CD510")


@pytest.mark.parametrize(
    ("subject", "hit"),
    [
        ("GPU 1", {1}),
        ("GPU 1..2", {1, 2}),
        ("GPU 0, 2", {0, 2}),
        ("GPU 2 (H100 80GB)", {2}),
        ("GPU", {0, 1, 2}),
        ("machine", {0, 1, 2}),
    ],
)
def test_a_finding_marks_the_gpus_that_its_subject_names(subject: str, hit: set[int]) -> None:
    snapshot = structs.replace(healthy_h100().snapshot, gpus=nvml(tuple(gpu(n, f"GPU model {n}", "9.0", 80) for n in range(3))))
    report = structs.replace(with_findings(finding("CD510", subject=subject)), snapshot=snapshot)
    marked = rows(report)
    assert {n for n in range(3) if marked[f"GPU {n}"].mark is Mark.ERROR} == hit


def test_a_gpu_that_does_not_answer_is_unknown_without_a_finding() -> None:
    row = rows(with_snapshot(gpus=nvml((Gpu(index=0, error="GPU is lost"),))))["GPU 0"]
    assert (row.mark, row.value) == (Mark.UNKNOWN, "GPU is lost")


def test_a_gpu_of_unknown_capability_is_unknown() -> None:
    lost = structs.replace(gpu(0, "NVIDIA X", "9.0", 80), compute_capability=Missing(MissingReason.NOT_SUPPORTED, "", "NVML"))
    row = rows(with_snapshot(gpus=nvml((lost,))))["GPU 0"]
    assert row.mark is Mark.UNKNOWN
    assert "CC unknown (not supported (NVML))" in row.value


def test_no_gpu_is_marked_by_the_finding_that_says_so() -> None:
    row = rows(no_gpu())["GPU"]
    assert (row.value, row.mark, row.words) == ("not found", Mark.ERROR, "CD101")


def test_sources_that_disagree_are_all_shown() -> None:
    release = Known(
        DriverRelease.parse("580.95.05"), "NVML", others=(OtherSource("procfs", "570.1"), OtherSource("modinfo", "580.95.05"))
    )
    row = rows(with_snapshot(driver=structs.replace(healthy_h100().snapshot.driver, driver_release=release)))["Driver"]
    assert row.value.startswith("580.95.05 (but procfs says 570.1)")
    assert row.source == "NVML, modinfo"


def test_a_finding_marks_the_toolkit_that_its_subject_names() -> None:
    old, new = toolkit("11.8.89", "sm_50 sm_90", "/opt/cuda-11.8"), toolkit("12.6.85", "sm_50 sm_90", "/opt/cuda-12.6")
    new = structs.replace(new, chosen_for_builds=False)
    snapshot = structs.replace(healthy_h100().snapshot, toolkits=Known((new, old), "search"))
    for subject, marked in {"nvcc 12.6": 1, "/opt/cuda-11.8": 0, "nvcc": 0}.items():
        report = structs.replace(with_findings(finding("CD207", subject=subject)), snapshot=snapshot)
        toolkits = [row for row in stack_rows(report) if row.label == "Toolkit"]
        assert "/opt/cuda-11.8 (used for builds)" in toolkits[0].value
        assert [row.mark is Mark.ERROR for row in toolkits] == [position == marked for position in range(2)]


def test_a_toolkit_without_nvcc_says_so() -> None:
    bare = Toolkit(root="/opt/cuda", nvcc=Missing(MissingReason.NOT_FOUND, "", "search"), found_by=("CUDA_HOME",))
    row = rows(with_snapshot(toolkits=Known((bare,), "search")))["Toolkit"]
    assert row.value == "release unknown (not asked), no nvcc"
    assert row.mark is Mark.UNKNOWN


def test_an_absent_toolkit_is_no_alarm() -> None:
    row = rows(with_snapshot(toolkits=Known((), "search")))["Toolkit"]
    assert (row.value, row.mark) == ("not found", Mark.ABSENT)


def test_a_cpu_build_is_named() -> None:
    torch = Torch(torch_version=Known("2.9.1+cpu", "torch child"), build=Known(TorchBuild.CPU, "torch child"))
    python = structs.replace(healthy_h100().snapshot.python, torch=Known(torch, "torch child"))
    assert rows(with_snapshot(python=python))["torch"].value == "2.9.1+cpu, CPU build"


def libraries(copies: Fact[tuple[LibraryCopy, ...]], header: str | None = None) -> Libraries:
    headers = (CudnnHeader(path="/h/cudnn_version.h", cudnn_version=DottedVersion.parse(header)),) if header else ()
    return Libraries(copies=copies, cudnn_headers=Known(headers, "search"))


def copy_of(version: str, *, wins: bool) -> LibraryCopy:
    return LibraryCopy(
        soname="libcudnn.so.9",
        path=f"/lib/{version}/libcudnn.so.9",
        real_path=f"/lib/{version}/libcudnn.so.9",
        origin=LibraryOrigin.SYSTEM,
        library_version=Known(DottedVersion.parse(version), "file name"),
        wins=wins,
    )


@pytest.mark.parametrize(
    ("parts", "value", "source"),
    [
        (
            libraries(Known((copy_of("9.0.0", wins=False), copy_of("9.1.0", wins=True)), "ldconfig")),
            "9.1.0",
            "/lib/9.1.0/libcudnn.so.9",
        ),
        (libraries(Missing(MissingReason.TIMEOUT), "8.9.7"), "8.9.7 (header only)", "/h/cudnn_version.h"),
    ],
)
def test_cudnn_without_torch(parts: Libraries, value: str, source: str) -> None:
    python = structs.replace(healthy_h100().snapshot.python, torch=Missing(MissingReason.NOT_FOUND))
    row = rows(with_snapshot(python=python, libraries=parts))["cuDNN"]
    assert (row.value, row.source) == (value, source)


def test_cudnn_is_marked_only_by_findings_about_it() -> None:
    other = rows(with_findings(finding("CD310", name="libnvrtc-missing")))["cuDNN"]
    own = rows(with_findings(finding("CD301", name="libcudnn-missing")))["cuDNN"]
    assert (other.mark, own.mark) == (Mark.OK, Mark.ERROR)


def test_container_wsl_and_variables_have_rows_where_they_are() -> None:
    assert rows(sick_node())["Container"].value == "docker, 2 driver libraries mounted in"
    wsl = Wsl(wsl_version=Known(2, "uname"), windows_build=Known(DottedVersion.parse("10.0.26100"), "registry"))
    assert rows(with_snapshot(wsl=wsl))["WSL"].value == "WSL2, Windows build 10.0.26100"
    environment = Known({"CUDA_VISIBLE_DEVICES": "", "CUDA_HOME": "/x"}, "environment")
    report = structs.replace(with_snapshot(environment=environment), findings=(finding("CD701"),))
    row = rows(report)["Variables"]
    assert (row.value, row.mark) == ("CUDA_HOME, CUDA_VISIBLE_DEVICES", Mark.ERROR)
    assert "Variables" not in rows(with_snapshot(environment=environment))


def test_the_header_says_which_interpreter_and_why() -> None:
    assert header_parts(sick_node()) == (
        "cudadoctor 0.1.0 (data of 2026-11-30)",
        "Ubuntu 24.04.1 LTS x86_64",
        "node gpu-a17",
        "examining Python 3.12.3 /home/alice/project/.venv/bin/python (active venv)",
    )


def test_undetermined_shows_no_tick_for_what_hung() -> None:
    marked = rows(undetermined())
    assert {label: marked[label].mark for label in ("GPU", "Driver", "torch")} == dict.fromkeys(
        ("GPU", "Driver", "torch"), Mark.UNKNOWN
    )


def test_packages_have_a_row_of_their_own() -> None:
    assert "Packages" not in rows(healthy_h100())
    file = BinaryFile("/site/x.so", 1)
    read = [BinaryPackage(name, (file,), package_version="1.0") for name in ("torch", "apex", "vllm", "a", "b", "c")]
    report = with_snapshot(binaries=Known(tuple(read), "files"))
    row = rows(report)["Packages"]
    assert (row.value, row.mark) == ("apex 1.0, vllm 1.0, a 1.0, b 1.0 and 1 more", Mark.OK)
    cut = with_snapshot(binaries=Known((*read, BinaryPackage("other packages", (), complete=False)), "files"))
    assert rows(cut)["Packages"].mark is Mark.UNKNOWN
    bad = structs.replace(report, findings=(finding("CD413", subject="package vllm"),))
    row = rows(bad)["Packages"]
    assert (row.mark, row.words) == (Mark.ERROR, "CD413")
    assert row.value.startswith("vllm 1.0, apex 1.0")
    assert {other.mark for label, other in rows(bad).items() if label != "Packages"} == {Mark.OK}
