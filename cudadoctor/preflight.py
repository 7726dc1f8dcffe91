"""What is installed, or would be in an image, judged for GPUs and a driver that are not here; nothing runs on a GPU."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cudadoctor.model.binaries import BinaryPackage
from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, maybe
from cudadoctor.model.snapshot import Container, Driver, Gpu, Platform, Snapshot, TextReading, Torch, Wsl
from cudadoctor.model.versions import ComputeCapability, DriverRelease
from cudadoctor.named import capability_of, release_of
from cudadoctor.probes import PROBES, Collection, ProbeOptions, start_collection
from cudadoctor.probes.all_missing import all_missing
from cudadoctor.probes.binaries import SOURCE as BINARIES_SOURCE
from cudadoctor.probes.binaries import packages_of
from cudadoctor.probes.environment import read_environment
from cudadoctor.probes.runner import Probe
from cudadoctor.rooted_system import DEFAULT_PATH, RootedSystem
from cudadoctor.rules.preflight_questions import PREFLIGHT
from cudadoctor.system import RealSystem

if TYPE_CHECKING:
    from cudadoctor.matrices import Matrices
    from cudadoctor.system import System

GPU_SOURCE, DRIVER_SOURCE = "--gpu", "--driver"
NOT_HERE = Missing(MissingReason.NOT_APPLICABLE, "preflight does not ask this machine's driver", "preflight")
NO_GPU_NAMED = Missing(MissingReason.NOT_APPLICABLE, "no --gpu was given", "preflight")
NO_DRIVER_NAMED = Missing(MissingReason.NOT_APPLICABLE, "no --driver was given", "preflight")
ASK_A_GPU = frozenset({"nvidia-smi", "nvml"})
"""Probes that preflight leaves out."""
LOADERS = (("/lib64/ld-linux-x86-64.so.2", "x86_64"), ("/lib/ld-linux-aarch64.so.1", "aarch64"))
"""The dynamic loader tells an image's architecture (the psABI of each)."""


@dataclass(frozen=True)
class Target:
    """The GPUs and the driver that what is installed has to serve; empty and None where none is named."""

    gpus: tuple[tuple[str, ComputeCapability], ...] = ()
    driver: DriverRelease | None = None
    gpu_source: str = GPU_SOURCE
    driver_source: str = DRIVER_SOURCE

    @property
    def words(self) -> str:
        """`RTX 4090 (8.9), 12.0, driver 550.163.01`."""
        shown = [name if name == str(capability) else f"{name} ({capability})" for name, capability in self.gpus]
        return ", ".join([*shown, *([f"driver {self.driver}"] if self.driver is not None else [])])


def target_of(gpus: Sequence[str], driver: str | None, matrices: Matrices, source: str = "") -> Target:
    """The target as named; `source` where it is not the command line. Raises GpuNameError and VersionError."""
    named = tuple((name, capability_of(name, matrices)) for name in gpus)
    release = release_of(driver, matrices) if driver is not None else None
    return Target(named, release, source or GPU_SOURCE, source or DRIVER_SOURCE)


def assumed(snapshot: Snapshot, target: Target, matrices: Matrices, builds: Sequence[Mapping[str, Any]] = ()) -> Snapshot:
    """The snapshot with the target's GPUs and driver in place of this machine's, of which nothing remains."""
    values: dict[str, Any] = {
        "gpus": [str(capability) for _, capability in target.gpus],
        "driver": str(target.driver) if target.driver is not None else None,
        "builds": list(builds),
    }
    return structs.replace(
        snapshot,
        gpus=_gpus(target, matrices),
        driver=_driver(snapshot.driver, target, matrices),
        python=structs.replace(snapshot.python, torch=_not_run(snapshot.python.torch)),
        wsl=all_missing(Wsl)(NOT_HERE),
        readings=(*snapshot.readings, TextReading(kind=PREFLIGHT, values=values)),
        errors=snapshot.errors if _import_failed(snapshot) else (),
    )


def _gpus(target: Target, matrices: Matrices) -> Fact[tuple[Gpu, ...]]:
    if not target.gpus:
        return NO_GPU_NAMED
    return Known(tuple(_gpu(index, *named, target, matrices) for index, named in enumerate(target.gpus)), target.gpu_source)


def _gpu(index: int, name: str, capability: ComputeCapability, target: Target, matrices: Matrices) -> Gpu:
    """The GPU by its product name where one was named; of a compute capability alone no name is known."""
    models = matrices.gpus.by_name(name) if name != str(capability) and not name.lower().startswith("sm_") else ()
    shortest = min((model.name for model in models), key=len, default=None)
    return Gpu(
        index=index,
        name=Known(shortest, target.gpu_source) if shortest is not None else NOT_HERE,
        compute_capability=Known(capability, target.gpu_source),
    )


