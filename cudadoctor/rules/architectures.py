"""Rules about device code and the architecture of the GPU: does the framework hold code for it (CD412 to CD424)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.compat import Coverage, CoverageKind, coverage
from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Severity
from cudadoctor.model.snapshot import Torch, TorchBuild
from cudadoctor.model.versions import ComputeCapability, SmTarget
from cudadoctor.rules import fixes
from cudadoctor.rules.architecture_questions import (
    FAILS_WITHOUT_CODE,
    NO_KERNEL_IMAGE,
    OLDER,
    SAYS_NO_CODE,
    TORCH_REFUSES,
    TorchSays,
    code_failures,
    code_of_torch,
    direction_of,
    extension_at_fault,
    from_matrix,
    likely_direction,
    span,
    torch_says,
)
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.questions import (
    GpuWithCapability,
    Presence,
    gpus_with_capability,
    installed_torch,
    named_torch,
    subject,
    torch,
    torch_build,
)
from cudadoctor.rules.software_questions import (
    framework_runtime,
)


def arch_missing_in_wheel(case: Case) -> Iterable[Problem]:
    """The installed framework binary has no code for this GPU's compute capability.

    What it checks: the architectures that torch was built for (its own arch list, its binaries, or the matrix for its
    version and platform) against each GPU: machine code of the same major and a lower or equal minor serves, PTX of a lower
    or equal version can be compiled by the driver. Of other frameworks, whether the CUDA that they were built with can target
    the GPU at all. torch's own words about its build count more than a row of the matrix.

    Why it matters: memory can be allocated and `torch.cuda.is_available()` is True, but the first kernel fails with error 209,
    "no kernel image is available for execution on the device".

    How to fix: install a build that has code for the GPU: newer for a new GPU, an older CUDA line for an old one.

    When it is wrong: an architecture missing in the list by name alone (sm_89, sm_121) is served by a lower minor of the same
    major; the rule knows that. A self-built torch may differ from the matrix; its own list always wins. Where torch's list
    serves the GPU and a kernel fails all the same, an extension is at fault (extension-arch-missing).

    Sources: CUDA C++ Programming Guide, binary and PTX compatibility; matrices/torch_builds.toml; torch/cuda/__init__.py.
    """
    build = torch(case.snapshot)
    said = case.saw(*FAILS_WITHOUT_CODE, *TORCH_REFUSES, "app-arch-gate")
    if build is not None and torch_build(build) in (TorchBuild.CPU, TorchBuild.ROCM):
        raise NotApplicableError("torch is not a CUDA build")
    judged = tuple(_uncovered(case, build)) if build is not None else ()
    if judged:
        yield from judged
    elif said:
        yield from _as_said(case, build)
    else:
        _nothing_known(case, build)


def _nothing_known(case: Case, build: Torch | None) -> None:
    """Ends the rule as unknown or not applicable where there was nothing to judge with."""
    if build is None:
        fact = case.snapshot.python.torch
        if isinstance(fact, Missing) and fact.reason is MissingReason.NOT_FOUND:
            raise NotApplicableError("torch is not installed in the examined Python")
        known(fact)
        return
    known(code_of_torch(case, build))
    if not gpus_with_capability(case):
        if case.gpu_presence is Presence.NO:
            raise NotApplicableError("no NVIDIA GPU")
        for gpu in known(case.snapshot.gpus):
            known(gpu.compute_capability)


def _uncovered(case: Case, build: Torch) -> Iterable[Problem]:
    """The GPUs that torch's list does not serve; PTX that torch itself does not trust, or that failed, does not serve either."""
    arch_list = code_of_torch(case, build)
    if isinstance(arch_list, Missing):
        return
    refuses = any(not word.is_benign for word in torch_says(case))
    for gpu in gpus_with_capability(case):
        answer = coverage(arch_list.value, gpu.compute_capability)
        failed = case.saw("no-kernel-image")
        by_ptx = answer.kind in (CoverageKind.PTX_ONLY, CoverageKind.PTX_TOO_NEW, CoverageKind.UNCERTAIN)
        if answer.kind is CoverageKind.NONE or (by_ptx and (refuses or failed)):
            yield _no_code(case, build, arch_list, gpu, answer)


