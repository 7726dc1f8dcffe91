"""Rules about device code and the GPU's architecture: does the framework, or an extension, hold code for it (CD412 to CD429)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cudadoctor.compat import Coverage, CoverageKind, Direction, coverage, is_tegra
from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, Torch, TorchBuild
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget, VersionError
from cudadoctor.rules import binaries, fixes
from cudadoctor.rules.binary_questions import known_to_be_read
from cudadoctor.rules.case import once_a_case
from cudadoctor.rules.circumstances import as_evidence
from cudadoctor.rules.driver import seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import (
    GpuWithCapability,
    Presence,
    gpus_with_capability,
    installed_torch,
    platform,
    subject,
    torch,
    torch_arch_list,
    torch_build,
    torch_cuda_version,
    torch_release,
    torch_version_text,
)
from cudadoctor.rules.software_questions import (
    conda_torch,
    framework_runtime,
    is_wheel_of_an_index,
    package_evidence,
    packages,
    reading,
    version_of,
)

NO_KERNEL_IMAGE = "no kernel image is available for execution on the device"
FAILS_WITHOUT_CODE = ("no-kernel-image", "cuda-invalid-device-function", "cuda-invalid-image")
"""Errors with which a launch fails where the code for the GPU is absent."""
TORCH_REFUSES = ("torch-gpu-cc-not-listed", "torch-gpu-too-old", "torch-cc-range-warning")
"""torch's own words about its build and this GPU."""
SAYS_NO_CODE = (*FAILS_WITHOUT_CODE, *TORCH_REFUSES, "torch-supported-archs")
NEWER, OLDER = Direction.GPU_NEWER.value, Direction.GPU_OLDER.value
FIRST_CUDA_OF_NEW_GPUS = CudaVersion.of(11, 8)
"""GPUs that need this toolkit or a later one are newer than most builds without code for them (matrices/toolkit_arch.toml)."""


# What torch holds, and what it says of itself


def span(targets: Iterable[SmTarget]) -> str:
    """`sm_50 to sm_90`, with what PTX there is: how findings name an arch list."""
    ordered = sorted(targets)
    machine = [target for target in ordered if str(target).startswith("sm_")]
    virtual = [target for target in ordered if str(target).startswith("compute_")]
    shown = f"{machine[0]} to {machine[-1]}" if len(machine) > 1 else "".join(map(str, machine))
    if not virtual:
        return f"{shown}, no PTX" if shown else "no code"
    return f"{shown}, PTX {', '.join(map(str, virtual))}" if shown else f"PTX {', '.join(map(str, virtual))}"


def code_of_torch(case: Case, build: Torch) -> Fact[tuple[SmTarget, ...]]:
    """What torch holds code for: its own list, else the matrix's row for its wheel or conda package; no row for self-built ones."""
    if isinstance(build.arch_list, Known):
        return build.arch_list
    if not is_wheel_of_an_index(build):
        return build.arch_list
    package = conda_torch(case.snapshot)
    if package is None:
        return _of_either_platform(case, build)
    version, runtime = torch_release(build), maybe(torch_cuda_version(build))
    machine = maybe(case.snapshot.host.architecture) or "x86_64"
    if version is None or runtime is None:
        return build.arch_list
    row = case.matrices.torch.conda_arch_list(version, runtime, package.channel, f"linux-{machine}")
    return Known(row.targets, "torch builds matrix") if row is not None else build.arch_list


def _on_tegra(case: Case) -> bool:
    """Is this a Tegra board, whose wheels are those for aarch64 whether or not the text says so?"""
    return maybe(case.snapshot.host.jetson) is not None or any(
        is_tegra(gpu.compute_capability) for gpu in gpus_with_capability(case)
    )


def _of_either_platform(case: Case, build: Torch) -> Fact[tuple[SmTarget, ...]]:
    """The wheel's code; where the text does not tell the platform, that of the wheels for Linux and Windows together."""
    linux = torch_arch_list(case, build)
    version, runtime = torch_release(build), maybe(torch_cuda_version(build))
    if version is not None and runtime is not None and _on_tegra(case):
        board = case.matrices.torch.arch_list(version, runtime, WheelPlatform.LINUX_AARCH64)
        return Known(board.targets, "torch builds matrix") if board is not None else build.arch_list
    told = platform(case.snapshot) is not None or maybe(case.snapshot.host.architecture) == "aarch64"
    if told or version is None or runtime is None:
        return linux
    row = case.matrices.torch.arch_list(version, runtime, WheelPlatform.WINDOWS)
    if row is None or isinstance(linux, Missing):
        return Known(row.targets, "torch builds matrix") if row is not None else linux
    return Known(tuple(sorted({*linux.value, *row.targets})), linux.source)


def _from_matrix(arch_list: Known[tuple[SmTarget, ...]]) -> bool:
    return "matrix" in arch_list.source


