"""Rules about GPUs that a package or extension beside torch carries no code for (CD413)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import CoverageKind, coverage
from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.rules import binaries, fixes
from cudadoctor.rules.architecture_questions import (
    NEWER,
    NO_KERNEL_IMAGE,
    code_failures,
    code_of_binary,
    direction_of,
    likely_direction,
    span,
    torch_computes,
    torch_list_serves,
    without_code_in_binary,
)
from cudadoctor.rules.binary_questions import known_to_be_read
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import (
    GpuWithCapability,
    gpus_with_capability,
    subject,
    torch,
    torch_cuda_version,
)
from cudadoctor.rules.software_questions import (
    package_evidence,
    packages,
    version_of,
)


def extension_arch_missing(case: Case) -> Iterable[Problem]:
    """A compiled extension or library in the process lacks code for this GPU, while the framework has it.

    What it checks: a launch that fails for want of code although torch's list serves the GPU; the code that cuobjdump lists in
    a binary; FlashAttention's "only supports Ampere GPUs or newer" on a GPU that is newer; and the code in the files of
    installed packages, module by module, against each GPU (where the files were not read, that of wheels whose content is
    known). A package that has code for the GPU in some modules only is none: libraries pick their kernels by GPU.

    Why it matters: the framework computes, and the first call into the extension fails with error 209. Reinstalling torch does
    not help.

    How to fix: install a release of the extension that has code for the GPU, or build it here with the GPU in
    TORCH_CUDA_ARCH_LIST (or CMAKE_CUDA_ARCHITECTURES).

    When it is wrong: where several torch installations are present, the list may be that of another one.

    Sources: CUDA C++ Programming Guide, Binary Compatibility; flash_api.cpp of flash-attention (the check of the major); scans
    of wheels in matrices/ecosystem.toml.
    """
    yield from _extension_failures(case)
    yield from binaries.packages_without_code(case)
    yield from _packages_without_code(case)
    known_to_be_read(case)


def _extension_failures(case: Case) -> Iterable[Problem]:
    failures, code = code_failures(case), code_of_binary(case)
    for gpu in without_code_in_binary(case):
        yield _extension_problem(
            case,
            gpu,
            failures,
            (direction_of(case, code, gpu.compute_capability),),
            f"The binary holds {span(code)}",
            certain=True,
        )
    if code:
        return
    misleading = seen(case, "flash-attention-ampere-only")
    if failures and not misleading and torch_computes(case) and not gpus_with_capability(case):
        yield Problem(
            subject="extension",
            what="A compiled extension has no code for this GPU; torch itself computes on it.",
            why=f'Calls into the extension fail (error 209, "{NO_KERNEL_IMAGE}").',
            evidence=(*failures, *seen(case, "shown-torch-computes")[:1]),
            confidence=Confidence.LIKELY,
        )
    for gpu in gpus_with_capability(case):
        newer = gpu.compute_capability.major > AMPERE.major
        if misleading and newer and not _older_than_ampere(case):
            text = "The check in this copy of FlashAttention knows no GPU of this major: its text is misleading"
            yield _extension_problem(case, gpu, misleading, (NEWER,), text, certain=False)
        elif failures and not misleading and (torch_list_serves(case) or torch_computes(case)):
            text = "torch's own list serves the GPU" if torch_list_serves(case) else "torch itself computes on a GPU"
            yield _extension_problem(case, gpu, failures, likely_direction(case, None), text, certain=False)


AMPERE = ComputeCapability(8, 0)


def _older_than_ampere(case: Case) -> bool:
    return any(gpu.compute_capability < AMPERE for gpu in gpus_with_capability(case))


def _extension_problem(
    case: Case, gpu: GpuWithCapability, texts: tuple[Evidence, ...], tags: tuple[str, ...], because: str, *, certain: bool
) -> Problem:
    return Problem(
        subject=subject(gpu.gpu),
        what=f"A compiled extension has no code for {gpu.title}. {because}.",
        why=f'Calls into the extension fail (error 209, "{NO_KERNEL_IMAGE}"); the framework itself is not at fault.',
        evidence=(*texts, *gpu.evidence),
        remedies=_rebuild(case, gpu.compute_capability),
        tags=tags,
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
    )


def _rebuild(case: Case, cc: ComputeCapability) -> tuple[Remedy, ...]:
    """Finding the module that lacks the code, and building it for the GPU: by CMake for a binary, else by pip."""
    python = fixes.interpreter(case.snapshot)
    by_pip = f"TORCH_CUDA_ARCH_LIST={cc} {python} -m pip install --force-reinstall --no-deps --no-build-isolation --no-binary PACKAGE PACKAGE"
    by_cmake = f"cmake -B build -DCMAKE_CUDA_ARCHITECTURES={cc.number}"
    return (
        Remedy(
            Fix(
                title="See which module lacks the code",
                commands=(f"cudadoctor scan FILE --gpu {cc}",),
                where=fixes.here(case.snapshot),
            )
        ),
        Remedy(
            Fix(
                title="Install a release of it with code for this GPU, or build it here for it",
                commands=(by_cmake,) if code_of_binary(case) else (by_pip,),
                where=Where.VENV,
            )
        ),
    )


def _packages_without_code(case: Case) -> Iterable[Problem]:
    """Installed wheels whose content is known and that have nothing for a GPU of this machine."""
    if not packages(case.snapshot):
        return
    listed = gpus_with_capability(case)
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    read = binaries.judged_names(case)
    for each in packages(case.snapshot):
        version = version_of(each.package_version)
        if version is None or version.local is not None or each.build or each.name == "torch" or each.name in read:
            continue
        ecosystem = case.matrices.ecosystem
        row = ecosystem.binary(each.name, version)
        code = row.targets if row is not None else ()
        if each.name == "bitsandbytes" and runtime is not None:
            library = ecosystem.bitsandbytes_library(version, runtime)
            code = library.targets if library is not None else ()
        for gpu in listed:
            if code and coverage(code, gpu.compute_capability).kind is CoverageKind.NONE:
                yield Problem(
                    subject=f"{subject(gpu.gpu)}, {each.name}",
                    what=f"{each.name} {version} has no code for {gpu.title}: its wheel holds {span(code)}.",
                    why="Calls into it will fail with error 209; the framework itself is not at fault.",
                    evidence=(*package_evidence(each), *gpu.evidence),
                    tags=(direction_of(case, code, gpu.compute_capability),),
                    severity=Severity.WARNING,
                    confidence=Confidence.LIKELY,
                )


RULES = (
    Rule(
        "CD413",
        "extension-arch-missing",
        Severity.ERROR,
        "A compiled extension has no code for this GPU",
        extension_arch_missing,
        explained_by=("arch-missing-in-wheel",),
        needs_gpu=True,
    ),
)