def _no_code(
    case: Case, build: Torch, arch_list: Known[tuple[SmTarget, ...]], gpu: GpuWithCapability, answer: Coverage
) -> Problem:
    certain = answer.kind is CoverageKind.NONE and not from_matrix(arch_list)
    return Problem(
        subject=subject(gpu.gpu),
        what=f"{named_torch(build, 'torch')} has no code for {gpu.title}: it holds {span(arch_list.value)}.",
        why=f'Every kernel launch fails with error 209, "{NO_KERNEL_IMAGE}"; allocating memory and torch.cuda.is_available() still work.',
        evidence=(
            *evidence("python.torch.torch_version", build.torch_version),
            *evidence("python.torch.arch_list", arch_list, value=" ".join(map(str, arch_list.value))),
            *gpu.evidence,
            *seen(case, *SAYS_NO_CODE),
        ),
        remedies=fixes.install_other_torch(case),
        tags=(direction_of(case, arch_list.value, gpu.compute_capability),),
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
    )


def _as_said(case: Case, build: Torch | None) -> Iterable[Problem]:
    """What error texts and the framework's CUDA version say, where no arch list decides."""
    refused = next((word for word in torch_says(case) if not word.is_benign), None)
    if refused is not None and not _torch_serves_all(case, build):
        yield _refused(case, build, refused)
        return
    failures = code_failures(case)
    if not failures or extension_at_fault(case):
        return
    tags = _direction_said(case) or likely_direction(case, build)
    name = _framework_name(case, build)
    runtime = framework_runtime(case)
    titles = ", ".join(dict.fromkeys(gpu.title for gpu in gpus_with_capability(case)))
    yield Problem(
        subject="GPU",
        what=f"{name} has no code for {titles or 'this GPU'}.",
        why=f'Kernel launches fail with error 209, "{NO_KERNEL_IMAGE}".',
        evidence=(
            *failures,
            *(runtime.evidence if runtime is not None and build is None else ()),
            *(item for gpu in gpus_with_capability(case) for item in gpu.evidence),
        ),
        remedies=fixes.install_other_torch(case) if build is not None or runtime is None else (),
        tags=tags,
        confidence=Confidence.LIKELY,
    )


def _refused(case: Case, build: Torch | None, word: TorchSays) -> Problem:
    direction = word.direction or next(iter(likely_direction(case, build)), None)
    shown = word.error.values.get("gpu") or "this GPU"
    limits = f" It needs at least {word.lowest}" if word.lowest is not None and direction == OLDER else ""
    name = named_torch(build, "The installed torch")
    return Problem(
        subject="GPU",
        what=f"{name} has no code for {shown}{f' (compute capability {word.gpu})' if word.gpu else ''}, as it says itself.{limits}".rstrip()
        + ("." if limits else ""),
        why=f'Kernel launches fail with error 209, "{NO_KERNEL_IMAGE}".',
        evidence=as_evidence((word.error, *case.errors(*FAILS_WITHOUT_CODE))),
        remedies=fixes.install_other_torch(case),
        tags=(direction,) if direction is not None else (),
        severity=Severity.WARNING if case.saw("shown-torch-computes") else None,
        confidence=Confidence.CERTAIN,
    )


def _framework_name(case: Case, build: Torch | None) -> str:
    runtime = framework_runtime(case)
    if build is not None and maybe(build.torch_version) is not None:
        return named_torch(build, "torch")
    if runtime is not None:
        return f"{runtime.name[0].upper()}{runtime.name[1:]}, built with CUDA {runtime.runtime},"
    return "The installed framework"


