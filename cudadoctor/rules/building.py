"""Rules about what a build asks for: architectures, arch lists, CMake, system headers (CD250 to CD279)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from cudadoctor.archs import ArchStyle
from cudadoctor.compat import sass_serves
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.snapshot import ErrorSeen, Toolkit
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, SmTarget
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.driver import seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.fixes import here
from cudadoctor.rules.questions import environment, gpus_with_capability, torch, torch_cuda_version, torch_release
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    can_target,
    capability_of,
    nvcc_version,
    title,
    variable_evidence,
    version_evidence,
)

TORCH_LIST = "TORCH_CUDA_ARCH_LIST"
ENTRY = re.compile(r"(\d{1,2}\.\d[af]?)(?:\+PTX)?|[A-Z][A-Za-z]+(?:\+(?:Tegra|Tesla))?")
"""An entry of TORCH_CUDA_ARCH_LIST: a number or a name, as torch/utils/cpp_extension.py reads it."""
CMAKE_WORDS = frozenset({"native", "all", "all-major", "OFF"})
CMAKE_ENTRY = re.compile(r"\d{2,3}[af]?(?:-real|-virtual)?")
CMAKE_NATIVE_FROM = "3.24"
"""`native`: CMake documentation, CUDA_ARCHITECTURES, New in version 3.24."""


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


def _errors_as_evidence(errors: Iterable[ErrorSeen]) -> tuple[Evidence, ...]:
    return tuple(Evidence(fact=f"errors.{one.kind}", value=one.text, source=one.source, line=one.line) for one in errors)


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
            evidence=(*_errors_as_evidence(one for one, _ in refused), *version_evidence(kit)),
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
            evidence=(*_errors_as_evidence(one for one, _ in refused), *version_evidence(kit)),
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
        for capability in _capabilities_in(values[name], style):
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


LISTS = {TORCH_LIST: ArchStyle.TORCH, "CUDAARCHS": ArchStyle.CMAKE, "CMAKE_CUDA_ARCHITECTURES": ArchStyle.CMAKE}
"""Environment variables that hold arch lists, and how each is written."""


def _entries(value: str) -> tuple[str, ...]:
    """The entries of TORCH_CUDA_ARCH_LIST, which torch splits at semicolons and blanks."""
    return tuple(value.replace(" ", ";").strip(";").split(";")) if value.strip() else ()


def _capabilities_in(value: str, style: ArchStyle) -> tuple[ComputeCapability, ...]:
    """The capabilities that an arch list names by number."""
    if style is ArchStyle.TORCH:
        found = [capability_of(entry) for entry in _entries(value) if ENTRY.fullmatch(entry) and entry[0].isdigit()]
    else:
        numbers = [entry.strip() for entry in value.split(";") if CMAKE_ENTRY.fullmatch(entry.strip())]
        found = [capability_of(f"sm_{re.sub(r'[af]?(-.*)?$', '', number)}") for number in numbers]
    return tuple(one for one in found if one is not None)


def arch_list_unknown(case: Case) -> Iterable[Problem]:
    """TORCH_CUDA_ARCH_LIST, or the detected architecture, is unknown to the installed torch.

    What it checks: torch's text "Unknown CUDA arch (X) or GPU not supported"; on a machine, the form of each entry, and names
    that torch does not know.

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
                *_errors_as_evidence(errors),
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
    texts = seen(case, "arch-list-empty-no-gpu")
    if texts:
        yield Problem(
            subject=TORCH_LIST,
            what=f"No GPU was visible during the build and {TORCH_LIST} is not set: there is no architecture to compile for.",
            why="torch takes the GPUs that it sees where the list is not set; a container build has none.",
            evidence=texts,
            remedies=toolkit_fixes.set_arch_list(case, TORCH_LIST, ArchStyle.TORCH),
        )


