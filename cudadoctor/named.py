"""What the user names on the command line (GPUs, a driver), in the field's terms."""

from __future__ import annotations

from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import ComputeCapability, DriverRelease, VersionError


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
