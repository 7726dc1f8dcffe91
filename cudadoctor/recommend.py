"""Which torch build works for given GPUs, driver and Python: the newest first, and why others do not."""

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


def refusal(wheel: TorchWheel, target: Target, matrices: Matrices) -> Refusal | None:
    """Why this wheel does not fit the target; None where it does."""
    cuda = wheel.variant.cuda
    if cuda is None:
        return Refusal(wheel, "a CPU build")
    if target.driver_release is not None or target.driver_cuda_version is not None:
        answer = runtime_on_driver(
            cuda, target.driver_release, target.driver_cuda_version, matrices.drivers, target.driver_platform
        )
        if answer.support is RuntimeSupport.TOO_OLD:
            return Refusal(wheel, f"CUDA {cuda} needs a newer driver")
    for capability in target.capabilities:
        if coverage(wheel.targets, capability).kind is not CoverageKind.SASS:
            return Refusal(wheel, f"no machine code for compute capability {capability}")
    if target.glibc is not None and target.wheels is not WheelPlatform.WINDOWS and target.glibc < wheel.release.min_glibc:
        return Refusal(wheel, f"needs glibc {wheel.release.min_glibc}")
    return None


def fitting_wheels(target: Target, matrices: Matrices) -> Iterator[TorchWheel]:
    """The wheels that fit, newest release first, and of one release the one that a plain install brings first."""
    for wheel in matrices.torch.wheels(target.wheels, target.python):
        if refusal(wheel, target, matrices) is None:
            yield wheel
