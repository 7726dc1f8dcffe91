"""Containers: was the GPU given to them, do they find the driver's files."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.finding import Severity, Where
from cudadoctor.model.snapshot import ApiStatus, Driver, LibraryCopy, LibraryOrigin, Snapshot
from cudadoctor.model.versions import CudaVersion, DriverRelease
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
    FAIL,
    NOT_APPLICABLE,
    PASS,
    REFUSED,
    TIMED_OUT,
    UNKNOWN,
    Table,
    broken,
    healthy,
    judged,
    known,
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


def inside(snapshot: Snapshot) -> Snapshot:
    """The machine seen from a container."""
    return with_container(
        snapshot, kind=known("docker"), nvidia_toolkit=NOT_HERE, docker_snap=NOT_HERE, injected_libraries=known(())
    )


def libcuda(path: str, origin: LibraryOrigin, wins: bool = True) -> LibraryCopy:
    return LibraryCopy(soname="libcuda.so.1", path=path, real_path=path, origin=origin, wins=wins)


def started(arguments: str) -> Snapshot:
    """A text that shows a container's start and an ImportError of libcuda in it."""
    return text_only(said("shown-docker-run", f"docker run {arguments}", arguments=arguments), NO_LIBCUDA)


def lacks(library: str, capabilities: str | None = None) -> Snapshot:
    """A text from a container in which a driver library is missing."""
    error = said("driver-lib-missing", f"Cannot load {library}", library=library)
    shown = (said("shown-driver-capabilities", value=capabilities),) if capabilities is not None else ()
    return text_only(said("shown-container"), error, *shown)


NOT_HERE = Missing(MissingReason.NOT_APPLICABLE, "inside a container")
NO_LIBCUDA = said("libcuda-load-failed", "libcuda.so.1: cannot open shared object file")
NO_RUNTIME = said("container-no-gpu-driver", 'could not select device driver "" with capabilities: [[gpu]]')
NO_PLATFORM = said("framework-no-platform", "No platform detected")
NVML_UNKNOWN = said("nvml-unknown-error", "Failed to initialize NVML: Unknown Error")
MOUNTED = said("shown-mounted-driver-libraries", "ls /usr/local/nvidia/lib64 libcuda.so.1")
ERROR_803 = said("cuda-error-803", "system has unsupported display driver / cuda driver combination")

