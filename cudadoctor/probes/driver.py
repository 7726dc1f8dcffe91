"""The kernel side of the NVIDIA driver and the user-space library that belongs to it, without calling either."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import DeviceNode, Driver, KernelModule, LibraryCopy, ModuleFlavour, PciDevice, Platform
from cudadoctor.model.versions import DriverRelease, VersionError
from cudadoctor.probes.all_missing import all_missing
from cudadoctor.probes.asking import ask_file, folder_names, missing_file, not_applicable, not_found
from cudadoctor.probes.host import read_platform
from cudadoctor.probes.library_files import copy_of, further_copies, loader_for, reachable_copies

if TYPE_CHECKING:
    from cudadoctor.binary.loader import LoaderView
    from cudadoctor.system import System

VERSION_FILE = "/proc/driver/nvidia/version"
PARAMETERS_FILE = "/proc/driver/nvidia/params"
MODULES_FILE = "/proc/modules"
PCI_FOLDER = "/sys/bus/pci/devices"
GPU_VENDORS = frozenset({"10de", "1002", "8086"})
"""PCI vendors NVIDIA, AMD and Intel."""
MODULE_NAMES = re.compile(r"^(?:nvidia\w*|nouveau|nova\w*|amdgpu|radeon|i915|xe|vfio_pci|nvgpu|nvmap|nvhost\w*|gdrdrv)$")
DEVICE_NAMES = re.compile(r"^(?:nvidia\d+|nvidiactl|nvidia-uvm|nvidia-modeset|dxg|nvhost-ctrl-gpu|nvmap|nvgpu)\Z")
RELEASE_LINE = re.compile(r"(?P<open>Open )?Kernel Module(?: for \w+)?\s+(?P<release>\d+(?:\.\d+){1,3})")
MODULE_FILE = re.compile(r"^(\S*\bnvidia(?:-current)?\.ko(?:\.\w+)?):", re.MULTILINE)
"""Debian calls it nvidia-current.ko."""
HEXADECIMAL = re.compile(r"\s*0x([0-9a-fA-F]{2,8})\s*")
LIBCUDA = "libcuda.so.1"
WINDOWS_SYSTEM = r"C:\Windows\System32"


def read_driver(system: System) -> Driver:
    """What files and the loader's search say about the driver."""
    platform = read_platform(system)
    kind = platform.value if isinstance(platform, Known) else Platform.MACOS
    if kind is Platform.MACOS:
        none = not_applicable("CUDA does not exist on this platform")
        return all_missing(Driver)(none)
    if kind is Platform.WINDOWS:
        return _windows_driver(system)
    module = _kernel_module(system, kind)
    return Driver(
        driver_release=_release_of(module),
        kernel_module=module,
        loaded_modules=_loaded_modules(system),
        module_file=_module_file(system, kind),
        device_nodes=_device_nodes(system),
        pci_devices=_pci_devices(system),
        libcuda_copies=Known(libcuda_copies(system, loader_for(system)), "loader search, usual folders"),
        profiling_restricted=_profiling_restricted(system, kind),
    )


def parse_procfs_version(text: str) -> KernelModule:
    """The loaded kernel module, proprietary or open; raises VersionError.

    Samples:
        NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
        NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3-AF03-09-1)
    """
    match = RELEASE_LINE.search(text)
    if match is None:
        raise VersionError(f"no NVRM version in {text[:120]!r}")
    flavour = ModuleFlavour.OPEN if match["open"] else ModuleFlavour.PROPRIETARY
    return KernelModule(driver_release=DriverRelease.parse(match["release"]), flavour=flavour)


def parse_modules(text: str) -> tuple[str, ...]:
    """Names of GPU-related modules in /proc/modules.

    Sample: `nvidia_uvm 4943872 2 - Live 0x0000000000000000 (PO)`
    """
    names = (line.split(" ", 1)[0] for line in text.splitlines())
    return tuple(sorted({name for name in names if MODULE_NAMES.match(name)}))


