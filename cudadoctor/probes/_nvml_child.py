"""Asks NVML and the device nodes, in a process of its own because a wedged driver never answers; prints JSON lines.

Run as `python -I -S _nvml_child.py FOLDER_OF_PYNVML NODE...`; an empty folder means that NVML is not to be asked. With
`FOLDER_OF_PYNVML --sample PCI_BUS_ID SECONDS` it reads one GPU again and again. Each line is written as soon as it is known, so a
hang loses only what follows.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from typing import Any

Answer = dict[str, Any]
Call = Callable[[Any], Any]
"""Takes the pynvml module and gives NVML's answer, or raises NVMLError."""

THROTTLE_BITS = (
    (0x1, "gpu_idle"),
    (0x2, "applications_clocks_setting"),
    (0x4, "sw_power_cap"),
    (0x8, "hw_slowdown"),
    (0x10, "sync_boost"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
    (0x100, "display_clock_setting"),
)
"""nvml.h, nvmlClocksEventReason*."""
FABRIC_STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
"""nvml.h, NVML_GPU_FABRIC_STATE_*."""
LIBRARY_NOT_FOUND = 12
"""nvml.h, NVML_ERROR_LIBRARY_NOT_FOUND; set by pynvml itself where dlopen fails."""


def emit(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def try_node(path: str) -> None:
    """Open a device node: only that shows a container's device filter, which permissions do not."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        emit("node", path=path, error=0, message="")
    except OSError as error:
        emit("node", path=path, error=error.errno, message=error.strerror)


def text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Nvml:
    """pynvml with answers instead of exceptions."""

    def __init__(self, module: Any) -> None:
        self.module = module

    def failure(self, error: Exception) -> Answer:
        """NVML's own number, name and words of an error."""
        module, code = self.module, getattr(error, "value", -1)
        names = [name for name in dir(module) if name.startswith("NVML_ERROR_") and getattr(module, name) == code]
        try:
            message = text(module.nvmlErrorString(code))  # pynvml has texts of its own for some errors
        except (module.NVMLError, AttributeError):  # the library is not loaded
            message = str(error)
        return {"code": code, "name": names[0] if names else "", "message": message}

    def read(self, call: Call) -> Answer:
        """{"value": ...} or {"error": {...}}: an old library lacks functions, an old GPU features."""
        try:
            return {"value": text(call(self.module))}
        except self.module.NVMLError as error:
            return {"error": self.failure(error)}
        except AttributeError as error:
            return {"error": {"code": -1, "name": "", "message": f"this pynvml has no such function: {error}"}}
        except (UnicodeDecodeError, ValueError, TypeError, OverflowError) as error:
            return {"error": {"code": -1, "name": "", "message": f"unreadable answer: {error}"}}


def memory(handle: Any) -> Call:
    """Total and used bytes; the second form of the call does not count what the driver keeps for itself as used."""

    def call(n: Any) -> Any:
        try:
            info = n.nvmlDeviceGetMemoryInfo(handle, version=n.nvmlMemory_v2)
        except (n.NVMLError, AttributeError, TypeError):
            info = n.nvmlDeviceGetMemoryInfo(handle)
        return [int(info.total), int(info.used)]

    return call


def mig_devices(handle: Any) -> Call:
    """Profile names of the MIG devices, e.g. `1g.10gb`."""

    def call(n: Any) -> Any:
        names = []
        for index in range(n.nvmlDeviceGetMaxMigDeviceCount(handle)):
            try:
                device = n.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                name = text(n.nvmlDeviceGetName(device))
            except n.NVMLError:
                continue  # the slot is empty
            profile = re.search(r"MIG (\S+)", name)
            names.append(profile.group(1) if profile else name)
        return names

    return call


def fabric(handle: Any) -> Call:
    def call(n: Any) -> Any:
        info = n.c_nvmlGpuFabricInfo_t()
        n.nvmlDeviceGetGpuFabricInfo(handle, ctypes.byref(info))
        return FABRIC_STATES.get(info.state, str(info.state)) + ("" if info.status == 0 else f", status {info.status}")

    return call


def throttle(handle: Any) -> Call:
    def call(n: Any) -> Any:
        bits = n.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
        return [name for bit, name in THROTTLE_BITS if bits & bit]

    return call


def fields_of(handle: Any) -> tuple[tuple[str, Call], ...]:
    """What is asked of each GPU: key and call, the certain and cheap ones first."""
    return (
        ("name", lambda n: n.nvmlDeviceGetName(handle)),
        ("uuid", lambda n: n.nvmlDeviceGetUUID(handle)),
        ("pci_bus_id", lambda n: n.nvmlDeviceGetPciInfo(handle).busId),
        ("compute_capability", lambda n: list(n.nvmlDeviceGetCudaComputeCapability(handle))),
        ("memory", memory(handle)),
        ("compute_mode", lambda n: n.nvmlDeviceGetComputeMode(handle)),
        ("persistence", lambda n: n.nvmlDeviceGetPersistenceMode(handle)),
        ("mig_mode", lambda n: n.nvmlDeviceGetMigMode(handle)[0]),
        ("mig_devices", mig_devices(handle)),
        ("driver_model", lambda n: n.nvmlDeviceGetDriverModel(handle)[0]),
        ("ecc_mode", lambda n: n.nvmlDeviceGetEccMode(handle)[0]),
        ("ecc_uncorrected", lambda n: n.nvmlDeviceGetTotalEccErrors(handle, 1, 0)),
        ("compute_process_count", lambda n: len(n.nvmlDeviceGetComputeRunningProcesses(handle))),
        ("pcie_generation", lambda n: n.nvmlDeviceGetCurrPcieLinkGeneration(handle)),
        ("pcie_generation_max", lambda n: n.nvmlDeviceGetMaxPcieLinkGeneration(handle)),
        ("pcie_width", lambda n: n.nvmlDeviceGetCurrPcieLinkWidth(handle)),
        ("pcie_width_max", lambda n: n.nvmlDeviceGetMaxPcieLinkWidth(handle)),
        ("sm_clock_mhz", lambda n: n.nvmlDeviceGetClockInfo(handle, 1)),
        ("sm_clock_max_mhz", lambda n: n.nvmlDeviceGetMaxClockInfo(handle, 1)),
        ("throttle_reasons", throttle(handle)),
        ("temperature_c", lambda n: n.nvmlDeviceGetTemperature(handle, 0)),
        ("power_mw", lambda n: n.nvmlDeviceGetPowerUsage(handle)),
        ("power_limit_mw", lambda n: n.nvmlDeviceGetEnforcedPowerLimit(handle)),
        ("utilization_percent", lambda n: n.nvmlDeviceGetUtilizationRates(handle).gpu),
        ("fabric", fabric(handle)),
    )


def describe_gpu(nvml: Nvml, index: int) -> None:
    """One GPU; where not even its handle can be had, NVML's words for that."""
    try:
        handle = nvml.module.nvmlDeviceGetHandleByIndex(index)
    except nvml.module.NVMLError as error:
        emit("gpu", index=index, handle_error=nvml.failure(error), fields={})
    else:
        emit("gpu", index=index, fields={key: nvml.read(call) for key, call in fields_of(handle)})


def nvlinks(handle: Any) -> Call:
    """Each link that is active as version and PCI address of what it leads to, or None for a switch; and how many there are."""

    def call(n: Any) -> Any:
        active, total = [], 0
        for link in range(n.NVML_NVLINK_MAX_LINKS):
            try:
                state = n.nvmlDeviceGetNvLinkState(handle, link)
            except n.NVMLError:
                if link == 0:
                    raise
                break  # fewer links than the library knows
            total += 1
            if state:
                to_gpu = n.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == n.NVML_NVLINK_DEVICE_TYPE_GPU
                remote = text(n.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId) if to_gpu else None
                active.append([n.nvmlDeviceGetNvLinkVersion(handle, link), remote])
        return {"active": active, "total": total}

    return call


def describe_pairs(nvml: Nvml, count: int) -> None:
    """What lies between every two GPUs; those without a handle have said so before."""
    handles = {}
    for index in range(count):
        with suppress(nvml.module.NVMLError):
            handles[index] = nvml.module.nvmlDeviceGetHandleByIndex(index)
            emit("nvlinks", index=index, **nvml.read(nvlinks(handles[index])))
    for (first, one), (second, other) in combinations(handles.items(), 2):
        topology = nvml.read(partial(lambda a, b, n: n.nvmlDeviceGetTopologyCommonAncestor(a, b), one, other))
        status = nvml.read(partial(lambda a, b, n: n.nvmlDeviceGetP2PStatus(a, b, 0), one, other))
        emit("pair", first=first, second=second, fields={"topology": topology, "peer_status": status})


def describe(module: Any) -> None:
    nvml = Nvml(module)
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        emit("init", **nvml.failure(error))
        return
    emit("init", code=0, name="NVML_SUCCESS", message="")
    emit(
        "system",
        driver_release=nvml.read(lambda n: n.nvmlSystemGetDriverVersion()),
        driver_cuda_version=nvml.read(lambda n: n.nvmlSystemGetCudaDriverVersion_v2()),
    )
    count = nvml.read(lambda n: n.nvmlDeviceGetCount())
    emit("count", **count)
    for index in range(count.get("value", 0)):
        describe_gpu(nvml, index)
    if count.get("value", 0) > 1:
        describe_pairs(nvml, count["value"])


SAMPLED = frozenset(
    {
        "sm_clock_mhz",
        "throttle_reasons",
        "temperature_c",
        "power_mw",
        "utilization_percent",
        "pcie_generation",
        "pcie_width",
    }
)
"""What is asked of a GPU again and again while it is measured."""


def processes(handle: Any) -> Call:
    """Numbers of the processes that compute on it, as the driver counts them (in a container: the host's)."""
    return lambda n: [process.pid for process in n.nvmlDeviceGetComputeRunningProcesses(handle)]


def sample(folder: str, pci_bus_id: str, interval_s: float) -> None:
    """Describe one GPU once, then give a `sample` line at each interval until it is killed."""
    sys.path.insert(0, folder)
    import pynvml

    nvml = Nvml(pynvml)
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id.encode())
    except pynvml.NVMLError as error:
        emit("init", **nvml.failure(error))
        return
    once = (
        *fields_of(handle),
        ("power_limit_default_mw", lambda n: n.nvmlDeviceGetPowerManagementDefaultLimit(handle)),
        ("pci_device", lambda n: n.nvmlDeviceGetPciInfo(handle).pciDeviceId >> 16),
    )
    emit("gpu", fields={key: nvml.read(call) for key, call in once})
    asked = [(key, call) for key, call in fields_of(handle) if key in SAMPLED]
    asked.append(("processes", processes(handle)))
    while True:
        emit("sample", at=time.monotonic(), fields={key: nvml.read(call) for key, call in asked})
        time.sleep(interval_s)


def main(folder: str, nodes: Sequence[str]) -> None:
    control = [path for path in nodes if not re.search(r"nvidia\d+$", path)]
    for path in control:
        try_node(path)
    if folder:
        sys.path.insert(0, folder)
        import pynvml

        describe(pynvml)
    # Last, as opening a GPU's own node may initialise it, which NVML has done by now.
    for path in nodes:
        if path not in control:
            try_node(path)
    emit("end")


if __name__ == "__main__":
    if sys.argv[2:3] == ["--sample"]:
        sample(sys.argv[1], sys.argv[3], float(sys.argv[4]))
    else:
        main(sys.argv[1], sys.argv[2:])
