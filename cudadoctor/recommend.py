"""Which torch build works for given GPUs, driver and Python: the newest first, and why newer ones do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cudadoctor.compat import CoverageKind, RuntimeSupport, coverage, runtime_on_driver
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.platforms import DriverPlatform, WheelPlatform
from cudadoctor.matrices.torch_builds import TorchWheel
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, DriverRelease


@dataclass(frozen=True)
class Target:
    """What the build has to fit; None or empty where unknown, which then does not restrict."""

    wheels: WheelPlatform
    driver_platform: DriverPlatform
    capabilities: tuple[ComputeCapability, ...] = ()
    driver_release: DriverRelease | None = None
    driver_cuda_version: CudaVersion | None = None
    python: str | None = None
    """`3.12`."""
    glibc: DottedVersion | None = None


@dataclass(frozen=True)
class Refusal:
    """Why a wheel does not fit."""

    wheel: TorchWheel
    because: str


@dataclass(frozen=True)
class Advice:
    """The newest wheel that fits (None: none does), and why the newer ones, or all, do not."""

    wheel: TorchWheel | None
    refused: tuple[Refusal, ...]
    python_excluded: str | None = None
    """The newest release that has no wheel for the Python named, where that is a reason."""


def refusal(wheel: TorchWheel, target: Target, matrices: Matrices) -> Refusal | None:
    """Why this wheel does not fit the target; None where it does."""
    cuda = wheel.variant.cuda
    if cuda is None:
        return Refusal(wheel, "is a CPU build")
    if target.driver_release is not None or target.driver_cuda_version is not None:
        answer = runtime_on_driver(
            cuda, target.driver_release, target.driver_cuda_version, matrices.drivers, target.driver_platform
        )
        if answer.support is RuntimeSupport.TOO_OLD:
            needs = f"driver {answer.minimum} or newer" if answer.minimum is not None else "a newer driver"
            return Refusal(wheel, f"CUDA {cuda} needs {needs}")
    for capability in target.capabilities:
        if coverage(wheel.targets, capability).kind is not CoverageKind.SASS:
            return Refusal(wheel, f"has no machine code for compute capability {capability}")
    if target.glibc is not None and target.wheels is not WheelPlatform.WINDOWS and target.glibc < wheel.release.min_glibc:
        return Refusal(wheel, f"needs glibc {wheel.release.min_glibc}, this is {target.glibc}")
    return None


def fitting_wheels(target: Target, matrices: Matrices) -> Iterator[TorchWheel]:
    """The wheels that fit: newest release first, and of one release the one of a plain install, then the newest CUDA."""
    release_wheels: list[TorchWheel] = []
    for wheel in matrices.torch.wheels(target.wheels, target.python):
        if refusal(wheel, target, matrices) is not None:
            continue
        if release_wheels and wheel.release.version != release_wheels[0].release.version:
            yield from sorted(release_wheels, key=lambda each: not each.on_default_index)
            release_wheels = []
        release_wheels.append(wheel)
    yield from sorted(release_wheels, key=lambda each: not each.on_default_index)


def advise(target: Target, matrices: Matrices) -> Advice:
    """The wheel to install, and the newest wheel of each reason why newer ones are refused."""
    best = next(fitting_wheels(target, matrices), None)
    refused: dict[str, Refusal] = {}
    for wheel in matrices.torch.wheels(target.wheels, target.python):
        if best is not None and wheel.release.version < best.release.version:
            break
        why = refusal(wheel, target, matrices)
        if why is not None:
            refused.setdefault(why.because, why)
    newest = matrices.torch.newest_known
    excluded = target.python is not None and target.python not in newest.pythons
    return Advice(best, tuple(refused.values()), str(newest.version) if excluded else None)
