"""What programs need of a loaded driver: device nodes and libraries."""

from __future__ import annotations

import pytest

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import ApiStatus, DeviceNode, Driver, Host, Platform, Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
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
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_container,
    with_driver,
    with_wsl,
)


def node(path: str, accessible: bool = True, detail: str = "") -> DeviceNode:
    return DeviceNode(path=path, accessible=accessible, mode="crw-rw----", detail=detail)


def without_libraries(snapshot: Snapshot) -> Snapshot:
    silent = with_driver(snapshot, cu_init=ABSENT, visible_device_count=ABSENT, nvml=ABSENT, nvidia_smi=ABSENT)
    return with_driver(silent, libcuda_copies=known(()))


CONTROL = node("/dev/nvidiactl")
BROKEN_999 = broken(healthy(), 999, "CUDA_ERROR_UNKNOWN", "unknown error")
NO_UVM = with_driver(BROKEN_999, device_nodes=known((CONTROL, node("/dev/nvidia0"))))
CLOSED = with_driver(
    broken(healthy(), 999, "CUDA_ERROR_UNKNOWN"),
    device_nodes=known((node("/dev/nvidiactl", False, "no permission to read and write"), node("/dev/nvidia-uvm"))),
)
BROKEN_802 = broken(GENERATIONS["hopper"], 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized")
SILENT = with_driver(healthy(), cu_init=TIMED_OUT, visible_device_count=TIMED_OUT)
NO_UVM_MODULE = with_driver(BROKEN_999, device_nodes=known((CONTROL,)), loaded_modules=known(("nvidia",)))
DENIED = with_driver(BROKEN_999, device_nodes=known((node("/dev/nvidiactl", False, "Operation not permitted"),)))
NO_NVML = said("driver-lib-missing", "load library failed", library="libnvidia-ml.so.1")
NO_SMI = said("smi-not-installed")
RTX_3060 = known((gpu("NVIDIA GeForce RTX 3060", "8.6"),))
LOADED = Driver(kernel_module=healthy().driver.kernel_module)
TABLE: Table = {
    "driver-userspace-missing": (
        ("module loaded, no libraries", without_libraries(healthy()), FAIL),
        ("all there", healthy(), PASS),
        ("module unreadable", with_driver(without_libraries(healthy()), kernel_module=TIMED_OUT), UNKNOWN),
        ("in a container", with_container(without_libraries(healthy()), kind=known("docker")), NOT_APPLICABLE),
        ("the container runtime misses NVML", text_only(NO_NVML), FAIL),
        ("under WSL", text_only(NO_NVML, said("shown-wsl")), NOT_APPLICABLE),
        ("no nvidia-smi beside a GPU", text_only(NO_SMI, gpus=RTX_3060), FAIL),
        ("no nvidia-smi beside a module", text_only(NO_SMI, driver=LOADED), FAIL),
        ("no nvidia-smi in a container", text_only(NO_SMI, said("shown-container"), gpus=RTX_3060), UNKNOWN),
    ),
    "uvm-device-missing": (
        ("node absent and cuInit fails", NO_UVM, FAIL),
        ("module absent and cuInit fails", NO_UVM_MODULE, FAIL),
        ("node absent but CUDA works", with_driver(healthy(), device_nodes=known((CONTROL,))), PASS),
        ("node present", BROKEN_999, PASS),
        ("cuInit does not answer", SILENT, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("ls says so", text_only(said("uvm-device-missing")), FAIL),
    ),
    "uvm-broken-after-suspend": (
        ("999 with all nodes", BROKEN_999, FAIL),
        ("999 without the node", NO_UVM, PASS),
        ("999 without permission", CLOSED, PASS),
        ("all well", healthy(), PASS),
        ("another error", broken(healthy(), 803), PASS),
        ("cuInit does not answer", SILENT, UNKNOWN),
        ("under WSL", with_wsl(BROKEN_999), NOT_APPLICABLE),
        ("told of a suspend", text_only(said("cuda-error-999"), said("shown-suspend", "after suspend")), FAIL),
        ("999 in a container", text_only(said("cuda-error-999"), said("shown-container")), PASS),
    ),
    "device-permission": (
        ("node closed", CLOSED, FAIL),
        ("nodes open", BROKEN_999, PASS),
        ("all well", healthy(), PASS),
        ("nodes unreadable", with_driver(BROKEN_999, device_nodes=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("the control group's denial is another matter", DENIED, PASS),
        ("NVML says so", text_only(said("device-permission", "Failed to initialize NVML: Insufficient Permissions")), FAIL),
    ),
    "nvml-unknown-error": (
        ("on the host", with_driver(BROKEN_999, nvml=known(ApiStatus(code=999, message="Unknown Error"))), FAIL),
        ("all well", healthy(), PASS),
        ("in a container", with_container(with_driver(BROKEN_999, nvml=known(ApiStatus(code=999))), kind=known("docker")), PASS),
        ("NVML does not answer", with_driver(healthy(), nvml=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


@pytest.mark.parametrize(
    ("snapshot", "root"),
    [
        (NO_UVM, "uvm-device-missing"),
        (BROKEN_999, "uvm-broken-after-suspend"),
        (CLOSED, "device-permission"),
        (BROKEN_802, "fabric-manager-not-running"),
        (without_libraries(healthy()), "driver-userspace-missing"),
    ],
    ids=["no node", "stale module", "no permission", "no fabric", "no libraries"],
)
def test_what_cu_init_answers_is_explained_by_one_root(snapshot: Snapshot, root: str) -> None:
    results = judged(snapshot)
    assert roots(results) == [root]


def test_loading_the_unified_memory_module_is_rechecked() -> None:
    finding = next(f for f in judged(NO_UVM).findings if f.name == "uvm-device-missing")
    assert finding.fixes[0].rechecked
    assert "nvidia_uvm" in finding.fixes[0].commands[0]


def test_opening_the_nodes_is_rechecked_and_names_them() -> None:
    finding = next(f for f in judged(CLOSED).findings if f.name == "device-permission")
    assert finding.fixes[0].rechecked
    assert "/dev/nvidiactl" in finding.what
    assert "/dev/nvidia-uvm" not in finding.what


def test_999_without_a_hint_is_only_possible() -> None:
    findings = {finding.name: finding for finding in judged(text_only(said("cuda-error-999"))).findings}
    assert findings["uvm-broken-after-suspend"].confidence.value == "possible"


def test_999_on_windows_is_not_linux_s_unified_memory() -> None:
    snapshot = text_only(said("cuda-error-999"), host=Host(platform=known(Platform.WINDOWS)))
    assert "uvm-broken-after-suspend" not in names(judged(snapshot), Severity.ERROR)
