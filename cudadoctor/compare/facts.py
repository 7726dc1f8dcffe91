"""The facts of a machine that are worth comparing, each as one short text under the path by which evidence names it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from msgspec import Struct

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, describe_missing, maybe
from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.snapshot import ApiStatus, DeviceNode, HostCompiler, KernelModule, PciDevice, Snapshot, Toolkit
from cudadoctor.report.proof_table import WORST_FIRST

COMPARED = (
    *(f"gpus.{name}" for name in ("name", "compute_capability", "memory_total_bytes", "error", "mig_enabled", "mig_devices")),
    *(f"gpus.{name}" for name in ("compute_mode", "persistence", "ecc_enabled", "ecc_uncorrected", "driver_model", "integrated")),
    *(f"gpus.{name}" for name in ("pcie_generation_max", "pcie_width", "pcie_width_max", "power_limit_w")),
    *(f"gpus.{name}" for name in ("nvlink_version", "nvlinks_active", "nvlinks_total")),
    *(f"gpu_pairs.{name}" for name in ("access", "topology", "nvlinks", "peer_status")),
    *(f"driver.{name}" for name in ("driver_release", "driver_cuda_version", "kernel_module", "loaded_modules", "nvml")),
    *(f"driver.{name}" for name in ("nvidia_smi", "cu_init", "visible_device_count", "device_nodes", "pci_devices")),
    *(f"driver.{name}" for name in ("profiling_restricted", "fabric_manager")),
    *(f"toolkits.{name}" for name in ("toolkit_version", "targets", "missing_parts", "packaging")),
    "host_compilers.compiler_version",
    *(f"python.torch.{name}" for name in ("torch_version", "build", "torch_cuda_version", "arch_list", "imports")),
    *(f"python.torch.{name}" for name in ("is_available", "cuda_error", "cudnn_version", "nccl_version", "cxx11_abi")),
    *(f"python.{name}" for name in ("python_version", "kind", "installer")),
    *(f"container.{name}" for name in ("kind", "nvidia_toolkit", "docker_snap")),
    *(f"wsl.{name}" for name in ("wsl_version", "windows_build", "linux_driver_packages")),
    *(f"host.{name}" for name in ("platform", "architecture", "os_name", "kernel_release", "glibc", "secure_boot", "jetson")),
)
"""Paths of single facts, in the order of the stack. Packages, variables and libraries are compared one by one."""

LISTS = ("python.packages", "environment", "libraries.copies")

NOISE = {
    "gpus": "index uuid pci_bus_id memory_used_bytes compute_process_count pcie_generation sm_clock_mhz sm_clock_max_mhz"
    " throttle_reasons temperature_c power_w utilization_percent multiprocessor_count",
    "gpu_pairs": "first second native_atomics",
    "driver": "module_file libcuda_loaded libcuda_copies",
    "toolkits": "root nvcc found_by aliases chosen_for_builds nvrtc",
    "host_compilers": "family path chosen_by",
    "python": "executable chosen_because",
    "python.torch": "devices mapped_libraries location",
    "libraries": "cudnn_headers ld_library_path",
    "container": "injected_libraries",
    "wsl": "library_folder",
    "host": "os_id os_version",
}
"""Fields that are left out: serials, places, loads of the moment, and what another fact already says."""

_PSEUDONYM = re.compile(r"\b(user|host|uuid|serial|email|mac|ip)-\d{1,6}\b")
_ABSENCES = (MissingReason.NOT_FOUND, MissingReason.NOT_APPLICABLE)
_TELLING = (ProofOutcome.PASSED, ProofOutcome.FAILED)
_COUNTED = "gpus.name"
NONE = "none"


class Value(Struct, frozen=True):
    """What is known under a path: a text, or why there is none; `none` is a text, it means that there is no such thing."""

    text: str | None
    because: str = ""


NOT_MENTIONED = Value(None, "not mentioned")


def facts_of(snapshot: Snapshot, proofs: Iterable[Proof], *, is_partial: bool) -> dict[str, Value]:
    """Path to value; of a partial snapshot (a pasted text) only what is there counts, not what is absent from its lists."""
    found = {path: _value(path, _walk(snapshot, path.split("."))) for path in COMPARED}
    found.update(_packages(snapshot))
    found.update(_variables(snapshot))
    found.update(_libraries(snapshot))
    found.update(_proofs(proofs))
    for part, fact in _lists(snapshot).items():
        if isinstance(fact, Missing):
            found[part] = Value(None, describe_missing(fact))
        else:
            found[part] = Value(None, "the text need not name all") if is_partial else Value(f"{len(fact.value)} known")
    return found


def _lists(snapshot: Snapshot) -> dict[str, Fact[Any]]:
    return {
        "python.packages": snapshot.python.packages,
        "environment": snapshot.environment,
        "libraries.copies": snapshot.libraries.copies,
    }


def list_of(path: str) -> str | None:
    """The list to which a package, variable or library belongs; None for any other fact."""
    return next((part for part in LISTS if path.startswith(f"{part}.")), None)


def value_at(facts: Mapping[str, Value], path: str) -> Value:
    """The value under a path; of what a list does not have, `none` where the list is known."""
    if path in facts:
        return facts[path]
    part = list_of(path)
    whole = facts.get(part, NOT_MENTIONED) if part is not None else NOT_MENTIONED
    return Value(NONE) if whole.text is not None else whole


def _walk(value: Any, steps: list[str]) -> Iterator[Any]:
    """Every known value, or Missing, that a path leads to: into facts, and through lists."""
    if isinstance(value, Missing):
        yield value
    elif isinstance(value, Known):
        yield from _walk(value.value, steps)
    elif isinstance(value, tuple) and steps:
        for item in _that_count(value):
            yield from _walk(item, steps)
    elif not steps:
        yield value
    else:
        yield from _walk(getattr(value, steps[0]), steps[1:])


def _that_count(items: tuple[Any, ...]) -> Iterable[Any]:
    """Of toolkits and compilers, those that builds would use; everything of other lists."""
    if items and isinstance(items[0], Toolkit):
        return [toolkit for toolkit in items if toolkit.chosen_for_builds]
    if items and isinstance(items[0], HostCompiler):
        return [compiler for compiler in items if compiler.chosen_by] or items[:1]
    return items


def _value(path: str, found: Iterable[Any]) -> Value:
    values = list(found)
    missing = [value for value in values if isinstance(value, Missing)]
    texts = [text for value in values if not isinstance(value, Missing) and (text := _text(value))]
    if texts and path.endswith("_bytes"):
        texts = [f"{round(int(text) / 2**30)} GiB" for text in texts]
    if texts:
        counts = Counter(texts)
        return Value(
            ", ".join(f"{count} x {text}" if path == _COUNTED and count > 1 else text for text, count in sorted(counts.items()))
        )
    unknown = [each for each in missing if each.reason not in _ABSENCES]
    return Value(None, describe_missing(unknown[0])) if unknown else Value(NONE)


def _text(value: Any) -> str:
    """One value in words, without the names and numbers that are different on every machine."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple):
        return ", ".join(sorted({_text(item) for item in value}))
    if isinstance(value, ApiStatus):
        return "works" if value.code == 0 else f"{value.code} {value.name or value.message}".strip()
    if isinstance(value, KernelModule):
        return f"{value.flavour.value} module"
    if isinstance(value, DeviceNode):
        return "accessible" if value.accessible else "not accessible"
    if isinstance(value, PciDevice):
        return f"bound to {value.kernel_driver or 'no driver'}" if value.vendor_id == "10de" else ""
    return _PSEUDONYM.sub(r"\1", str(value))


