"""Rules about a torch built for another platform: ROCm, a Jetson, the default index on aarch64 (CD402, CD407, CD408)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Confidence, Fix, Severity, Where
from cudadoctor.model.snapshot import TorchBuild
from cudadoctor.rules import fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import (
    Presence,
    installed_torch,
    named_torch,
    on_tegra,
    torch,
    torch_build,
    torch_release,
)
from cudadoctor.rules.software_questions import (
    conda_torch,
    is_wheel_of_an_index,
)
from cudadoctor.rules.torch_questions import (
    NOT_COMPILED,
    cpu_build,
    no_nvidia_meant,
    torch_evidence,
    wants_cuda,
)


def aarch64_default_index(case: Case) -> Iterable[Problem]:
    """A plain install on aarch64 gave the CPU wheel of torch; the CUDA wheel is on its own index.

    What it checks: a CPU build of torch on an aarch64 machine that is no Jetson, for a release whose wheel on the default index
    is the CPU build.

    Why it matters: on Grace Hopper, Grace Blackwell and DGX Spark `pip install torch` silently gives a torch without CUDA.

    How to fix: install from the index of a CUDA version, which has aarch64 wheels.

    When it is wrong: for releases whose default aarch64 wheel is a CUDA build; there the CPU index was asked for.

    Sources: matrices/torch_builds.toml, default_linux_aarch64.
    """
    why_not = no_nvidia_meant(case)
    if why_not is not None:
        raise NotApplicableError(why_not)
    if maybe(case.snapshot.host.architecture) not in ("aarch64", "arm64") or on_tegra(case):
        return
    build = installed_torch(case.snapshot)
    release = torch_release(build)
    default = case.matrices.torch.default_variant(release, WheelPlatform.LINUX_AARCH64) if release is not None else None
    if not cpu_build(case) or conda_torch(case.snapshot) is not None or (default is not None and default.cuda is not None):
        return
    yield Problem(
        subject="torch",
        what=f"{named_torch(build, 'torch')} is the CPU wheel that the default index has for aarch64.",
        why="The CUDA wheels for aarch64 are on the index of their CUDA version only.",
        evidence=(*torch_evidence(build), *evidence("host.architecture", case.snapshot.host.architecture)),
        remedies=fixes.install_cuda_torch(case),
        severity=None if wants_cuda(case) else Severity.WARNING,
        confidence=Confidence.CERTAIN if default is not None else Confidence.LIKELY,
    )


NO_CODE = ("no-kernel-image", "torch-gpu-cc-not-listed", "torch-gpu-too-old", "cuda-invalid-device-function")


def jetson_generic_wheel(case: Case) -> Iterable[Problem]:
    """A generic aarch64 build of torch is installed on a Jetson, instead of the one for its JetPack.

    What it checks: on a Jetson, a torch that is no NVIDIA build and is a CPU build, sees no GPU, or fails for want of code.

    Why it matters: before JetPack 7, Jetsons have a driver of their own (L4T); wheels of the default index and conda-forge's
    packages are made for servers (SBSA) and have neither its libraries nor its architectures.

    How to fix: install the wheel that NVIDIA publishes for this JetPack and its Python, or use NVIDIA's L4T container.

    When it is wrong: with JetPack 7 (Thor) the server wheels of CUDA 13 do work; a torch that computes is never named.

    Sources: NVIDIA, Installing PyTorch for Jetson Platform; CUDA for Tegra application note.
    """
    if not on_tegra(case):
        return
    build = torch(case.snapshot)
    if build is not None and not is_wheel_of_an_index(build):
        return
    blind = build is not None and (cpu_build(case) or maybe(build.is_available) is False)
    failed = case.saw(*NO_CODE)
    if not blind and not failed and not case.saw(*NOT_COMPILED):
        return
    board = maybe(case.snapshot.host.jetson) or "this Jetson"
    name = named_torch(build, "torch")
    yield Problem(
        subject="torch",
        what=f"{name} on {board} is a generic aarch64 build, not NVIDIA's for its JetPack.",
        why="It has no code for the Jetson's GPU." if failed else "It has no CUDA that fits the Jetson's own driver (L4T).",
        evidence=(
            *torch_evidence(build),
            *evidence("host.jetson", case.snapshot.host.jetson),
            *seen(case, *NO_CODE, *NOT_COMPILED),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="Remove it and install the torch wheel that NVIDIA publishes for this JetPack and its Python",
                    commands=(
                        "cat /etc/nv_tegra_release",
                        f"{fixes.interpreter(case.snapshot)} -m pip uninstall torch torchvision",
                    ),
                    where=Where.VENV,
                )
            ),
        ),
        confidence=Confidence.LIKELY,
        references=("https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/index.html",),
    )


def torch_rocm_build(case: Case) -> Iterable[Problem]:
    """The installed torch is a ROCm build on a machine with an NVIDIA GPU.

    What it checks: `torch.version.hip` and the version's local part (+rocm); HIP errors.

    Why it matters: a ROCm build runs on AMD GPUs only.

    How to fix: install the CUDA build of the same release.

    When it is wrong: on a machine with an AMD GPU and no NVIDIA one it is the right build, and the rule does not speak.

    Sources: torch documentation, torch.version.
    """
    texts = seen(case, "torch-rocm-build")
    build = torch(case.snapshot)
    is_rocm = build is not None and torch_build(build) is TorchBuild.ROCM
    if not is_rocm and not texts:
        installed_torch(case.snapshot)
        return
    presence = case.gpu_presence
    wanted = bool(texts) or case.saw(*NOT_COMPILED) or (build is not None and maybe(build.is_available) is False)
    if presence is not Presence.YES and (presence is Presence.NO or case.saw("shown-amd-gpu") or not wanted):
        raise NotApplicableError("no NVIDIA GPU was seen, for which a ROCm build would be wrong")
    shown = named_torch(build, "The torch") if is_rocm else "The torch that runs here"
    yield Problem(
        subject="torch",
        what=f"{shown} is a ROCm build: it runs on AMD GPUs only.",
        why="torch.cuda.is_available() is False on an NVIDIA GPU.",
        evidence=(*torch_evidence(build), *texts),
        remedies=fixes.install_cuda_torch(case),
        confidence=Confidence.CERTAIN if is_rocm else Confidence.LIKELY,
    )


RULES = (
    Rule("CD402", "torch-rocm-build", Severity.ERROR, "The imported torch is a ROCm build", torch_rocm_build),
    Rule(
        "CD407", "aarch64-default-index", Severity.ERROR, "The default index has a CPU wheel for aarch64", aarch64_default_index
    ),
    Rule("CD408", "jetson-generic-wheel", Severity.ERROR, "A generic torch on a Jetson", jetson_generic_wheel),
)
