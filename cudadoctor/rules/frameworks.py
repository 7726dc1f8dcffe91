"""Rules about the examined Python: is torch a CUDA build, has it code for these GPUs, does it import (CD4xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import Coverage, CoverageKind, Direction, coverage
from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import Platform, Torch, TorchBuild
from cudadoctor.model.versions import SmTarget
from cudadoctor.rules import fixes
from cudadoctor.rules.driver import BREAKS_CUINIT, seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import (
    GpuWithCapability,
    Presence,
    gpus_with_capability,
    nvidia_gpu_present,
    platform,
    subject,
    torch,
    torch_arch_list,
    torch_build,
    torch_version_text,
)

SAYS_NO_CODE = (
    "no-kernel-image",
    "torch-gpu-cc-not-listed",
    "torch-gpu-too-old",
    "torch-cc-range-warning",
    "torch-supported-archs",
)
"""Kinds of error texts that can mean missing code; the facts decide."""

NO_KERNEL_IMAGE = "no kernel image is available for execution on the device"


def _torch(case: Case) -> Torch:
    """The torch to judge; ends the rule as not applicable or unknown where there is none."""
    fact = case.snapshot.python.torch
    if isinstance(fact, Missing) and fact.reason is MissingReason.NOT_FOUND:
        raise NotApplicableError("torch is not installed in the examined Python")
    return known(fact)


def first_line(text: str) -> str:
    """The first line of a message, without its full stop."""
    return text.strip().partition("\n")[0].rstrip(". ")


def span(targets: Iterable[SmTarget]) -> str:
    """`sm_50 to sm_90`, with what PTX there is: how findings name an arch list."""
    ordered = sorted(targets)
    machine = [target for target in ordered if str(target).startswith("sm_")]
    virtual = [target for target in ordered if str(target).startswith("compute_")]
    shown = f"{machine[0]} to {machine[-1]}" if len(machine) > 1 else "".join(map(str, machine))
    if not virtual:
        return f"{shown}, no PTX" if shown else "no code"
    return f"{shown}, PTX {', '.join(map(str, virtual))}" if shown else f"PTX {', '.join(map(str, virtual))}"


def arch_missing_in_wheel(case: Case) -> Iterable[Problem]:
    """The installed framework binary has no code for this GPU's compute capability.

    What it checks: the architectures that torch was built for (its own arch list, its binaries, or the matrix for its
    version and platform) against each GPU: machine code of the same major and a lower or equal minor serves, PTX of a lower
    or equal version can be compiled by the driver.

    Why it matters: memory can be allocated and `torch.cuda.is_available()` is True, but the first kernel fails with error 209,
    "no kernel image is available for execution on the device".

    How to fix: install a build that has code for the GPU: newer for a new GPU, an older CUDA line for an old one.

    When it is wrong: an architecture missing in the list by name alone (sm_89, sm_121) is served by a lower minor of the same
    major; the rule knows that. A self-built torch may differ from the matrix; its own list always wins.

    Sources: CUDA C++ Programming Guide, binary and PTX compatibility; matrices/torch_builds.toml.
    """
    build = torch(case.snapshot)
    said = _said_no_code(case)
    if build is not None and torch_build(build) in (TorchBuild.CPU, TorchBuild.ROCM):
        raise NotApplicableError("torch is not a CUDA build")
    judged = tuple(_uncovered(case, build)) if build is not None else ()
    if judged:
        yield from judged
        return
    if said is not None:
        yield said
        return
    if build is None:
        _torch(case)
        return
    known(torch_arch_list(case, build))
    if not gpus_with_capability(case):
        if nvidia_gpu_present(case.snapshot) is Presence.NO:
            raise NotApplicableError("no NVIDIA GPU")
        for gpu in known(case.snapshot.gpus):
            known(gpu.compute_capability)


def _uncovered(case: Case, build: Torch) -> Iterable[Problem]:
    arch_list = torch_arch_list(case, build)
    if isinstance(arch_list, Missing):
        return
    for gpu in gpus_with_capability(case):
        answer = coverage(arch_list.value, gpu.compute_capability)
        if answer.kind is CoverageKind.NONE:
            yield _no_code(case, build, arch_list, gpu, answer)


def _no_code(
    case: Case, build: Torch, arch_list: Known[tuple[SmTarget, ...]], gpu: GpuWithCapability, answer: Coverage
) -> Problem:
    newer = answer.direction is Direction.GPU_NEWER
    return Problem(
        subject=subject(gpu.gpu),
        what=f"torch {torch_version_text(build)} has no code for {gpu.title}: it holds {span(arch_list.value)}.",
        why=f'Every kernel launch fails with error 209, "{NO_KERNEL_IMAGE}"; allocating memory and torch.cuda.is_available() still work.',
        evidence=(
            *evidence("python.torch.torch_version", build.torch_version),
            *evidence("python.torch.arch_list", arch_list, value=" ".join(map(str, arch_list.value))),
            *gpu.evidence,
            *seen(case, *SAYS_NO_CODE),
        ),
        remedies=fixes.install_other_torch(case),
        tags=("gpu-newer-than-build" if newer else "gpu-older-than-build",),
        confidence=Confidence.CERTAIN if "matrix" not in arch_list.source else Confidence.LIKELY,
    )


def _said_no_code(case: Case) -> Problem | None:
    """What an error text says by itself, where the facts to judge with are not there."""
    texts = seen(case, "no-kernel-image", "torch-gpu-too-old")
    if not texts:
        return None
    return Problem(
        subject="GPU",
        what="The installed framework has no code for this GPU.",
        why=f'Kernel launches fail with error 209, "{NO_KERNEL_IMAGE}".',
        evidence=texts,
        remedies=fixes.install_other_torch(case),
        confidence=Confidence.LIKELY,
    )


def cpu_only_torch(case: Case) -> Iterable[Problem]:
    """The installed torch is a CPU build on a machine with an NVIDIA GPU.

    What it checks: `torch.version.cuda` and the version's local part (+cpu); error texts such as "Torch not compiled with CUDA
    enabled".

    Why it matters: everything runs on the CPU, or `.cuda()` fails.

    How to fix: install the CUDA build of the same release from its index. On Linux x86-64 a plain `pip install torch` gives a
    CUDA build; on Windows and macOS it does not, on aarch64 it depends on the release.

    When it is wrong: on a machine without an NVIDIA GPU a CPU build is right, and the rule does not speak.

    Sources: matrices/torch_builds.toml (default build by platform and release).
    """
    texts = seen(case, "torch-not-compiled-with-cuda")
    build = torch(case.snapshot)
    is_cpu = build is not None and torch_build(build) is TorchBuild.CPU
    if platform(case.snapshot) is Platform.MACOS:
        raise NotApplicableError("macOS has no CUDA builds of torch")
    if not is_cpu and not texts:
        if build is None:
            _torch(case)
        return
    if nvidia_gpu_present(case.snapshot) is Presence.NO and not texts:
        raise NotApplicableError("no NVIDIA GPU, for which a CPU build is right")
    shown = torch_version_text(build) if build is not None and is_cpu else "The installed torch"
    yield Problem(
        subject="torch",
        what=f"torch {shown} is a CPU build: it cannot use the GPU."
        if is_cpu
        else "The torch that runs here is a CPU build: it cannot use the GPU.",
        why="torch.cuda.is_available() is False and .cuda() fails, whatever driver and toolkit are installed.",
        evidence=(*(evidence("python.torch.torch_version", build.torch_version) if build is not None else ()), *texts),
        remedies=fixes.install_other_torch(case),
        severity=None if nvidia_gpu_present(case.snapshot) is not Presence.UNKNOWN or texts else Severity.WARNING,
    )


def torch_rocm_build(case: Case) -> Iterable[Problem]:
    """The installed torch is a ROCm build on a machine with an NVIDIA GPU.

    What it checks: `torch.version.hip` and the version's local part (+rocm).

    Why it matters: a ROCm build runs on AMD GPUs only.

    How to fix: install the CUDA build of the same release.

    When it is wrong: on a machine with an AMD GPU and no NVIDIA one it is the right build, and the rule does not speak.

    Sources: torch documentation, torch.version.
    """
    build = _torch(case)
    if torch_build(build) is not TorchBuild.ROCM:
        return
    if nvidia_gpu_present(case.snapshot) is not Presence.YES:
        raise NotApplicableError("no NVIDIA GPU was seen, for which a ROCm build would be wrong")
    yield Problem(
        subject="torch",
        what=f"torch {torch_version_text(build)} is a ROCm build: it runs on AMD GPUs only.",
        why="torch.cuda.is_available() is False on an NVIDIA GPU.",
        evidence=evidence("python.torch.torch_version", build.torch_version),
        remedies=fixes.install_other_torch(case),
    )


def torch_import_fails(case: Case) -> Iterable[Problem]:
    """`import torch` fails, crashes or hangs in the examined Python.

    What it checks: a child process of that interpreter that imports torch; an exception, a signal and a deadline are told
    apart.

    Why it matters: no program of that environment can use torch.

    How to fix: an exception that names a missing library is explained by the finding for that library; a crash at import is
    nearly always a mix of binaries from different builds, which a clean reinstall into a new environment mends.

    When it is wrong: a module named torch in the current folder that shadows the real one; the examined path is shown.

    Sources: the child's own exit status and error text.
    """
    fact = _torch(case).imports
    if not isinstance(fact, Missing):
        return
    if fact.reason is MissingReason.CRASHED:
        what, why = "`import torch` crashes", "Binaries of different builds are mixed, or a library that torch loads is damaged."
    elif fact.reason is MissingReason.FAILED:
        what, why = "`import torch` fails", "Nothing that needs torch runs in this environment."
    elif fact.reason is MissingReason.TIMEOUT:
        what, why = "`import torch` does not return", "A file system, a library or the driver does not answer."
    else:
        known(fact)
        return
    yield Problem(
        subject="torch",
        what=f"{what} in {maybe(case.snapshot.python.executable) or 'the examined Python'}: {first_line(fact.detail)}.",
        why=why,
        evidence=(
            Evidence(fact="python.torch.imports", value=fact.detail or fact.reason.value, source=fact.source or "torch child"),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="See where it stops",
                    commands=(f"{fixes.interpreter(case.snapshot)} -X faulthandler -c 'import torch'",),
                    where=Where.VENV,
                )
            ),
        ),
    )


def torch_cannot_use_gpu(case: Case) -> Iterable[Problem]:
    """torch is a CUDA build but cannot use the GPU.

    What it checks: `torch.cuda.is_available()` and the error text of its CUDA initialisation.

    Why it matters: programs fall back to the CPU or fail.

    How to fix: mend the cause that another finding names; this one is its consequence. Alone, it says that the driver works
    and torch does not, with torch's own words.

    When it is wrong: CUDA_VISIBLE_DEVICES hides the GPU on purpose.

    Sources: torch's own error text.
    """
    build = _torch(case)
    if torch_build(build) is not TorchBuild.CUDA:
        raise NotApplicableError("torch is not a CUDA build")
    if nvidia_gpu_present(case.snapshot) is Presence.NO:
        raise NotApplicableError("no NVIDIA GPU")
    if known(build.is_available):
        return
    words = maybe(build.cuda_error)
    yield Problem(
        subject="torch",
        what=f"torch {torch_version_text(build)} is a CUDA build but cannot use the GPU" + (f": {words}" if words else "."),
        why="Programs fall back to the CPU or stop.",
        evidence=(
            *evidence("python.torch.is_available", build.is_available),
            *evidence("python.torch.cuda_error", build.cuda_error),
        ),
    )


def benign_same_major_arch(case: Case) -> Iterable[Problem]:
    """The GPU's exact sm number is not in the build's list, but machine code of the same major serves it.

    What it checks: whether a listed architecture of the same major and a lower minor covers the GPU.

    Why it matters: it does not: sm_86 code runs on 8.9, sm_120 code on 12.1, at full speed. It is said because many messages
    and forum answers claim otherwise.

    How to fix: nothing.

    When it is wrong: never for machine code without an `a` suffix on discrete GPUs; Tegra GPUs are judged apart.

    Sources: CUDA C++ Programming Guide, Binary Compatibility.
    """
    build = torch(case.snapshot)
    arch_list: Fact[tuple[SmTarget, ...]] | None = torch_arch_list(case, build) if build is not None else None
    if arch_list is None or isinstance(arch_list, Missing):
        _torch(case)
        return
    for gpu in gpus_with_capability(case):
        answer = coverage(arch_list.value, gpu.compute_capability)
        if answer.kind is CoverageKind.SASS and answer.by is not None and answer.by.compute_capability != gpu.compute_capability:
            yield Problem(
                subject=subject(gpu.gpu),
                what=f"{gpu.title} is served by the {answer.by} code of torch {torch_version_text(build) if build else ''}".rstrip()
                + ".",
                why="Machine code runs on every GPU of the same major with an equal or higher minor; nothing is missing.",
                evidence=(
                    *evidence("python.torch.arch_list", arch_list, value=" ".join(map(str, arch_list.value))),
                    *gpu.evidence,
                ),
            )


CAUSES = (*BREAKS_CUINIT, "libcuda-missing", "no-nvidia-gpu", "no-device-visible", "cuda-init-fails")

RULES = (
    Rule("CD401", "cpu-only-torch", Severity.ERROR, "The imported torch is a CPU build", cpu_only_torch, explained_by=()),
    Rule("CD402", "torch-rocm-build", Severity.ERROR, "The imported torch is a ROCm build", torch_rocm_build),
    Rule(
        "CD403",
        "torch-import-fails",
        Severity.ERROR,
        "import torch fails, crashes or hangs",
        torch_import_fails,
        explained_by=("libcudart-missing", "cuda-lib-missing", "libcudnn-missing", "ld-library-path-shadow", "libcuda-missing"),
        essential=True,
    ),
    Rule(
        "CD404",
        "torch-cannot-use-gpu",
        Severity.ERROR,
        "torch is a CUDA build but cannot use the GPU",
        torch_cannot_use_gpu,
        explained_by=CAUSES,
    ),
    Rule("CD412", "arch-missing-in-wheel", Severity.ERROR, "The framework has no code for this GPU", arch_missing_in_wheel),
    Rule("CD424", "benign-same-major-arch", Severity.NOTE, "Same-major machine code serves this GPU", benign_same_major_arch),
)
