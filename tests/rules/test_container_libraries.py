"""The driver's libraries inside containers."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity, Where
from cudadoctor.model.snapshot import Driver, LibraryOrigin, Snapshot
from cudadoctor.model.versions import CudaVersion, DriverRelease
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    EMPTY_CONTAINER,
    FAIL,
    IN_CONTAINER,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    broken,
    healthy,
    inside,
    judged,
    known,
    libcuda,
    names,
    outcome,
    rows,
    said,
    text_only,
    with_container,
    with_driver,
    with_environment,
)


def lacks(library: str, capabilities: str | None = None) -> Snapshot:
    """A text from a container in which a driver library is missing."""
    error = said("driver-lib-missing", f"Cannot load {library}", library=library)
    shown = (said("shown-driver-capabilities", value=capabilities),) if capabilities is not None else ()
    return text_only(said("shown-container"), error, *shown)


NO_LIBCUDA = said("libcuda-load-failed", "libcuda.so.1: cannot open shared object file")
NO_PLATFORM = said("framework-no-platform", "No platform detected")
MOUNTED = said("shown-mounted-driver-libraries", "ls /usr/local/nvidia/lib64 libcuda.so.1")
ERROR_803 = said("cuda-error-803", "system has unsupported display driver / cuda driver combination")
ELSEWHERE = with_driver(
    EMPTY_CONTAINER, libcuda_copies=known((libcuda("/usr/local/nvidia/lib64/libcuda.so.1", LibraryOrigin.DRIVER, wins=False),))
)
COMPAT = known((libcuda("/usr/local/cuda/compat/libcuda.so.1", LibraryOrigin.COMPAT),))
COMPAT_803 = inside(with_driver(broken(healthy(), 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), libcuda_copies=COMPAT))
ON_PATH = with_environment(text_only(NO_PLATFORM, MOUNTED), LD_LIBRARY_PATH="/usr/local/nvidia/lib64")
UTILITY_ONLY = text_only(NO_LIBCUDA, said("shown-container"), said("shown-driver-capabilities", value="utility"))
LIFTED = Driver(driver_release=known(DriverRelease.parse("460.80")), driver_cuda_version=known(CudaVersion.of(11, 3)))
TABLE: Table = {
    "container-driver-libs-not-on-path": (
        ("mounted elsewhere", ELSEWHERE, FAIL),
        ("nothing mounted", EMPTY_CONTAINER, PASS),
        ("all well inside", inside(healthy()), PASS),
        ("no container", with_container(ELSEWHERE, kind=IN_CONTAINER), NOT_APPLICABLE),
        ("loader unreadable", with_driver(ELSEWHERE, libcuda_copies=TIMED_OUT), UNKNOWN),
        ("listed in the text", text_only(NO_PLATFORM, MOUNTED), FAIL),
        ("on the path already", ON_PATH, PASS),
    ),
    "cuda-compat-in-image": (
        ("803 with the compat library", COMPAT_803, FAIL),
        ("803 with the driver's own", inside(broken(healthy(), 803)), PASS),
        ("the compat library does its job", inside(with_driver(healthy(), libcuda_copies=COMPAT)), PASS),
        ("loader unreadable", with_driver(healthy(), libcuda_copies=TIMED_OUT, cu_init=TIMED_OUT), UNKNOWN),
        ("803 in a container's text", text_only(ERROR_803, said("shown-container")), FAIL),
        ("803 on a host's text", text_only(ERROR_803), PASS),
        ("reports more than the branch has", text_only(said("forward-compat-unsupported"), driver=LIFTED), FAIL),
    ),
    "driver-capabilities-missing": (
        ("without compute", with_environment(EMPTY_CONTAINER, NVIDIA_DRIVER_CAPABILITIES="graphics,utility"), FAIL),
        ("all of them", with_environment(EMPTY_CONTAINER, NVIDIA_DRIVER_CAPABILITIES="all"), PASS),
        ("not set", EMPTY_CONTAINER, PASS),
        ("environment unreadable", structs.replace(EMPTY_CONTAINER, environment=TIMED_OUT), UNKNOWN),
        ("encoder without video", lacks("libnvidia-encode.so.1", "graphics,utility,compute"), FAIL),
        ("encoder with video", lacks("libnvidia-encode.so.1", "video,utility,compute"), PASS),
        ("decoder by default", lacks("libnvcuvid.so.1"), FAIL),
        ("NVML by default", lacks("libnvidia-ml.so.1"), PASS),
        ("libcuda without compute", UTILITY_ONLY, FAIL),
        ("on a host", text_only(said("driver-lib-missing", library="libnvidia-encode.so.1")), PASS),
    ),
    "driver-libs-in-image": (
        ("the hook says so", text_only(said("driver-libs-in-image", "libnvidia-ml.so.1: file exists")), FAIL),
        ("all well", healthy(), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_the_capability_is_added_to_those_given() -> None:
    finding = next(
        f
        for f in judged(lacks("libnvidia-encode.so.1", "graphics,utility,compute")).findings
        if f.name == "driver-capabilities-missing"
    )
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,graphics,utility,video" in finding.fixes[0].commands[0]
    assert finding.fixes[0].where is Where.HOST


def test_compat_in_a_container_without_proof_is_only_a_warning() -> None:
    results = judged(text_only(ERROR_803, said("shown-container")))
    assert "cuda-compat-in-image" in names(results, Severity.WARNING)
