"""Is there an NVIDIA GPU in the machine? Asked by the engine and by most rules."""

from __future__ import annotations

from enum import Enum

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, maybe
from cudadoctor.model.snapshot import Gpu, PciDevice, Platform, Snapshot

NVIDIA_VENDOR = "10de"
AMD_VENDOR = "1002"


class Presence(Enum):
    """Is there an NVIDIA GPU in this machine, whether or not it works?"""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


def gpus(snapshot: Snapshot) -> tuple[Gpu, ...]:
    """The GPUs that were listed; empty where none were or nothing could list them."""
    return maybe(snapshot.gpus) or ()


def platform(snapshot: Snapshot) -> Platform | None:
    """The platform, where it is known."""
    return maybe(snapshot.host.platform)


def pci_gpus(snapshot: Snapshot, vendor: str) -> tuple[PciDevice, ...]:
    """The display controllers of one vendor on the PCI bus."""
    return tuple(device for device in maybe(snapshot.driver.pci_devices) or () if device.vendor_id == vendor)


def nvidia_gpu_present(snapshot: Snapshot) -> Presence:
    """YES where anything shows one; NO where all that could show one was asked and showed none; else UNKNOWN."""
    driver = snapshot.driver
    if gpus(snapshot) or pci_gpus(snapshot, NVIDIA_VENDOR) or (maybe(driver.visible_device_count) or 0) > 0:
        return Presence.YES
    if isinstance(driver.kernel_module, Known) or any(
        node.path.startswith("/dev/nvidia") for node in maybe(driver.device_nodes) or ()
    ):
        return Presence.YES
    if platform(snapshot) is Platform.MACOS:
        return Presence.NO
    if any(_gave_no_answer(fact) for fact in (driver.nvml, driver.nvidia_smi, driver.cu_init)):
        return Presence.UNKNOWN
    for status in (maybe(driver.nvml), maybe(driver.nvidia_smi), maybe(driver.cu_init)):
        if status is not None and status.code != 0:
            return Presence.UNKNOWN
    if isinstance(driver.pci_devices, Known) and platform(snapshot) is not Platform.WSL:
        return Presence.NO
    nothing_answers = all(_absent(fact) for fact in (driver.nvml, driver.nvidia_smi, driver.cu_init))
    return Presence.NO if nothing_answers else Presence.UNKNOWN


def _gave_no_answer(fact: Fact[object]) -> bool:
    """Is it there, or may it be, and did it hang, crash, or could not be started or read?"""
    return isinstance(fact, Missing) and fact.reason in (
        MissingReason.TIMEOUT,
        MissingReason.CRASHED,
        MissingReason.FAILED,
        MissingReason.PERMISSION_DENIED,
    )


def _absent(fact: Fact[object]) -> bool:
    return isinstance(fact, Missing) and fact.reason is MissingReason.NOT_FOUND