@dataclass(frozen=True)
class TorchSays:
    """torch's own warning about one GPU: its capability, and the lowest and highest of the build, as far as it names them."""

    error: ErrorSeen
    gpu: ComputeCapability | None
    lowest: ComputeCapability | None
    highest: ComputeCapability | None

    @property
    def is_benign(self) -> bool:
        """Does the range itself show that code of the same major serves the GPU?"""
        if self.error.kind != "torch-cc-range-warning" or self.gpu is None or self.lowest is None or self.highest is None:
            return False
        same_as_highest = self.gpu.major == self.highest.major and self.gpu >= self.highest
        inside = self.lowest <= self.gpu <= self.highest
        return (same_as_highest or inside) and not is_tegra(self.gpu)

    @property
    def direction(self) -> str | None:
        """Newer or older than the build, where the numbers tell."""
        if self.gpu is None:
            return OLDER if self.error.kind == "torch-gpu-too-old" else None
        if self.lowest is not None and self.gpu < self.lowest:
            return OLDER
        if self.highest is not None and self.gpu > self.highest:
            return NEWER
        if self.error.kind == "torch-gpu-too-old":
            return OLDER
        return NEWER if self.lowest is not None and self.highest is None else None


def _capability(text: str | None) -> ComputeCapability | None:
    try:
        return ComputeCapability.parse(text) if text else None
    except VersionError:
        return None


@once_a_case
def torch_says(case: Case) -> tuple[TorchSays, ...]:
    """torch's warnings about its build, parsed."""
    return tuple(
        TorchSays(
            error,
            _capability(error.values.get("cc") or error.values.get("arch")),
            _capability(error.values.get("minimum")),
            _capability(error.values.get("maximum")),
        )
        for error in case.errors(*TORCH_REFUSES)
    )


# The framework


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
    certain = answer.kind is CoverageKind.NONE and not _from_matrix(arch_list)
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
        tags=(_direction(case, arch_list.value, gpu.compute_capability),),
        confidence=Confidence.CERTAIN if certain else Confidence.LIKELY,
    )


def _direction(case: Case, targets: Iterable[SmTarget], gpu: ComputeCapability) -> str:
    """Is the GPU newer or older than the build? In a gap of the list, the toolkits that introduced each architecture decide."""
    code = [target for target in targets if str(target).startswith("sm_")] or list(targets)
    found = coverage(code, gpu).direction
    if found in (Direction.GPU_NEWER, Direction.GPU_OLDER):
        return NEWER if found is Direction.GPU_NEWER else OLDER
    if any(target.compute_capability.major == gpu.major for target in code):
        return OLDER
    first = case.matrices.toolkits.first_toolkit_for
    of_build = [since for target in code if (since := first(target)) is not None]
    since_gpu = first(gpu)
    return NEWER if since_gpu is None or not of_build or since_gpu >= max(of_build) else OLDER


def _as_said(case: Case, build: Torch | None) -> Iterable[Problem]:
    """What error texts and the framework's CUDA version say, where no arch list decides."""
    refused = next((word for word in torch_says(case) if not word.is_benign), None)
    if refused is not None and not _torch_serves_all(case, build):
        yield _refused(case, build, refused)
        return
    failures = _failures(case)
    if not failures or extension_at_fault(case):
        return
    tags = _direction_said(case) or _likely_direction(case, build)
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
    direction = word.direction or next(iter(_likely_direction(case, build)), None)
    shown = word.error.values.get("gpu") or "this GPU"
    limits = f" It needs at least {word.lowest}" if word.lowest is not None and direction == OLDER else ""
    version = torch_version_text(build) if build is not None else "The installed torch"
    return Problem(
        subject="GPU",
        what=f"torch {version} has no code for {shown}{f' (compute capability {word.gpu})' if word.gpu else ''}, as it says itself.{limits}".rstrip()
        + ("." if limits else ""),
        why=f'Kernel launches fail with error 209, "{NO_KERNEL_IMAGE}".',
        evidence=as_evidence((word.error, *case.errors(*FAILS_WITHOUT_CODE))),
        remedies=fixes.install_other_torch(case),
        tags=(direction,) if direction is not None else (),
        severity=Severity.WARNING if case.saw("shown-torch-computes") else None,
        confidence=Confidence.CERTAIN,
    )


def _failures(case: Case) -> tuple[Evidence, ...]:
    """Launches that failed for want of code; an invalid configuration shares a number with one of them."""
    return as_evidence(
        tuple(error for error in case.errors(*FAILS_WITHOUT_CODE) if "invalid configuration" not in error.text.lower())
    )


def _framework_name(case: Case, build: Torch | None) -> str:
    runtime = framework_runtime(case)
    if build is not None and maybe(build.torch_version) is not None:
        return f"torch {torch_version_text(build)}"
    if runtime is not None:
        return f"{runtime.name[0].upper()}{runtime.name[1:]}, built with CUDA {runtime.runtime},"
    return "The installed framework"


def _likely_direction(case: Case, build: Torch | None) -> tuple[str, ...]:
    """Newer or older, from the CUDA that the framework was built with, else from the age of the GPU's architecture."""
    toolkits = case.matrices.toolkits
    torch_runtime = maybe(torch_cuda_version(build)) if build is not None else None
    other = framework_runtime(case)
    runtime = torch_runtime or (other.runtime if other is not None else None)
    for cc in _capabilities(case):
        if is_tegra(cc):
            continue
        first, last = toolkits.first_toolkit_for(cc), toolkits.last_toolkit_for(cc)
        if runtime is not None and first is not None and runtime < first:
            return (NEWER,)
        if runtime is not None and last is not None and runtime > last:
            return (OLDER,)
        if last is not None:
            return (OLDER,)
        if first is not None and first >= FIRST_CUDA_OF_NEW_GPUS:
            return (NEWER,)
    return ()


