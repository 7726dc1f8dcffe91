"""One driver and one list of GPUs out of what NVML, nvidia-smi, the files and the driver library said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from msgspec import structs

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import ApiStatus, DeviceNode, Driver, Gpu, Snapshot
from cudadoctor.model.versions import CudaVersion
from cudadoctor.probes.asking import not_found
from cudadoctor.probes.combining import combine, first_known
from cudadoctor.probes.gpu_pairs import with_access
from cudadoctor.probes.nvml import COMPUTE_MODES, NvmlAnswer, bus_id

if TYPE_CHECKING:
    from cudadoctor.gpu.description import DeviceDescription, DriverDescription
    from cudadoctor.probes.nvidia_smi import SmiAnswer

S = TypeVar("S")
T = TypeVar("T")

DRIVER_SOURCE = "libcuda"
MOMENTARY = frozenset(
    {
        "memory_used_bytes",
        "compute_process_count",
        "pcie_generation",
        "pcie_width",
        "sm_clock_mhz",
        "throttle_reasons",
        "temperature_c",
        "power_w",
        "utilization_percent",
    }
)
"""Readings that differ from one moment to the next, so that a second source's value is no disagreement."""
NO_DEVICE = 100
"""cuda.h, CUDA_ERROR_NO_DEVICE."""


def merge_driver(files: Driver, nvml: NvmlAnswer, smi: SmiAnswer) -> Driver:
    """The driver's facts, the kernel's own word first, then NVML's, then nvidia-smi's."""
    return structs.replace(
        files,
        driver_release=combine(files.driver_release, nvml.driver_release, smi.driver_release),
        driver_cuda_version=combine(nvml.driver_cuda_version, smi.driver_cuda_version),
        nvml=nvml.status,
        nvidia_smi=smi.status,
        device_nodes=_with_failures(files.device_nodes, nvml.nodes),
        fabric_manager=nvml.fabric,
    )


def merge_gpus(nvml: Fact[tuple[Gpu, ...]], smi: Fact[tuple[Gpu, ...]]) -> Fact[tuple[Gpu, ...]]:
    """The GPUs of both lists; where only one of them answered, that one; else the more telling reason."""
    if isinstance(nvml, Missing) or isinstance(smi, Missing):
        return first_known(nvml, smi)
    rest = list(smi.value)
    merged = []
    for gpu in nvml.value:
        twin = next((other for other in rest if same_gpu(gpu, other)), None)
        if twin is not None:
            rest.remove(twin)
        merged.append(gpu if twin is None else merge_gpu(gpu, twin))
    gpus = sorted([*merged, *rest], key=lambda gpu: gpu.index)
    return Known(tuple(gpus), nvml.source)


def merge_gpu(first: Gpu, second: Gpu) -> Gpu:
    """One GPU of two descriptions; `first` counts, `second` fills its gaps and is remembered where it says the same thing."""
    changes = {}
    for field in structs.fields(Gpu):
        mine, other = getattr(first, field.name), getattr(second, field.name)
        if isinstance(mine, (Known, Missing)):
            changes[field.name] = first_known(mine, other) if field.name in MOMENTARY else combine(mine, other)
    return structs.replace(first, **changes, error=first.error or second.error)


def same_gpu(one: Gpu, other: Gpu) -> bool:
    """Do both describe one GPU? By UUID, else by PCI address, else by index."""
    for fact, twin in ((one.uuid, other.uuid), (one.pci_bus_id, other.pci_bus_id)):
        if isinstance(fact, Known) and isinstance(twin, Known):
            return fact.value == twin.value
    return one.index == other.index


def merge_driver_description(
    snapshot: Snapshot, as_user: DriverDescription, all_devices: DriverDescription | None = None
) -> Snapshot:
    """The snapshot with what the driver library said: `as_user` with the user's environment, `all_devices` without
    CUDA_VISIBLE_DEVICES (None where the two are the same)."""
    everything = all_devices if all_devices is not None else as_user
    driver = structs.replace(
        snapshot.driver,
        cu_init=_cu_init(as_user),
        visible_device_count=_visible_count(as_user),
        driver_cuda_version=combine(snapshot.driver.driver_cuda_version, _cuda_version(everything)),
        libcuda_loaded=Known(as_user.libcuda[0], DRIVER_SOURCE) if as_user.libcuda else _unloaded(as_user),
    )
    gpus = _with_devices(snapshot.gpus, everything)
    listed = gpus.value if isinstance(gpus, Known) else ()
    pairs = with_access(snapshot.gpu_pairs, listed, device_numbers(listed, everything), everything)
    return structs.replace(snapshot, driver=driver, gpus=gpus, gpu_pairs=pairs)


def device_numbers(gpus: Sequence[Gpu], description: DriverDescription) -> dict[int, int]:
    """CUDA's index of each device to the report's, which is nvidia-smi's, by PCI address."""
    by_address = {gpu.pci_bus_id.value: gpu.index for gpu in gpus if isinstance(gpu.pci_bus_id, Known)}
    addresses = {device.index: bus_id(device.pci_bus_id) for device in description.devices if device.pci_bus_id}
    return {index: by_address[address] for index, address in addresses.items() if address in by_address}


