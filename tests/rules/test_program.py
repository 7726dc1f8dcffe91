"""Faults of programs and limits of a GPU's generation, told apart from faults of the stack."""

from __future__ import annotations

import pytest

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import ErrorSeen, Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import FAIL, PASS, Table, gpu, healthy, judged, known, names, outcome, roots, rows, said, text_only
from tests.rules.software import cpu_torch, diagnosed, error_tags, tags

RTX_5000 = known((gpu("Quadro RTX 5000", "7.5"),))
A100 = known((gpu("NVIDIA A100", "8.0"),))
H100 = known((gpu("NVIDIA H100", "9.0"),))
RTX_5090 = known((gpu("NVIDIA GeForce RTX 5090", "12.0"),))
FLASH = said("flash-attention-ampere-only", "FlashAttention only supports Ampere GPUs or newer.")
FP8 = said("gpu-lacks-feature", "fp8e4nv data type is not supported on CUDA arch < 89", arch_number="89")
BF16 = said("gpu-lacks-feature", "Your setup doesn't support bf16/gpu.")
FA3 = said("gpu-lacks-feature", "FlashAttention-3 only supports Hopper GPUs")
PAIR = said("gpu-lacks-feature", "requires device with capability >= (8, 0)", minimum_pair="8, 0", pair="7, 5")
NUMBERS = said("gpu-lacks-feature", "Minimum capability: 80. Current capability: 75.", minimum_number="80", number="75")


def oom(wanted: str, total: str, free: str, allocated: str, reserved: str) -> ErrorSeen:
    return said("cuda-out-of-memory", wanted=wanted, total=total, free=free, allocated=allocated, reserved=reserved)


LARGER = oom("189.06 GiB", "47.27 GiB", "29.71 GiB", "17.08 GiB", "17.36 GiB")
PIECES = oom("2.00 GiB", "23.69 GiB", "1.10 GiB", "12.53 GiB", "21.50 GiB")
SCARCE = oom("20.00 MiB", "7.79 GiB", "10.00 MiB", "7.10 GiB", "7.20 GiB")
OTHERS = oom("512.00 MiB", "24.00 GiB", "100.00 MiB", "1.00 GiB", "1.10 GiB")
INIT = said("cuda-not-initialized", "CUDA error: initialization error")
ASSERT = said(
    "app-device-assert", "Indexing.cu:1236: block: [0,0,0], thread: [64,0,0] Assertion `i < n` failed.", assertion="i < n"
)

