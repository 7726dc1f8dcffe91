"""`--assume KEY=VALUE`: judge the machine as if a detection had given another value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.snapshot import Gpu, Platform, Snapshot, Toolkit, Torch
from cudadoctor.model.versions import CudaVersion, DottedVersion, DriverRelease, VersionError
from cudadoctor.named import GpuNameError, capability_of

SOURCE = "--assume"
Change = Callable[[Snapshot, str, Matrices], Snapshot]


class AssumptionError(ValueError):
    """An assumption cannot be read; the text says why and what can be assumed."""


def assume(snapshot: Snapshot, assumptions: tuple[str, ...], matrices: Matrices) -> Snapshot:
    """The snapshot with each `key=value` in place of what was detected; raises AssumptionError."""
    for text in assumptions:
        key, equals, value = text.partition("=")
        change = CHANGES.get(key.strip())
        if not equals or change is None:
            raise AssumptionError(
                f"cannot assume {text[:60]!r}; what can be assumed: {', '.join(f'{name}=...' for name in CHANGES)}"
            )
        try:
            snapshot = change(snapshot, value.strip(), matrices)
        except (VersionError, GpuNameError, ValueError) as error:
            raise AssumptionError(f"{text[:60]!r}: {error}") from error
    return snapshot


def _gpu(snapshot: Snapshot, value: str, matrices: Matrices) -> Snapshot:
    """One GPU of this name or compute capability, in place of those found."""
    gpu = Gpu(index=0, name=Known(value, SOURCE), compute_capability=Known(capability_of(value, matrices), SOURCE))
    return structs.replace(snapshot, gpus=Known((gpu,), SOURCE))


def _driver(snapshot: Snapshot, value: str, matrices: Matrices) -> Snapshot:
    """This release, and the newest CUDA version that its branch supports, as far as known."""
    release = DriverRelease.parse(value)
    newest = matrices.drivers.max_cuda(release)
    changes = {"driver_release": Known(release, SOURCE)}
    driver = structs.replace(snapshot.driver, **changes)
    if newest is not None:
        driver = structs.replace(driver, driver_cuda_version=Known(newest, SOURCE))
    return structs.replace(snapshot, driver=driver)


def _driver_cuda(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    driver = structs.replace(snapshot.driver, driver_cuda_version=Known(CudaVersion.parse(value), SOURCE))
    return structs.replace(snapshot, driver=driver)


def _torch(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    """A torch of this version (`2.5.1+cu124`); its architectures are then those of the matrix."""
    DottedVersion.parse(value)
    torch = Torch(imports=Known(True, SOURCE), torch_version=Known(value, SOURCE))
    return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=Known(torch, SOURCE)))


def _toolkit(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    """A toolkit of this version, chosen for builds, in place of those found."""
    toolkit = Toolkit(
        root="/usr/local/cuda",
        nvcc=Known("/usr/local/cuda/bin/nvcc", SOURCE),
        toolkit_version=Known(CudaVersion.parse(value), SOURCE),
        found_by=(SOURCE,),
        chosen_for_builds=True,
    )
    return structs.replace(snapshot, toolkits=Known((toolkit,), SOURCE))


def _python(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    version = Known(DottedVersion.parse(value), SOURCE)
    return structs.replace(snapshot, python=structs.replace(snapshot.python, python_version=version))


def _glibc(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    return structs.replace(snapshot, host=structs.replace(snapshot.host, glibc=Known(DottedVersion.parse(value), SOURCE)))


def _gcc(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    """The host compilers found, each with this version; only the one chosen matters."""
    version = DottedVersion.parse(value)
    found = maybe(snapshot.host_compilers) or ()
    compilers = tuple(
        structs.replace(compiler, compiler_version=Known(version, SOURCE)) if compiler.family == "gcc" else compiler
        for compiler in found
    )
    return structs.replace(snapshot, host_compilers=Known(compilers, SOURCE))


def _platform(snapshot: Snapshot, value: str, _: Matrices) -> Snapshot:
    return structs.replace(snapshot, host=structs.replace(snapshot.host, platform=Known(Platform(value), SOURCE)))


CHANGES: Mapping[str, Change] = MappingProxyType(
    {
        "gpu": _gpu,
        "driver": _driver,
        "driver_cuda": _driver_cuda,
        "torch": _torch,
        "toolkit": _toolkit,
        "python": _python,
        "glibc": _glibc,
        "gcc": _gcc,
        "platform": _platform,
    }
)
"""What can be assumed, by its name on the command line."""
