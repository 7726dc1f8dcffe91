"""Rules about architectures that nvcc refuses: too new for it, or removed from it (CD250, CD251, CD258)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from cudadoctor.archs import ArchStyle
from cudadoctor.compat import sass_serves
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Fix, Severity
from cudadoctor.model.snapshot import ErrorSeen, Toolkit
from cudadoctor.model.versions import ComputeCapability, CudaVersion
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.arch_lists import LISTS, TORCH_LIST, capabilities_in
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.fixes import here
from cudadoctor.rules.questions import environment, gpus_with_capability
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    can_target,
    capability_of,
    nvcc_version,
    quoted,
    title,
    variable_evidence,
    version_evidence,
)


class Direction(Enum):
    """Why an nvcc does not know an architecture."""

    NVCC_TOO_OLD = "too-old"
    NVCC_TOO_NEW = "too-new"
    UNKNOWN = "unknown"


def direction(case: Case, capability: ComputeCapability, nvcc: CudaVersion | None) -> Direction:
    """Why nvcc refuses an architecture: by its version, else by the architecture alone where that decides.

    An architecture that every toolkit of today still has can only be too new for the nvcc; one that has been removed, and that
    toolkits of the last ten years all had before, can only be removed.
    """
    row = case.matrices.toolkits.target(capability)
    if row is None:
        newest = max(target.compute_capability for target in case.matrices.toolkits.newest_known.targets)
        return Direction.NVCC_TOO_OLD if capability > newest else Direction.UNKNOWN
    if nvcc is not None and row.last_cuda is not None and nvcc > row.last_cuda:
        return Direction.NVCC_TOO_NEW
    if nvcc is not None and nvcc < row.first_cuda:
        return Direction.NVCC_TOO_OLD
    if row.last_cuda is None:
        return Direction.NVCC_TOO_OLD
    return Direction.NVCC_TOO_NEW if row.first_cuda <= case.matrices.toolkits.toolkits[0].cuda else Direction.UNKNOWN


def _refused(case: Case, wanted: Direction) -> tuple[tuple[ErrorSeen, ComputeCapability], ...]:
    """The errors in which nvcc or NVRTC refuses an architecture for this reason."""
    found = []
    for error in (*case.errors("unsupported-gpu-architecture"), *_removed_from_ptxas(case)):
        capability = capability_of(error.values.get("arch", "")) or _newest_gpu(case)
        if capability is not None and direction(case, capability, nvcc_version(case.snapshot)) is wanted:
            found.append((error, capability))
    return tuple(found)


def _removed_from_ptxas(case: Case) -> tuple[ErrorSeen, ...]:
    """ptxas refuses an architecture that has been removed: the same fault, said by another program."""
    errors = case.errors("ptxas-too-old")
    return tuple(one for one in errors if _has_end(case, one.values.get("arch", "")))


def _has_end(case: Case, arch: str) -> bool:
    capability = capability_of(arch)
    return capability is not None and case.matrices.toolkits.last_toolkit_for(capability) is not None


def _newest_gpu(case: Case) -> ComputeCapability | None:
    """The GPU that a just-in-time compiler names where the text does not."""
    return max((gpu.compute_capability for gpu in gpus_with_capability(case)), default=None)


def nvcc_arch_unsupported(case: Case) -> Iterable[Problem]:
    """nvcc is too old for the architecture that the build asks for.

    What it checks: "Unsupported gpu architecture 'compute_XY'" and its kin, where the architecture is newer than this nvcc, or
    than every nvcc that would refuse it; and arch lists in the environment that name one.

    Why it matters: the build stops. The same words have the opposite cause where the architecture was removed
    (nvcc-arch-removed).

    How to fix: install a toolkit from the first release on that knows the architecture; or, as a stopgap, compile for a lower
    one of the same major, whose machine code runs too, or for a lower major with PTX.

    When it is wrong: another nvcc than the one shown may have spoken; the text then names its path.

    Sources: nvcc --list-gpu-code; matrices/toolkit_arch.toml.
    """
    refused = _refused(case, Direction.NVCC_TOO_OLD)
    kit = build_toolkit(case.snapshot)
    if refused:
        capability = max(one for _, one in refused)
        first = case.matrices.toolkits.first_toolkit_for(capability)
        yield Problem(
            subject="nvcc",
            what=f"{_speaker(case, kit, capability)} is too old for {capability.sm}"
            + (f": CUDA {first.release} is the first that knows it." if first is not None else "."),
            why="The build names an architecture (often that of the GPU here) that this nvcc does not know.",
            evidence=(*quoted(one for one, _ in refused), *version_evidence(kit)),
            remedies=(*_newer_toolkit(case, capability), *_lower_arch(case, capability)),
            tags=("toolkit-too-old",),
        )
        return
    yield from _listed(case, Direction.NVCC_TOO_OLD)


def _speaker(case: Case, kit: Toolkit | None, capability: ComputeCapability) -> str:
    """The nvcc that refused: the one that is known, unless that one knows the architecture and another must have spoken."""
    if kit is None or maybe(kit.toolkit_version) is None or can_target(case, kit, capability):
        return "The nvcc of this build"
    return title(kit)


def _newer_toolkit(case: Case, capability: ComputeCapability) -> tuple[Remedy, ...]:
    releases = toolkit_fixes.releases_for_gpus(case, (capability,))
    return toolkit_fixes.install_toolkit(case, toolkit_fixes.fitting_release(case, releases))


def _lower_arch(case: Case, capability: ComputeCapability) -> tuple[Remedy, ...]:
    """Compiling for the highest architecture below it that the nvcc here knows: as a stopgap."""
    version = nvcc_version(case.snapshot)
    targets = case.matrices.toolkits.targets(version) if version is not None else None
    plain = [target for target in targets or () if target.suffix == ""]
    same = [target.compute_capability for target in plain if sass_serves(target, capability)]
    lower = [target.compute_capability for target in plain if target.compute_capability < capability]
    if not same and not lower:
        return ()
    value = str(max(same)) if same else f"{max(lower)}+PTX"
    how = "its machine code runs on the GPU" if same else "the driver compiles its PTX for the GPU"
    return (
        Remedy(
            Fix(
                title=f"Or, as a stopgap, compile for {value}: {how}",
                commands=(f"export {TORCH_LIST}='{value}'",),
                where=here(case.snapshot),
            )
        ),
    )


def nvcc_arch_removed(case: Case) -> Iterable[Problem]:
    """nvcc is too new: the architecture that the build asks for was removed from it.

    What it checks: "Unsupported gpu architecture 'compute_XY'" where the architecture is one that CUDA 11, 12 or 13 removed; and
    arch lists in the environment that name one.

    Why it matters: the build stops. CUDA 11.0 removed 3.0, CUDA 12.0 3.5 and 3.7, CUDA 13.0 everything below 7.5.

    How to fix: take the architecture out of the project's list, unless the GPU is of that generation; then use the last toolkit
    that knows it.

    When it is wrong: another nvcc than the one shown may have spoken; the text then names its path.

    Sources: CUDA release notes; matrices/toolkit_arch.toml.
    """
    refused = _refused(case, Direction.NVCC_TOO_NEW)
    kit = build_toolkit(case.snapshot)
    if refused:
        capability = min(one for _, one in refused)
        last = case.matrices.toolkits.last_toolkit_for(capability)
        yield Problem(
            subject="nvcc",
            what=f"{_speaker(case, kit, capability)} no longer knows {capability.sm}"
            + (f": CUDA {last.release} was the last." if last is not None else "."),
            why="The project's list of architectures is older than the toolkit and still names it.",
            evidence=(*quoted(one for one, _ in refused), *version_evidence(kit)),
            remedies=_without_removed(case, capability, last),
            tags=("toolkit-too-new",),
        )
        return
    yield from _listed(case, Direction.NVCC_TOO_NEW)


def _without_removed(case: Case, capability: ComputeCapability, last: CudaVersion | None) -> tuple[Remedy, ...]:
    """Dropping the architecture from the list where no GPU here needs it, else the last toolkit that knows it."""
    needs_it = any(sass_serves(capability.sm, gpu.compute_capability) for gpu in gpus_with_capability(case))
    if needs_it:
        return toolkit_fixes.install_toolkit(case, last)
    number = capability.number
    value = toolkit_fixes.arch_list(case, ArchStyle.TORCH)
    cmake = toolkit_fixes.arch_list(case, ArchStyle.CMAKE)
    fix = Fix(
        title=f"Take {capability} out of the project's architectures (flags with compute_{number}, CMAKE_CUDA_ARCHITECTURES)",
        commands=(f"export {TORCH_LIST}='{value}' CUDAARCHS='{cmake}'",) if value else (f"grep -rnE '(compute|sm)_{number}' .",),
        where=here(case.snapshot),
    )
    return (Remedy(fix),)


def _listed(case: Case, wanted: Direction) -> Iterable[Problem]:
    """The entries of arch lists in the environment that the nvcc here refuses for this reason."""
    kit = build_toolkit(case.snapshot)
    version = nvcc_version(case.snapshot)
    values = environment(case.snapshot)
    if kit is None or version is None:
        known(case.snapshot.toolkits)
        raise NotApplicableError("no nvcc would be chosen for builds")
    known(case.snapshot.environment)
    for name, style in LISTS.items():
        if not values.get(name):
            continue
        for capability in capabilities_in(values[name], style):
            if can_target(case, kit, capability) is not False or direction(case, capability, version) is not wanted:
                continue
            edge = case.matrices.toolkits.first_toolkit_for(capability) if wanted is Direction.NVCC_TOO_OLD else None
            yield Problem(
                subject=name,
                what=f"{name}={values[name]!r} names {capability}, which {title(kit)} "
                + ("does not know" if wanted is Direction.NVCC_TOO_OLD else "no longer knows")
                + (f"; CUDA {edge.release} or newer does." if edge is not None else "."),
                why=f"nvcc stops with an unsupported-architecture error. {ONLY_WHEN_COMPILING}",
                evidence=(*variable_evidence(case.snapshot, name), *version_evidence(kit)),
                remedies=toolkit_fixes.set_arch_list(case, name, style),
                severity=Severity.WARNING,
            )
            break


def benign_nvcc_deprecation(case: Case) -> Iterable[Problem]:
    """nvcc warns that it will drop an architecture in a later release: harmless now.

    What it checks: nvcc's text about architectures that are deprecated.

    Why it matters: it does not; the code is compiled.

    How to fix: nothing; -Wno-deprecated-gpu-targets silences it.

    When it is wrong: never.

    Sources: nvcc documentation.
    """
    texts = seen(case, "nvcc-arch-deprecated")
    if texts:
        yield Problem(
            "nvcc",
            "nvcc says that it will drop an architecture in a later release; now it still compiles for it.",
            evidence=texts,
            confidence=Confidence.CERTAIN,
        )


RULES = (
    Rule(
        "CD250",
        "nvcc-arch-unsupported",
        Severity.ERROR,
        "nvcc is too old for the architecture asked for",
        nvcc_arch_unsupported,
        explained_by=("wrong-nvcc-on-path",),
    ),
    Rule("CD251", "nvcc-arch-removed", Severity.ERROR, "nvcc no longer knows the architecture asked for", nvcc_arch_removed),
    Rule(
        "CD258",
        "benign-nvcc-deprecation",
        Severity.NOTE,
        "nvcc announces that it will drop an architecture",
        benign_nvcc_deprecation,
    ),
)
