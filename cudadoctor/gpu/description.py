"""What the driver child reported, typed.

Sizes in bytes, clocks in kHz; a part that could not be read is None and named in `failures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cudadoctor.gpu.child import ChildFailure
from cudadoctor.gpu.cu_result import NO_DEVICE
from cudadoctor.model.proof import ApiError
from cudadoctor.model.versions import ComputeCapability, CudaVersion, VersionError

EXCLUSIVE_PROCESS = 3
"""CU_COMPUTEMODE_EXCLUSIVE_PROCESS."""
PROHIBITED = 2
"""CU_COMPUTEMODE_PROHIBITED."""


class DeviceDescription(msgspec.Struct, frozen=True):
    """One visible device; `index` counts in CUDA's order."""

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    total_memory_bytes: int | None = None
    max_threads_per_block: int | None = None
    shared_memory_per_block_bytes: int | None = None
    shared_memory_per_block_optin_bytes: int | None = None
    shared_memory_per_multiprocessor_bytes: int | None = None
    registers_per_block: int | None = None
    registers_per_multiprocessor: int | None = None
    max_threads_per_multiprocessor: int | None = None
    warp_size: int | None = None
    multiprocessor_count: int | None = None
    clock_khz: int | None = None
    memory_clock_khz: int | None = None
    memory_bus_width_bits: int | None = None
    l2_cache_bytes: int | None = None
    kernel_timeout: int | None = None
    integrated: int | None = None
    compute_mode: int | None = None
    ecc_enabled: int | None = None
    tcc_driver: int | None = None
    unified_addressing: int | None = None
    managed_memory: int | None = None
    pageable_memory_access: int | None = None
    concurrent_managed_access: int | None = None
    compute_capability_major: int | None = None
    compute_capability_minor: int | None = None
    failures: dict[str, ApiError] = {}

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """None where the driver did not say."""
        if self.compute_capability_major is None or self.compute_capability_minor is None:
            return None
        return ComputeCapability(self.compute_capability_major, self.compute_capability_minor)

    @property
    def is_mig(self) -> bool:
        """True for a slice of a GPU (Multi-Instance GPU)."""
        return (self.uuid or "").startswith("MIG-") or " MIG " in (self.name or "")


class PeerDescription(msgspec.Struct, frozen=True):
    """What `device` may do with the memory of `peer`; both count in CUDA's order."""

    device: int
    peer: int
    access: bool
    native_atomics: bool


class DriverDescription(msgspec.Struct, frozen=True):
    """What the driver library answered, as far as it got; `stopped_at` and `failure` where the child hung or crashed.

    `init` is the result of cuInit, code 0 for success; None where it was not reached. `visible_devices` is the value of
    CUDA_VISIBLE_DEVICES that the child ran with, None where unset.
    """

    visible_devices: str | None
    libcuda: tuple[str, ...] = ()
    load_error: str | None = None
    driver_version: int | None = None
    driver_version_error: ApiError | None = None
    missing_symbol: str | None = None
    init: ApiError | None = None
    device_count: int | None = None
    count_error: ApiError | None = None
    devices: tuple[DeviceDescription, ...] = ()
    stopped_at: str | None = None
    failure: ChildFailure | None = None
    failure_text: str | None = None
    peers: tuple[PeerDescription, ...] = ()
    peers_failure: str | None = None

    @property
    def driver_cuda_version(self) -> CudaVersion | None:
        """The newest CUDA version that the driver's API supports."""
        try:
            return CudaVersion.from_int(self.driver_version or 0)
        except VersionError:
            return None

    @property
    def usable(self) -> bool:
        """True if cuInit succeeded and a device is there."""
        return self.init is not None and self.init.code == 0 and bool(self.devices)

    @property
    def refusal(self) -> dict[str, Any] | None:
        """Why no kernel can be launched, as the outcome of a proof; None where nothing that was answered is against it."""
        return refusal(msgspec.to_builtins(self))


def refusal(answer: Mapping[str, Any]) -> dict[str, Any] | None:
    """Why the driver cannot be used, as the outcome of a proof, or None where nothing is against it so far."""
    if answer.get("load_error"):
        return {"outcome": "skipped", "because": f"no CUDA driver library: {answer['load_error']}"}
    if answer.get("missing_symbol"):
        return {"outcome": "failed", "because": f"not a CUDA driver library: {answer['missing_symbol']}"}
    result = answer.get("init") or {"code": 0}
    if result["code"] == NO_DEVICE:
        return {"outcome": "skipped", "error": result, "because": "no CUDA device is visible"}
    return {"outcome": "failed", "error": result, "because": "cuInit failed"} if result["code"] else None