EMPTY = inside(
    structs.replace(
        with_driver(
            healthy(),
            device_nodes=known(()),
            libcuda_copies=known(()),
            cu_init=ABSENT,
            visible_device_count=ABSENT,
            nvml=ABSENT,
            nvidia_smi=ABSENT,
        ),
        gpus=REFUSED,
    )
)
ELSEWHERE = with_driver(
    EMPTY, libcuda_copies=known((libcuda("/usr/local/nvidia/lib64/libcuda.so.1", LibraryOrigin.DRIVER, wins=False),))
)
COMPAT = known((libcuda("/usr/local/cuda/compat/libcuda.so.1", LibraryOrigin.COMPAT),))
COMPAT_803 = inside(with_driver(broken(healthy(), 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"), libcuda_copies=COMPAT))
UNKNOWN_NVML = inside(with_driver(broken(healthy(), 999), nvml=known(ApiStatus(code=999, message="Unknown Error"), "NVML")))
WITH_DOCKER = with_container(healthy(), docker_snap=known(False), nvidia_toolkit=ABSENT)
ON_PATH = with_environment(text_only(NO_PLATFORM, MOUNTED), LD_LIBRARY_PATH="/usr/local/nvidia/lib64")
UTILITY_ONLY = text_only(NO_LIBCUDA, said("shown-container"), said("shown-driver-capabilities", value="utility"))
LIFTED = Driver(driver_release=known(DriverRelease.parse("460.80")), driver_cuda_version=known(CudaVersion.of(11, 3)))

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
        ("nothing passed in", EMPTY, FAIL),
        ("libraries passed in", ELSEWHERE, PASS),
        ("all well inside", inside(healthy()), PASS),
        ("nodes unreadable", with_driver(EMPTY, device_nodes=TIMED_OUT), UNKNOWN),
        ("no container", with_container(EMPTY, kind=NOT_HERE), NOT_APPLICABLE),
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
    "container-driver-libs-not-on-path": (
        ("mounted elsewhere", ELSEWHERE, FAIL),
        ("nothing mounted", EMPTY, PASS),
        ("all well inside", inside(healthy()), PASS),
        ("no container", with_container(ELSEWHERE, kind=NOT_HERE), NOT_APPLICABLE),
        ("loader unreadable", with_driver(ELSEWHERE, libcuda_copies=TIMED_OUT), UNKNOWN),
        ("listed in the text", text_only(NO_PLATFORM, MOUNTED), FAIL),
        ("on the path already", ON_PATH, PASS),
    ),
    "cdi-spec-missing": (
        ("the engine says so", text_only(said("cdi-spec-missing", "unresolvable CDI devices nvidia.com/gpu=all")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "nvml-unknown-cgroup": (
        ("NVML fails inside", UNKNOWN_NVML, FAIL),
        ("NVML fails outside", with_container(UNKNOWN_NVML, kind=NOT_HERE), NOT_APPLICABLE),
        ("all well inside", inside(healthy()), PASS),
        ("NVML does not answer", inside(with_driver(broken(healthy(), 999), nvml=TIMED_OUT)), UNKNOWN),
        ("in the text of a container", text_only(NVML_UNKNOWN, said("shown-docker-run", arguments="--gpus all")), FAIL),
        ("in a text of unknown place", text_only(NVML_UNKNOWN), UNKNOWN),
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
        ("without compute", with_environment(EMPTY, NVIDIA_DRIVER_CAPABILITIES="graphics,utility"), FAIL),
        ("all of them", with_environment(EMPTY, NVIDIA_DRIVER_CAPABILITIES="all"), PASS),
        ("not set", EMPTY, PASS),
        ("environment unreadable", structs.replace(EMPTY, environment=TIMED_OUT), UNKNOWN),
        ("encoder without video", lacks("libnvidia-encode.so.1", "graphics,utility,compute"), FAIL),
        ("encoder with video", lacks("libnvidia-encode.so.1", "video,utility,compute"), PASS),
        ("decoder by default", lacks("libnvcuvid.so.1"), FAIL),
        ("NVML by default", lacks("libnvidia-ml.so.1"), PASS),
        ("libcuda without compute", UTILITY_ONLY, FAIL),
        ("on a host", text_only(said("driver-lib-missing", library="libnvidia-encode.so.1")), PASS),
    ),
    "container-visible-devices-none": (
        ("none", with_environment(EMPTY, NVIDIA_VISIBLE_DEVICES="none"), FAIL),
        ("all", with_environment(EMPTY, NVIDIA_VISIBLE_DEVICES="all"), PASS),
        ("void by CDI, and all well", with_environment(inside(healthy()), NVIDIA_VISIBLE_DEVICES="void"), PASS),
        ("outside", with_environment(healthy(), NVIDIA_VISIBLE_DEVICES="none"), NOT_APPLICABLE),
        ("environment unreadable", structs.replace(EMPTY, environment=TIMED_OUT), UNKNOWN),
    ),
    "container-hook-failed": (
        ("the hook says so", text_only(said("container-cli-failed", reason="ldcache error")), FAIL),
        ("all well", healthy(), PASS),
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
    "driver-libs-in-image": (
        ("the hook says so", text_only(said("driver-libs-in-image", "libnvidia-ml.so.1: file exists")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "container-cgroup-v2-unsupported": (
        ("the hook says so", text_only(said("container-cgroup-v2-unsupported")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "docker-too-old": (
        ("docker says so", text_only(said("docker-too-old", "unknown flag: --gpus")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "container-rootless-cgroups": (
        ("the hook says so", text_only(said("container-rootless-cgroups")), FAIL),
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
        (EMPTY, "container-gpus-flag-missing"),
        (ELSEWHERE, "container-driver-libs-not-on-path"),
        (UNKNOWN_NVML, "nvml-unknown-cgroup"),
        (COMPAT_803, "cuda-compat-in-image"),
        (with_environment(EMPTY, NVIDIA_VISIBLE_DEVICES="none"), "container-visible-devices-none"),
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


def test_no_cgroups_is_named_and_set_back() -> None:
    snapshot = text_only(NVML_UNKNOWN, said("shown-docker-run", arguments="--gpus all"), said("shown-no-cgroups"))
    finding = judged(snapshot).findings[0]
    assert finding.name == "nvml-unknown-cgroup"
    assert "no-cgroups=false" in finding.fixes[0].commands[0]
    assert len(finding.fixes) == 1


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


def test_hook_failure_is_explained_by_a_version_mismatch() -> None:
    results = judged(text_only(said("container-cli-failed", reason="nvml error"), said("nvml-version-mismatch")))
    assert roots(results) == ["nvml-version-mismatch"]