TABLE: Table = {
    "gpu-lacks-feature": (
        ("FlashAttention on Turing", text_only(FLASH, gpus=RTX_5000), FAIL),
        ("FlashAttention on Blackwell", text_only(FLASH, gpus=RTX_5090), PASS),
        ("FlashAttention, GPU unknown", text_only(FLASH), FAIL),
        ("FP8 on Ampere", text_only(FP8, gpus=A100), FAIL),
        ("FP8 on Hopper", text_only(FP8, gpus=H100), PASS),
        ("bf16 on Turing", text_only(BF16, gpus=RTX_5000), FAIL),
        ("bf16 on Ampere", text_only(BF16, gpus=A100), PASS),
        ("bf16 with a CPU torch", text_only(BF16, python=cpu_torch(healthy()).python), PASS),
        ("FlashAttention-3 on Ampere", text_only(FA3, gpus=A100), FAIL),
        ("FlashAttention-3 on Blackwell", text_only(FA3, gpus=RTX_5090), FAIL),
        ("FlashAttention-3 on Hopper", text_only(FA3, gpus=H100), PASS),
        ("both numbers in the text", text_only(PAIR), FAIL),
        ("numbers without points", text_only(NUMBERS), FAIL),
        ("healthy", healthy(), PASS),
    ),
    "gpu-oom": (
        ("larger than the GPU", text_only(LARGER), FAIL),
        ("scarce", text_only(SCARCE), FAIL),
        ("in pieces", text_only(PIECES), PASS),
        ("no numbers", text_only(said("cuda-out-of-memory", "CUDA out of memory")), FAIL),
        ("healthy", healthy(), PASS),
    ),
    "memory-fragmentation": (
        ("in pieces", text_only(PIECES), FAIL),
        ("larger than the GPU", text_only(LARGER), PASS),
        ("scarce", text_only(SCARCE), PASS),
    ),
    "app-device-assert": (
        ("on the device", text_only(ASSERT), FAIL),
        ("error 710", text_only(said("app-device-assert", "CUDA error: device-side assert triggered")), FAIL),
        ("of a host program", text_only(said("app-device-assert", "a.out: main.c:3: Assertion `x' failed.")), PASS),
        ("healthy", healthy(), PASS),
    ),
    "app-illegal-address": (
        ("error 700", text_only(said("app-illegal-address")), FAIL),
        ("error 719", text_only(said("cuda-launch-failure")), FAIL),
        ("healthy", healthy(), PASS),
    ),
    "launch-config": (
        ("error 701", text_only(said("launch-config", "too many resources requested for launch")), FAIL),
        ("error 9", text_only(said("cuda-invalid-device-function", "invalid configuration argument")), FAIL),
        ("error 98", text_only(said("cuda-invalid-device-function", "invalid device function")), PASS),
        ("healthy", healthy(), PASS),
    ),
    "launch-timeout": (("error 702", text_only(said("launch-timeout")), FAIL), ("healthy", healthy(), PASS)),
    "fork-after-cuda-init": (
        ("torch", text_only(said("fork-after-cuda-init")), FAIL),
        ("initialisation in a worker", text_only(INIT, said("shown-forked-worker")), FAIL),
        ("initialisation alone", text_only(INIT), PASS),
        ("healthy", healthy(), PASS),
    ),
    "nccl-fails": (
        ("an error", text_only(said("nccl-error")), FAIL),
        ("a warning", text_only(said("nccl-error", warning="NET/Plugin: Could not find: libnccl-net.so")), PASS),
        ("healthy", healthy(), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_numbers_of_other_processes_are_told() -> None:
    (finding,) = judged(text_only(OTHERS)).findings
    assert finding.what == "Other processes hold 22.80 GiB of the GPU's memory; 0.50 GiB more did not fit."


def test_a_request_larger_than_the_gpu_is_certain() -> None:
    (finding,) = judged(text_only(LARGER)).findings
    assert finding.what == "189.06 GiB were asked for at once; the GPU has 47.27 GiB altogether."


def test_hardware_minimum_is_looked_up() -> None:
    (finding,) = judged(text_only(BF16, gpus=RTX_5000)).findings
    assert "Quadro RTX 5000 (compute capability 7.5)" in finding.what
    assert "compute capability 8.0 or newer" in finding.what


def test_nccl_is_a_consequence_of_the_assert() -> None:
    results = judged(text_only(ASSERT, said("nccl-error", "NCCL error in: NCCLUtils.hpp:181, unhandled cuda error")))
    assert roots(results) == ["app-device-assert"]
    assert [finding.root for finding in results.findings if finding.name == "nccl-fails"] == [False]


def test_jax_beside_fork_is_a_warning() -> None:
    text = "os.fork() was called. os.fork() is incompatible with multithreaded code, and JAX is multithreaded"
    assert names(judged(text_only(said("fork-after-cuda-init", text))), Severity.WARNING) == ["fork-after-cuda-init"]


TICKETS = {
    "vLLM on a T4": (
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. "
        "Your Tesla T4 GPU has compute capability 7.5.",
        {"gpu-lacks-feature"},
    ),
    "Triton on a P100": (
        "RuntimeError: Found Tesla P100-PCIE-16GB which is too old to be supported by the triton GPU compiler, which is used as "
        "the backend. Triton only supports devices of CUDA Capability >= 7.0, but your device is of CUDA capability 6.0",
        {"gpu-lacks-feature"},
    ),
    "FP8 on an A100": (
        "RuntimeError: torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+\n"
        "GPU 0: NVIDIA A100-SXM4-80GB",
        {"gpu-lacks-feature"},
    ),
    "FP8 with both numbers": (
        "ValueError: FP8 quantized models is only supported on GPUs with compute capability >= 8.9 "
        "(e.g 4090/H100), actual = `8.6`",
        {"gpu-lacks-feature"},
    ),
    "torch 2.1's spelling": (
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0 has a total capacty of 23.69 GiB of "
        "which 300.00 MiB is free. Process 2222 has 23.30 GiB memory in use. Of the allocated memory 15.00 GiB is allocated by "
        "PyTorch, and 7.50 GiB is reserved by PyTorch but unallocated.",
        {"memory-fragmentation"},
    ),
    "Triton's shared memory": (
        "triton.runtime.autotuner.OutOfResources: out of resource: shared memory, Required: 147456, Hardware limit: 101376. "
        "Reducing block sizes or `num_stages` may help.",
        {"launch-config"},
    ),
    "label out of range": (
        "../aten/src/ATen/native/cuda/Indexing.cu:1236: indexSelectSmallIndex: block: [0,0,0], thread: [64,0,0] "
        "Assertion `srcIndex < srcSelectDimSize` failed.\n"
        "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        {"app-device-assert"},
    ),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 20480.00 MiB on device 0: cudaMalloc failed: out of memory",
        {"gpu-oom"},
    ),
}  # fmt: skip
OF_THE_STACK = {
    "driver-too-old",
    "arch-missing-in-wheel",
    "extension-arch-missing",
    "ld-library-path-shadow",
    "no-device-visible",
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected = TICKETS[name]
    report = diagnosed(text)
    assert expected <= tags(report)
    assert not OF_THE_STACK & error_tags(report)


@pytest.mark.parametrize("kind", ["app-device-assert", "app-illegal-address", "launch-config", "fork-after-cuda-init"])
def test_faults_of_programs_stand_alone(kind: str) -> None:
    snapshot: Snapshot = text_only(said(kind, "device-side assert triggered"))
    assert names(judged(snapshot), Severity.ERROR) == [kind]
