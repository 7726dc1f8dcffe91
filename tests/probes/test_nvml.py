from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.snapshot import ComputeMode
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease
from cudadoctor.probes.nvml import NvmlAnswer, bus_id, parse_events, parse_line, read_nvml
from cudadoctor.system import RealSystem
from tests.fakes.nvml import RTX_4090, install_fake_nvml
from tests.fakes.roots import linux, windows

A100_MIG = {
    **RTX_4090,
    "0.name": "NVIDIA A100-SXM4-80GB",
    "0.cc": "8.0",
    "0.mig": 1,
    "0.mig.0": "1g.10gb",
    "0.mig.2": "3g.40gb",
    "0.ecc": 1,
    "0.ecc_errors": 3,
    "0.compute_mode": 3,
    "0.throttle": 0x44,
}


def ask(folder: Path, answers: Mapping[str, object], timeout: float = 20) -> NvmlAnswer:
    """What the probe makes of an NVML that gives these answers."""
    return read_nvml(RealSystem({**os.environ, **install_fake_nvml(folder, answers)}), timeout)


def test_a_healthy_gpu(tmp_path: Path) -> None:
    answer = ask(tmp_path, RTX_4090)
    assert known(answer.status).code == 0
    assert known(answer.driver_release) == DriverRelease.parse("535.104.05")
    assert known(answer.driver_cuda_version) == CudaVersion.of(12, 2)
    (gpu,) = known(answer.gpus)
    assert known(gpu.name) == "NVIDIA GeForce RTX 4090"
    assert known(gpu.compute_capability) == ComputeCapability(8, 9)
    assert known(gpu.pci_bus_id) == "0000:01:00.0"
    assert known(gpu.memory_total_bytes) == 24564 << 20
    assert known(gpu.memory_used_bytes) == 412 << 20
    assert known(gpu.compute_process_count) == 2
    assert known(gpu.compute_mode) is ComputeMode.DEFAULT
    assert known(gpu.persistence) is True
    assert (known(gpu.pcie_generation), known(gpu.pcie_generation_max), known(gpu.pcie_width)) == (1, 4, 16)
    assert (known(gpu.power_w), known(gpu.power_limit_w), known(gpu.temperature_c)) == (22.5, 450.0, 41)
    assert known(gpu.throttle_reasons) == ("gpu_idle",)
    assert answer.library_file == str(tmp_path / "libnvidia-ml.so.1")


def test_what_a_gpu_does_not_have_is_not_supported(tmp_path: Path) -> None:
    (gpu,) = known(ask(tmp_path, RTX_4090).gpus)
    for fact in (gpu.ecc_enabled, gpu.mig_enabled, gpu.driver_model):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.NOT_SUPPORTED


def test_mig_ecc_and_throttling(tmp_path: Path) -> None:
    (gpu,) = known(ask(tmp_path, A100_MIG).gpus)
    assert known(gpu.mig_enabled) is True
    assert known(gpu.mig_devices) == ("1g.10gb", "3g.40gb")
    assert (known(gpu.ecc_enabled), known(gpu.ecc_uncorrected)) == (True, 3)
    assert known(gpu.compute_mode) is ComputeMode.EXCLUSIVE_PROCESS
    assert known(gpu.throttle_reasons) == ("sw_power_cap", "hw_thermal_slowdown")


def test_memory_that_is_not_supported_is_missing(tmp_path: Path) -> None:
    answers = {key: value for key, value in RTX_4090.items() if key not in {"0.total", "0.used"}}
    (gpu,) = known(ask(tmp_path, answers).gpus)
    assert isinstance(gpu.memory_total_bytes, Missing)
    assert gpu.memory_total_bytes.reason is MissingReason.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("code", "words"), [(18, "Driver/library version mismatch"), (9, "Driver Not Loaded"), (999, "Unknown Error")]
)
def test_what_init_answers_is_kept_with_nvml_s_own_words(tmp_path: Path, code: int, words: str) -> None:
    answer = ask(tmp_path, {**RTX_4090, "init": code})
    status = known(answer.status)
    assert status.code == code
    assert words in status.message
    assert isinstance(answer.gpus, Missing)
    assert words in answer.gpus.detail


def test_the_name_of_an_error_is_nvml_s(tmp_path: Path) -> None:
    assert known(ask(tmp_path, {"init": 18}).status).name == "NVML_ERROR_LIB_RM_VERSION_MISMATCH"