def _with_failures(nodes: Fact[tuple[DeviceNode, ...]], unusable: Sequence[DeviceNode]) -> Fact[tuple[DeviceNode, ...]]:
    """The nodes, those marked that could not be opened although their permissions allow it."""
    if isinstance(nodes, Missing):
        return nodes
    words = {node.path: f"cannot be opened: {node.detail}" for node in unusable}
    marked = tuple(
        structs.replace(node, accessible=False, detail=words[node.path]) if node.path in words else node for node in nodes.value
    )
    return Known(marked, nodes.source)


def _stopped(description: DriverDescription) -> Missing | None:
    """Why the driver child said no more; None where it said all that it was asked."""
    if description.failure is None:
        return None
    reasons = {"hung": MissingReason.TIMEOUT, "crashed": MissingReason.CRASHED}
    reason = reasons.get(description.failure.value, MissingReason.FAILED)
    return Missing(reason, f"{description.stopped_at}: {description.failure_text}", DRIVER_SOURCE)


def _unloaded(description: DriverDescription) -> Missing:
    if description.load_error:
        return not_found(description.load_error, DRIVER_SOURCE)
    words = description.missing_symbol or "the driver library did not say"
    return _stopped(description) or Missing(MissingReason.FAILED, words, DRIVER_SOURCE)


def _cu_init(description: DriverDescription) -> Fact[ApiStatus]:
    init = description.init
    if init is None:
        return _unloaded(description)
    return Known(ApiStatus(code=init.code, name=init.name, message=init.message), DRIVER_SOURCE)


def _visible_count(description: DriverDescription) -> Fact[int]:
    if description.device_count is not None:
        return Known(description.device_count, DRIVER_SOURCE)
    error = description.count_error or description.init
    if error is not None and error.code == NO_DEVICE:
        return Known(0, DRIVER_SOURCE)
    if error is not None and error.code != 0:
        return Missing(MissingReason.FAILED, f"{error.name}: {error.message}", DRIVER_SOURCE)
    return _unloaded(description)


def _cuda_version(description: DriverDescription) -> Fact[CudaVersion]:
    version = description.driver_cuda_version
    return Known(version, DRIVER_SOURCE) if version is not None else _unloaded(description)


def _with_devices(gpus: Fact[tuple[Gpu, ...]], description: DriverDescription) -> Fact[tuple[Gpu, ...]]:
    """The GPUs, completed by CUDA's devices; a list of CUDA's alone where no other source answered."""
    if not description.devices:
        return gpus
    known = list(gpus.value) if isinstance(gpus, Known) else []
    for device in description.devices:
        row = device_row(device)
        at = next((place for place, gpu in enumerate(known) if _is_device(gpu, row, alone=len(known) == 1)), None)
        if at is not None:
            known[at] = merge_gpu(known[at], _without_memory(row) if isinstance(known[at].memory_total_bytes, Known) else row)
        elif not device.is_mig:
            known.append(structs.replace(row, index=max((gpu.index for gpu in known), default=-1) + 1))
    return Known(tuple(known), gpus.source if isinstance(gpus, Known) else DRIVER_SOURCE)


def _is_device(gpu: Gpu, row: Gpu, *, alone: bool) -> bool:
    """Is CUDA's device this GPU? CUDA's index says nothing, as it counts in another order."""
    for fact, twin in ((gpu.pci_bus_id, row.pci_bus_id), (gpu.uuid, row.uuid)):
        if isinstance(fact, Known) and isinstance(twin, Known):
            return fact.value == twin.value
    return alone and row.index == 0


def _without_memory(row: Gpu) -> Gpu:
    """CUDA counts only what it can hand out, so its total beside NVML's would look like a disagreement."""
    return structs.replace(row, memory_total_bytes=NOT_ASKED)


def device_row(device: DeviceDescription) -> Gpu:
    """CUDA's device as a GPU; of a MIG slice only what it has in common with the whole GPU."""
    capability = _only(device.compute_capability)
    address = _of(device.pci_bus_id, bus_id)
    if device.is_mig:
        return Gpu(index=device.index, compute_capability=capability, pci_bus_id=address)
    return Gpu(
        index=device.index,
        name=_only(device.name),
        compute_capability=capability,
        uuid=_only(device.uuid),
        pci_bus_id=address,
        memory_total_bytes=_only(device.total_memory_bytes),
        compute_mode=_of(device.compute_mode, COMPUTE_MODES.get),
        ecc_enabled=_of(device.ecc_enabled, bool),
        integrated=_of(device.integrated, bool),
        multiprocessor_count=_only(device.multiprocessor_count),
    )


def _only(value: T | None) -> Fact[T]:
    return NOT_ASKED if value is None else Known(value, DRIVER_SOURCE)


def _of(value: S | None, convert: Callable[[S], T | None]) -> Fact[T]:
    return NOT_ASKED if value is None else _only(convert(value))