def parse_module_file(text: str) -> str:
    """The nvidia module in a modules.dep, relative to its folder; empty where there is none.

    Samples: `updates/dkms/nvidia.ko.zst:`, `kernel/nvidia-580/nvidia.ko: kernel/drivers/char/ipmi/ipmi_msghandler.ko`
    """
    match = MODULE_FILE.search(text)
    return match[1] if match else ""


def parse_profiling_parameter(text: str) -> bool:
    """Are performance counters for administrators only? Raises ValueError where the driver does not say.

    Sample: `RmProfilingAdminOnly: 1`
    """
    match = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    if match is None:
        raise ValueError("no RmProfilingAdminOnly")
    return match[1] != "0"


def libcuda_copies(system: System, loader: LoaderView) -> tuple[LibraryCopy, ...]:
    """Every libcuda: what the loader meets for `libcuda.so.1`, its choice marked; for plain `libcuda.so`; then those elsewhere.

    Programs load libcuda.so.1, so the copy that the plain name leads to (a stub's, in a folder of stubs) never wins.
    """
    conda = system.environ.get("CONDA_PREFIX", "")
    copies = list(reachable_copies(loader, LIBCUDA, conda))
    plain = reachable_copies(loader, "libcuda.so", conda)
    known = {copy.real_path for copy in copies}
    copies += [structs.replace(copy, wins=False) for copy in plain if copy.real_path not in known]
    copies += further_copies(system, LIBCUDA, _usual_libcuda_paths(system, conda), copies, conda)
    return tuple(copies)


def _usual_libcuda_paths(system: System, conda: str) -> Iterator[str]:
    """Places of compat, stub, WSL and Tegra copies that no loader setting need lead to."""
    roots = [f"/usr/local/{name}" for name in folder_names(system, "/usr/local") if name.startswith("cuda")]
    for root in (*roots, "/opt/cuda", "/usr/lib/cuda", *((conda,) if conda else ())):
        yield f"{root}/compat/{LIBCUDA}"
        yield f"{root}/cuda-compat/{LIBCUDA}"
        yield f"{root}/lib64/stubs/libcuda.so"
        yield f"{root}/lib/stubs/libcuda.so"
    yield f"/usr/lib/wsl/lib/{LIBCUDA}"
    yield f"/usr/lib/aarch64-linux-gnu/tegra/{LIBCUDA}"
    yield f"/usr/lib/aarch64-linux-gnu/nvidia/{LIBCUDA}"
    yield f"/usr/local/nvidia/lib64/{LIBCUDA}"
    yield f"/run/opengl-driver/lib/{LIBCUDA}"


def _kernel_module(system: System, kind: Platform) -> Fact[KernelModule]:
    answer = ask_file(system, VERSION_FILE)
    if isinstance(answer, Missing):
        if kind is Platform.WSL:
            return not_applicable("under WSL the kernel driver is Windows's", VERSION_FILE)
        if answer.reason is MissingReason.NOT_FOUND:
            return not_found("no NVIDIA kernel module is loaded, or this container does not see it", VERSION_FILE)
        return answer
    try:
        return Known(parse_procfs_version(answer.text), "procfs")
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), VERSION_FILE)


def _release_of(module: Fact[KernelModule]) -> Fact[DriverRelease]:
    return module if isinstance(module, Missing) else Known(module.value.driver_release, module.source)


def _loaded_modules(system: System) -> Fact[tuple[str, ...]]:
    answer = ask_file(system, MODULES_FILE)
    return answer if isinstance(answer, Missing) else Known(parse_modules(answer.text), MODULES_FILE)


def _module_file(system: System, kind: Platform) -> Fact[str]:
    """The module that modprobe would load; a container without the host's modules cannot tell."""
    if kind is Platform.WSL or system.uname is None:
        return not_applicable("no Linux kernel module belongs to this kernel")
    folder = f"/lib/modules/{system.uname.release}"
    answer = ask_file(system, f"{folder}/modules.dep")
    if isinstance(answer, Missing):
        unseen = answer.reason is MissingReason.NOT_FOUND
        return not_applicable("the running kernel's modules are not visible here", answer.source) if unseen else answer
    name = parse_module_file(answer.text)
    return Known(f"{folder}/{name}", answer.source) if name else not_found("no nvidia module for this kernel", answer.source)


