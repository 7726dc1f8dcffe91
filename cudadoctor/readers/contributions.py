"""Turns each reading into facts of the snapshot; in the order of CONTRIBUTIONS, so that the surest source of a fact comes first."""

from __future__ import annotations

from collections.abc import Callable

from cudadoctor.model.snapshot import (
    ApiStatus,
    ComputeMode,
    DeviceNode,
    KernelModule,
    LibraryCopy,
    ModuleFlavour,
    PciDevice,
    Platform,
    TorchBuild,
)
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, SmTarget
from cudadoctor.readers.book import FactBook, ToolkitSeen, origin_of, parsed_or_none
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
_FIRST_L4T_FREE_BRANCH = 100
"""Releases below are L4T numbers of Jetson boards (35.3.1), not driver branches."""


def _compute_mode(word: str | None) -> ComputeMode | None:
    return _COMPUTE_MODES.get((word or "").lower())


def _bytes(mib: int | None) -> int | None:
    return None if mib is None else mib * MIB


def _driver(book: FactBook, release: str | None, cuda: str | None = None) -> None:
    parsed = parsed_or_none(DriverRelease.parse, release)
    if isinstance(parsed, DriverRelease) and parsed.branch >= _FIRST_L4T_FREE_BRANCH:
        book.say("driver_release", parsed, release)
    book.parse("driver_cuda_version", CudaVersion.parse, cuda)


def _platform(book: FactBook, values: Values) -> None:
    """WSL is told by few sources only and wins over Linux."""
    name = values.get("platform")
    if name == "wsl" and "platform" in book.slots and book.slots["platform"].value is Platform.LINUX:
        del book.slots["platform"]
    if name is not None:
        book.suggest("platform", Platform(name), "")


