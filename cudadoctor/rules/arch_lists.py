"""Rules about lists of architectures: TORCH_CUDA_ARCH_LIST, CUDAARCHS (CD252 to CD254)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.archs import ArchStyle, torch_capabilities
from cudadoctor.compat import sass_serves
from cudadoctor.matrices.torch_builds import minor_of
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Severity
from cudadoctor.model.snapshot import Torch
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, SmTarget
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.planned_questions import builds_without_arch_list
from cudadoctor.rules.questions import (
    environment,
    gpus_with_capability,
    named_torch,
    torch,
    torch_cuda_version,
    torch_release,
)
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    capability_of,
    nvcc_version,
    quoted,
    variable_evidence,
    version_evidence,
)

TORCH_LIST = "TORCH_CUDA_ARCH_LIST"


ENTRY = re.compile(r"(\d{1,2}\.\d[af]?)(?:\+PTX)?|[A-Z][A-Za-z]+(?:\+(?:Tegra|Tesla))?")
"""An entry of TORCH_CUDA_ARCH_LIST: a number or a name, as torch/utils/cpp_extension.py reads it."""


CMAKE_ENTRY = re.compile(r"\d{2,3}[af]?(?:-real|-virtual)?")
"""An entry of CMAKE_CUDA_ARCHITECTURES that is a number (CMake documentation, CUDA_ARCHITECTURES)."""
LISTS = {TORCH_LIST: ArchStyle.TORCH, "CUDAARCHS": ArchStyle.CMAKE, "CMAKE_CUDA_ARCHITECTURES": ArchStyle.CMAKE}
"""Environment variables that hold arch lists, and how each is written."""


def _entries(value: str) -> tuple[str, ...]:
    """The entries of TORCH_CUDA_ARCH_LIST, which torch splits at semicolons and blanks."""
    return tuple(value.replace(" ", ";").strip(";").split(";")) if value.strip() else ()


def capabilities_in(value: str, style: ArchStyle) -> tuple[ComputeCapability, ...]:
    """The capabilities that an arch list names by number."""
    if style is ArchStyle.TORCH:
        found = [capability_of(entry) for entry in _entries(value) if ENTRY.fullmatch(entry) and entry[0].isdigit()]
    else:
        numbers = [entry.strip() for entry in value.split(";") if CMAKE_ENTRY.fullmatch(entry.strip())]
        found = [capability_of(f"sm_{re.sub(r'[af]?(-.*)?$', '', number)}") for number in numbers]
    return tuple(one for one in found if one is not None)


def arch_list_unknown(case: Case) -> Iterable[Problem]:
    """TORCH_CUDA_ARCH_LIST, or the detected architecture, is unknown to the installed torch.

    What it checks: torch's text "Unknown CUDA arch (X) or GPU not supported"; on a machine, the form of each entry, and names and
    numbers that the examined torch does not know.

    Why it matters: torch's extension builder stops before it starts nvcc.

    How to fix: name only capabilities that this torch and nvcc know; for a GPU that is newer, install a newer torch and
    toolkit, or build for a lower capability.

    When it is wrong: a list inherited from an image (NGC and devel images set it) may be meant for another torch.

    Sources: torch/utils/cpp_extension.py, _get_cuda_arch_flags; matrices/torch_builds.toml, arch names.
    """
    errors = case.errors("arch-list-unknown")
    value = environment(case.snapshot).get(TORCH_LIST)
    if errors:
        arch = next((one.values["arch"] for one in errors if "arch" in one.values), "")
        yield Problem(
            subject=TORCH_LIST,
            what=f"torch's extension builder does not know the architecture {arch}."
            if arch
            else "torch does not know the architecture asked for.",
            why="It comes from TORCH_CUDA_ARCH_LIST, or where that is not set from the GPU, and is newer than torch or misspelt.",
            evidence=(
                *quoted(errors),
                *variable_evidence(case.snapshot, TORCH_LIST),
                *version_evidence(build_toolkit(case.snapshot)),
            ),
            remedies=toolkit_fixes.set_arch_list(case, TORCH_LIST, ArchStyle.TORCH),
            tags=("toolkit-too-old",) if _beyond_toolkit(case, arch) else (),
        )
        return
    known(case.snapshot.environment)
    if value is None:
        return
    bad = next((entry for entry in _entries(value) if not _is_entry(case, entry)), None)
    if bad is not None or (value and not _entries(value)):
        yield Problem(
            subject=TORCH_LIST,
            what=f"{TORCH_LIST}={value!r}: {bad!r} is no architecture that torch knows."
            if bad is not None
            else f"{TORCH_LIST}={value!r} names no architecture.",
            why=f"torch's extension builder wants entries such as 8.6 or 9.0+PTX, with semicolons between. {ONLY_WHEN_COMPILING}",
            evidence=variable_evidence(case.snapshot, TORCH_LIST),
            remedies=_well_formed_list(case, value),
            severity=Severity.WARNING,
        )
        return
    yield from _newer_than_torch(case, value)


def _newer_than_torch(case: Case, value: str) -> Iterable[Problem]:
    """The list names an architecture that is newer than all that the examined torch knows."""
    build = torch(case.snapshot)
    known_to_torch = torch_capabilities(build, case.matrices) if build is not None else frozenset()
    if build is None or not known_to_torch:
        return
    newest = max(known_to_torch | _of_next_release(case, build))
    beyond = [one for one in capabilities_in(value, ArchStyle.TORCH) if one > newest]
    if beyond:
        yield Problem(
            subject=TORCH_LIST,
            what=f"{TORCH_LIST}={value!r} names {beyond[0]}, which {named_torch(build, 'torch')} does not know: {newest} is its newest.",
            why=f"torch's extension builder stops before it starts nvcc. {ONLY_WHEN_COMPILING}",
            evidence=(
                *variable_evidence(case.snapshot, TORCH_LIST),
                *evidence("python.torch.torch_version", build.torch_version),
            ),
            remedies=_well_formed_list(case, value),
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def _of_next_release(case: Case, build: Torch) -> frozenset[ComputeCapability]:
    """What the wheels of the next minor release hold: the extension builder may know an architecture one release earlier."""
    version = torch_release(build)
    later = [row.version for row in case.matrices.torch.releases if version is not None and row.minor > minor_of(version)]
    if not later:
        return frozenset()
    following = minor_of(min(later))
    rows = [row for row in case.matrices.torch.arch_lists if row.covers_minor(following)]
    return frozenset(target.compute_capability for row in rows for target in row.sass)


def _well_formed_list(case: Case, value: str) -> tuple[Remedy, ...]:
    """The list for the GPUs here; where none is known the same one written as torch wants it; or unsetting it."""
    unset = toolkit_fixes.unset_variable(case, TORCH_LIST, f"Or unset {TORCH_LIST}: the GPUs that torch sees are then taken")
    if toolkit_fixes.arch_list(case, ArchStyle.TORCH):
        return (*toolkit_fixes.set_arch_list(case, TORCH_LIST, ArchStyle.TORCH), *unset)
    found = [capability_of(f"sm_{part}") or capability_of(part) for part in re.findall(r"\d{1,2}\.\d|\d{2,3}", value)]
    numbers = ";".join(str(one) for one in dict.fromkeys(found) if one is not None)
    repaired = toolkit_fixes.set_variable(case, TORCH_LIST, numbers, "Write it as torch reads it") if numbers else ()
    return (*repaired, *unset)


def _is_entry(case: Case, entry: str) -> bool:
    if not ENTRY.fullmatch(entry):
        return False
    return entry[0].isdigit() or case.matrices.torch.arch_name(entry.removesuffix("+PTX")) is not None


def _beyond_toolkit(case: Case, arch: str) -> bool:
    """Is the architecture too new for the toolkit, or where none is shown for the CUDA that torch was built with?"""
    capability = capability_of(arch)
    first = case.matrices.toolkits.first_toolkit_for(capability) if capability is not None else None
    build = torch(case.snapshot)
    have = nvcc_version(case.snapshot) or (maybe(torch_cuda_version(build)) if build is not None else None)
    if have is None and build is not None:
        have = _default_cuda(case)
    return first is not None and have is not None and have < first


def _default_cuda(case: Case) -> CudaVersion | None:
    """The newest CUDA that a wheel of this torch was ever built for; for a torch before the table, that of its oldest row."""
    build = torch(case.snapshot)
    version = torch_release(build) if build is not None else None
    if version is None:
        return None
    oldest = case.matrices.torch.releases[-1]
    row = oldest if version < oldest.version else case.matrices.torch.release(version)
    return max(row.variants, default=None) if row is not None else None


def arch_list_stale(case: Case) -> Iterable[Problem]:
    """TORCH_CUDA_ARCH_LIST (or CUDAARCHS) leaves out a GPU of this machine.

    What it checks: whether machine code or PTX for the listed architectures serves each GPU.

    Why it matters: extensions that are compiled with it build well and fail at their first kernel with error 209, "no kernel
    image is available".

    How to fix: unset it (torch then takes the GPUs it sees), or add the GPU's capability.

    When it is wrong: where the machine compiles for others only, which is what the list is for.

    Sources: torch/utils/cpp_extension.py; CUDA Programming Guide, binary compatibility.
    """
    values = known(case.snapshot.environment)
    gpus = gpus_with_capability(case)
    for name, style in LISTS.items():
        value = values.get(name)
        listed = _code_in(case, value, style) if value else ()
        if not listed:
            continue
        left_out = [gpu for gpu in gpus if not any(_serves(target, gpu.compute_capability) for target in listed)]
        if left_out:
            yield Problem(
                subject=name,
                what=f"{name}={value!r} leaves out {left_out[0].title}.",
                why=f"What is compiled with it fails on that GPU with error 209, no kernel image. {ONLY_WHEN_COMPILING}",
                evidence=(*variable_evidence(case.snapshot, name), *left_out[0].evidence),
                remedies=(
                    *toolkit_fixes.set_arch_list(case, name, style),
                    *toolkit_fixes.unset_variable(case, name, f"Or unset {name}: the GPUs that are seen are then taken"),
                ),
            )
    if not gpus:
        known(case.snapshot.gpus)


def _code_in(case: Case, value: str, style: ArchStyle) -> tuple[SmTarget, ...]:
    """The code that an arch list makes; empty where an entry is not a plain number or a known name."""
    targets: list[SmTarget] = []
    if style is not ArchStyle.TORCH:
        for entry in (part.strip() for part in value.split(";")):
            if not CMAKE_ENTRY.fullmatch(entry):
                return ()
            number, _, kind = entry.partition("-")
            targets += [SmTarget.parse(f"{form}_{number}") for form in ("sm", "compute") if kind in ("", _KINDS[form])]
        return tuple(targets)
    for entry in _entries(value):
        plain = entry.removesuffix("+PTX")
        named = case.matrices.torch.arch_name(plain)
        capability = capability_of(plain) if ENTRY.fullmatch(entry) else None
        if named is None and capability is None:
            return ()
        capabilities = named.expands_to if named is not None else (capability,)
        for one in capabilities:
            if one is not None:
                targets.append(SmTarget(CodeKind.SASS, one, plain[-1] if plain[-1] in "af" else ""))
                if entry.endswith("+PTX") or (named is not None and named.ptx):
                    targets.append(SmTarget(CodeKind.PTX, one, ""))
    return tuple(targets)


_KINDS = {"sm": "real", "compute": "virtual"}


def _serves(target: SmTarget, capability: ComputeCapability) -> bool:
    if target.kind is CodeKind.PTX:
        return target.compute_capability <= capability
    return sass_serves(target, capability)


def arch_list_empty_no_gpu(case: Case) -> Iterable[Problem]:
    """No GPU is visible while building and TORCH_CUDA_ARCH_LIST is not set, so that the list of architectures is empty.

    What it checks: torch's failure "arch_list[-1] += '+PTX' IndexError: list index out of range" and texts that say so.

    Why it matters: `docker build` and login nodes have no GPU; torch then has nothing to compile for and stops.

    How to fix: set TORCH_CUDA_ARCH_LIST to the capability of the GPU that the program will run on. Nothing is broken.

    When it is wrong: where a GPU should be visible, the driver's finding is the cause.

    Sources: torch/utils/cpp_extension.py, _get_cuda_arch_flags.
    """
    yield from builds_without_arch_list(case)
    texts = seen(case, "arch-list-empty-no-gpu")
    if texts:
        yield Problem(
            subject=TORCH_LIST,
            what=f"No GPU was visible during the build and {TORCH_LIST} is not set: there is no architecture to compile for.",
            why="torch takes the GPUs that it sees where the list is not set; a container build has none.",
            evidence=texts,
            remedies=toolkit_fixes.set_arch_list(case, TORCH_LIST, ArchStyle.TORCH),
        )


RULES = (
    Rule("CD252", "arch-list-unknown", Severity.ERROR, "TORCH_CUDA_ARCH_LIST names what torch does not know", arch_list_unknown),
    Rule(
        "CD253",
        "arch-list-stale",
        Severity.WARNING,
        "TORCH_CUDA_ARCH_LIST leaves out a GPU of this machine",
        arch_list_stale,
        explained_by=("arch-list-unknown",),
        needs_gpu=True,
    ),
    Rule(
        "CD254",
        "arch-list-empty-no-gpu",
        Severity.ERROR,
        "No GPU at build time and no TORCH_CUDA_ARCH_LIST",
        arch_list_empty_no_gpu,
    ),
)