def cmake_arch_invalid(case: Case) -> Iterable[Problem]:
    """CMake's list of CUDA architectures is empty or malformed.

    What it checks: texts of CMake and nvcc ("compute_", "compute_native", "must be non-empty if set"); on a machine, the form of
    CUDAARCHS.

    Why it matters: nvcc is given an architecture that is none, and the configuration stops.

    How to fix: set CMAKE_CUDA_ARCHITECTURES to numbers without a dot, such as 86 or 89;90; `native` needs CMake 3.24.

    When it is wrong: "must be valid if set" after a failed test of the compiler is a consequence of that failure.

    Sources: CMake documentation, CUDA_ARCHITECTURES; CMakeDetermineCUDACompiler.
    """
    errors = [one for one in case.errors("cmake-arch-invalid") if not _is_native(one)]
    if not errors and case.saw("cmake-arch-check-failed") and not case.saw(*OTHER_REASONS):
        errors = [one for one in case.errors("cmake-arch-check-failed") if "must be valid" in one.text]
    if not errors and case.saw("cmake-arch-invalid") and not _cmake_lacks_native(case):
        errors = list(case.errors("cmake-arch-invalid"))
    if errors:
        yield Problem(
            subject="CMAKE_CUDA_ARCHITECTURES",
            what="CMake's list of CUDA architectures is empty or malformed.",
            why="It wants numbers without a dot (86, 89;90), or one of the words native, all, all-major.",
            evidence=(*_errors_as_evidence(errors), *variable_evidence(case.snapshot, "CUDAARCHS")),
            remedies=_cmake_list(case),
        )
        return
    value = known(case.snapshot.environment).get("CUDAARCHS")
    bad = next((part for part in (value or "").split(";") if value and not _is_cmake_entry(part.strip())), None)
    if bad is not None:
        yield Problem(
            subject="CUDAARCHS",
            what=f"CUDAARCHS={value!r}: {bad!r} is no architecture for CMake.",
            why=f"It wants numbers without a dot, such as 86 or 90a. {ONLY_WHEN_COMPILING}",
            evidence=variable_evidence(case.snapshot, "CUDAARCHS"),
            remedies=toolkit_fixes.set_arch_list(case, "CUDAARCHS", ArchStyle.CMAKE),
            severity=Severity.WARNING,
        )


OTHER_REASONS = (
    "host-compiler-too-new",
    "glibc-too-new",
    "nvcc-not-found",
    "unsupported-gpu-architecture",
    "msvc-version-unsupported",
    "host-compiler-missing",
    "toolkit-libs-missing-at-link",
    "toolkit-too-old",
    "cmake-too-old",
)
"""Kinds of errors after which CMake says that the architectures are not valid."""


def _is_native(error: ErrorSeen) -> bool:
    return error.values.get("value", "").lower() in ("native", "all", "all-major")


def _is_cmake_entry(entry: str) -> bool:
    return entry in CMAKE_WORDS or CMAKE_ENTRY.fullmatch(entry) is not None


def _cmake_list(case: Case) -> tuple[Remedy, ...]:
    value = toolkit_fixes.arch_list(case, ArchStyle.CMAKE) or "native"
    command = f"cmake -B build -DCMAKE_CUDA_ARCHITECTURES='{value}'"
    return (Remedy(Fix(title="Name the architectures for CMake", commands=(command,), where=here(case.snapshot))),)


def _cmake_lacks_native(case: Case) -> bool:
    """Did CMake hand the word `native` on to nvcc? Only CMake before 3.24 does."""
    return any(_is_native(one) for one in case.errors("cmake-arch-invalid"))


def cmake_too_old(case: Case) -> Iterable[Problem]:
    """This CMake is older than the project or the CUDA feature needs.

    What it checks: CMake's own text, unknown CUDA dialects, and the words native or all handed on to nvcc, which only a CMake
    that does not know them does (native: 3.24, all: 3.23).

    Why it matters: the configuration or the build stops.

    How to fix: install a newer CMake (pip and conda have one), or name the architectures by number.

    When it is wrong: a project that passes the word to nvcc itself shows the same.

    Sources: CMake documentation, CUDA_ARCHITECTURES and CUDA_STANDARD; cmake_minimum_required.
    """
    errors = (*case.errors("cmake-too-old"), *(one for one in case.errors("cmake-arch-invalid") if _is_native(one)))
    if not errors:
        return
    have = next((one.values["have"] for one in errors if "have" in one.values), None)
    wanted = next((one.values["wanted"] for one in errors if "wanted" in one.values), None)
    if wanted is None and any(_is_native(one) for one in errors):
        wanted = CMAKE_NATIVE_FROM
    yield Problem(
        subject="cmake",
        what=f"CMake{f' {have}' if have else ''} is older than this build needs"
        + (f": {wanted} or newer." if wanted is not None else "."),
        why="It does not know a CUDA feature that the project asks for.",
        evidence=_errors_as_evidence(errors),
        remedies=(
            Remedy(
                Fix(
                    title="Install a newer CMake into the environment",
                    commands=(f"python -m pip install --upgrade 'cmake>={wanted or CMAKE_NATIVE_FROM}'",),
                    where=here(case.snapshot),
                    verify=("cmake --version",),
                )
            ),
            *_cmake_list(case),
        ),
        tags=("cmake-arch-invalid",) if any(_is_native(one) for one in errors) else (),
    )