def _packages(snapshot: Snapshot) -> Iterator[tuple[str, Value]]:
    for package in maybe(snapshot.python.packages) or ():
        yield f"python.packages.{package.name}", Value(package.package_version)


def _variables(snapshot: Snapshot) -> Iterator[tuple[str, Value]]:
    for name, value in (maybe(snapshot.environment) or {}).items():
        yield f"environment.{name}", Value(_text(value) or "empty")


def _libraries(snapshot: Snapshot) -> Iterator[tuple[str, Value]]:
    """The copy of each library that a plain process would load: its version and who put it there, not where."""
    for copy in maybe(snapshot.libraries.copies) or ():
        if copy.wins:
            version = maybe(copy.library_version)
            yield (
                f"libraries.copies.{copy.soname}",
                Value(" ".join((str(version or "unknown version"), f"({copy.origin.value})"))),
            )


def _proofs(proofs: Iterable[Proof]) -> Iterator[tuple[str, Value]]:
    """Passed or failed, the worst of all GPUs; a kernel that was not run says nothing of the machine."""
    worst: dict[str, Proof] = {}
    for proof in proofs:
        path = f"proofs.{proof.layer.value}.{proof.kernel}"
        worst[path] = min(worst.get(path, proof), proof, key=lambda each: WORST_FIRST.index(each.outcome))
    for path, proof in worst.items():
        error = f" with error {proof.error.code}" if proof.error is not None else ""
        yield path, Value(f"{proof.outcome.value}{error}" if proof.outcome in _TELLING else None, "it was not run")
