from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.snapshot import ComputeMode
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease
from cudadoctor.probes.nvidia_smi import FIELDS, LIST_MIG, find_program, parse_header, parse_list, parse_query, read_nvidia_smi
from cudadoctor.system import RealSystem
from tests.fakes.cuda_tools import fake_nvidia_smi
from tests.fakes.fakebin import Says, calls, fake_program
from tests.fakes.roots import WSL2, linux, windows

RTX_4090 = {
    "index": "0",
    "name": "NVIDIA GeForce RTX 4090",
    "uuid": "GPU-1a2b",
    "pci.bus_id": "00000000:01:00.0",
    "driver_version": "535.104.05",
    "memory.total": "24564",
    "memory.used": "412",
    "compute_mode": "Exclusive_Process",
    "persistence_mode": "Disabled",
    "power.draw": "[Unknown Error]",
    "compute_cap": "8.9",
    "mig.mode.current": "Enabled",
    "mig": ["1g.10gb", "3g.40gb"],
}
HEALTHY = "| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |\n"


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    return tmp_path / "bin" / "nvidia-smi"


@pytest.fixture
def system(smi: Path) -> RealSystem:
    return RealSystem({"PATH": str(smi.parent)})


def test_a_healthy_gpu(system: RealSystem, smi: Path) -> None:
    fake_nvidia_smi(smi, "535.104.05", "12.2", [RTX_4090])
    answer = read_nvidia_smi(system, 20)
    assert known(answer.status).code == 0
    assert known(answer.driver_release) == DriverRelease.parse("535.104.05")
    assert known(answer.driver_cuda_version) == CudaVersion.of(12, 2)
    (gpu,) = known(answer.gpus)
    assert (gpu.index, known(gpu.name), known(gpu.uuid)) == (0, "NVIDIA GeForce RTX 4090", "GPU-1a2b")
    assert known(gpu.compute_capability) == ComputeCapability(8, 9)
    assert known(gpu.pci_bus_id) == "0000:01:00.0"
    assert known(gpu.memory_total_bytes) == 24564 << 20
    assert known(gpu.compute_mode) is ComputeMode.EXCLUSIVE_PROCESS
    assert known(gpu.persistence) is False
    assert known(gpu.mig_devices) == ("1g.10gb", "3g.40gb")
    assert isinstance(gpu.power_w, Missing)
    assert (gpu.power_w.reason, gpu.power_w.detail) == (MissingReason.FAILED, "[Unknown Error]")
    assert isinstance(gpu.temperature_c, Missing)
    assert gpu.temperature_c.reason is MissingReason.NOT_SUPPORTED
    assert answer.said == ""


def test_an_old_nvidia_smi_is_asked_again_without_the_fields_that_it_lacks(system: RealSystem, smi: Path) -> None:
    fake_nvidia_smi(smi, "450.80.02", "11.0", [RTX_4090], unknown_fields=("compute_cap", "mig.mode.current"))
    (gpu,) = known(read_nvidia_smi(system, 20).gpus)
    assert known(gpu.name) == "NVIDIA GeForce RTX 4090"
    assert isinstance(gpu.compute_capability, Missing)


def test_a_hang_is_a_timeout_and_paid_once(system: RealSystem, smi: Path) -> None:
    fake_program(smi, Says(hangs=True))
    answer = read_nvidia_smi(system, 0.5)
    for fact in (answer.status, answer.driver_release, answer.gpus):
        assert isinstance(fact, Missing)
        assert (fact.reason, fact.detail) == (MissingReason.TIMEOUT, "no answer within 0.5 s")
    assert calls(smi) == [[]]


def test_a_hang_of_the_query_is_not_paid_again_by_the_list(system: RealSystem, smi: Path) -> None:
    fake_program(smi, HEALTHY, {"--query-gpu": Says(hangs=True)})
    answer = read_nvidia_smi(system, 3)
    assert known(answer.driver_release) == DriverRelease.parse("535.104.05")
    assert isinstance(answer.gpus, Missing)
    assert answer.gpus.reason is MissingReason.TIMEOUT
    assert len(calls(smi)) == 2


@pytest.mark.parametrize(
    ("says", "reason", "detail"),
    [
        (Says(signal=11), MissingReason.CRASHED, "died of SIGSEGV"),
        (Says(megabytes=1000), MissingReason.FAILED, "printed more than 4194304 bytes and was stopped"),
    ],
)
def test_a_crash_and_a_flood_are_named(system: RealSystem, smi: Path, says: Says, reason: MissingReason, detail: str) -> None:
    fake_program(smi, says)
    status = read_nvidia_smi(system, 20).status
    assert isinstance(status, Missing)
    assert (status.reason, status.detail) == (reason, detail)