def _direction_said(case: Case) -> tuple[str, ...]:
    """Newer or older, where the text names the GPU's architecture and those that it was compiled for (750,800: tenfold sm)."""
    for error in case.errors("no-kernel-image"):
        asked, compiled = error.values.get("arch_number", ""), error.values.get("compiled", "")
        numbers = [int(word) // 10 for word in re.findall(r"\d{3,4}", compiled)]
        if asked.isdigit() and numbers:
            code = tuple(ComputeCapability.from_number(number).sm for number in numbers)
            return (_direction(case, code, ComputeCapability.from_number(int(asked) // 10)),)
    return ()


def _capabilities(case: Case) -> tuple[ComputeCapability, ...]:
    """The capabilities of the GPUs, else the one that the text states without naming a GPU."""
    listed = tuple(gpu.compute_capability for gpu in gpus_with_capability(case))
    stated = _capability(reading(case.snapshot, "statements").get("compute_capability"))
    return listed or ((stated,) if stated is not None else ())


def _torch_serves_all(case: Case, build: Torch | None) -> bool:
    """Does torch's own list hold machine code for every GPU whose capability is known?"""
    if build is None:
        return False
    arch_list = code_of_torch(case, build)
    listed = gpus_with_capability(case)
    if isinstance(arch_list, Missing) or _from_matrix(arch_list) or not listed:
        return False
    return all(coverage(arch_list.value, gpu.compute_capability).kind is CoverageKind.SASS for gpu in listed)


# Extensions


def extension_at_fault(case: Case) -> bool:
    """Does something show that an extension, not the framework, lacks the code?"""
    return bool(_without_code_in_binary(case)) or _torch_list_serves(case) or _torch_computes(case)


def _torch_computes(case: Case) -> bool:
    """Did torch print a tensor that is on a GPU, which runs its kernels, and does it not refuse a GPU?"""
    return case.saw("shown-torch-computes") and all(word.is_benign for word in torch_says(case))


def _torch_list_serves(case: Case) -> bool:
    """Does torch's list, its own or the matrix's, hold machine code for every GPU of known capability?"""
    build = torch(case.snapshot)
    if build is None or any(not word.is_benign for word in torch_says(case)):
        return False
    arch_list, listed = code_of_torch(case, build), gpus_with_capability(case)
    if isinstance(arch_list, Missing) or not listed:
        return False
    return all(coverage(arch_list.value, gpu.compute_capability).kind is CoverageKind.SASS for gpu in listed)


def _binary_code(case: Case) -> tuple[SmTarget, ...]:
    """The architectures that cuobjdump listed in a binary of the text."""
    listed = reading(case.snapshot, "statements").get("binary_archs") or ()
    return tuple(SmTarget.parse(word) for word in listed)


def _without_code_in_binary(case: Case) -> tuple[GpuWithCapability, ...]:
    code = _binary_code(case)
    if not code:
        return ()
    return tuple(gpu for gpu in gpus_with_capability(case) if coverage(code, gpu.compute_capability).kind is CoverageKind.NONE)


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
    failures, code = _failures(case), _binary_code(case)
    for gpu in _without_code_in_binary(case):
        yield _extension_problem(
            case, gpu, failures, (_direction(case, code, gpu.compute_capability),), f"The binary holds {span(code)}", certain=True
        )
    if code:
        return
    misleading = seen(case, "flash-attention-ampere-only")
    if failures and not misleading and _torch_computes(case) and not gpus_with_capability(case):
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
        elif failures and not misleading and (_torch_list_serves(case) or _torch_computes(case)):
            text = "torch's own list serves the GPU" if _torch_list_serves(case) else "torch itself computes on a GPU"
            yield _extension_problem(case, gpu, failures, _likely_direction(case, None), text, certain=False)


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
                commands=(by_cmake,) if _binary_code(case) else (by_pip,),
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
                    tags=(_direction(case, code, gpu.compute_capability),),
                    severity=Severity.WARNING,
                    confidence=Confidence.LIKELY,
                )


# Benign


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
                what=f"{gpu.title} is served by the {answer.by} code of torch {torch_version_text(build)}.",
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
        "CD413",
        "extension-arch-missing",
        Severity.ERROR,
        "A compiled extension has no code for this GPU",
        extension_arch_missing,
        explained_by=("arch-missing-in-wheel",),
        needs_gpu=True,
    ),
    Rule(
        "CD423",
        "benign-cc-range-warning",
        Severity.NOTE,
        "torch's warning about the capability range is harmless",
        benign_cc_range_warning,
    ),
    Rule("CD424", "benign-same-major-arch", Severity.NOTE, "Same-major machine code serves this GPU", benign_same_major_arch),
)
