"""Starting containers: the runtime, the request for the GPU, the image's demands."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import ApiStatus, DeviceNode, Driver, LibraryOrigin, Snapshot
from cudadoctor.model.versions import CudaVersion, DriverRelease
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
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
    roots,
    rows,
    said,
    text_only,
    with_container,
    with_driver,
    with_environment,
)


def started(arguments: str) -> Snapshot:
    """A text that shows a container's start and an ImportError of libcuda in it."""
    return text_only(said("shown-docker-run", f"docker run {arguments}", arguments=arguments), NO_LIBCUDA)


NO_LIBCUDA = said("libcuda-load-failed", "libcuda.so.1: cannot open shared object file")
NO_RUNTIME = said("container-no-gpu-driver", 'could not select device driver "" with capabilities: [[gpu]]')
ELSEWHERE = with_driver(
    EMPTY_CONTAINER, libcuda_copies=known((libcuda("/usr/local/nvidia/lib64/libcuda.so.1", LibraryOrigin.DRIVER, wins=False),))
)
COMPAT = known((libcuda("/usr/local/cuda/compat/libcuda.so.1", LibraryOrigin.COMPAT),))
COMPAT_803 = inside(with_driver(broken(healthy(), 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), libcuda_copies=COMPAT))
UNKNOWN_NVML = inside(with_driver(broken(healthy(), 999), nvml=known(ApiStatus(code=999, message="Unknown Error"), "NVML")))
WITH_CONTROL_NODE = with_driver(EMPTY_CONTAINER, device_nodes=known((DeviceNode(path="/dev/nvidiactl", accessible=True),)))
NO_HOST_GPU = with_driver(EMPTY_CONTAINER, pci_devices=known(()), kernel_module=ABSENT)
WITH_DOCKER = with_container(healthy(), docker_snap=known(False), nvidia_toolkit=ABSENT)
TABLE: Table = {
    "container-toolkit-missing": (
        ("Docker without the toolkit", WITH_DOCKER, FAIL),
        ("Docker with the toolkit", with_container(WITH_DOCKER, nvidia_toolkit=known("1.17.4")), PASS),
        ("no Docker", healthy(), NOT_APPLICABLE),
        ("Docker unreadable", with_container(WITH_DOCKER, docker_snap=TIMED_OUT), UNKNOWN),
        ("the engine says so", text_only(NO_RUNTIME), FAIL),
    ),
    "docker-snap": (
        ("the snap", with_container(WITH_DOCKER, docker_snap=known(True)), FAIL),
        ("another package", WITH_DOCKER, PASS),
        ("no Docker", healthy(), NOT_APPLICABLE),
        ("Docker unreadable", with_container(WITH_DOCKER, docker_snap=TIMED_OUT), UNKNOWN),
    ),
    "container-gpus-flag-missing": (
        ("nothing passed in", EMPTY_CONTAINER, FAIL),
        ("libraries passed in", ELSEWHERE, PASS),
        ("all well inside", inside(healthy()), PASS),
        ("nodes unreadable", with_driver(EMPTY_CONTAINER, device_nodes=TIMED_OUT), UNKNOWN),
        ("no container", with_container(EMPTY_CONTAINER, kind=IN_CONTAINER), NOT_APPLICABLE),
        ("started without the flag", started("--rm -it IMAGE"), FAIL),
        ("started with --gpus", started("--rm --gpus all IMAGE"), UNKNOWN),
        ("started with the nvidia runtime", started("--runtime=nvidia IMAGE"), UNKNOWN),
        ("started by CDI", started("--device nvidia.com/gpu=all IMAGE"), UNKNOWN),
        ("the image's entry point says so", text_only(said("container-no-gpu-warning")), FAIL),
    ),
    "container-require-unsatisfied": (
        ("the runtime says so", text_only(said("container-require-unsatisfied", condition="cuda>=12.8")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "container-visible-devices-none": (
        ("none", with_environment(EMPTY_CONTAINER, NVIDIA_VISIBLE_DEVICES="none"), FAIL),
        ("all", with_environment(EMPTY_CONTAINER, NVIDIA_VISIBLE_DEVICES="all"), PASS),
        ("none, and the control node", with_environment(WITH_CONTROL_NODE, NVIDIA_VISIBLE_DEVICES="none"), FAIL),
        ("none, and no GPU on the host", with_environment(NO_HOST_GPU, NVIDIA_VISIBLE_DEVICES="none"), NOT_APPLICABLE),
        ("void by CDI, and all well", with_environment(inside(healthy()), NVIDIA_VISIBLE_DEVICES="void"), PASS),
        ("outside", with_environment(healthy(), NVIDIA_VISIBLE_DEVICES="none"), NOT_APPLICABLE),
        ("environment unreadable", structs.replace(EMPTY_CONTAINER, environment=TIMED_OUT), UNKNOWN),
    ),
    "container-unknown-device": (
        ("the hook says so", text_only(said("container-unknown-device", device="5")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "shm-too-small": (
        ("torch says so", text_only(said("shm-too-small")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "kubernetes-gpu-not-offered": (
        ("the scheduler says so", text_only(said("kubernetes-no-gpu-resource", "Insufficient nvidia.com/gpu")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "docker-too-old": (
        ("docker says so", text_only(said("docker-too-old", "unknown flag: --gpus")), FAIL),
        ("all well", healthy(), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_a_container_where_all_works_has_no_error_and_no_warning() -> None:
    results = judged(inside(healthy()))
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []


@pytest.mark.parametrize(
    ("snapshot", "root"),
    [
        (EMPTY_CONTAINER, "container-gpus-flag-missing"),
        (ELSEWHERE, "container-driver-libs-not-on-path"),
        (UNKNOWN_NVML, "nvml-unknown-cgroup"),
        (COMPAT_803, "cuda-compat-in-image"),
        (with_environment(EMPTY_CONTAINER, NVIDIA_VISIBLE_DEVICES="none"), "container-visible-devices-none"),
        (started("--rm IMAGE"), "container-gpus-flag-missing"),
    ],
    ids=["no flag", "not on path", "cgroup", "compat", "none", "text"],
)
def test_one_root(snapshot: Snapshot, root: str) -> None:
    assert roots(judged(snapshot)) == [root]


def test_snap_explains_a_missing_runtime() -> None:
    results = judged(text_only(NO_RUNTIME, said("docker-snap", "docker.dockerd enabled active")))
    assert roots(results) == ["docker-snap"]
    assert "container-toolkit-missing" in names(results, Severity.ERROR)


def test_docker_without_the_toolkit_is_a_remark_on_a_healthy_host() -> None:
    results = judged(WITH_DOCKER)
    assert "container-toolkit-missing" in names(results, Severity.NOTE)
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []


def test_unsatisfied_requirement_quotes_condition_and_driver() -> None:
    snapshot = structs.replace(
        text_only(said("container-require-unsatisfied", condition="cuda>=12.8")),
        driver=Driver(driver_release=known(DriverRelease.parse("550.144.03")), driver_cuda_version=known(CudaVersion.of(12, 4))),
    )
    finding = judged(snapshot).findings[0]
    assert finding.name == "container-require-unsatisfied"
    assert "cuda>=12.8" in finding.what
    assert "12.4" in finding.what
    assert "12.4" in finding.fixes[0].title
