"""Proves that torch computes: the second half of `_torch_child.py`, in the user's interpreter (Python 3.7 or newer)."""

from __future__ import annotations

import os
import re
import time
from threading import Thread
from typing import Any, Callable, Dict, Tuple

Emit = Callable[..., None]

STICKY_ERRORS = re.compile(
    r"illegal memory access|device-side assert|unspecified launch failure|misaligned address|illegal instruction"
    r"|invalid program counter|hardware stack error|uncorrectable ECC|ECC error"
)
"""Errors after which the process's CUDA context is lost, so that every later step fails too (CUDA driver API, CUresult)."""
HALF_TOLERANCE = 2.0**-8
"""Of the largest reference value: float16 keeps 11 bits, so rounding costs 2^-12; 16 times that leaves room for split sums."""
SINGLE_TOLERANCE = 2.0**-12
"""Of the largest reference value: float32 without TF32; Winograd convolutions lose some ten of the 24 bits."""
TIMED_RUNS = 3


def prove(torch: Any, emit: Emit) -> None:
    """Small computations on every visible GPU at the same time, against the CPU in float64."""
    torch.backends.cudnn.allow_tf32 = False  # for all threads; the process is ours and ends with the proofs
    threads = [Thread(target=prove_device, args=(torch, emit, index)) for index in range(torch.cuda.device_count())]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def prove_device(torch: Any, emit: Emit, index: int) -> None:
    """The computations on one GPU, until one of them loses its context."""
    lost = ""
    for kernel, compute in (("allocation", allocate), ("matmul", multiply), ("sdpa", attend), ("conv", convolve)):
        if lost:
            emit("proof", device=index, kernel=kernel, outcome="unknown", because="the CUDA context was lost in: %s" % lost)
            continue
        emit("step", doing="computing %s on torch device %d" % (kernel, index), device=index, kernel=kernel)
        result = prove_one(torch, index, compute)
        emit("proof", device=index, kernel=kernel, **result)
        lost = kernel if STICKY_ERRORS.search(result.get("message", "")) else ""


def prove_one(torch: Any, index: int, compute: Callable[..., Any]) -> Dict[str, Any]:
    """One computation: passed, failed with the words of the error or the size of the difference, or skipped."""
    if compute is attend and not hasattr(torch.nn.functional, "scaled_dot_product_attention"):
        return {"outcome": "skipped", "because": "this torch has no scaled_dot_product_attention (it came with 2.0)"}
    try:
        with torch.no_grad(), torch.cuda.device(index):
            run, reference, tolerance = compute(torch, "cuda:%d" % index)
            result = run()
            milliseconds = median_ms(torch, run)
            return judged(result.cpu().double(), reference, tolerance, milliseconds)
    except Exception as error:  # noqa: BLE001  # foreign code; whatever it raises is the result of the proof
        return refused(error)


def refused(error: Exception) -> Dict[str, Any]:
    """A computation that raised: failed, or unknown where only memory was short, which says nothing about the stack."""
    words = str(error) or type(error).__name__
    if "out of memory" in words:
        return {"outcome": "unknown", "because": words, "message": words}
    return {"outcome": "failed", "because": words, "message": words, "code": getattr(error, "error_code", None)}


def median_ms(torch: Any, run: Callable[[], Any]) -> float:
    times = []
    for _ in range(TIMED_RUNS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)[TIMED_RUNS // 2]


def judged(result: Any, reference: Any, relative: float, milliseconds: float) -> Dict[str, Any]:
    """Compare: a NaN or infinity anywhere fails."""
    tolerance = relative * float(reference.abs().max())
    error = float((result - reference).abs().max())
    answer: Dict[str, Any] = {"tolerance": tolerance, "run_ms": milliseconds}
    if error < float("inf"):  # neither infinite nor NaN, which JSON cannot hold
        answer["max_error"] = error
    if error <= tolerance:
        return dict(answer, outcome="passed")
    return dict(answer, outcome="failed", because="the result differs from the CPU's by %g, more than %g" % (error, tolerance))


def fresh(torch: Any, *shape: int) -> Any:
    """New random values each time, so that a stale buffer cannot look right."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))
    return torch.rand(*shape, generator=generator) - 0.25


def allocate(torch: Any, device: str) -> Tuple[Callable[[], Any], Any, float]:
    values = fresh(torch, 4099)
    return (lambda: values.to(device)), values.double(), 0.0


def multiply(torch: Any, device: str) -> Tuple[Callable[[], Any], Any, float]:
    a, b = fresh(torch, 257, 136).half(), fresh(torch, 136, 72).half()
    on_device = a.to(device), b.to(device)
    return (lambda: on_device[0] @ on_device[1]), a.double() @ b.double(), HALF_TOLERANCE


def attend(torch: Any, device: str) -> Tuple[Callable[[], Any], Any, float]:
    q, k, v = (fresh(torch, 1, 2, 65, 64).half() for _ in range(3))
    on_device = [part.to(device) for part in (q, k, v)]
    scores = q.double() @ k.double().transpose(-1, -2) / 8.0
    scores = scores.masked_fill(torch.ones(65, 65).triu(1).bool(), float("-inf"))
    reference = scores.softmax(-1) @ v.double()
    call = torch.nn.functional.scaled_dot_product_attention
    return (lambda: call(*on_device, is_causal=True)), reference, HALF_TOLERANCE


def convolve(torch: Any, device: str) -> Tuple[Callable[[], Any], Any, float]:
    image, weight = fresh(torch, 2, 8, 17, 19), fresh(torch, 16, 8, 3, 3)
    on_device = image.to(device), weight.to(device)
    conv2d = torch.nn.functional.conv2d
    return (lambda: conv2d(*on_device)), conv2d(image.double(), weight.double()), SINGLE_TOLERANCE