def _direction_said(case: Case) -> tuple[str, ...]:
    """Newer or older, where the text names the GPU's architecture and those that it was compiled for (750,800: tenfold sm)."""
    for error in case.errors("no-kernel-image"):
        asked, compiled = error.values.get("arch_number", ""), error.values.get("compiled", "")
        numbers = [int(word) // 10 for word in re.findall(r"\d{3,4}", compiled)]
        if asked.isdigit() and numbers:
            code = tuple(ComputeCapability.from_number(number).sm for number in numbers)
            return (direction_of(case, code, ComputeCapability.from_number(int(asked) // 10)),)
    return ()


def _torch_serves_all(case: Case, build: Torch | None) -> bool:
    """Does torch's own list hold machine code for every GPU whose capability is known?"""
    if build is None:
        return False
    arch_list = code_of_torch(case, build)
    listed = gpus_with_capability(case)
    if isinstance(arch_list, Missing) or from_matrix(arch_list) or not listed:
        return False
    return all(coverage(arch_list.value, gpu.compute_capability).kind is CoverageKind.SASS for gpu in listed)


def benign_cc_range_warning(case: Case) -> Iterable[Problem]:
    """torch warns about the range of compute capabilities, but machine code of the same major serves the GPU.

    What it checks: the range in torch's warning ("Minimum and Maximum cuda capability supported by this version of PyTorch")
    against the GPU; a GPU of the highest major and a higher minor is served.

    Why it matters: it does not: the warning compares numbers only. sm_120 code runs on 12.1 at full speed.

    How to fix: nothing; later releases of torch no longer print it.

    When it is wrong: on Tegra GPUs, which are judged apart, or where a launch fails with error 209 all the same.

    Sources: torch/cuda/__init__.py; CUDA C++ Programming Guide, Binary Compatibility.
    """
    if case.saw("no-kernel-image"):
        return
    build = torch(case.snapshot)
    for word in torch_says(case):
        if word.is_benign or (word.error.kind == "torch-cc-range-warning" and _torch_serves_all(case, build)):
            yield Problem(
                subject=word.error.values.get("gpu") or "GPU",
                what=f"The warning about the range of capabilities is harmless: code for {word.highest} runs on {word.gpu}."
                if word.highest is not None
                else "The warning about the range of capabilities is harmless: torch's list serves the GPU.",
                why="Machine code runs on every GPU of the same major with an equal or higher minor; the warning only compares numbers.",
                evidence=as_evidence((word.error,)),
            )
            return


def benign_same_major_arch(case: Case) -> Iterable[Problem]:
    """The GPU's exact sm number is not in the build's list, but machine code of the same major serves it.

    What it checks: whether a listed architecture of the same major and a lower minor covers the GPU; also where an application
    or a warning demands the exact number.

    Why it matters: it does not: sm_86 code runs on 8.9, sm_120 code on 12.1, at full speed. It is said because many messages
    and forum answers claim otherwise.

    How to fix: nothing in torch; an application that demands the exact number has to accept a lower minor of the same major.

    When it is wrong: never for machine code without an `a` suffix on discrete GPUs; Tegra GPUs are judged apart.

    Sources: CUDA C++ Programming Guide, Binary Compatibility.
    """
    build = torch(case.snapshot)
    arch_list = code_of_torch(case, build) if build is not None else None
    if build is None or arch_list is None or isinstance(arch_list, Missing):
        installed_torch(case.snapshot)
        return
    for gpu in gpus_with_capability(case):
        answer = coverage(arch_list.value, gpu.compute_capability)
        if answer.kind is CoverageKind.SASS and answer.by is not None and answer.by.compute_capability != gpu.compute_capability:
            yield Problem(
                subject=subject(gpu.gpu),
                what=f"{gpu.title} is served by the {answer.by} code of {named_torch(build, 'torch')}.",
                why="Machine code runs on every GPU of the same major with an equal or higher minor; nothing is missing.",
                evidence=(
                    *evidence("python.torch.arch_list", arch_list, value=" ".join(map(str, arch_list.value))),
                    *gpu.evidence,
                    *seen(case, "app-arch-gate", "torch-gpu-cc-not-listed"),
                ),
            )


RULES = (
    Rule("CD412", "arch-missing-in-wheel", Severity.ERROR, "The framework has no code for this GPU", arch_missing_in_wheel),
    Rule(
        "CD423",
        "benign-cc-range-warning",
        Severity.NOTE,
        "torch's warning about the capability range is harmless",
        benign_cc_range_warning,
    ),
    Rule("CD424", "benign-same-major-arch", Severity.NOTE, "Same-major machine code serves this GPU", benign_same_major_arch),
)
