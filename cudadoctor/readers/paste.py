"""From a pasted text to a partial snapshot: normalise, run all readers, recognise errors, merge. Nothing is opened or run."""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from cudadoctor.model.codec import DocumentError, from_json
from cudadoctor.model.fact import NOT_ASKED, Fact, Known
from cudadoctor.model.proof import Proof
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import (
    Container,
    Driver,
    ErrorSeen,
    Gpu,
    Host,
    HostCompiler,
    Libraries,
    LibraryOrigin,
    PythonEnvironment,
    Snapshot,
    TextReading,
    Toolkit,
    Torch,
    Wsl,
)
from cudadoctor.model.versions import CudaVersion, DottedVersion
from cudadoctor.readers import READERS
from cudadoctor.readers.book import RANK_OF_FOLDERS, FactBook, ToolkitSeen, parsed_or_none
from cudadoctor.readers.contributions import CONTRIBUTIONS
from cudadoctor.readers.errors import recognise_plain
from cudadoctor.readers.hints import from_commands, from_errors, from_statements, version_in_path
from cudadoctor.readers.reader import Values
from cudadoctor.readers.secrets import masked
from cudadoctor.readers.text import PlainText, normalise

MAX_PASTE_BYTES = 4 * 2**20
"""Longest text that is read."""
SOURCE = "pasted text"
_STRANGE = re.compile("[\x00-\x06\ufffd]")


class PasteError(ValueError):
    """The data is no text that can be read; the words say why."""


class Paste(Struct, frozen=True, kw_only=True):
    """What a text holds: a snapshot, and proofs and node where it is a report of ours."""

    snapshot: Snapshot
    proofs: tuple[Proof, ...] = ()
    node: str | None = None


def read_paste(data: bytes | str) -> Paste:
    """What is known of the machine in a pasted text; our own JSON or Markdown report is read back as it was.

    Raises PasteError where the data is larger than MAX_PASTE_BYTES, or no text.
    """
    text = _decoded(data)
    report = _own_report(text)
    if report is not None:
        return Paste(snapshot=report.snapshot, proofs=report.proofs, node=report.node)
    return Paste(snapshot=snapshot_of(normalise(text)))


def _decoded(data: bytes | str) -> str:
    size = len(data) if isinstance(data, bytes) else len(data.encode("utf-8", "replace"))
    if size > MAX_PASTE_BYTES:
        raise PasteError(f"the text is larger than {MAX_PASTE_BYTES // 2**20} MiB; paste the part around the error")
    text = data if isinstance(data, str) else _from_bytes(data)
    if text.count("\x00") * 3 > len(text) > 0:
        text = text.replace("\x00", "")
    if len(_STRANGE.findall(text)) * 10 > len(text):
        raise PasteError("the data is binary, not text")
    return text.encode("utf-8", "replace").decode("utf-8")


