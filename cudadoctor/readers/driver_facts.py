"""Facts of readings about the driver, the kernel and the GPUs."""

from __future__ import annotations

from cudadoctor.model.snapshot import (
    ApiStatus,
    ComputeMode,
    KernelModule,
    ModuleFlavour,
    PciDevice,
    Platform,
)
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease
from cudadoctor.readers.book import FactBook, parsed_or_none
from cudadoctor.readers.reader import Values

MIB = 2**20

_SMI_ERRORS = {
    "command_not_found": (127, "nvidia-smi: command not found"),
    "driver_not_communicating": (9, "couldn't communicate with the NVIDIA driver"),
    "no_devices": (6, "No devices were found"),
    "driver_library_mismatch": (18, "Driver/library version mismatch"),
    "nvml_unknown_error": (255, "Failed to initialize NVML: Unknown Error"),
    "gpu_access_blocked_by_os": (17, "GPU access blocked by the operating system"),
    "nvml_driver_not_loaded": (9, "Failed to initialize NVML: Driver Not Loaded"),
    "insufficient_permissions": (4, "Failed to initialize NVML: Insufficient Permissions"),
    "nvml_library_not_found": (12, "couldn't find libnvidia-ml.so"),
    "gpu_lost": (15, "GPU is lost"),
    "device_handle_unknown_error": (255, "Unable to determine the device handle"),
}
_NVML_CODES = {
    "driver_library_mismatch": 18,
    "nvml_unknown_error": 999,
    "gpu_access_blocked_by_os": 17,
    "nvml_driver_not_loaded": 9,
    "insufficient_permissions": 4,
    "nvml_library_not_found": 12,
}
_COMPUTE_MODES = {
    "default": ComputeMode.DEFAULT,
    "e. process": ComputeMode.EXCLUSIVE_PROCESS,
    "exclusive_process": ComputeMode.EXCLUSIVE_PROCESS,
    "e. thread": ComputeMode.EXCLUSIVE_THREAD,
    "exclusive_thread": ComputeMode.EXCLUSIVE_THREAD,
    "prohibited": ComputeMode.PROHIBITED,
}
_FIRST_DRIVER_BRANCH = 100
"""Releases below are L4T numbers of Jetson boards (35.3.1), not driver branches."""


def _compute_mode(word: str | None) -> ComputeMode | None:
    return _COMPUTE_MODES.get((word or "").lower())


def in_bytes(mib: int | None) -> int | None:
    """Bytes of a number of MiB."""
    return None if mib is None else mib * MIB


def say_driver(book: FactBook, release: str | None, cuda: str | None = None) -> None:
    """Record the driver's release, unless it is an L4T number, and the newest CUDA version that it supports."""
    parsed = parsed_or_none(DriverRelease.parse, release)
    if isinstance(parsed, DriverRelease) and parsed.branch >= _FIRST_DRIVER_BRANCH:
        book.say("driver_release", parsed, release)
    book.parse("driver_cuda_version", CudaVersion.parse, cuda)


def say_platform(book: FactBook, values: Values) -> None:
    """WSL is told by few sources only and wins over Linux."""
    name = values.get("platform")
    if name == "wsl" and "platform" in book.slots and book.slots["platform"].value is Platform.LINUX:
        del book.slots["platform"]
    if name is not None:
        book.suggest("platform", Platform(name), "")


def from_nvidia_smi(values: Values, book: FactBook) -> None:
    say_driver(book, values["driver_release"], values["driver_cuda_version"])
    if values["platform"] != "linux" or values["gpus"]:
        say_platform(book, values)
    for gpu in values["gpus"]:
        ecc = gpu["ecc"] or ""
        book.gpu(
            gpu["index"],
            name=gpu["name"],
            memory_total_bytes=in_bytes(gpu["memory_total_mib"]),
            memory_used_bytes=in_bytes(gpu["memory_used_mib"]),
            mig_enabled=None if gpu["mig"] in (None, "N/A", "ERR!") else gpu["mig"].startswith("Enabled"),
            compute_mode=_compute_mode(gpu["compute_mode"]),
            persistence={"On": True, "Off": False}.get(gpu["persistence"] or ""),
            driver_model=gpu.get("driver_model"),
            ecc_enabled=True if ecc.isdigit() or ecc == "On" else False if ecc == "Off" else None,
            ecc_uncorrected=int(ecc) if ecc.isdigit() else None,
            pci_bus_id=gpu.get("bus_id"),
            compute_process_count=sum(1 for p in values["processes"] if p["gpu"] == gpu["index"] and "C" in p["type"]) or None,
        )
    for index in values.get("unhealthy_gpus", ()):
        book.gpu_errors[index] = "ERR! in nvidia-smi"
    _smi_status(values, book)


def _smi_status(values: Values, book: FactBook) -> None:
    error = values.get("error")
    if error is None:
        if values["driver_release"]:
            book.say("nvidia_smi", ApiStatus(code=0), "NVIDIA-SMI")
        return
    code, message = _SMI_ERRORS[error]
    book.say("nvidia_smi", ApiStatus(code=code, message=message), message[:30])
    if error in _NVML_CODES:
        book.say("nvml", ApiStatus(code=_NVML_CODES[error], message=message), message[:30])


def from_nvidia_smi_q(values: Values, book: FactBook) -> None:
    say_driver(book, values.get("driver_release"), values.get("driver_cuda_version"))
    say_platform(book, values)
    for index, gpu in enumerate(values["gpus"]):
        mig = gpu.get("mig_mode", gpu.get("mig_current"))
        book.gpu(
            index,
            name=gpu.get("name"),
            uuid=gpu.get("uuid"),
            pci_bus_id=gpu.get("bus_id"),
            memory_total_bytes=in_bytes(gpu.get("memory_total_mib")),
            memory_used_bytes=in_bytes(gpu.get("memory_used_mib")),
            compute_mode=_compute_mode(gpu.get("compute_mode")),
            driver_model=gpu.get("driver_model"),
            mig_enabled=None if mig is None else mig == "Enabled",
            persistence=None if gpu.get("persistence_mode") is None else gpu["persistence_mode"] == "Enabled",
        )


