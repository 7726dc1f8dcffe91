"""The result of running one kernel through one layer of the CUDA stack (design.md, sections 3 and 6)."""

from __future__ import annotations

from enum import Enum

import msgspec


class ProofLayer(Enum):
    """The part of the stack that a proof exercises, lowest first."""

    DRIVER_JIT = "driver-jit"
    NVRTC = "nvrtc"
    NVCC = "nvcc"
    TORCH = "torch"
    TORCH_EXTENSION = "torch-extension"
    PEER = "peer"
    NCCL = "nccl"


class ProofOutcome(Enum):
    """What a proof showed; only `PASSED` means that numbers came back and were right."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNKNOWN = "unknown"


class ApiError(msgspec.Struct, frozen=True):
    """A result code other than success, with the name and text of the library that returned it."""

    code: int
    name: str
    message: str


class Proof(msgspec.Struct, frozen=True):
    """One kernel, one layer, one GPU; of a copy between two GPUs, `gpu` is the source and `peer` the target.

    `because` says why a proof did not pass, in words; `error` is the API's own result where there is one. `max_error` and
    `tolerance` are absolute and belong to the check that came closest to failing (or failed worst). `compile_s` is the time from
    source to loadable code (in driver-jit: the driver's own compilation), None where the code came from the cache. `run_ms` is
    the median of the timed launches, `tflops` the rate of the same launches. `gb_s` is the rate of a copy in GB/s (10^9 bytes),
    of an all-reduce its bus bandwidth.
    """

    layer: ProofLayer
    gpu: int | None
    kernel: str
    target: str | None
    outcome: ProofOutcome
    error: ApiError | None = None
    because: str | None = None
    max_error: float | None = None
    tolerance: float | None = None
    compile_s: float | None = None
    run_ms: float | None = None
    tflops: float | None = None
    compiler: str | None = None
    """Which compiler made the code, where several of a layer are here, e.g. `NVRTC 12.4 of torch's wheel`."""
    peer: int | None = None
    gb_s: float | None = None