def from_nvidia_smi(values: Values, book: FactBook) -> None:
    _driver(book, values["driver_release"], values["driver_cuda_version"])
    if values["platform"] != "linux" or values["gpus"]:
        _platform(book, values)
    for gpu in values["gpus"]:
        ecc = gpu["ecc"] or ""
        book.gpu(
            gpu["index"],
            name=gpu["name"],
            memory_total_bytes=_bytes(gpu["memory_total_mib"]),
            memory_used_bytes=_bytes(gpu["memory_used_mib"]),
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
    _driver(book, values.get("driver_release"), values.get("driver_cuda_version"))
    _platform(book, values)
    for index, gpu in enumerate(values["gpus"]):
        mig = gpu.get("mig_mode", gpu.get("mig_current"))
        book.gpu(
            index,
            name=gpu.get("name"),
            uuid=gpu.get("uuid"),
            pci_bus_id=gpu.get("bus_id"),
            memory_total_bytes=_bytes(gpu.get("memory_total_mib")),
            memory_used_bytes=_bytes(gpu.get("memory_used_mib")),
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
            memory_total_bytes=_bytes(total) if isinstance(total, int) else None,
            memory_used_bytes=_bytes(used) if isinstance(used, int) else None,
            compute_capability=parsed_or_none(ComputeCapability.parse, str(cells.get("compute_cap", ""))),
        )
        _driver(book, cells.get("driver_version"))


def from_nvidia_smi_l(values: Values, book: FactBook) -> None:
    for gpu in values["gpus"]:
        mig = tuple(device["profile"] for device in gpu["mig_devices"])
        book.gpu(gpu["index"], name=gpu["name"], uuid=gpu["uuid"], mig_devices=mig or None, mig_enabled=True if mig else None)


def from_versions(values: Values, book: FactBook) -> None:
    _driver(book, values.get("driver_release"), values.get("driver_cuda_version"))


def from_proc(values: Values, book: FactBook) -> None:
    release = parsed_or_none(DriverRelease.parse, values["driver_release"])
    if isinstance(release, DriverRelease) and release.branch >= _FIRST_L4T_FREE_BRANCH:
        flavour = ModuleFlavour.OPEN if values["module"] == "open" else ModuleFlavour.PROPRIETARY
        book.say("kernel_module", KernelModule(driver_release=release, flavour=flavour), values["driver_release"])
        book.say("driver_release", release, values["driver_release"])
    book.suggest("architecture", values["arch"])


def from_cli_info(values: Values, book: FactBook) -> None:
    _driver(book, values["driver_release"], values.get("driver_cuda_version"))
    for gpu in values["gpus"]:
        capability = parsed_or_none(ComputeCapability.parse, gpu.get("arch"))
        book.gpu(gpu["index"], name=gpu.get("name"), compute_capability=capability, pci_bus_id=gpu.get("bus_id"))


def from_device_query(values: Values, book: FactBook) -> None:
    for gpu in values.get("gpus", ()):
        capability = parsed_or_none(ComputeCapability.parse, gpu["compute_capability"])
        book.gpu(gpu["index"], name=gpu["name"], compute_capability=capability, memory_total_bytes=_bytes(gpu["memory_mib"]))
        book.parse("driver_cuda_version", CudaVersion.parse, gpu["driver_cuda_version"])
    book.parse("driver_cuda_version", CudaVersion.parse, values.get("driver_cuda_version"))


def from_collect_env(values: Values, book: FactBook) -> None:
    _driver(book, values["driver_release"])
    _platform(book, values)
    for index, name in enumerate(values["gpus"]):
        if values.get("vendor") != "amd":
            book.gpu(index, name=name, mig_enabled=True if values.get("mig_devices") and index == 0 else None)
    book.say("os_name", values["os"])
    book.parse("glibc", DottedVersion.parse, values["libc"])
    words = f"{values['os']} {values['python_platform']}"
    book.say("architecture", next((a for a in ("x86_64", "aarch64", "arm64") if a in words), None))
    book.parse("python_version", DottedVersion.parse, values["python"])
    _torch(book, values["torch_version"], values["cuda_build"], values["cuda_available"])
    if values["rocm_build"]:
        book.say("torch_build", TorchBuild.ROCM, "ROCM used to build")
    elif values["cuda_build"] is None and "CUDA used to build PyTorch" in book.text.body:
        book.say("torch_build", TorchBuild.CPU, "CUDA used to build")
    book.parse("cudnn_loaded", DottedVersion.parse, values["cudnn"])
    if values["cuda_runtime"]:
        book.toolkits.append(ToolkitSeen("", 3, book.source, values["cuda_runtime"], line=book.line("CUDA runtime version")))
    if values["gcc"]:
        book.compilers.setdefault("gcc", book.known(values["gcc"], "GCC version"))
    for name, version in values["pip"].items():
        book.package(name, version)
    for name, version in values["conda"].items():
        build, _, channel = values["conda_builds"].get(name, "").partition(" ")
        book.package(name, version, build, channel)


def _torch(book: FactBook, version: str | None, cuda: str | None, available: bool | None) -> None:
    book.say("torch_version", version)
    book.parse("torch_cuda", CudaVersion.parse, cuda)
    if available is not None:
        book.say("torch_available", available, "vailable")


def from_framework_env(values: Values, book: FactBook) -> None:
    """transformers, accelerate, sglang, DeepSpeed: torch, GPUs, packages."""
    _torch(book, values.get("torch_version"), values.get("torch_cuda"), values.get("cuda_available"))
    _driver(book, values.get("driver_release"))
    _platform(book, values)
    book.parse("python_version", DottedVersion.parse, values.get("python"))
    for position, gpu in enumerate(values.get("gpus", ())):
        capability = parsed_or_none(ComputeCapability.parse, gpu.get("compute_capability"))
        for index in gpu.get("indices", (position,)):
            book.gpu(
                index, name=gpu["name"], compute_capability=capability, memory_total_bytes=_bytes(gpu.get("memory_total_mib"))
            )
    for name, version in {**values.get("versions", {}), **values.get("packages", {})}.items():
        if version:
            book.package(name, version)
    if values.get("nvcc"):
        book.toolkits.append(
            ToolkitSeen(values.get("cuda_home") or "", 3, book.source, values["nvcc"], line=book.line(values["nvcc"]))
        )


def from_xformers(values: Values, book: FactBook) -> None:
    book.say("torch_version", values.get("torch_version"))
    capability = parsed_or_none(ComputeCapability.parse, values.get("compute_capability"))
    if values.get("gpu"):
        book.gpu(0, name=values["gpu"], compute_capability=capability)
    if values.get("xformers_version"):
        book.package("xformers", values["xformers_version"])


def from_bitsandbytes(values: Values, book: FactBook) -> None:
    if capability := parsed_or_none(ComputeCapability.parse, values["compute_capability"]):
        book.gpu(0, compute_capability=capability)


def from_numba(values: Values, book: FactBook) -> None:
    _platform(book, values)
    for gpu in values["gpus"]:
        book.gpu(
            gpu["id"], name=gpu["name"], compute_capability=parsed_or_none(ComputeCapability.parse, gpu["compute_capability"])
        )


def from_cupy(values: Values, book: FactBook) -> None:
    book.package("cupy", values["cupy_version"])
    book.parse("driver_cuda_version", CudaVersion.parse, values["driver_cuda_version"])
    for gpu in values.get("gpus", ()):
        capability = parsed_or_none(ComputeCapability.parse, gpu.get("compute_capability"))
        book.gpu(gpu["index"], name=gpu.get("name"), compute_capability=capability)


def from_jax(values: Values, book: FactBook) -> None:
    for name in ("jax", "jaxlib", "numpy"):
        if values[name]:
            book.package(name, values[name])
    book.parse("python_version", DottedVersion.parse, values["python"])


def from_nvcc(values: Values, book: FactBook) -> None:
    path = next(iter(values.get("paths", ())), values.get("called_as"))
    root = path.replace("\\", "/").rpartition("/bin/")[0] if path else ""
    book.toolkits.append(ToolkitSeen(root, 3, book.source, values["version"], path, book.line(f"release {values['release']}")))
    _platform(book, values)


def from_nvcc_paths(values: Values, book: FactBook) -> None:
    if "nvcc" in values:
        seen = ToolkitSeen(
            values["toolkit_root"], 3, book.source, values.get("version"), values["nvcc"], book.line(values["nvcc"])
        )
        book.toolkits.append(seen)
    for name, value in values.get("env", {}).items():
        book.variables.setdefault(name, value)


def from_loader(values: Values, book: FactBook) -> None:
    """Cached and resolved libraries; the first of a soname is the one that the loader takes."""
    found = [(library["soname"], library["path"]) for library in values.get("libs", ())]
    found += [(soname, path) for soname, path in values.get("cuda_libs", {}).items() if path]
    known = {library.soname for library in book.libraries if library.wins}
    for soname, path in found:
        book.libraries.append(
            LibraryCopy(
                soname=soname, path=path, real_path=path, origin=origin_of(path), via="ld.so.cache", wins=soname not in known
            )
        )
        known.add(soname)
    if values.get("platform") == "wsl":
        _platform(book, values)


def from_listing(values: Values, book: FactBook) -> None:
    for node in values["device_nodes"]:
        book.device_nodes[node["path"]] = DeviceNode(path=node["path"], accessible=node["mode"][-3:-1] == "rw", mode=node["mode"])
    files = [
        *values["files"],
        *(f"{folder}/{name}" for folder, names in values["folders"].items() for name in names if ".so" in name),
    ]
    for path in files:
        if ".so" in path:
            book.libraries.append(LibraryCopy(soname=path.rsplit("/", 1)[-1], path=path, real_path=path, origin=origin_of(path)))
    wsl = tuple(path.rsplit("/", 1)[-1] for path in files if path.startswith("/usr/lib/wsl/lib/"))
    if wsl:
        book.say("wsl_library_folder", wsl, "/usr/lib/wsl/lib")
        book.suggest("platform", Platform.WSL, "/usr/lib/wsl/lib")


def from_variables(values: Values, book: FactBook) -> None:
    for name, value in values["vars"].items():
        book.variables.setdefault(name, value)
    if values.get("platform") == "windows":
        _platform(book, values)
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT", "CUDACXX"):
        root = values["vars"].get(name, "").rstrip("/")
        if root:
            book.toolkits.append(ToolkitSeen(root.removesuffix("/bin/nvcc"), 2, f"{book.source}: {name}", line=book.line(name)))


def from_nvrm(values: Values, book: FactBook) -> None:
    _driver(book, values.get("driver_release"))


def from_modules(values: Values, book: FactBook) -> None:
    book.modules += values.get("modules", ())
    _driver(book, values.get("version"))


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
    if devices:
        book.say("pci_devices", devices, "controller")


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


def from_python_packages(values: Values, book: FactBook) -> None:
    for name, found in values["packages"].items():
        if isinstance(found, str):
            book.package(name, found)
        else:
            book.package(name, found["version"], found["build"] or "", found["channel"] or "")
    torch = values["packages"].get("torch") or values["packages"].get("pytorch")
    if isinstance(torch, str):
        book.suggest("torch_version", torch)
    elif torch:
        book.suggest("torch_version", torch["version"])
        variant = values.get("torch_variant")
        if variant == "cpu":
            book.suggest("torch_build", TorchBuild.CPU, torch["build"])
        elif variant:
            book.suggest("torch_build", TorchBuild.CUDA, torch["build"])
            if cuda := parsed_or_none(CudaVersion.parse, variant.removeprefix("cuda")):
                book.suggest("torch_cuda", cuda, torch["build"])
    if values["manager"] == "conda":
        book.suggest("installer", "conda", "conda")


def from_install_log(values: Values, book: FactBook) -> None:
    for name, version in values["installed"].items():
        book.package(name, version)
    book.suggest("torch_version", values["installed"].get("torch"))
    for wheel in values["wheels"]:
        _wheel(wheel, book)
    if values["installed"] or values["removed"]:
        book.suggest("installer", "pip", "Successfully installed")


def _wheel(wheel: Values, book: FactBook) -> None:
    tag = wheel["platform"]
    book.suggest("architecture", next((a for a in ("x86_64", "aarch64") if a in tag), "x86_64" if "amd64" in tag else None), tag)
    platform = Platform.WINDOWS if tag.startswith("win") else Platform.MACOS if tag.startswith("macos") else None
    if platform:
        book.suggest("platform", platform, tag)
    if wheel["name"] == "torch":
        book.suggest("torch_version", wheel["version"])
    digits = wheel["python"].removeprefix("cp")
    if digits.isdigit() and len(digits) >= 2:
        book.suggest("python_version", parsed_or_none(DottedVersion.parse, f"{digits[0]}.{digits[1:]}"), wheel["python"])


def from_wsl(values: Values, book: FactBook) -> None:
    generation = values.get("wsl_generation") or next((d["version"] for d in values.get("distros", ()) if d["default"]), None)
    book.say("wsl_version", generation, "")
    book.parse("windows_build", DottedVersion.parse, values.get("windows"))
    if values.get("is_wsl") or generation or "wsl_version" in values:
        _platform(book, {"platform": "wsl"})
    kernel = values.get("kernel")
    book.say("kernel_release", kernel if kernel and "icrosoft" in kernel else None)
    book.suggest("architecture", values.get("arch"))


def from_answers(values: Values, book: FactBook) -> None:
    _torch(book, values.get("torch_version"), values.get("torch_cuda"), values.get("cuda_available"))
    if "torch_cuda" in values and values["torch_cuda"] is None and not values.get("torch_hip"):
        book.say("torch_build", TorchBuild.CPU, "None")
    if values.get("torch_hip"):
        book.say("torch_build", TorchBuild.ROCM, values["torch_hip"])
    archs = [
        target for word in values.get("arch_list", ()) if isinstance(target := parsed_or_none(SmTarget.parse, word), SmTarget)
    ]
    if archs:
        book.say("arch_list", tuple(archs), str(archs[0]))
    if "cxx11_abi" in values:
        book.say("cxx11_abi", values["cxx11_abi"], "abi")
    if values.get("device_name") or values.get("device_capability"):
        capability = parsed_or_none(ComputeCapability.parse, values.get("device_capability"))
        book.gpu(0, name=values.get("device_name"), compute_capability=capability)
    if values.get("tf_version"):
        book.package("tensorflow", values["tf_version"])
    if values.get("jax_version"):
        book.package("jax", values["jax_version"])


CONTRIBUTIONS: tuple[tuple[str, Callable[[Values, FactBook], None]], ...] = (
    ("wsl", from_wsl),
    ("nvidia_smi", from_nvidia_smi),
    ("nvidia_smi_q", from_nvidia_smi_q),
    ("nvidia_smi_xml", from_nvidia_smi_q),
    ("nvidia_smi_csv", from_nvidia_smi_csv),
    ("nvidia_smi_L", from_nvidia_smi_l),
    ("nvidia_smi_version", from_versions),
    ("proc_driver_version", from_proc),
    ("container_cli_info", from_cli_info),
    ("python_answers", from_answers),
    ("device_query", from_device_query),
    ("bandwidth_test", from_versions),
    ("collect_env", from_collect_env),
    ("sglang_check_env", from_framework_env),
    ("transformers_env", from_framework_env),
    ("accelerate_env", from_framework_env),
    ("ds_report", from_framework_env),
    ("xformers_info", from_xformers),
    ("bitsandbytes", from_bitsandbytes),
    ("numba_s", from_numba),
    ("cupy_show_config", from_cupy),
    ("jax_env", from_jax),
    ("nvcc_paths", from_nvcc_paths),
    ("nvcc", from_nvcc),
    ("ldd", from_loader),
    ("ldconfig", from_loader),
    ("file_listing", from_listing),
    ("env_vars", from_variables),
    ("dmesg_nvrm", from_nvrm),
    ("lsmod_modinfo", from_modules),
    ("kernel_state", from_kernel_state),
    ("packages", from_system_packages),
    ("pip_conda_list", from_python_packages),
    ("install_log", from_install_log),
)