def from_nvidia_smi_csv(values: Values, book: FactBook) -> None:
    columns = values["columns"] or []
    for position, row in enumerate(values["rows"]):
        cells = dict(zip(columns, row, strict=False)) if columns else {"name": row[0]}
        index = cells.get("index")
        total, used = cells.get("memory.total"), cells.get("memory.used")
        book.gpu(
            index if isinstance(index, int) else position,
            name=cells.get("name") or cells.get("gpu_name"),
            memory_total_bytes=in_bytes(total) if isinstance(total, int) else None,
            memory_used_bytes=in_bytes(used) if isinstance(used, int) else None,
            compute_capability=parsed_or_none(ComputeCapability.parse, str(cells.get("compute_cap", ""))),
        )
        say_driver(book, cells.get("driver_version"))


def from_nvidia_smi_l(values: Values, book: FactBook) -> None:
    for gpu in values["gpus"]:
        mig = tuple(device["profile"] for device in gpu["mig_devices"])
        book.gpu(gpu["index"], name=gpu["name"], uuid=gpu["uuid"], mig_devices=mig or None, mig_enabled=True if mig else None)


def from_versions(values: Values, book: FactBook) -> None:
    say_driver(book, values.get("driver_release"), values.get("driver_cuda_version"))


def from_proc(values: Values, book: FactBook) -> None:
    release = parsed_or_none(DriverRelease.parse, values["driver_release"])
    if isinstance(release, DriverRelease) and release.branch >= _FIRST_DRIVER_BRANCH:
        flavour = ModuleFlavour.OPEN if values["module"] == "open" else ModuleFlavour.PROPRIETARY
        book.say("kernel_module", KernelModule(driver_release=release, flavour=flavour), values["driver_release"])
        book.say("driver_release", release, values["driver_release"])
    book.suggest("architecture", values["arch"])


def from_cli_info(values: Values, book: FactBook) -> None:
    say_driver(book, values["driver_release"], values.get("driver_cuda_version"))
    for gpu in values["gpus"]:
        capability = parsed_or_none(ComputeCapability.parse, gpu.get("arch"))
        book.gpu(gpu["index"], name=gpu.get("name"), compute_capability=capability, pci_bus_id=gpu.get("bus_id"))


def from_device_query(values: Values, book: FactBook) -> None:
    for gpu in values.get("gpus", ()):
        capability = parsed_or_none(ComputeCapability.parse, gpu["compute_capability"])
        book.gpu(gpu["index"], name=gpu["name"], compute_capability=capability, memory_total_bytes=in_bytes(gpu["memory_mib"]))
        book.parse("driver_cuda_version", CudaVersion.parse, gpu["driver_cuda_version"])
    book.parse("driver_cuda_version", CudaVersion.parse, values.get("driver_cuda_version"))


def from_wsl(values: Values, book: FactBook) -> None:
    generation = values.get("wsl_generation") or next((d["version"] for d in values.get("distros", ()) if d["default"]), None)
    book.say("wsl_version", generation, "")
    book.parse("windows_build", DottedVersion.parse, values.get("windows"))
    if values.get("is_wsl") or generation or "wsl_version" in values:
        say_platform(book, {"platform": "wsl"})
    kernel = values.get("kernel")
    book.say("kernel_release", kernel if kernel and "icrosoft" in kernel else None)
    book.suggest("architecture", values.get("arch"))


def from_nvrm(values: Values, book: FactBook) -> None:
    say_driver(book, values.get("driver_release"))


def from_modules(values: Values, book: FactBook) -> None:
    book.modules += values.get("modules", ())
    say_driver(book, values.get("version"))


_VENDORS = (("NVIDIA", "10de"), ("AMD", "1002"), ("ATI", "1002"), ("Intel", "8086"))


def from_kernel_state(values: Values, book: FactBook) -> None:
    book.say("secure_boot", values.get("secure_boot"), "SecureBoot")
    devices = tuple(
        PciDevice(
            bus_id=found["bus_id"],
            vendor_id=next((vendor for word, vendor in _VENDORS if word in found["device"]), ""),
            device_id="",
            kernel_driver=found["driver"] or "",
        )
        for found in values["controllers"]
    )
    # A GPU without a display output is a "3D controller": a listing of VGA controllers alone does not show that there is none.
    shows_all = not values["hides_3d_controllers"] or any(device.vendor_id == "10de" for device in devices)
    if (devices and shows_all) or values["without_nvidia"]:
        book.say("pci_devices", devices, "controller" if devices else "lspci")


def from_system_packages(values: Values, book: FactBook) -> None:
    for name, version in values["packages"].items():
        plain = name.split(":")[0]
        if plain in ("nvidia-container-toolkit", "nvidia-container-runtime"):
            book.say("nvidia_toolkit", version)
        if plain.startswith(("nvidia-driver-", "nvidia-utils", "libnvidia-compute-", "nvidia-driver")) and "fabric" not in plain:
            release = version.partition(":")[2] or version
            parsed = parsed_or_none(DriverRelease.parse, release.partition("-")[0])
            if parsed is not None:
                book.suggest("driver_release", parsed, version)
            book.slots.setdefault("linux_driver_packages", book.known((), plain))
            known = book.slots["linux_driver_packages"]
            book.slots["linux_driver_packages"] = book.known((*known.value, name), plain)