def test_its_own_error_text_is_kept(system: RealSystem, smi: Path) -> None:
    words = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 570.124\n"
    fake_program(smi, Says(words, exit_code=18))
    answer = read_nvidia_smi(system, 20)
    assert known(answer.status).code == 18
    assert known(answer.status).message == words.strip()
    assert answer.said == words.strip()
    assert isinstance(answer.gpus, Missing)
    assert "version mismatch" in answer.gpus.detail
    assert calls(smi) == [[]]


@pytest.mark.parametrize(
    "output", [b"", b"\xff\xfe\x00", b"No devices were found\n", b"| NVIDIA-SMI x Driver Version: y CUDA Version: z |"]
)
def test_garbage_is_a_parse_error_with_its_text(system: RealSystem, smi: Path, output: bytes) -> None:
    fake_program(smi, Says(output))
    answer = read_nvidia_smi(system, 20)
    for fact in (answer.driver_release, answer.driver_cuda_version):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.PARSE_ERROR
    assert isinstance(answer.gpus, Missing)


def test_garbage_in_the_csv_is_a_parse_error(system: RealSystem, smi: Path) -> None:
    fake_program(smi, HEALTHY, {"--query-gpu": Says("one, two\n"), "-L": "nothing"})
    fact = read_nvidia_smi(system, 20).gpus
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.PARSE_ERROR
    assert "one, two" in fact.detail


def test_it_is_found_where_wsl_and_windows_keep_it(tmp_path: Path) -> None:
    fake_program(tmp_path / "wsl/usr/lib/wsl/lib/nvidia-smi")
    assert find_program(linux(tmp_path / "wsl", environ={"PATH": "/usr/bin"}, uname=WSL2)) == "/usr/lib/wsl/lib/nvidia-smi"
    path = r"C:\Program Files\NVIDIA Corporation\NVSMI\nvidia-smi.exe"
    assert find_program(windows(tmp_path / "win", {path: ""}, environ={"PATH": ""})) == path


def test_an_absent_or_foreign_one_is_missing_with_the_reason(tmp_path: Path) -> None:
    absent = read_nvidia_smi(linux(tmp_path), 20).status
    assert isinstance(absent, Missing)
    assert (absent.reason, absent.detail) == (MissingReason.NOT_FOUND, "nvidia-smi is not on the PATH")
    fake_program(tmp_path / "usr/bin/nvidia-smi")
    image = read_nvidia_smi(linux(tmp_path, environ={"PATH": "/usr/bin"}, uname=None), 20).status
    assert isinstance(image, Missing)
    assert image.reason is MissingReason.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("text", "driver", "cuda"),
    [
        (HEALTHY, "535.104.05", "12.2"),
        ("| NVIDIA-SMI 610.57.04   KMD Version: 610.57.04     CUDA UMD Version: 13.3     |", "610.57.04", "13.3"),
        ("| NVIDIA-SMI 525.53   Driver Version: 526.98   CUDA Version: 12.0  |", "526.98", "12.0"),
        ("| NVIDIA-SMI 384.183    Driver Version: 384.183   |", "384.183", None),
        ("| NVIDIA-SMI 470.63 Driver Version: 470.63   CUDA Version: N/A |", "470.63", None),
    ],
)
def test_heads_of_the_table(text: str, driver: str, cuda: str | None) -> None:
    release, version = parse_header(text)
    assert str(known(release)) == driver
    assert (str(known(version)) if not isinstance(version, Missing) else None) == cuda


def test_lists_with_and_without_mig() -> None:
    text = (
        "GPU 0: NVIDIA A100 80GB PCIe (UUID: GPU-00000000-0000-4000-8000-0000000000ac)\n"
        "  MIG 3g.40gb     Device  0: (UUID: MIG-00000000-0000-4000-8000-0000000000ad)\n"
        "  MIG 3g.40gb     Device  1: (UUID: MIG-00000000-0000-4000-8000-0000000000ae)\n"
        "GPU 1: NVIDIA A100 80GB PCIe (UUID: GPU-00000000-0000-4000-8000-0000000000af)\n"
    )
    assert parse_list(text) == {0: ("3g.40gb", "3g.40gb"), 1: ()}
    assert parse_list("") == {}


def test_rows_of_another_width_are_refused() -> None:
    assert parse_query("\n\n") == ()
    with pytest.raises(ValueError, match="not a row"):
        parse_query("0, NVIDIA, GPU-1")
    with pytest.raises(ValueError, match="not a row"):
        parse_query(", ".join("x" for _ in FIELDS))


def test_a_million_empty_lines_are_read_in_one_pass() -> None:
    assert LIST_MIG.findall("\n" * 1_000_000 + "  MIG 1g.10gb      Device  0: (UUID: MIG-1)\n") == ["1g.10gb"]