def _from_bytes(data: bytes) -> str:
    """UTF-8, or UTF-16 as Windows tools write it (with or without a mark)."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    zeros = data[:4000].count(0)
    if zeros * 3 > min(len(data), 4000) > 0:
        odd = data[1:4000:2].count(0)
        return data.decode("utf-16-le" if odd * 2 >= zeros else "utf-16-be", "replace")
    return data.decode("utf-8-sig", "replace")


def _own_report(text: str) -> Report | None:
    stripped = text.strip()
    if stripped.startswith("{") and '"cudadoctor.report/' in stripped[:400]:
        try:
            return from_json(stripped, Report)
        except DocumentError as error:
            raise PasteError(f"the report of cudadoctor in this text is damaged: {error}") from error
    if "cudadoctor" in text and "begins" in text:
        from cudadoctor.report.packed import extract_report

        return extract_report(text)
    return None


def snapshot_of(text: PlainText) -> Snapshot:
    """The partial snapshot of a normalised text."""
    errors = recognise_plain(text, SOURCE)
    readings = {
        reader.kind: values for reader in READERS if reader.looks_like(text) and (values := reader.read(text)) is not None
    }
    book = FactBook(text)
    for kind, contribute in CONTRIBUTIONS:
        if kind in readings:
            book.source = kind
            contribute(readings[kind], book)
    book.source = "error text"
    from_errors(errors, book)
    book.source = "prompts"
    from_commands(book)
    book.source = "statement"
    from_statements(readings.get("statements", {}), book, _missing_compilers(errors))
    return _snapshot(book, errors, readings)


def _missing_compilers(errors: tuple[ErrorSeen, ...]) -> frozenset[str]:
    return frozenset(error.values["path"] for error in errors if error.kind == "nvcc-not-found" and "path" in error.values)


def _snapshot(book: FactBook, errors: tuple[ErrorSeen, ...], readings: dict[str, Values]) -> Snapshot:
    return Snapshot(
        host=_host(book),
        driver=_driver(book),
        gpus=_listed(tuple(_gpu(book, index) for index in sorted(book.gpus))),
        toolkits=_listed(_toolkits(book)),
        host_compilers=_listed(_compilers(book)),
        python=_python(book),
        libraries=Libraries(copies=_listed(tuple(c for c in book.libraries if not c.soname.startswith("libcuda.so")))),
        container=Container(nvidia_toolkit=book.fact("nvidia_toolkit")),
        wsl=_wsl(book),
        environment=Known(_masked(book.variables), "env_vars") if book.variables else NOT_ASKED,
        errors=errors,
        readings=tuple(TextReading(kind=kind, values=_masked(values)) for kind, values in readings.items()),
    )


def _listed(items: tuple[Any, ...]) -> Fact[Any]:
    """The items as one fact; its source is the text as a whole, as several readers may have added to it."""
    return Known(items, SOURCE) if items else NOT_ASKED


def _masked(value: Any) -> Any:
    """The same values with secrets masked, however deep they lie."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {key: _named(key, item) if isinstance(item, str) else _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list) else value


def _named(name: str, value: str) -> str:
    """The value of a variable, masked where its name says that it is secret."""
    return masked(f"{name}={value}").removeprefix(f"{name}=")


def _host(book: FactBook) -> Host:
    names = ("platform", "architecture", "os_name", "kernel_release", "glibc", "secure_boot", "jetson")
    return Host(**{name: book.fact(name) for name in names})


def _driver(book: FactBook) -> Driver:
    libcuda = tuple(copy for copy in book.libraries if copy.soname.startswith("libcuda.so"))
    return Driver(
        driver_release=book.fact("driver_release"),
        driver_cuda_version=book.fact("driver_cuda_version"),
        kernel_module=book.fact("kernel_module"),
        loaded_modules=_listed(tuple(dict.fromkeys(book.modules))),
        nvml=book.fact("nvml"),
        nvidia_smi=book.fact("nvidia_smi"),
        device_nodes=_listed(tuple(book.device_nodes.values())),
        pci_devices=book.fact("pci_devices"),
        libcuda_copies=_listed(libcuda),
    )


def _gpu(book: FactBook, index: int) -> Gpu:
    facts: dict[str, Any] = dict(book.gpus[index])
    return Gpu(index=index, error=book.gpu_errors.get(index, ""), **facts)


def _toolkits(book: FactBook) -> tuple[Toolkit, ...]:
    """The toolkits with the one that builds would take marked: the surest source that gives a version."""
    seen = sorted(_merged(book.toolkits), key=lambda kit: kit.rank)
    if all(kit.rank >= RANK_OF_FOLDERS for kit in seen):
        return ()
    chosen = next((kit for kit in seen if kit.version and kit.rank < RANK_OF_FOLDERS), seen[0] if seen else None)
    return tuple(_toolkit(kit, kit is chosen) for kit in seen)


