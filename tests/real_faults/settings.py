"""Faults of settings: variables that switch the driver's or torch's behaviour, mistyped, or left over."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.real_faults.fault import Check, Expected, Fault
from tests.real_faults.machine import Machine


def setting(name: str, value: str, root: str, layers: Mapping[str, str] | None = None) -> Fault:
    """A fault that is one variable's value, and whose fix is to unset it."""

    def make(machine: Machine, folder: Path) -> Check:
        return Check({name: value})

    return Fault(f"{name}={value}", make, Expected(root, f"unset {name}", layers=layers or {}))


def dangling_library_path(machine: Machine, folder: Path) -> Check:
    return Check(machine.in_front("LD_LIBRARY_PATH", "/usr/local/cuda-8.0/lib64"))


FAULTS = (
    setting("CUDA_FORCE_PTX_JIT", "1", "ptx-jit-forced"),
    setting("CUDA_DISABLE_PTX_JIT", "1", "ptx-jit-disabled"),
    setting("CUDA_LAUNCH_BLOCKING", "1", "launch-blocking-on", {"driver-jit": "passed"}),
    setting("CUDA_MODULE_LOADING", "EAGERLY", "module-loading-invalid", {"driver-jit": "passed"}),
    setting("CUDA_CACHE_DISABLE", "1", "jit-cache-off", {"driver-jit": "passed"}),
    setting("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb=512", "alloc-conf-malformed", {"driver-jit": "passed"}),
    setting("PYTORCH_CUDA_ALLOC_CONF", "max_split_size:512", "alloc-conf-malformed", {"driver-jit": "passed"}),
    setting("PYTORCH_NO_CUDA_MEMORY_CACHING", "1", "memory-caching-off", {"torch": "passed"}),
    setting("NVIDIA_TF32_OVERRIDE", "0", "tf32-overridden", {"torch": "passed"}),
    setting("CUDA_VISIBLE_DEVICE", "0", "variable-misspelt", {"torch": "passed"}),
    Fault(
        "LD_LIBRARY_PATH names what is gone",
        dangling_library_path,
        Expected("ld-library-path-dangling", "export LD_LIBRARY_PATH"),
    ),
)