def _device_nodes(system: System) -> Fact[tuple[DeviceNode, ...]]:
    try:
        names = system.list_folder("/dev")
    except OSError as error:
        return missing_file(error, "/dev")
    return Known(tuple(_device_node(system, f"/dev/{name}") for name in names if DEVICE_NAMES.match(name)), "/dev")


def _device_node(system: System, path: str) -> DeviceNode:
    """The node with its permissions; whether opening it really works is asked in the NVML child."""
    try:
        mode = stat.filemode(system.mode(path))
    except OSError as error:
        return DeviceNode(path=path, accessible=False, detail=error.strerror or str(error))
    accessible = system.access(path, os.R_OK | os.W_OK)
    return DeviceNode(path=path, accessible=accessible, mode=mode, detail="" if accessible else "no permission to read and write")


def _pci_devices(system: System) -> Fact[tuple[PciDevice, ...]]:
    try:
        addresses = system.list_folder(PCI_FOLDER)
    except OSError as error:
        return missing_file(error, PCI_FOLDER)
    answers = [_pci_device(system, address) for address in addresses]
    devices = tuple(answer for answer in answers if isinstance(answer, PciDevice))
    unread = next((answer for answer in answers if isinstance(answer, Missing)), None)
    return unread if unread is not None and not devices else Known(devices, PCI_FOLDER)


def _pci_device(system: System, address: str) -> PciDevice | Missing | None:
    """The device where it is a display or 3D controller (class 03xxxx) of a GPU vendor; why that could not be read."""
    folder = f"{PCI_FOLDER}/{address}"
    kind = _hexadecimal(system, f"{folder}/class")
    if isinstance(kind, Missing) or not kind.startswith("03"):
        return None if isinstance(kind, str) or kind.reason is MissingReason.NOT_FOUND else kind
    vendor = _hexadecimal(system, f"{folder}/vendor")
    if isinstance(vendor, Missing) or vendor not in GPU_VENDORS:
        return None if isinstance(vendor, str) or vendor.reason is MissingReason.NOT_FOUND else vendor
    device = _hexadecimal(system, f"{folder}/device")
    device = device if isinstance(device, str) else ""
    try:
        bound = system.real_path(f"{folder}/driver").rsplit("/", 1)[-1]
    except OSError:
        bound = ""
    return PciDevice(bus_id=address, vendor_id=vendor, device_id=device, kernel_driver=bound)


def _hexadecimal(system: System, path: str) -> str | Missing:
    """The digits in a file of sysfs, `0x030000`; empty where it holds anything else."""
    answer = ask_file(system, path)
    if isinstance(answer, Missing):
        return answer
    match = HEXADECIMAL.fullmatch(answer.text)
    return match[1].lower() if match else ""


def _profiling_restricted(system: System, kind: Platform) -> Fact[bool]:
    answer = ask_file(system, PARAMETERS_FILE)
    if isinstance(answer, Missing):
        return not_applicable("a Windows setting under WSL", PARAMETERS_FILE) if kind is Platform.WSL else answer
    try:
        return Known(parse_profiling_parameter(answer.text), PARAMETERS_FILE)
    except ValueError as error:
        return Missing(MissingReason.NOT_SUPPORTED, str(error), PARAMETERS_FILE)


def _windows_driver(system: System) -> Driver:
    """Windows has no procfs; the driver's own library lies in System32."""
    none = not_applicable("Windows has no such file")
    path = rf"{WINDOWS_SYSTEM}\nvcuda.dll"
    copies = (copy_of("nvcuda.dll", path, path, via="System32", wins=True),) if system.exists(path) else ()
    return Driver(
        kernel_module=none,
        loaded_modules=none,
        module_file=none,
        device_nodes=none,
        pci_devices=none,
        libcuda_copies=Known(copies, WINDOWS_SYSTEM),
        profiling_restricted=none,
    )
