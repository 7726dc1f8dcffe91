"""Facts of readings about toolkits, Python packages, libraries and the environment."""

from __future__ import annotations

import re

from cudadoctor.model.snapshot import (
    DeviceNode,
    LibraryCopy,
    Platform,
    TorchBuild,
)
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, SmTarget
from cudadoctor.readers.book import RANK_OF_FOLDERS, FactBook, ToolkitSeen, origin_of, parsed_or_none
from cudadoctor.readers.driver_facts import in_bytes, say_driver, say_platform
from cudadoctor.readers.reader import Values


def from_collect_env(values: Values, book: FactBook) -> None:
    say_driver(book, values["driver_release"])
    say_platform(book, values)
    for index, name in enumerate(values["gpus"]):
        if values.get("vendor") != "amd":
            book.gpu(index, name=name, mig_enabled=True if values.get("mig_devices") and index == 0 else None)
    book.say("os_name", _without_architecture(values["os"]))
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
    say_driver(book, values.get("driver_release"))
    say_platform(book, values)
    book.parse("python_version", DottedVersion.parse, values.get("python"))
    for position, gpu in enumerate(values.get("gpus", ())):
        capability = parsed_or_none(ComputeCapability.parse, gpu.get("compute_capability"))
        for index in gpu.get("indices", (position,)):
            book.gpu(
                index, name=gpu["name"], compute_capability=capability, memory_total_bytes=in_bytes(gpu.get("memory_total_mib"))
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
    say_platform(book, values)
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
    say_platform(book, values)


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
        say_platform(book, values)


def from_listing(values: Values, book: FactBook) -> None:
    for node in values["device_nodes"]:
        book.device_nodes[node["path"]] = DeviceNode(path=node["path"], accessible=node["mode"][-3:-1] == "rw", mode=node["mode"])
    for path in values["files"]:
        if path.startswith("/dev/nvidia"):
            book.device_nodes.setdefault(path, DeviceNode(path=path, accessible=True))
    for root in values["toolkits"]:
        book.toolkits.append(ToolkitSeen(root, RANK_OF_FOLDERS, book.source, line=book.line(root)))
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
        say_platform(book, values)
    for name in ("CUDA_HOME", "CUDA_PATH", "CUDAToolkit_ROOT", "CUDACXX"):
        root = values["vars"].get(name, "").rstrip("/")
        if root:
            book.toolkits.append(ToolkitSeen(root.removesuffix("/bin/nvcc"), 2, f"{book.source}: {name}", line=book.line(name)))


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


def _without_architecture(system: str | None) -> str | None:
    """`Ubuntu 20.04.2 LTS (x86_64)` without the brackets: the architecture is a fact of its own."""
    return re.sub(r" \((?:x86_64|aarch64|arm64)\)$", "", system) if system else system
