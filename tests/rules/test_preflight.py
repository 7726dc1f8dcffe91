"""Rules about what is going to be built or shipped, and the parts of other rules that preflight adds."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from cudadoctor.driver_conditions import Machine, requirements_of, satisfied
from cudadoctor.matrices.gpu_names import Segment
from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import LibraryCopy, LibraryOrigin, Snapshot, TextReading, Toolkit
from cudadoctor.model.versions import CudaVersion, DriverRelease
from cudadoctor.preflight import assumed, target_of
from cudadoctor.rules.engine import Case, Outcome, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import (
    FAIL,
    GENERATIONS,
    MATRICES,
    NOT_APPLICABLE,
    PASS,
    UNKNOWN,
    Table,
    healthy,
    judged,
    known,
    outcome,
    rows,
    with_driver,
    with_environment,
)

UNREAD = Missing(MissingReason.PARSE_ERROR, "what the image holds is not known", "Dockerfile")


def build(package: str = "simple-knn", **changes: Any) -> dict[str, Any]:
    """A build as a Dockerfile's reading has it."""
    plain = {
        "package": package,
        "command": f"pip install {package}",
        "line": 7,
        "certainly": True,
        "arch_variable": "TORCH_CUDA_ARCH_LIST",
        "arch_list": None,
        "for_torch": True,
        "without_cuda": False,
    }
    return {**plain, **changes}


def image(*builds: dict[str, Any], driver: str | None = "580", gpus: tuple[str, ...] = ("RTX 4090",), **values: Any) -> Snapshot:
    """A healthy installation, as a Dockerfile's image that is judged for GPUs elsewhere."""
    reading = TextReading(kind="dockerfile", values={"file": "Dockerfile", "builds": list(builds), "lines": {}, **values})
    snapshot = structs.replace(healthy(), readings=(reading,))
    bare = with_driver(snapshot, libcuda_copies=known(()))
    return assumed(bare, target_of(gpus, driver, MATRICES), MATRICES)


def with_nvcc(snapshot: Snapshot, version: str) -> Snapshot:
    kit = Toolkit(
        root=f"/usr/local/cuda-{version}",
        nvcc=known(f"/usr/local/cuda-{version}/bin/nvcc"),
        toolkit_version=known(CudaVersion.parse(version)),
        found_by=("PATH",),
        chosen_for_builds=True,
    )
    return structs.replace(snapshot, toolkits=known((kit,)))


def with_library_path(snapshot: Snapshot, value: str, **more: str) -> Snapshot:
    return with_environment(snapshot, LD_LIBRARY_PATH=value, **more)


def without_environment(snapshot: Snapshot) -> Snapshot:
    return structs.replace(snapshot, environment=UNREAD)