def test_a_lost_gpu_does_not_hide_the_others(tmp_path: Path) -> None:
    second = {key.replace("0.", "1.", 1): value for key, value in RTX_4090.items() if key.startswith("0.")}
    lost, other = known(ask(tmp_path, {**RTX_4090, **second, "count": 2, "0.handle": 15}).gpus)
    assert (lost.index, lost.error) == (0, "GPU is lost")
    assert isinstance(lost.name, Missing)
    assert (other.index, known(other.name), other.error) == (1, "NVIDIA GeForce RTX 4090", "")


def test_a_hang_in_init_is_a_timeout(tmp_path: Path) -> None:
    answer = ask(tmp_path, {**RTX_4090, "hang": "nvmlInit"}, timeout=1)
    for fact in (answer.status, answer.driver_release, answer.gpus):
        assert isinstance(fact, Missing)
        assert (fact.reason, fact.detail) == (MissingReason.TIMEOUT, "no answer within 1 s")


def test_a_hang_at_a_gpu_loses_only_what_follows(tmp_path: Path) -> None:
    answer = ask(tmp_path, {**RTX_4090, "hang": "nvmlDeviceGetHandleByIndex"}, timeout=3)
    assert known(answer.driver_release) == DriverRelease.parse("535.104.05")
    (gpu,) = known(answer.gpus)
    assert gpu.error == "no answer within 3 s"


def test_a_crash_is_named(tmp_path: Path) -> None:
    status = ask(tmp_path, {**RTX_4090, "crash": "nvmlInit"}).status
    assert isinstance(status, Missing)
    assert (status.reason, status.detail) == (MissingReason.CRASHED, "died of SIGSEGV")


def test_a_library_that_is_none_is_reported_with_the_loader_s_words(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"\x7fELF" + bytes(60))
    answer = read_nvml(RealSystem({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}), 20)
    assert isinstance(answer.status, Missing) or known(answer.status).code != 0


def test_without_the_library_no_child_is_started(tmp_path: Path) -> None:
    answer = read_nvml(linux(tmp_path), 20)
    assert isinstance(answer.status, Missing)
    assert answer.status.reason is MissingReason.NOT_FOUND
    assert "libnvidia-ml.so.1" in answer.status.detail


def test_device_nodes_that_cannot_be_opened_are_named_even_without_the_library(tmp_path: Path) -> None:
    system = linux(tmp_path, {"/dev/nvidiactl": "", "/dev/nvidia7000": ""})
    nodes = {node.path: node.detail for node in read_nvml(system, 20).nodes}
    assert nodes == {"/dev/nvidiactl": "No such file or directory", "/dev/nvidia7000": "No such file or directory"}, (
        "the child looks at the real /dev"
    )


def test_an_image_is_not_asked(tmp_path: Path) -> None:
    status = read_nvml(linux(tmp_path, {"/dev/nvidiactl": ""}, uname=None), 20).status
    assert isinstance(status, Missing)
    assert status.reason is MissingReason.NOT_APPLICABLE


def test_windows_has_its_own_library_name(tmp_path: Path) -> None:
    status = read_nvml(windows(tmp_path, {}), 20).status
    assert isinstance(status, Missing)
    assert "nvml.dll" in status.detail


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("00010000:0A:00.0", "10000:0a:00.0"),
        ("01:00.0", "0000:01:00.0"),
    ],
)
def test_pci_addresses_are_written_in_one_way(text: str, address: str) -> None:
    assert bus_id(text) == address


@pytest.mark.parametrize("line", ["", "noise", "[1]", "null", '{"event": 1}', '{"no": "event"}', "[" * 100_000, '{"event": "x"'])
def test_lines_that_are_no_events_are_passed_over(line: str) -> None:
    assert list(parse_line(line)) == []


def test_an_answer_of_the_wrong_type_is_a_parse_error() -> None:
    events = (
        {"event": "init", "code": 0, "name": "", "message": ""},
        {"event": "system", "driver_release": {"value": "gibberish"}, "driver_cuda_version": {"value": -7}},
        {"event": "count", "value": 1},
        {"event": "gpu", "index": 0, "fields": {"compute_mode": {"value": 99}, "compute_capability": {"value": [1]}}},
    )
    answer = parse_events(events, None)
    (gpu,) = known(answer.gpus)
    for fact in (answer.driver_release, answer.driver_cuda_version, gpu.compute_mode, gpu.compute_capability):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.PARSE_ERROR
