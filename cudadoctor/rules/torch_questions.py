"""What rules ask about the installed torch: is it a build without CUDA, and was one with CUDA meant."""

from __future__ import annotations

from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.model.fact import Known, known, maybe
from cudadoctor.model.finding import Evidence
from cudadoctor.model.snapshot import Platform, Torch, TorchBuild
from cudadoctor.rules.case import once_a_case
from cudadoctor.rules.circumstances import cpu_is_meant
from cudadoctor.rules.engine import Case, evidence
from cudadoctor.rules.questions import (
    Presence,
    local_tag,
    on_tegra,
    platform,
    torch,
    torch_build,
    torch_release,
    wheel_platform,
)
from cudadoctor.rules.software_questions import (
    conda_torch,
    is_partial,
)

CPU_CHOSEN = ("conda-cpu-variant", "torch-replaced")
"""Texts of installers that chose a CPU build."""
NOT_COMPILED = ("torch-not-compiled-with-cuda", "cuda-version-undetected")
"""Texts that only a torch without CUDA prints."""


def torch_evidence(build: Torch | None) -> tuple[Evidence, ...]:
    """The version and the kind of build, as far as they are known."""
    if build is None:
        return ()
    return (
        *evidence("python.torch.torch_version", build.torch_version),
        *evidence("python.torch.build", build.build, value=known(build.build).value if isinstance(build.build, Known) else None),
    )


def _is_default_cpu_wheel(case: Case, build: Torch) -> bool:
    """Is it a release without a tag whose wheel on this platform's default index is a CPU build, and no GPU is seen by it?"""
    if torch_build(build) is not None or local_tag(build) or maybe(build.is_available) is not False:
        return False
    if maybe(case.snapshot.python.installer) == "conda" or conda_torch(case.snapshot) is not None or on_tegra(case):
        return False
    place, release = wheel_platform(case.snapshot), torch_release(build)
    if place is None or release is None or (platform(case.snapshot) is None and place is not WheelPlatform.LINUX_AARCH64):
        return False
    default = case.matrices.torch.default_variant(release, place)
    return default is not None and default.cuda is None


@once_a_case
def cpu_build(case: Case) -> bool:
    """Is the torch that runs a CPU build, as it says itself, as a text proves, or as its wheel implies?"""
    build = torch(case.snapshot)
    if build is not None and torch_build(build) in (TorchBuild.ROCM, TorchBuild.XPU):
        return False
    if case.saw(*NOT_COMPILED):
        return True
    if case.saw(*CPU_CHOSEN) and (build is None or torch_build(build) is None):
        return True
    return build is not None and (torch_build(build) is TorchBuild.CPU or _is_default_cpu_wheel(case, build))


@once_a_case
def no_nvidia_meant(case: Case) -> str | None:
    """Why a CPU build is no fault here: no CUDA on the platform, or no NVIDIA GPU; None where it is one."""
    if platform(case.snapshot) is Platform.MACOS:
        return "macOS has no CUDA builds of torch"
    presence = case.gpu_presence
    if presence is Presence.NO and not case.saw(*NOT_COMPILED):
        return "no NVIDIA GPU, for which a CPU build is right"
    if presence is not Presence.YES and case.saw("shown-amd-gpu"):
        return "an AMD GPU and no NVIDIA one"
    if cpu_is_meant(case):
        return "nothing shows an NVIDIA GPU or asks for one"
    return None


def wants_cuda(case: Case) -> bool:
    """Does anything show that CUDA is wanted: a GPU, an error, or a text that asks `is_available()`?"""
    if case.gpu_presence is Presence.YES or case.saw(*NOT_COMPILED):
        return True
    build = torch(case.snapshot)
    return is_partial(case.snapshot) and build is not None and maybe(build.is_available) is False