def _toolkit(kit: ToolkitSeen, is_chosen: bool) -> Toolkit:
    version = parsed_or_none(CudaVersion.parse, kit.version)
    nvcc = kit.nvcc or ""
    return Toolkit(
        root=kit.root,
        nvcc=Known(kit.nvcc, kit.source, kit.line) if kit.nvcc else NOT_ASKED,
        toolkit_version=Known(version, kit.source, kit.line) if isinstance(version, CudaVersion) else NOT_ASKED,
        chosen_for_builds=is_chosen,
        packaging="distribution package" if nvcc == "/usr/bin/nvcc" or "nvidia-cuda-toolkit" in kit.root else "",
    )


def _merged(seen: list[ToolkitSeen]) -> list[ToolkitSeen]:
    """One entry a folder; a version without a folder and a single folder without a version belong together."""
    merged: dict[str, ToolkitSeen] = {}
    for kit in seen:
        key = kit.root or f"version {'.'.join((kit.version or '').split('.')[:2])}"
        known = merged.setdefault(key, ToolkitSeen(kit.root, kit.rank, kit.source, line=kit.line))
        known.rank = min(known.rank, kit.rank)
        known.version = known.version if known.version and len(known.version) >= len(kit.version or "") else kit.version
        known.nvcc = known.nvcc or kit.nvcc
    for kit in merged.values():
        kit.version = kit.version or version_in_path(kit.root)
    return _joined(list(merged.values()))


def _joined(kits: list[ToolkitSeen]) -> list[ToolkitSeen]:
    homeless = [kit for kit in kits if not kit.root]
    for kit in homeless:
        same = [
            other for other in kits if other.root and other.version and kit.version and _same_release(other.version, kit.version)
        ]
        bare = [other for other in kits if other.root and not other.version]
        host = same[0] if same else bare[0] if len(bare) == 1 and len(homeless) == 1 else None
        if host is not None:
            host.version, host.rank = kit.version, min(host.rank, kit.rank)
            host.source, host.line = kit.source, kit.line
            kits = [other for other in kits if other is not kit]
    return kits


def _same_release(one: str, other: str) -> bool:
    return one.split(".")[:2] == other.split(".")[:2]


def _compilers(book: FactBook) -> tuple[HostCompiler, ...]:
    found = []
    for family, fact in book.compilers.items():
        version = parsed_or_none(DottedVersion.parse, str(fact.value))
        if isinstance(version, DottedVersion):
            found.append(HostCompiler(family=family, path="", compiler_version=Known(version, fact.source, fact.line)))
    return tuple(found)


def _python(book: FactBook) -> PythonEnvironment:
    torch = Torch(
        torch_version=book.fact("torch_version"),
        build=book.fact("torch_build"),
        torch_cuda_version=book.fact("torch_cuda"),
        arch_list=book.fact("arch_list"),
        is_available=book.fact("torch_available"),
        cudnn_version=book.fact("cudnn_loaded"),
        cxx11_abi=book.fact("cxx11_abi"),
    )
    return PythonEnvironment(
        python_version=book.fact("python_version"),
        installer=book.fact("installer"),
        torch=Known(torch, SOURCE) if torch != Torch() else NOT_ASKED,
        packages=_listed(tuple(book.packages.values())),
    )


def _wsl(book: FactBook) -> Wsl:
    packages = book.fact("linux_driver_packages")
    linux = tuple(c.path for c in book.libraries if c.soname.startswith("libcuda.so") and c.origin is LibraryOrigin.DRIVER)
    in_wsl = "wsl_library_folder" in book.slots or "wsl_version" in book.slots
    shadow = Known((*(packages.value if isinstance(packages, Known) else ()), *linux), SOURCE)
    return Wsl(
        wsl_version=book.fact("wsl_version"),
        windows_build=book.fact("windows_build"),
        library_folder=book.fact("wsl_library_folder"),
        linux_driver_packages=shadow if in_wsl and shadow.value else NOT_ASKED,
    )