STUB = LibraryCopy(
    soname="libcuda.so.1",
    path="/usr/local/cuda/lib64/stubs/libcuda.so.1",
    real_path="/usr/local/cuda/lib64/stubs/libcuda.so",
    origin=LibraryOrigin.STUB,
    via="LD_LIBRARY_PATH",
    wins=True,
)
STUBS, COMPAT = "/usr/local/cuda/lib64/stubs", "/usr/local/cuda-12.8/compat"
REQUIRE = "cuda>=12.6 brand=tesla,driver>=550,driver<551"
TABLE: Table = {
    "stub-on-library-path": (
        ("stubs in front", with_library_path(image(), f"{STUBS}:/opt/lib"), FAIL),
        ("stubs in ld.so.conf", image(loader_folders=[{"folder": STUBS, "line": 3}]), FAIL),
        ("another folder", with_library_path(image(), "/opt/stubs-of-mine"), PASS),
        (
            "a stub called libcuda.so.1",
            with_driver(with_library_path(image(), STUBS), libcuda_copies=known((STUB,))),
            NOT_APPLICABLE,
        ),
        ("no environment read", without_environment(image()), UNKNOWN),
        ("a live machine", with_library_path(healthy(), STUBS), NOT_APPLICABLE),
    ),
    "driver-in-image": (
        ("a driver's package", image(driver_packages=[{"package": "nvidia-driver-550", "line": 4}]), FAIL),
        ("none", image(), PASS),
        ("a live machine", healthy(), NOT_APPLICABLE),
    ),
    "extension-built-without-cuda": (
        ("FORCE_CUDA left out", image(build("detectron2", without_cuda=True)), FAIL),
        ("an extension with CUDA", image(build(arch_list="8.9")), PASS),
        ("a live machine", healthy(), NOT_APPLICABLE),
    ),
    "image-contents-unknown": (
        (
            "nothing known",
            structs.replace(image(), toolkits=UNREAD, python=structs.replace(healthy().python, torch=UNREAD)),
            UNKNOWN,
        ),
        ("torch known", structs.replace(image(), toolkits=UNREAD), PASS),
        ("no Dockerfile", assumed(healthy(), target_of(("8.9",), None, MATRICES), MATRICES), NOT_APPLICABLE),
        ("a live machine", healthy(), NOT_APPLICABLE),
    ),
    "nvcc-missing": (
        ("compiled without nvcc", image(build(arch_list="8.9")), FAIL),
        ("compiled with nvcc", with_nvcc(image(build(arch_list="8.9")), "12.8"), PASS),
        ("built for the CPU only", image(build(without_cuda=True)), PASS),
    ),
    "arch-list-empty-no-gpu": (
        ("no list", with_nvcc(image(build()), "12.8"), FAIL),
        ("a list", with_nvcc(image(build(arch_list="8.9")), "12.8"), PASS),
        ("a list in ENV", with_environment(with_nvcc(image(build()), "12.8"), TORCH_CUDA_ARCH_LIST="8.9"), PASS),
        ("it chooses itself", with_nvcc(image(build(arch_variable="")), "12.8"), PASS),
    ),
    "nvcc-torch-mismatch": (
        ("another major", with_nvcc(image(build(arch_list="8.9")), "13.0"), FAIL),
        ("another minor", with_nvcc(image(build(arch_list="8.9")), "12.4"), PASS),
        ("not for torch", with_nvcc(image(build(for_torch=False, arch_variable="")), "13.0"), PASS),
    ),
    "container-require-unsatisfied": (
        ("a GeForce on an older driver", with_environment(image(driver="550"), NVIDIA_REQUIRE_CUDA=REQUIRE), FAIL),
        ("a data centre GPU, excepted", with_environment(image(driver="550", gpus=("A100",)), NVIDIA_REQUIRE_CUDA=REQUIRE), PASS),
        ("new enough", with_environment(image(), NVIDIA_REQUIRE_CUDA=REQUIRE), PASS),
        ("no driver named", with_environment(image(driver=None), NVIDIA_REQUIRE_CUDA="cuda>=99.0"), PASS),
        ("a live machine", with_environment(healthy(), NVIDIA_REQUIRE_CUDA="cuda>=99.0"), PASS),
    ),
    "cuda-compat-in-image": (
        ("a GeForce", with_library_path(image(driver="535"), COMPAT), FAIL),
        ("a driver that is newer", with_library_path(image(gpus=("A100",)), COMPAT), FAIL),
        ("a branch that it serves", with_library_path(image(driver="535", gpus=("A100",)), COMPAT), PASS),
        ("a GeForce and no driver", with_library_path(image(driver=None), COMPAT), FAIL),
        ("a data centre GPU and no driver", with_library_path(image(driver=None, gpus=("A100",)), COMPAT), PASS),
        ("not on the path", image(driver="535"), PASS),
    ),
}


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcomes(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_healthy_machine_judged_for_its_own_gpu_yields_no_error_and_no_warning(generation: str) -> None:
    machine = GENERATIONS[generation]
    gpus = tuple(str(gpu.compute_capability.value) for gpu in machine.gpus.value[:1])  # type: ignore[union-attr] # all are known
    driver = machine.driver.driver_release.value.text  # type: ignore[union-attr] # all are known
    snapshot = assumed(machine, target_of(gpus, driver, MATRICES), MATRICES)
    findings = evaluate(Case(snapshot, MATRICES), RULES).findings
    assert [finding.name for finding in findings if finding.severity is not Severity.NOTE] == []


def test_what_may_come_as_a_wheel_is_a_warning() -> None:
    (finding,) = [each for each in judged(image(build(certainly=False, arch_list="8.9"))).findings if each.name == "nvcc-missing"]
    assert finding.severity is Severity.WARNING
    assert finding.evidence[0].line == 7


def test_a_fix_names_the_devel_image() -> None:
    snapshot = image(build(arch_list="8.9"), base="nvidia/cuda:12.4.1-runtime-ubuntu22.04")
    (finding,) = [each for each in judged(snapshot).findings if each.name == "nvcc-missing"]
    assert finding.fixes[0].commands == ("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04",)


# NVIDIA_REQUIRE_CUDA


GEFORCE_550 = Machine(DriverRelease.parse("550.54.15"), CudaVersion.of(12, 4), segment=Segment.GEFORCE)
TESLA_550 = Machine(DriverRelease.parse("550.54.15"), CudaVersion.of(12, 4), segment=Segment.DATA_CENTER)


@pytest.mark.parametrize(
    ("value", "machine", "expected"),
    [
        ("cuda>=12.4", GEFORCE_550, True),
        ("cuda>=12.6", GEFORCE_550, False),
        (REQUIRE, GEFORCE_550, False),
        (REQUIRE, TESLA_550, True),
        (REQUIRE, Machine(DriverRelease.parse("550.54.15"), CudaVersion.of(12, 4)), None),
        ("cuda>=12.6 driver>=450", GEFORCE_550, True),
        ("driver>=550,driver<551", GEFORCE_550, True),
        ("brand!=geforce", GEFORCE_550, False),
        ("cuda>=13.0", Machine(), None),
        ("", GEFORCE_550, True),
        ("colour=blue", GEFORCE_550, None),
        ("cuda>=x", GEFORCE_550, None),
        ("cuda>=12.6,colour=blue", GEFORCE_550, False),
        ("cuda>=9 " * 100_000, GEFORCE_550, True),
        ("cuda>=13 " * 100_000, GEFORCE_550, None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_conditions_are_read_as_the_runtime_does(value: str, machine: Machine, expected: bool | None) -> None:
    assert satisfied(value, machine) is expected


def test_the_check_can_be_switched_off() -> None:
    values = {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0", "NVIDIA_REQUIRE_X": " ", "PATH": "/bin"}
    assert requirements_of(values) == (("NVIDIA_REQUIRE_CUDA", "cuda>=13.0"),)
    for word in ("1", "true", "T"):
        assert requirements_of({**values, "NVIDIA_DISABLE_REQUIRE": word}) == ()
    assert requirements_of({**values, "NVIDIA_DISABLE_REQUIRE": "no"}) != ()
