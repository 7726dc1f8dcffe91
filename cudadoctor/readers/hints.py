"""Facts of weak sources: what error texts mention and what people say in passing; they fill only what nothing better told."""

from __future__ import annotations

import re
from collections.abc import Callable

from cudadoctor.model.snapshot import ErrorSeen, Platform, TorchBuild
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease, SmTarget
from cudadoctor.readers.book import RANK_OF_FOLDERS, FactBook, ToolkitSeen, parsed_or_none
from cudadoctor.readers.prompts import answer, commands
from cudadoctor.readers.reader import Values

_VERSION_IN_PATH = re.compile(r"cuda[-_/\\]?v?(\d{1,2}\.\d{1,2})")
_KERNEL = re.compile(r"^\s{0,8}(\d{1,2}\.\d{1,3}[\w.+-]{1,60})\s{0,4}$")
_WINDOWS = ("powershell", "cmd")


def from_errors(errors: tuple[ErrorSeen, ...], book: FactBook) -> None:
    """GPU, arch list, versions that stand inside error texts."""
    for error in errors:
        _gpu_of_error(error, book)
        for kind, take in _OF_KIND:
            if error.kind == kind:
                take(error, book)


def _gpu_of_error(error: ErrorSeen, book: FactBook) -> None:
    if "gpu" not in error.values or error.kind.startswith("shown-"):
        return
    text = error.values.get("cc") or error.values.get("arch")
    index = error.values.get("index", "0")
    capability = parsed_or_none(ComputeCapability.parse, text)
    book.gpu(int(index) if index.isdigit() and len(index) < 4 else 0, name=error.values["gpu"], compute_capability=capability)


def _archs(error: ErrorSeen, book: FactBook) -> None:
    targets = tuple(
        t for word in error.values["archs"].split() if isinstance(t := parsed_or_none(SmTarget.parse, word), SmTarget)
    )
    if targets:
        book.suggest("arch_list", targets, str(targets[0]))


def _driver_cuda(error: ErrorSeen, book: FactBook) -> None:
    number = error.values.get("driver_cuda", "")
    if number.isdigit() and 1000 <= int(number) < 1_000_000:
        book.suggest("driver_cuda_version", CudaVersion.from_int(int(number)), number)


def _mismatch(error: ErrorSeen, book: FactBook) -> None:
    have, wanted = error.values.get("have"), error.values.get("wanted")
    if have:
        book.toolkits.append(ToolkitSeen("", 1, book.source, have, line=error.line))
    book.suggest("torch_cuda", parsed_or_none(CudaVersion.parse, wanted), wanted)


def _not_cuda(error: ErrorSeen, book: FactBook) -> None:
    version = book.slots.get("torch_version")
    rocm = version is not None and "rocm" in str(version.value)
    book.suggest(
        "torch_build", TorchBuild.ROCM if rocm else TorchBuild.CPU, error.text.splitlines()[0][:40] if error.text else ""
    )


_OF_KIND: tuple[tuple[str, Callable[[ErrorSeen, FactBook], None]], ...] = (
    ("torch-supported-archs", _archs),
    ("torch-driver-too-old", _driver_cuda),
    ("nvcc-torch-mismatch", _mismatch),
    ("nvcc-torch-minor-difference", _mismatch),
    ("torch-not-compiled-with-cuda", _not_cuda),
)


def from_statements(values: Values, book: FactBook, missing_paths: frozenset[str]) -> None:
    """Facts stated in passing; `missing_paths` are nvcc paths that an error says do not exist."""
    _stated_gpus(values, book)
    driver = parsed_or_none(DriverRelease.parse, values.get("driver_release"))
    book.suggest("driver_release", driver, values.get("driver_release"))
    book.suggest("driver_cuda_version", parsed_or_none(CudaVersion.parse, values.get("driver_cuda")), values.get("driver_cuda"))
    book.suggest("torch_version", values.get("torch_version"))
    book.suggest("torch_cuda", parsed_or_none(CudaVersion.parse, values.get("torch_cuda")), values.get("torch_cuda"))
    _stated_toolkits(values, book, missing_paths)
    _stated_host(values, book)
    for name, version in values.get("packages", {}).items():
        book.package(name, version)


def _stated_gpus(values: Values, book: FactBook) -> None:
    capability = parsed_or_none(ComputeCapability.parse, values.get("compute_capability"))
    if not book.gpus:
        index = 0
        for gpu in values.get("gpus", ()):
            for _ in range(min(gpu["count"], 16)):
                book.gpu(index, name=gpu["name"])
                index += 1
    if capability is not None and len(book.gpus) == 1:
        index = next(iter(book.gpus))
        if "compute_capability" not in book.gpus[index]:
            book.gpu(index, compute_capability=capability)


def _stated_toolkits(values: Values, book: FactBook, missing_paths: frozenset[str]) -> None:
    for path in values.get("nvcc_paths", ()):
        if not any(missing.endswith(path) for missing in missing_paths):
            root = path.replace("\\", "/").rpartition("/bin/")[0]
            book.toolkits.append(ToolkitSeen(root, 4, book.source, nvcc=path, line=book.line(path)))
    if found := values.get("toolkit_by_cmake"):
        book.toolkits.append(ToolkitSeen(found["root"], 2, book.source, found["version"], line=book.line("Found CUDA")))
    if compiler := values.get("nvcc_by_cmake"):
        book.toolkits.append(ToolkitSeen("", 2, book.source, compiler, line=book.line(compiler)))
    if not any(seen.version for seen in book.toolkits):
        listed = {version_in_path(seen.root) for seen in book.toolkits if seen.rank == RANK_OF_FOLDERS}
        for version in [stated for stated in values.get("cuda", ()) if stated not in listed][:1]:
            book.toolkits.append(ToolkitSeen("", 5, book.source, version, line=book.line(version)))


def _stated_host(values: Values, book: FactBook) -> None:
    system = values.get("os")
    book.suggest("os_name", system)
    book.suggest("architecture", values.get("architecture"))
    book.suggest("python_version", parsed_or_none(DottedVersion.parse, values.get("python")), values.get("python"))
    book.suggest("glibc", parsed_or_none(DottedVersion.parse, values.get("glibc")), values.get("glibc"))
    book.suggest("jetson", _jetson(values), "Jetson")
    if system:
        platform = (
            Platform.WINDOWS if system.startswith("Windows") else Platform.MACOS if system.startswith("mac") else Platform.LINUX
        )
        book.suggest("platform", platform, system)
    for family in ("gcc", "msvc"):
        if version := values.get(family):
            book.compilers.setdefault(family, book.known(version, version))


def _jetson(values: Values) -> str | None:
    board = next((gpu["name"] for gpu in values.get("gpus", ()) if "Jetson" in gpu["name"] or gpu["name"] == "Thor"), None)
    return board or values.get("l4t")


def from_commands(book: FactBook) -> None:
    """The platform that prompts tell, the kernel after `uname -r`, the architecture after `uname -m`."""
    typed = commands(book.text)
    if any(command.shell in _WINDOWS for command in typed):
        book.suggest("platform", Platform.WINDOWS, "")
    for position, command in enumerate(typed):
        lines = answer(book.text, typed, position)
        if command.text.startswith("uname -r") and lines and (kernel := _KERNEL.match(lines[0])):
            book.suggest("kernel_release", kernel[1])
        if command.text.startswith("uname -m") and lines:
            book.suggest("architecture", lines[0].strip() or None)


def version_in_path(path: str) -> str | None:
    """`11.8` of /usr/local/cuda-11.8."""
    match = _VERSION_IN_PATH.search(path)
    return match[1] if match else None
