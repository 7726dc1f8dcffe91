"""Does the framework, or an extension, hold code for the GPU?"""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.snapshot import Snapshot, Torch
from cudadoctor.model.versions import SmTarget
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    CUDA_12_ARCHS,
    FAIL,
    GENERATIONS,
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
    outcome,
    roots,
    rows,
    said,
    text_only,
)
from tests.rules.software import cpu_torch, diagnosed, error_tags, python_of, tags, with_packages, with_reading, with_torch


def archs(text: str) -> tuple[SmTarget, ...]:
    return tuple(SmTarget.parse(word) for word in text.split())


NEW_GPU = healthy("NVIDIA GeForce RTX 5090", "12.0", torch="2.5.1+cu124", archs=CUDA_12_ARCHS)
OLD_GPU = healthy("NVIDIA GeForce GTX 1080", "6.1", torch="2.9.1+cu130", archs="sm_75 sm_80 sm_86 sm_90 sm_100 sm_120")
NO_IMAGE = said("no-kernel-image", "CUDA error: no kernel image is available for execution on the device")
RANGE = said("torch-cc-range-warning", gpu="NVIDIA GB10", cc="12.1", minimum="8.0", maximum="12.0")
NOT_LISTED = said("torch-gpu-cc-not-listed", arch="sm_80")
NINE = said("cuda-invalid-device-function", "invalid configuration argument")
TOO_OLD = said("torch-gpu-too-old", gpu="Tesla K80", cc="3.7", minimum="5.0")
RTX_3090 = known((gpu("NVIDIA GeForce RTX 3090", "8.6"),))
RTX_5090 = known((gpu("NVIDIA GeForce RTX 5090", "12.0"),))
A100 = known((gpu("A100-SXM4-40GB", "8.0"),))
CU102 = python_of(torch_version=known("1.8.1+cu102"), arch_list=known(archs("sm_37 sm_50 sm_70 sm_75 compute_37")))
FLASH = said("flash-attention-ampere-only", "FlashAttention only supports Ampere GPUs or newer.")
CUDA_128 = python_of(torch_version=known("2.7.1+cu128"))

