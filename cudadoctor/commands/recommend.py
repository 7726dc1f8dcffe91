"""`recommend`: the torch install line that works for this machine or for the one described, and why newer ones do not."""

from __future__ import annotations

import json
import platform as host_platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.platforms import DriverPlatform, WheelPlatform
from cudadoctor.matrices.torch_builds import TorchWheel
from cudadoctor.model.versions import ComputeCapability, DriverRelease, VersionError
from cudadoctor.recommend import Advice, Target, advise


class GpuNameError(ValueError):
    """A GPU's name fits no product, or products of several compute capabilities; the text lists them."""


def capability_of(text: str, matrices: Matrices) -> ComputeCapability:
    """The compute capability of `12.0`, `sm_120` or a part of a product name; raises GpuNameError."""
    try:
        capability = ComputeCapability.parse(text)
    except VersionError:
        return _by_name(text, matrices)
    if capability not in matrices.gpus.all_ccs() and capability < max(matrices.gpus.all_ccs()):
        raise GpuNameError(f"no GPU has compute capability {capability}")
    return capability


def _by_name(text: str, matrices: Matrices) -> ComputeCapability:
    models = matrices.gpus.by_name(text)
    capabilities = sorted({model.compute_capability for model in models})
    if not capabilities:
        raise GpuNameError(
            f"no GPU is called {text[:80]!r}; give a part of the product name, or a compute capability such as 8.9"
        )
    if len(capabilities) > 1:
        examples = "; ".join(
            f"{capability}: {', '.join([model.name for model in models if model.compute_capability == capability][:3])}"
            for capability in capabilities
        )
        raise GpuNameError(f"{text!r} leaves several compute capabilities ({examples}); give more of the name")
    return capabilities[0]


def release_of(text: str, matrices: Matrices) -> DriverRelease:
    """`550.54.15` as it is; a bare branch `550` as the branch's last release known; raises VersionError."""
    release = DriverRelease.parse(text)
    branch = matrices.drivers.branch(release) if len(release.parts) == 1 else None
    return branch.last_release if branch is not None else release


@dataclass(frozen=True)
class RecommendOptions:
    """What the command line asked for; empty means this machine."""

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    python_version: str | None = None
    platform: str | None = None


def target_of(options: RecommendOptions, here: Target | None, matrices: Matrices) -> Target:
    """The target: what was named, and for the rest this machine where it was examined; raises GpuNameError, VersionError."""
    base = here or Target(_own_wheels(), DriverPlatform.LINUX)
    if options.platform is not None:
        wheels = WheelPlatform(options.platform)
        driver_platform = DriverPlatform.WINDOWS if wheels is WheelPlatform.WINDOWS else DriverPlatform.LINUX
        base = replace(base, wheels=wheels, driver_platform=driver_platform, glibc=None)
    if options.gpus:
        base = replace(base, capabilities=tuple(capability_of(name, matrices) for name in options.gpus))
    if options.driver is not None:
        base = replace(base, driver_release=release_of(options.driver, matrices), driver_cuda_version=None)
    if options.python_version is not None:
        base = replace(base, python=options.python_version)
    return base


def _own_wheels() -> WheelPlatform:
    machine = host_platform.machine().lower()
    if sys.platform == "win32":
        return WheelPlatform.WINDOWS
    return WheelPlatform.LINUX_AARCH64 if machine in ("aarch64", "arm64") else WheelPlatform.LINUX_X86_64


def install_line(wheel: TorchWheel) -> str:
    """The pip line; the build tag is spelled out, since another build of the same release would satisfy the plain number."""
    return f"pip install torch=={wheel.release.version}+{wheel.variant.tag} --index-url {wheel.variant.index_url}"


def as_text(target: Target, advice: Advice) -> str:
    """The line to type, and the reasons."""
    lines = [install_line(advice.wheel)] if advice.wheel is not None else []
    return "\n".join(lines) + ("\n" if lines else "")


def reasons(target: Target, advice: Advice) -> Sequence[str]:
    """Why this build, and why not newer ones: sentences for stderr or the reader."""
    described = _described(target)
    said = []
    if advice.wheel is None:
        said.append(f"No torch wheel is known for {described}.")
    else:
        wheel = advice.wheel
        said.append(f"torch {wheel.release.version}+{wheel.variant.tag} is the newest known that works for {described}.")
    if advice.python_excluded is not None:
        said.append(f"torch {advice.python_excluded} has no wheel for Python {target.python}.")
    said += [f"torch {each.wheel.release.version}+{each.wheel.variant.tag} {_clause(each.because)}." for each in advice.refused]
    return said


def _clause(because: str) -> str:
    return because if because.startswith(("has ", "needs ", "is ")) else f"does not: {because}"


def _described(target: Target) -> str:
    parts = [
        f"compute capability {', '.join(map(str, target.capabilities))}" if target.capabilities else "any GPU",
        f"driver {target.driver_release}" if target.driver_release is not None else "",
        f"Python {target.python}" if target.python is not None else "",
        target.wheels.value,
    ]
    return ", ".join(part for part in parts if part)


def as_json(target: Target, advice: Advice) -> str:
    """The advice as one JSON document."""
    wheel = advice.wheel
    return (
        json.dumps(
            {
                "schema": "cudadoctor.recommend/1",
                "target": {
                    "gpus": [str(capability) for capability in target.capabilities],
                    "driver_release": str(target.driver_release) if target.driver_release is not None else None,
                    "python": target.python,
                    "platform": target.wheels.value,
                },
                "torch_version": f"{wheel.release.version}+{wheel.variant.tag}" if wheel is not None else None,
                "command": install_line(wheel) if wheel is not None else None,
                "on_default_index": wheel.on_default_index if wheel is not None else None,
                "targets": [str(code) for code in wheel.targets] if wheel is not None else [],
                "because": list(reasons(target, advice)),
            },
            indent=2,
        )
        + "\n"
    )


def recommend(target: Target, matrices: Matrices) -> Advice:
    """The advice for a target."""
    return advise(target, matrices)
