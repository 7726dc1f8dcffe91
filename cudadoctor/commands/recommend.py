"""`recommend`: the torch install line that works for this machine or for the one described, and why newer ones do not."""

from __future__ import annotations

import json
import platform as host_platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.platforms import DriverPlatform, WheelPlatform
from cudadoctor.matrices.torch_builds import TorchWheel
from cudadoctor.model.versions import VersionError
from cudadoctor.named import GpuNameError, capability_of, release_of
from cudadoctor.recommend import Advice, Target, advise
from cudadoctor.saying import say


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


def as_text(advice: Advice) -> str:
    """The line to type; empty where there is none."""
    return install_line(advice.wheel) + "\n" if advice.wheel is not None else ""


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


def run(options: RecommendOptions, python: str | None, style: str) -> ExitCode:
    """Print the install line (or JSON) on standard output, the reasons on standard error."""
    matrices = Matrices.load()
    try:
        target = target_of(options, None if options.gpus else _this_machine(python, matrices), matrices)
    except (GpuNameError, VersionError, ValueError) as error:
        say(str(error))
        return ExitCode.USAGE
    if not target.capabilities:
        say('no GPU was found here; name one: cudadoctor recommend --gpu "RTX 4090" --driver 550')
        return ExitCode.UNDETERMINED
    advice = advise(target, matrices)
    if style == "json":
        print(as_json(target, advice), end="")
    else:
        for sentence in reasons(target, advice):
            print(sentence, file=sys.stderr)
        print(as_text(advice), end="")
    return ExitCode.OK if advice.wheel is not None else ExitCode.PROBLEMS


def _this_machine(python: str | None, matrices: Matrices) -> Target | None:
    from cudadoctor.probes import ProbeOptions, collect
    from cudadoctor.rules.engine import Case
    from cudadoctor.rules.fixes import recommendation_target
    from cudadoctor.system import RealSystem

    snapshot = collect(RealSystem(), ProbeOptions(python or "", torch_child_options=("--no-proofs",)), torch_timeout_s=1.0)
    return recommendation_target(Case(snapshot, matrices))