TABLE: Table = {
    "arch-missing-in-wheel": (
        ("newer GPU", NEW_GPU, FAIL),
        ("older GPU", OLD_GPU, FAIL),
        ("healthy", healthy(), PASS),
        (
            "torch computes and a launch fails",
            text_only(said("no-kernel-image"), said("shown-torch-computes"), gpus=known((gpu("Xavier", "7.2"),))),
            PASS,
        ),
        ("CPU build", cpu_torch(healthy()), NOT_APPLICABLE),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("GPUs unknown", structs.replace(healthy(), gpus=TIMED_OUT), UNKNOWN),
        ("list unknown", with_torch(healthy(), arch_list=TIMED_OUT, torch_version=known("2.7.0a0+git1")), UNKNOWN),
        ("torch says so", text_only(TOO_OLD), FAIL),
        ("the range is harmless", text_only(RANGE), PASS),
        ("PTX that torch does not trust", text_only(NOT_LISTED, gpus=A100, python=CU102), FAIL),
        ("PTX alone", text_only(gpus=A100, python=CU102), PASS),
        ("launch fails, nothing else known", text_only(NO_IMAGE), FAIL),
        ("launch fails, torch's list serves", text_only(NO_IMAGE, gpus=RTX_3090, python=CUDA_128), PASS),
        ("invalid configuration has the same row", text_only(NINE), PASS),
    ),
    "extension-arch-missing": (
        ("launch fails, torch's list serves", text_only(NO_IMAGE, gpus=RTX_5090, python=CUDA_128), FAIL),
        ("launch fails, torch's list does not serve", text_only(NO_IMAGE, gpus=RTX_5090, python=CU102), PASS),
        ("misleading check", text_only(FLASH, gpus=RTX_5090), FAIL),
        ("truthful check", text_only(FLASH, gpus=known((gpu("Tesla T4", "7.5"),))), PASS),
        ("binary without the code", with_reading(text_only(NO_IMAGE, gpus=RTX_3090), "statements", binary_archs=["sm_89"]), FAIL),
        ("binary with the code", with_reading(text_only(gpus=RTX_3090), "statements", binary_archs=["sm_80"]), PASS),
        ("wheel without code", with_packages(healthy("B200", "10.0"), onnxruntime_gpu="1.31.1"), FAIL),
        ("wheel with code", with_packages(healthy(), onnxruntime_gpu="1.31.1"), PASS),
        ("healthy", healthy(), PASS),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "benign-cc-range-warning": (
        ("same major, higher minor", text_only(RANGE), FAIL),
        ("a launch failed all the same", text_only(RANGE, NO_IMAGE), PASS),
        ("another major", text_only(said("torch-cc-range-warning", cc="12.0", minimum="5.0", maximum="9.0")), PASS),
        ("healthy", healthy(), PASS),
    ),
    "benign-same-major-arch": (
        ("8.9 by sm_86", healthy(), FAIL),
        ("exactly listed", GENERATIONS["blackwell"], PASS),
        ("torch unknown", text_only(), UNKNOWN),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


@pytest.mark.parametrize(
    ("snapshot", "direction"),
    [
        (NEW_GPU, "gpu-newer-than-build"),
        (OLD_GPU, "gpu-older-than-build"),
        (text_only(TOO_OLD), "gpu-older-than-build"),
        (healthy("Tesla V100", "7.0", archs="sm_60 sm_75 sm_80"), "gpu-older-than-build"),
        (healthy("NVIDIA B200", "10.0", archs="sm_80 sm_90 sm_120"), "gpu-newer-than-build"),
        (text_only(NO_IMAGE, gpus=known((gpu("Tesla K40c", "3.5"),))), "gpu-older-than-build"),
        (text_only(NO_IMAGE, gpus=RTX_5090), "gpu-newer-than-build"),
    ],
)
def test_direction(snapshot: Snapshot, direction: str) -> None:
    found = {tag for finding in judged(snapshot).findings for tag in finding.tags}
    assert found & {"gpu-newer-than-build", "gpu-older-than-build"} == {direction}


def test_no_direction_where_nothing_tells() -> None:
    found = [finding for finding in judged(text_only(NO_IMAGE, gpus=A100)).findings if finding.name == "arch-missing-in-wheel"]
    assert [finding.tags for finding in found] == [()]


def test_fix_installs_a_build_with_code_and_is_rechecked() -> None:
    (finding,) = [each for each in judged(NEW_GPU).findings if each.name == "arch-missing-in-wheel"]
    assert finding.fixes[0].rechecked
    assert "--index-url" in finding.fixes[0].commands[0]


@pytest.mark.parametrize("name", GENERATIONS)
def test_healthy_machines_have_no_error(name: str) -> None:
    assert roots(judged(GENERATIONS[name])) == []


def test_unknown_torch_is_not_judged_by_the_matrix() -> None:
    nvidia = with_torch(Snapshot(gpus=RTX_5090), torch_version=known("2.7.0a0+79aa17489c.nv25.04"), arch_list=Torch().arch_list)
    assert outcome(nvidia, "arch-missing-in-wheel") is UNKNOWN


TICKETS = {
    "new form of torch's warning": (
        """Found GPU0 NVIDIA GeForce GTX 1080 which is of compute capability (CC) 6.1.
    The following list shows the CCs this version of PyTorch was built for and the hardware CCs it supports:
    - 7.5 which supports hardware CC >=7.5,<8.0
    - 12.0 which supports hardware CC >=12.0,<13.0""",
        {"arch-missing-in-wheel", "gpu-older-than-build"},
    ),
    "range without the GPU": (
        """Found GPU0 NVIDIA B200 which is of cuda capability 10.0.
    Minimum and Maximum cuda capability supported by this version of PyTorch is
    (5.0) - (9.0)""",
        {"arch-missing-in-wheel", "gpu-newer-than-build"},
    ),
    "extension on a GPU that torch serves": (
        """GPU: NVIDIA GeForce RTX 5090, PyTorch: 2.7.1+cu128
    grads = grads[sel]
RuntimeError: CUDA error: no kernel image is available for execution on the device""",
        {"extension-arch-missing", "gpu-newer-than-build"},
    ),
    "another framework's runtime": (
        """tensorflow 2.5.0, RTX 5090
InternalError: CUDA runtime implicit initialization on GPU:0 failed. Status: device kernel image is invalid""",
        {"arch-missing-in-wheel", "gpu-newer-than-build"},
    ),
    "llama.cpp names both": (
        "ERROR: CUDA kernel mul_mat_q has no device code compatible with CUDA arch 700. "
        "ggml-cuda.cu was compiled for: 750,800,860",
        {"arch-missing-in-wheel", "gpu-older-than-build"},
    ),
    "PaddlePaddle names capability and runtime only": (
        "W0312 gpu_resources.cc:61] Please NOTE: device: 0, GPU Compute Capability: 12.0, Driver API Version: 12.8, "
        "Runtime API Version: 11.8\nOSError: CUDA error(209), no kernel image is available for execution on the device.",
        {"arch-missing-in-wheel", "gpu-newer-than-build"},
    ),
    "a Jetson with a server's build": (
        """# Jetson Orin, conda-forge pytorch, linux-aarch64
>>> torch.ones(2, device="cuda")
RuntimeError: CUDA error: no kernel image is available for execution on the device""",
        {"arch-missing-in-wheel", "jetson-generic-wheel"},
    ),
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected = TICKETS[name]
    assert expected <= tags(diagnosed(text))


def test_wheels_of_either_platform_count_where_the_text_names_none() -> None:
    """torch 2.8.0+cu128 has sm_61 on Windows only."""
    assert "arch-missing-in-wheel" not in tags(diagnosed("torch 2.8.0+cu128, GeForce GTX 1060"))
    assert "arch-missing-in-wheel" in tags(diagnosed("torch 2.8.0+cu128, GeForce GTX 1060, Ubuntu 22.04"))


def test_boards_have_the_wheels_for_aarch64() -> None:
    report = diagnosed("NVIDIA Jetson AGX Thor, JetPack 7.0\n>>> torch.__version__\n'2.9.0+cu130'")
    assert error_tags(report) == set()


def test_sm_121_is_served_by_sm_120() -> None:
    report = diagnosed(
        "NVIDIA GB10 with CUDA capability sm_121 is not compatible with the current PyTorch installation.\n"
        "The current PyTorch install supports CUDA capabilities sm_80 sm_90 sm_100 sm_120 compute_120."
    )
    assert "benign-same-major-arch" in tags(report)
    assert error_tags(report) == set()
