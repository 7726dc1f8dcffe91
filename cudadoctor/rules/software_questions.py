"""What the snapshot and the texts tell of the software on top of CUDA: packages, readings, runtimes. Never a judgement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from cudadoctor.model.fact import Known, Missing, MissingReason, maybe
from cudadoctor.model.finding import Evidence
from cudadoctor.model.snapshot import Package, Snapshot, Torch
from cudadoctor.model.versions import CudaVersion, VersionError
from cudadoctor.rules.engine import Case

SELF_BUILT_MARKS = ("a0", "git", ".nv", "+nv", "+jetson", "+l4t")
"""Parts of torch versions that no wheel of the index has (release notes of the NGC containers; JetPack wheels)."""


def reading(snapshot: Snapshot, kind: str) -> Mapping[str, Any]:
    """What a reader of pasted texts understood; empty where it read nothing."""
    return snapshot.values_read(kind)


def packages(snapshot: Snapshot) -> tuple[Package, ...]:
    """The GPU-related Python packages; empty where they were not listed."""
    return maybe(snapshot.python.packages) or ()


def package(snapshot: Snapshot, *names: str) -> Package | None:
    """The first of these packages that is installed."""
    for name in names:
        for each in packages(snapshot):
            if each.name == name:
                return each
    return None


def package_evidence(each: Package) -> tuple[Evidence, ...]:
    """A package of the list as evidence."""
    shown = " ".join(part for part in (each.name, each.package_version, each.build, each.channel) if part)
    return (Evidence(fact="python.packages", value=shown, source="package list"),)


def version_of(text: str) -> Version | None:
    """The version of a Python package; None where the text is none."""
    try:
        return Version(text)
    except ValueError:  # InvalidVersion, or a number longer than Python reads
        return None


def is_partial(snapshot: Snapshot) -> bool:
    """Is this what a text tells, and not an examined machine? Then what was not asked is not absent either."""
    init = snapshot.driver.cu_init
    return isinstance(init, Missing) and init.reason is MissingReason.NOT_ASKED


def is_wheel_of_an_index(build: Torch) -> bool:
    """Does the version look like a published wheel, not like a container's, a Jetson's or a self-built torch?"""
    text = maybe(build.torch_version) or ""
    return not any(mark in text for mark in SELF_BUILT_MARKS)


def conda_torch(snapshot: Snapshot) -> Package | None:
    """conda's package of torch, where the package list shows one."""
    found = package(snapshot, "pytorch", "libtorch")
    return found if found is not None and (found.build or found.channel) else None


@dataclass(frozen=True)
class FrameworkRuntime:
    """The CUDA runtime that a framework other than torch was built with, and from where that is known."""

    name: str
    runtime: CudaVersion
    evidence: tuple[Evidence, ...]


def framework_runtime(case: Case) -> FrameworkRuntime | None:
    """The framework's CUDA runtime: as it prints it, else as its package's version and the matrix tell."""
    said = reading(case.snapshot, "statements").get("runtime_cuda")
    if said:
        name = "PaddlePaddle" if package(case.snapshot, "paddlepaddle-gpu", "paddlepaddle") else "the framework"
        return FrameworkRuntime(
            name, CudaVersion.parse(said), (Evidence(fact="readings.statements.runtime_cuda", value=said, source="pasted text"),)
        )
    for each in packages(case.snapshot):
        runtime = _runtime_of_package(case, each)
        if runtime is not None:
            return FrameworkRuntime(f"{each.name} {each.package_version}", runtime, package_evidence(each))
    return None


def _runtime_of_package(case: Case, each: Package) -> CudaVersion | None:
    if each.name == "paddlepaddle-gpu":
        return _of_post_number(each.package_version)
    version = version_of(each.package_version)
    if version is None or each.name not in ("tensorflow", "tensorflow-gpu"):
        return None
    row = case.matrices.ecosystem.tensorflow_release(version)
    return row.cuda if row is not None else None


def _of_post_number(version: str) -> CudaVersion | None:
    """11.2 of `2.4.2.post112`, PaddlePaddle's way to name the CUDA of a wheel (its installation guide)."""
    number = version.partition(".post")[2]
    try:
        return CudaVersion.from_tag(f"cu{number}") if number.isdigit() else None
    except VersionError:
        return None


def known_packages(snapshot: Snapshot) -> bool:
    """Was a package list read?"""
    return isinstance(snapshot.python.packages, Known)