PACKAGE_OF_HEADER = {
    "crypt.h": {"apt": "libcrypt-dev", "dnf": "libxcrypt-devel", "pacman": "libxcrypt", "zypper": "libxcrypt-devel"},
    "python.h": {"apt": "python3-dev", "dnf": "python3-devel", "pacman": "python", "zypper": "python3-devel"},
    "zlib.h": {"apt": "zlib1g-dev", "dnf": "zlib-devel", "pacman": "zlib", "zypper": "zlib-devel"},
    "libaio.h": {"apt": "libaio-dev", "dnf": "libaio-devel", "pacman": "libaio", "zypper": "libaio-devel"},
    "numa.h": {"apt": "libnuma-dev", "dnf": "numactl-devel", "pacman": "numactl", "zypper": "libnuma-devel"},
}
"""Package that brings a header, by package manager (each distribution's package contents)."""
C_LIBRARY = {"apt": "libc6-dev g++", "dnf": "glibc-devel gcc-c++", "pacman": "glibc gcc", "zypper": "glibc-devel gcc-c++"}


def system_header_missing(case: Case) -> Iterable[Problem]:
    """A header of the system, not of CUDA, is missing for the compiler in use.

    What it checks: compilers' texts that name a header of the C or C++ library, Python or another system package.

    Why it matters: the build stops; nothing is wrong with CUDA. A compiler from conda has a system root of its own, which lacks
    what the system's has (crypt.h is the usual one).

    How to fix: install the header's package for this compiler, or compile with the system's gcc.

    When it is wrong: a project's own header of the same name.

    Sources: gcc and MSVC texts; contents of distribution packages.
    """
    errors = case.errors("system-header-missing")
    if not errors:
        return
    header = next((one.values["header"] for one in errors if "header" in one.values), "")
    with_conda = any("conda" in one.text for one in errors) or "CONDA_PREFIX" in environment(case.snapshot)
    packages = PACKAGE_OF_HEADER.get(header.lower(), C_LIBRARY)
    yield Problem(
        subject="host compiler",
        what=f"The system header {header or 'named'} is missing for this compiler; CUDA is not at fault.",
        why="A compiler from conda searches its own system root only."
        if with_conda
        else "The development package that brings it is not installed for this compiler.",
        evidence=_errors_as_evidence(errors),
        remedies=(
            *_conda_header(case, header),
            *toolkit_fixes.system_packages(case, f"Install the package with {header}", packages),
        ),
    )


def _conda_header(case: Case, header: str) -> tuple[Remedy, ...]:
    name = {"crypt.h": "libxcrypt", "zlib.h": "zlib", "libaio.h": "libaio"}.get(header.lower())
    if name is None:
        return ()
    fix = Fix(
        title="For a compiler from conda: install the header into the environment",
        commands=(f"conda install -c conda-forge {name}", 'export CPATH="$CONDA_PREFIX/include"'),
        where=here(case.snapshot),
    )
    return (Remedy(fix),)


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
    Rule("CD252", "arch-list-unknown", Severity.ERROR, "TORCH_CUDA_ARCH_LIST names what torch does not know", arch_list_unknown),
    Rule(
        "CD253",
        "arch-list-stale",
        Severity.WARNING,
        "TORCH_CUDA_ARCH_LIST leaves out a GPU of this machine",
        arch_list_stale,
        explained_by=("arch-list-unknown",),
    ),
    Rule(
        "CD254",
        "arch-list-empty-no-gpu",
        Severity.ERROR,
        "No GPU at build time and no TORCH_CUDA_ARCH_LIST",
        arch_list_empty_no_gpu,
    ),
    Rule(
        "CD255",
        "cmake-arch-invalid",
        Severity.ERROR,
        "CMake's list of architectures is empty or malformed",
        cmake_arch_invalid,
        explained_by=("cmake-too-old",),
    ),
    Rule("CD256", "cmake-too-old", Severity.ERROR, "CMake is older than the build needs", cmake_too_old),
    Rule("CD257", "system-header-missing", Severity.ERROR, "A system header is missing for the compiler", system_header_missing),
    Rule(
        "CD258",
        "benign-nvcc-deprecation",
        Severity.NOTE,
        "nvcc announces that it will drop an architecture",
        benign_nvcc_deprecation,
    ),
)
