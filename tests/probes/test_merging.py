from __future__ import annotations

from typing import Any

from cudadoctor.gpu.child import ChildFailure
from cudadoctor.gpu.description import DeviceDescription, DriverDescription
from cudadoctor.model.fact import Known, Missing, MissingReason, OtherSource, known
from cudadoctor.model.proof import ApiError
from cudadoctor.model.snapshot import ApiStatus, DeviceNode, Driver, Gpu, Snapshot
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease
from cudadoctor.probes.combining import combine, first_known
from cudadoctor.probes.merging import merge_driver, merge_driver_description, merge_gpus
from cudadoctor.probes.nvidia_smi import SmiAnswer
from cudadoctor.probes.nvml import NvmlAnswer

TIMEOUT = Missing(MissingReason.TIMEOUT, "no answer", "nvidia-smi")
ABSENT = Missing(MissingReason.NOT_FOUND, "not there", "NVML")
SUCCESS = ApiError(0, "CUDA_SUCCESS", "no error")


def release(text: str, source: str) -> Known[DriverRelease]:
    return Known(DriverRelease.parse(text), source)


def gpu(index: int, source: str, address: str, **facts: Any) -> Gpu:
    known_facts: dict[str, Any] = {key: Known(value, source) for key, value in facts.items()}
    return Gpu(index=index, pci_bus_id=Known(address, source), **known_facts)


def device(index: int, address: str, **more: Any) -> DeviceDescription:
    return DeviceDescription(
        index=index,
        **{
            "name": "NVIDIA A100",
            "pci_bus_id": address,
            "compute_capability_major": 8,
            "compute_capability_minor": 0,
            "multiprocessor_count": 108,
            "integrated": 0,
            "compute_mode": 0,
            "total_memory_bytes": 42,
            **more,
        },
    )


def described(*devices: DeviceDescription, **more: Any) -> DriverDescription:
    facts: dict[str, Any] = {
        "visible_devices": None,
        "libcuda": ("/usr/lib/libcuda.so.580.95.05",),
        "driver_version": 13000,
        "init": SUCCESS,
        "device_count": len(devices),
        "devices": devices,
        **more,
    }
    return DriverDescription(**facts)


def test_the_first_known_fact_counts_and_the_others_are_kept() -> None:
    fact = combine(ABSENT, release("535.104.05", "NVML"), release("535.183.01", "nvidia-smi"))
    assert fact == Known(DriverRelease.parse("535.104.05"), "NVML", others=(OtherSource("nvidia-smi", "535.183.01"),))


def test_without_a_known_fact_the_most_telling_reason_stays() -> None:
    assert combine(ABSENT, TIMEOUT) == TIMEOUT
    assert first_known(ABSENT, TIMEOUT) == TIMEOUT
    assert isinstance(combine(), Missing)


def test_momentary_readings_are_not_compared() -> None:
    assert first_known(Known(40, "NVML"), Known(41, "nvidia-smi")) == Known(40, "NVML")


def test_the_driver_is_merged_from_procfs_nvml_and_nvidia_smi() -> None:
    files = Driver(driver_release=release("535.104.05", "procfs"))
    nvml = NvmlAnswer(Known(ApiStatus(code=0), "NVML"), release("535.104.05", "NVML"), Known(CudaVersion.of(12, 2), "NVML"))
    smi = SmiAnswer(Known(ApiStatus(code=0), "nvidia-smi"), release("535.183.01", "nvidia-smi"))
    driver = merge_driver(files, nvml, smi)
    fact = driver.driver_release
    assert isinstance(fact, Known)
    assert [(other.source, other.value) for other in fact.others] == [("NVML", "535.104.05"), ("nvidia-smi", "535.183.01")]
    assert known(driver.driver_cuda_version) == CudaVersion.of(12, 2)


def test_a_node_that_cannot_be_opened_is_not_accessible_whatever_its_mode() -> None:
    node = DeviceNode(path="/dev/nvidia0", accessible=True, mode="crw-rw-rw-")
    refused = DeviceNode(path="/dev/nvidia0", accessible=False, detail="Operation not permitted")
    driver = merge_driver(
        Driver(device_nodes=Known((node,), "/dev")), NvmlAnswer.nothing(ABSENT, (refused,)), SmiAnswer.nothing(ABSENT)
    )
    (merged,) = known(driver.device_nodes)
    assert (merged.accessible, merged.mode) == (False, "crw-rw-rw-")
    assert merged.detail == "cannot be opened: Operation not permitted"


