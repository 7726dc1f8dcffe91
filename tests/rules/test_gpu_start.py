"""What a GPU needs to start: fabric manager, firmware, system processor."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.snapshot import Snapshot
from cudadoctor.model.versions import DriverRelease
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    GENERATIONS,
    NO_GPU,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    broken,
    gpu,
    healthy,
    judged,
    known,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_container,
    with_driver,
)


def without_persistence(name: str) -> Snapshot:
    return structs.replace(healthy(), gpus=known((structs.replace(gpu(name, "9.0"), persistence=known(False)),)))


BROKEN_802 = broken(GENERATIONS["hopper"], 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized")
SILENT = with_driver(healthy(), cu_init=TIMED_OUT, visible_device_count=TIMED_OUT)
RTX_3060 = known((gpu("NVIDIA GeForce RTX 3060", "8.6"),))
TABLE: Table = {
    "fabric-manager-not-running": (
        ("802", BROKEN_802, FAIL),
        ("all well", GENERATIONS["hopper"], PASS),
        ("cuInit does not answer", SILENT, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("torch says 802", text_only(said("cuda-error-802", "system not yet initialized")), FAIL),
        ("the unit is absent", text_only(said("fabric-manager-not-running")), FAIL),
        ("the unit is absent on a desktop", text_only(said("fabric-manager-not-running"), gpus=RTX_3060), PASS),
    ),
    "persistence-mode-off": (
        ("a data-centre GPU", without_persistence("NVIDIA H100 80GB HBM3"), FAIL),
        ("on", GENERATIONS["hopper"], PASS),
        ("a desktop", without_persistence("NVIDIA GeForce RTX 4090"), PASS),
        ("GPUs not listed", structs.replace(healthy(), gpus=TIMED_OUT), UNKNOWN),
        ("in a container", with_container(healthy(), kind=known("docker")), NOT_APPLICABLE),
    ),
    "gpu-init-failed": (
        ("the kernel says so", text_only(said("gpu-init-failed", "RmInitAdapter failed!")), FAIL),
        ("all well", healthy(), PASS),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "gsp-failure": (
        ("the kernel says so", text_only(said("gsp-failure")), FAIL),
        ("Xid 119", text_only(said("xid", "NVRM: Xid (PCI:0000:01:00): 119, Timeout", xid="119")), FAIL),
        ("Xid 31", text_only(said("xid", "NVRM: Xid (PCI:0000:01:00): 31", xid="31")), PASS),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "gsp-firmware-missing": (
        ("the kernel says so", text_only(said("gsp-firmware-missing")), FAIL),
        ("all well", healthy(), PASS),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_fabric_manager_of_another_release_is_named() -> None:
    snapshot = text_only(
        said("cuda-error-802", "system not yet initialized"),
        said("shown-driver-package", release="575.57.08"),
        said("shown-fabric-package", release="580.65.06"),
    )
    finding = judged(snapshot).findings[0]
    assert finding.name == "fabric-manager-not-running"
    assert "580.65.06" in finding.what
    assert "575.57.08" in finding.what
    assert "nvidia-fabricmanager-575" in finding.fixes[0].commands[0]


def test_fabric_manager_of_the_driver_s_release_is_not_blamed_for_it() -> None:
    snapshot = text_only(said("cuda-error-802"), said("shown-fabric-package", release="580.65.06-1"))
    same = with_driver(snapshot, driver_release=known(DriverRelease.parse("580.65.06")))
    assert "have to be equal" not in judged(same).findings[0].what


def test_firmware_explains_a_gpu_that_does_not_start() -> None:
    results = judged(text_only(said("gsp-firmware-missing"), said("gpu-init-failed")))
    assert roots(results) == ["gsp-firmware-missing"]
