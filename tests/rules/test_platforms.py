"""Machines without an NVIDIA GPU: macOS, AMD, none."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Host, PciDevice, Platform, Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    NO_GPU,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
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
    with_driver,
    with_host,
)
from tests.rules.software import cpu_torch

MAC = text_only(said("torch-not-compiled-with-cuda"), host=Host(platform=known(Platform.MACOS)))
AMD = PciDevice(bus_id="0000:03:00.0", vendor_id="1002", device_id="744c", kernel_driver="amdgpu")
AMD_MACHINE = with_driver(NO_GPU, pci_devices=known((AMD,)))
NO_TORCH = structs.replace(AMD_MACHINE, python=structs.replace(AMD_MACHINE.python, torch=TIMED_OUT))
RADEON = said("shown-amd-gpu", "GPU: Radeon RX 7900 XTX")
NO_DRIVER = said("torch-no-nvidia-driver", "Found no NVIDIA driver on your system")
TF_LINE = said("libcuda-load-failed", "Could not find cuda drivers on your machine, GPU will not be used.")
JAX_LINE = said("no-gpu-remark", "No GPU/TPU found, falling back to CPU.")
INTEL = said("shown-other-gpu", "VGA compatible controller: Intel Corporation UHD Graphics 620")
RTX_3060 = known((gpu("NVIDIA GeForce RTX 3060", "8.6"),))

TABLE: Table = {
    "no-cuda-platform": (
        ("macOS", MAC, FAIL),
        ("Linux", healthy(), PASS),
        ("not told", text_only(), UNKNOWN),
        ("a program says so", text_only(said("no-cuda-platform")), FAIL),
    ),
    "amd-gpu-no-cuda": (
        ("AMD on the bus and a CUDA torch", AMD_MACHINE, FAIL),
        ("AMD on the bus and no torch", NO_TORCH, NOT_APPLICABLE),
        ("beside an NVIDIA GPU", healthy(), PASS),
        ("AMD in the text", text_only(RADEON, NO_DRIVER), FAIL),
        ("AMD and NVIDIA in the text", text_only(RADEON, NO_DRIVER, gpus=RTX_3060), PASS),
        ("AMD in the text and nothing asks for CUDA", text_only(RADEON), NOT_APPLICABLE),
        ("bus unreadable", with_driver(AMD_MACHINE, pci_devices=TIMED_OUT, cu_init=TIMED_OUT), UNKNOWN),
    ),
    "benign-no-gpu-machine": (
        ("TensorFlow's line", text_only(TF_LINE), FAIL),
        ("TensorFlow's line beside a GPU", text_only(TF_LINE, gpus=RTX_3060), PASS),
        ("TensorFlow's line in a container", text_only(TF_LINE, said("shown-container")), PASS),
        ("TensorFlow's line under WSL", text_only(TF_LINE, said("shown-wsl")), PASS),
        ("another error", text_only(said("libcuda-load-failed", "libcuda.so.1: cannot open shared object file")), PASS),
        ("JAX on the CPU", text_only(JAX_LINE), FAIL),
        ("JAX on the CPU beside a GPU", text_only(JAX_LINE, gpus=RTX_3060), PASS),
        ("JAX on the CPU and no driver", text_only(JAX_LINE, NO_DRIVER), PASS),
        ("CPU torch beside Intel graphics", cpu_torch(text_only(INTEL)), FAIL),
        ("CPU torch beside a server's console", cpu_torch(text_only(said("shown-other-gpu", "ASPEED", gpu="ASPEED"))), PASS),
        ("CPU torch that was to use CUDA", cpu_torch(text_only(INTEL, said("torch-not-compiled-with-cuda"))), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_macos_is_the_root() -> None:
    assert roots(judged(MAC)) == ["no-cuda-platform"]


def test_amd_explains_that_no_nvidia_gpu_is_there() -> None:
    results = judged(AMD_MACHINE)
    assert "amd-gpu-no-cuda" in roots(results)
    assert "no-nvidia-gpu" not in roots(results)


def test_a_remark_of_tensorflow_is_no_error() -> None:
    assert names(judged(text_only(TF_LINE)), Severity.ERROR) == []


@pytest.mark.parametrize("snapshot", [text_only(JAX_LINE), cpu_torch(text_only(INTEL))])
def test_a_machine_that_needs_no_gpu_has_no_error_and_no_warning(snapshot: Snapshot) -> None:
    results = judged(snapshot)
    assert names(results, Severity.ERROR) == []
    assert names(results, Severity.WARNING) == []


def test_linux_beside_an_amd_cpu_is_no_amd_gpu() -> None:
    results = judged(with_host(NO_GPU, architecture=known("x86_64")))
    assert "amd-gpu-no-cuda" not in names(results, Severity.ERROR)