def _driver(driver: Driver, target: Target, matrices: Matrices) -> Driver:
    release = target.driver
    newest = matrices.drivers.max_cuda(release) if release is not None else None
    unknown = Missing(MissingReason.NOT_FOUND, f"the table does not know which CUDA driver {release} supports", "drivers matrix")
    return structs.replace(
        all_missing(Driver)(NOT_HERE),
        driver_release=Known(release, target.driver_source) if release is not None else NO_DRIVER_NAMED,
        driver_cuda_version=Known(newest, target.driver_source)
        if newest is not None
        else (unknown if release is not None else NO_DRIVER_NAMED),
        libcuda_copies=driver.libcuda_copies,
    )


def _import_failed(snapshot: Snapshot) -> bool:
    torch = maybe(snapshot.python.torch)
    return torch is not None and isinstance(torch.imports, Missing) and torch.imports.reason is not MissingReason.NOT_APPLICABLE


def _not_run(torch: Fact[Torch]) -> Fact[Torch]:
    """torch without what it says about the GPUs and the driver here."""
    if isinstance(torch, Missing):
        return torch
    build = structs.replace(torch.value, is_available=NOT_HERE, cuda_error=NOT_HERE, devices=NOT_HERE)
    imports = build.imports
    if isinstance(imports, Missing) and "libcuda.so" in imports.detail:
        absent = Missing(MissingReason.NOT_APPLICABLE, "it needs the driver's libcuda, which is not here", imports.source)
        build = structs.replace(build, imports=absent)
    return structs.replace(torch, value=build)


# This machine


def installed_here(matrices: Matrices, python: str | None, timeout: float) -> Snapshot:
    """What is installed on this machine; its driver and GPUs are not asked, and torch is imported with no GPU visible."""
    hidden = RealSystem({**os.environ, "CUDA_VISIBLE_DEVICES": ""})
    snapshot = _collected(hidden, matrices, python, timeout)
    return structs.replace(snapshot, environment=read_environment(RealSystem(), _variable_names(matrices)))


def _collected(system: System, matrices: Matrices, python: str | None, timeout: float) -> Snapshot:
    options = ProbeOptions(
        python or "", timeout_s=min(10.0, timeout), torch_child_options=("--no-proofs",), variable_names=_variable_names(matrices)
    )
    deadline = time.monotonic() + timeout
    collection = start_collection(system, options, tuple(_quiet(probe) for probe in PROBES))
    try:
        snapshot = collection.complete(deadline)
        return structs.replace(snapshot, binaries=_binaries(system, collection, matrices, deadline))
    finally:
        collection.stop()


def _binaries(system: System, collection: Collection, matrices: Matrices, deadline: float) -> Fact[tuple[BinaryPackage, ...]]:
    """What the files of installed packages hold; nothing is imported for it."""

    def is_over() -> bool:
        return time.monotonic() > deadline

    executable = collection.torch.chosen.executable
    found = packages_of(system, collection.package_folders(), lambda: matrices.sonames, executable, is_over)
    return Known(tuple(found), BINARIES_SOURCE)


def _quiet(probe: Probe) -> Probe:
    """The probe, or one that gives no answer at once where it would ask a GPU."""
    if probe.name not in ASK_A_GPU:
        return probe
    return Probe(probe.name, lambda _system, _context: probe.unanswered(NOT_HERE), probe.unanswered)


def _variable_names(matrices: Matrices) -> frozenset[str]:
    return frozenset(row.name for row in matrices.env.variables)


# An unpacked image


def image_system(root: Path, variables: Mapping[str, str]) -> RootedSystem:
    """The files of an image, with the environment that files beside them and `variables` say."""
    from cudadoctor.image_environment import image_environment, root_folder

    return RootedSystem(root_folder(root), {"PATH": DEFAULT_PATH, **image_environment(root), **variables})


def installed_below(system: RootedSystem, matrices: Matrices, python: str | None, timeout: float) -> Snapshot:
    """What is installed in the files of an image; nothing there is run, and nothing of this machine is looked at."""
    snapshot = _collected(system, matrices, python, timeout)
    elsewhere = Missing(MissingReason.NOT_APPLICABLE, "an unpacked image is not run", "--root")
    host = structs.replace(
        snapshot.host, platform=Known(Platform.LINUX, "--root"), architecture=_architecture(system), secure_boot=elsewhere
    )
    container = structs.replace(all_missing(Container)(elsewhere), kind=Known("other", "--root"))
    return structs.replace(snapshot, host=host, container=container)


def _architecture(system: RootedSystem) -> Fact[str]:
    found = next((name for path, name in LOADERS if system.exists(path)), None)
    return (
        Known(found, "the image's dynamic loader")
        if found
        else Missing(MissingReason.NOT_FOUND, "no known dynamic loader", "--root")
    )