def test_gpus_of_two_sources_are_matched_by_their_address() -> None:
    nvml = Known((gpu(0, "NVML", "a", name="A"), gpu(1, "NVML", "b", name="B", temperature_c=40)), "NVML")
    smi = Known((gpu(0, "smi", "b", name="B!", temperature_c=41), gpu(2, "smi", "c", name="C")), "smi")
    first, second, third = known(merge_gpus(nvml, smi))
    assert first == nvml.value[0]
    assert second.name == Known("B", "NVML", others=(OtherSource("smi", "B!"),))
    assert second.temperature_c == Known(40, "NVML")
    assert known(third.name) == "C"


def test_one_silent_source_leaves_the_other() -> None:
    nvml = Known((gpu(0, "NVML", "a"),), "NVML")
    assert merge_gpus(nvml, TIMEOUT) == nvml
    assert merge_gpus(ABSENT, nvml) == nvml
    assert merge_gpus(ABSENT, TIMEOUT) == TIMEOUT


def test_the_driver_library_completes_the_gpus_whatever_its_order() -> None:
    gpus = (gpu(0, "NVML", "0000:01:00.0", memory_total_bytes=80), gpu(1, "NVML", "0000:c1:00.0", name="NVIDIA H100"))
    snapshot = Snapshot(gpus=Known(gpus, "NVML"))
    merged = merge_driver_description(
        snapshot, described(device(0, "0000:C1:00.0", name="NVIDIA H100", compute_capability_major=9))
    )
    first, second = known(merged.gpus)
    assert first == gpus[0]
    assert known(second.compute_capability) == ComputeCapability(9, 0)
    assert known(second.multiprocessor_count) == 108
    assert known(second.integrated) is False
    assert known(second.memory_total_bytes) == 42
    assert known(merged.driver.cu_init).code == 0
    assert known(merged.driver.visible_device_count) == 1
    assert known(merged.driver.libcuda_loaded) == "/usr/lib/libcuda.so.580.95.05"
    assert known(merged.driver.driver_cuda_version) == CudaVersion.of(13, 0)


def test_cuda_s_memory_is_no_disagreement() -> None:
    snapshot = Snapshot(gpus=Known((gpu(0, "NVML", "0000:01:00.0", memory_total_bytes=80),), "NVML"))
    (row,) = known(merge_driver_description(snapshot, described(device(0, "0000:01:00.0"))).gpus)
    assert row.memory_total_bytes == Known(80, "NVML")


def test_gpus_that_only_cuda_saw_are_listed() -> None:
    merged = merge_driver_description(Snapshot(gpus=ABSENT), described(device(0, "0000:01:00.0"), device(1, "0000:02:00.0")))
    assert [(row.index, known(row.name)) for row in known(merged.gpus)] == [(0, "NVIDIA A100"), (1, "NVIDIA A100")]


def test_a_slice_of_a_gpu_does_not_rename_the_gpu() -> None:
    snapshot = Snapshot(gpus=Known((gpu(0, "NVML", "0000:01:00.0", name="NVIDIA A100"),), "NVML"))
    part = device(0, "0000:01:00.0", name="NVIDIA A100 MIG 1g.5gb", uuid="MIG-1", multiprocessor_count=14)
    (row,) = known(merge_driver_description(snapshot, described(part)).gpus)
    assert row.name == Known("NVIDIA A100", "NVML")
    assert known(row.compute_capability) == ComputeCapability(8, 0)
    assert isinstance(row.multiprocessor_count, Missing)


def test_hidden_devices_are_counted_as_the_user_sees_them() -> None:
    snapshot = Snapshot(gpus=Known((gpu(0, "NVML", "0000:01:00.0"),), "NVML"))
    hidden = described(init=ApiError(100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"), device_count=None)
    merged = merge_driver_description(snapshot, hidden, described(device(0, "0000:01:00.0")))
    assert known(merged.driver.visible_device_count) == 0
    assert known(merged.driver.cu_init).code == 100
    assert known(known(merged.gpus)[0].compute_capability) == ComputeCapability(8, 0)


def test_a_missing_hung_or_crashed_driver_library_is_missing_with_the_reason() -> None:
    nothing: dict[str, Any] = {"libcuda": (), "driver_version": None, "init": None, "device_count": None}
    cases: dict[MissingReason, dict[str, Any]] = {
        MissingReason.NOT_FOUND: {"load_error": "libcuda.so.1: cannot open shared object file"},
        MissingReason.TIMEOUT: {"stopped_at": "init", "failure": ChildFailure.HUNG, "failure_text": "gave no answer"},
        MissingReason.CRASHED: {"stopped_at": "init", "failure": ChildFailure.CRASHED, "failure_text": "died of SIGSEGV"},
        MissingReason.FAILED: {"missing_symbol": "no cuInit"},
    }
    for reason, facts in cases.items():
        driver = merge_driver_description(Snapshot(), described(**{**nothing, **facts})).driver
        for fact in (driver.cu_init, driver.visible_device_count, driver.libcuda_loaded, driver.driver_cuda_version):
            assert isinstance(fact, Missing)
            assert fact.reason is reason
