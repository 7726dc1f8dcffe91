"""What the driver API says about itself and its devices, each part tolerant of the failure of the others.

Runs in the driver child; standard library only. The answers are plain dicts, typed in `description.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cudadoctor.gpu.cu_result import SUCCESS
from cudadoctor.gpu.driver_api import Driver, DriverError, MissingSymbolError, mapped_libraries

ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_per_block_bytes": 8,
    "warp_size": 10,
    "registers_per_block": 12,
    "clock_khz": 13,
    "multiprocessor_count": 16,
    "kernel_timeout": 17,
    "integrated": 18,
    "compute_mode": 20,
    "ecc_enabled": 32,
    "tcc_driver": 35,
    "memory_clock_khz": 36,
    "memory_bus_width_bits": 37,
    "l2_cache_bytes": 38,
    "max_threads_per_multiprocessor": 39,
    "unified_addressing": 41,
    "compute_capability_major": 75,
    "compute_capability_minor": 76,
    "shared_memory_per_multiprocessor_bytes": 81,
    "registers_per_multiprocessor": 82,
    "managed_memory": 83,
    "pageable_memory_access": 88,
    "concurrent_managed_access": 89,
    "shared_memory_per_block_optin_bytes": 97,
}
"""Numbers of `CUdevice_attribute` in cuda.h (CUDA 13.0); a number is never reused."""

Answer = dict[str, Any]


def describe_library(driver: Driver) -> Answer:
    """Which libcuda got loaded, and the CUDA version that it supports; works without a GPU."""
    answer: Answer = {"libcuda": mapped_libraries("libcuda.so"), "driver_version": None, "driver_version_error": None}
    try:
        answer["driver_version"] = driver.get_int("cuDriverGetVersion")
    except DriverError as error:
        answer["driver_version_error"] = error.result._asdict()
    except MissingSymbolError as error:
        answer["missing_symbol"] = str(error)
    return answer


def initialise(driver: Driver) -> Answer:
    """The result of cuInit, success included."""
    try:
        return {"init": driver.result(driver.code("cuInit", ctypes.c_uint(0)))._asdict()}
    except MissingSymbolError as error:
        return {"missing_symbol": str(error)}


def describe_devices(driver: Driver) -> Answer:
    """The visible devices in CUDA's order; needs a successful `initialise`."""
    try:
        count = driver.get_int("cuDeviceGetCount")
    except DriverError as error:
        return {"count_error": error.result._asdict(), "devices": []}
    return {"device_count": count, "devices": [_describe_device(driver, index) for index in range(count)]}


NATIVE_ATOMICS = 3
"""Number of CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED in `CUdevice_P2PAttribute` (cuda.h)."""


def describe_peers(driver: Driver) -> Answer:
    """What each device may do with the memory of each other; needs a successful `initialise`."""
    try:
        handles = [
            ctypes.c_int(driver.get_int("cuDeviceGet", ctypes.c_int(i))) for i in range(driver.get_int("cuDeviceGetCount"))
        ]
        return {"peers": [_peer(driver, a, b) for a in handles for b in handles if a is not b]}
    except (DriverError, MissingSymbolError) as error:
        return {"peers_failure": str(error)}


def _peer(driver: Driver, device: ctypes.c_int, peer: ctypes.c_int) -> Answer:
    return {
        "device": device.value,
        "peer": peer.value,
        "access": bool(driver.get_int("cuDeviceCanAccessPeer", device, peer)),
        "native_atomics": bool(driver.get_int("cuDeviceGetP2PAttribute", ctypes.c_int(NATIVE_ATOMICS), device, peer)),
    }


def _describe_device(driver: Driver, index: int) -> Answer:
    failures: Answer = {}
    device: Answer = {"index": index, "failures": failures}

    def put(key: str, read: Callable[[], Any]) -> None:
        try:
            device[key] = read()
        except DriverError as error:
            failures[key] = error.result._asdict()
        except MissingSymbolError as error:
            failures[key] = {"code": -1, "name": "missing symbol", "message": str(error)}

    try:
        handle = ctypes.c_int(driver.get_int("cuDeviceGet", ctypes.c_int(index)))
    except DriverError as error:
        failures["handle"] = error.result._asdict()
        return device
    put("name", lambda: _name(driver, handle))
    put("uuid", lambda: _uuid(driver, handle))
    put("pci_bus_id", lambda: _pci_bus_id(driver, handle))
    put("total_memory_bytes", lambda: _total_memory(driver, handle))
    for key, number in ATTRIBUTES.items():
        put(key, lambda number=number: driver.get_int("cuDeviceGetAttribute", ctypes.c_int(number), handle))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return device


def _name(driver: Driver, handle: ctypes.c_int) -> str:
    text = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", text, ctypes.c_int(len(text)), handle)
    return text.value.decode("utf-8", "replace")


def _uuid(driver: Driver, handle: ctypes.c_int) -> str:
    """`GPU-...`, or `MIG-...` where the v2 call gives another UUID than the v1 call: v1 always names the whole GPU."""
    whole, slice_ = (ctypes.c_ubyte * 16)(), (ctypes.c_ubyte * 16)()
    driver.call("cuDeviceGetUuid", whole, handle)
    has_slice = driver.has("cuDeviceGetUuid_v2") and driver.code("cuDeviceGetUuid_v2", slice_, handle) == SUCCESS
    is_mig = has_slice and bytes(slice_) != bytes(whole)
    digits = bytes(slice_ if is_mig else whole).hex()
    return ("MIG-" if is_mig else "GPU-") + "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _pci_bus_id(driver: Driver, handle: ctypes.c_int) -> str:
    text = ctypes.create_string_buffer(32)
    driver.call("cuDeviceGetPCIBusId", text, ctypes.c_int(len(text)), handle)
    return text.value.decode("ascii", "replace")


def _total_memory(driver: Driver, handle: ctypes.c_int) -> int:
    size = ctypes.c_size_t()
    driver.call("cuDeviceTotalMem_v2", ctypes.byref(size), handle)
    return size.value
