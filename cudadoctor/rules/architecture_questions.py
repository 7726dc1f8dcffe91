"""What rules ask about device code: what torch holds and says of itself, and where a GPU stands to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cudadoctor.compat import CoverageKind, Direction, coverage, is_tegra
from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.model.fact import Fact, Known, Missing, maybe
from cudadoctor.model.finding import Evidence
from cudadoctor.model.snapshot import ErrorSeen, Torch
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget, VersionError
from cudadoctor.rules.case import once_a_case
from cudadoctor.rules.engine import Case
from cudadoctor.rules.evidence import as_evidence
from cudadoctor.rules.questions import (
    GpuWithCapability,
    gpus_with_capability,
    on_tegra,
    platform,
    torch,
    torch_arch_list,
    torch_cuda_version,
    torch_release,
)
from cudadoctor.rules.software_questions import (
    conda_torch,
    framework_runtime,
    is_wheel_of_an_index,
    reading,
)

NO_KERNEL_IMAGE = "no kernel image is available for execution on the device"
FAILS_WITHOUT_CODE = ("no-kernel-image", "cuda-invalid-device-function", "cuda-invalid-image")
"""Errors with which a launch fails where the code for the GPU is absent."""
TORCH_REFUSES = ("torch-gpu-cc-not-listed", "torch-gpu-too-old", "torch-cc-range-warning")
"""torch's own words about its build and this GPU."""
SAYS_NO_CODE = (*FAILS_WITHOUT_CODE, *TORCH_REFUSES, "torch-supported-archs")
NEWER = Direction.GPU_NEWER.value
OLDER = Direction.GPU_OLDER.value
FIRST_CUDA_OF_NEW_GPUS = CudaVersion.of(11, 8)
"""GPUs that need this toolkit or a later one are newer than most builds without code for them (matrices/toolkit_arch.toml)."""


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


def _of_either_platform(case: Case, build: Torch) -> Fact[tuple[SmTarget, ...]]:
    """The wheel's code; where the text does not tell the platform, that of the wheels for Linux and Windows together."""
    linux = torch_arch_list(case, build)
    version, runtime = torch_release(build), maybe(torch_cuda_version(build))
    if version is not None and runtime is not None and on_tegra(case):
        board = case.matrices.torch.arch_list(version, runtime, WheelPlatform.LINUX_AARCH64)
        return Known(board.targets, "torch builds matrix") if board is not None else build.arch_list
    told = platform(case.snapshot) is not None or maybe(case.snapshot.host.architecture) == "aarch64"
    if told or version is None or runtime is None:
        return linux
    row = case.matrices.torch.arch_list(version, runtime, WheelPlatform.WINDOWS)
    if row is None or isinstance(linux, Missing):
        return Known(row.targets, "torch builds matrix") if row is not None else linux
    return Known(tuple(sorted({*linux.value, *row.targets})), linux.source)


def from_matrix(arch_list: Known[tuple[SmTarget, ...]]) -> bool:
    """Is the list that of a known release, not what this torch said?"""
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


def direction_of(case: Case, targets: Iterable[SmTarget], gpu: ComputeCapability) -> str:
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


def code_failures(case: Case) -> tuple[Evidence, ...]:
    """Launches that failed for want of code; an invalid configuration shares a number with one of them."""
    return as_evidence(
        tuple(error for error in case.errors(*FAILS_WITHOUT_CODE) if "invalid configuration" not in error.text.lower())
    )


def likely_direction(case: Case, build: Torch | None) -> tuple[str, ...]:
    """Newer or older, from the CUDA that the framework was built with, else from the age of the GPU's architecture."""
    toolkits = case.matrices.toolkits
    torch_runtime = maybe(torch_cuda_version(build)) if build is not None else None
    other = framework_runtime(case)
    runtime = torch_runtime or (other.runtime if other is not None else None)
    for cc in shown_capabilities(case):
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


def shown_capabilities(case: Case) -> tuple[ComputeCapability, ...]:
    """The capabilities of the GPUs, else the one that the text states without naming a GPU."""
    listed = tuple(gpu.compute_capability for gpu in gpus_with_capability(case))
    stated = _capability(reading(case.snapshot, "statements").get("compute_capability"))
    return listed or ((stated,) if stated is not None else ())


def extension_at_fault(case: Case) -> bool:
    """Does something show that an extension, not the framework, lacks the code?"""
    return bool(without_code_in_binary(case)) or torch_list_serves(case) or torch_computes(case)


def torch_computes(case: Case) -> bool:
    """Did torch print a tensor that is on a GPU, which runs its kernels, and does it not refuse a GPU?"""
    return case.saw("shown-torch-computes") and all(word.is_benign for word in torch_says(case))


def torch_list_serves(case: Case) -> bool:
    """Does torch's list, its own or the matrix's, hold machine code for every GPU of known capability?"""
    build = torch(case.snapshot)
    if build is None or any(not word.is_benign for word in torch_says(case)):
        return False
    arch_list, listed = code_of_torch(case, build), gpus_with_capability(case)
    if isinstance(arch_list, Missing) or not listed:
        return False
    return all(coverage(arch_list.value, gpu.compute_capability).kind is CoverageKind.SASS for gpu in listed)


def code_of_binary(case: Case) -> tuple[SmTarget, ...]:
    """The architectures that cuobjdump listed in a binary of the text."""
    listed = reading(case.snapshot, "statements").get("binary_archs") or ()
    return tuple(SmTarget.parse(word) for word in listed)


def without_code_in_binary(case: Case) -> tuple[GpuWithCapability, ...]:
    """The GPUs for which a scanned binary holds no code; none where no code of it is known."""
    code = code_of_binary(case)
    if not code:
        return ()
    return tuple(gpu for gpu in gpus_with_capability(case) if coverage(code, gpu.compute_capability).kind is CoverageKind.NONE)
