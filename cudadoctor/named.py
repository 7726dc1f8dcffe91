"""What the user names on the command line (GPUs, a driver, a Python), in the field's terms."""

from __future__ import annotations

from collections.abc import Sequence

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.gpus import GpuModel
from cudadoctor.model.versions import ComputeCapability, DriverRelease, VersionError
from cudadoctor.probes.python_env import interpreters_at
from cudadoctor.system import RealSystem

EXAMPLES = 2
"""Products named of each compute capability that a name leaves."""


class PythonNameError(ValueError):
    """Nothing can be started there."""


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
        lines = "\n".join(f"  {each}: {_examples(each, models)}" for each in capabilities)
        raise GpuNameError(f"{text!r} leaves several compute capabilities; give more of the name, or one of these:\n{lines}")
    return capabilities[0]


def _examples(capability: ComputeCapability, models: Sequence[GpuModel]) -> str:
    names = [model.name for model in models if model.compute_capability == capability]
    more = f" and {len(names) - EXAMPLES} more" if len(names) > EXAMPLES else ""
    return ", ".join(names[:EXAMPLES]) + more


def release_of(text: str, matrices: Matrices) -> DriverRelease:
    """`550.54.15` as it is; a bare branch `550` as the branch's last release known; raises VersionError."""
    try:
        release = DriverRelease.parse(text)
    except VersionError as error:
        raise VersionError(f"{text[:80]!r} is not a driver release or branch such as 550.54.15 or 550") from error
    branch = matrices.drivers.branch(release) if len(release.parts) == 1 else None
    return branch.last_release if branch is not None else release


def check_interpreter(text: str) -> None:
    """Raises PythonNameError where neither the path nor the environment's folder holds a Python that can be started."""
    if not interpreters_at(RealSystem(), text):
        raise PythonNameError(f"no Python can be started as {text[:200]!r}")
