"""The compatibility algebra: small pure functions over compute capabilities, compile targets, drivers and runtimes.

They answer with enums and say why; what a live machine says (a driver's CUDA version, a wheel's own code) is compared with
what a live machine needs, and a table only fills in what is not known. Sources: CUDA Programming Guide, sections Binary
Compatibility, PTX Compatibility and Family-Specific Features; CUDA Compatibility guide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from cudadoctor.matrices.drivers import DriverMatrix, ForwardCompat, OpenModule
from cudadoctor.matrices.gpu_names import Segment
from cudadoctor.matrices.platforms import DriverPlatform
from cudadoctor.matrices.toolkits import ToolkitMatrix
from cudadoctor.model.snapshot import ModuleFlavour
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, DriverRelease, PtxIsa, SmTarget

_THOR_IN_CUDA_12 = ComputeCapability(10, 1)
_THOR = ComputeCapability(11, 0)
TEGRA = frozenset(
    ComputeCapability(major, minor) for major, minor in ((3, 2), (5, 3), (6, 2), (7, 2), (8, 7), (8, 8), (10, 1), (11, 0))
)
"""Capabilities of Tegra chips, whose machine code and that of other GPUs are not interchangeable (CUDA Programming Guide,
Binary Compatibility; DEVICE_REQUIREMENT in torch/cuda/__init__.py). A test compares it with compute_capabilities.toml."""


def is_tegra(cc: ComputeCapability) -> bool:
    """Whether only Tegra chips (Jetson, DRIVE) have this capability."""
    return cc in TEGRA


def _same_chip(one: ComputeCapability, other: ComputeCapability) -> bool:
    """Whether two capabilities are one chip: Thor is 10.1 in CUDA 12 and 11.0 from CUDA 13.0 on."""
    return one == other or {one, other} == {_THOR_IN_CUDA_12, _THOR}


def _same_major_not_older(code: ComputeCapability, cc: ComputeCapability) -> bool:
    return code.major == cc.major and code.minor <= cc.minor


def sass_serves(target: SmTarget, cc: ComputeCapability) -> bool:
    """Whether machine code for `target` runs on a GPU of capability `cc`.

    Same major and a minor at least that of the code; exactly this chip for suffix `a` and on Tegra. A family (suffix `f`)
    is the GPUs of one major from its own minor on, Tegra apart, so the plain rule is its rule too.
    """
    code = target.compute_capability
    if target.kind is not CodeKind.SASS:
        return False
    if _same_chip(code, cc):
        return True
    return target.suffix != "a" and not is_tegra(code) and not is_tegra(cc) and _same_major_not_older(code, cc)


def crosses_tegra_border(target: SmTarget, cc: ComputeCapability) -> bool:
    """Whether plain machine code of another chip of the same major might run on this Tegra, though NVIDIA does not promise it.

    Before CUDA 13.2 sm_80 code is documented not to serve Orin (8.7), and yet wheels with nothing else run there.
    """
    code = target.compute_capability
    plain = target.kind is CodeKind.SASS and target.suffix == ""
    return plain and is_tegra(cc) and not is_tegra(code) and _same_major_not_older(code, cc)


def ptx_serves(target: SmTarget, cc: ComputeCapability) -> bool:
    """Whether a driver that knows the PTX version can compile this PTX for a GPU of capability `cc`."""
    code = target.compute_capability
    if target.kind is not CodeKind.PTX:
        return False
    if _same_chip(code, cc):
        return True
    if target.suffix == "":
        return code <= cc
    return target.suffix == "f" and not is_tegra(code) and not is_tegra(cc) and _same_major_not_older(code, cc)


def serves(target: SmTarget, cc: ComputeCapability) -> bool:
    """Whether code of any form for `target` can serve a GPU of capability `cc`, given a driver that is new enough."""
    return sass_serves(target, cc) or ptx_serves(target, cc)


class PtxSupport(Enum):
    """Whether a driver compiles PTX of a version."""

    LOADS = "loads"
    TOO_NEW = "too-new"
    """Error 222."""
    UNKNOWN = "unknown"


def ptx_on_driver(isa: PtxIsa | None, driver_cuda: CudaVersion | None, toolkits: ToolkitMatrix) -> PtxSupport:
    """Whether a driver compiles PTX of an ISA version: only up to the version of its own CUDA; minors do not help."""
    if isa is None or driver_cuda is None:
        return PtxSupport.UNKNOWN
    knows = toolkits.ptx_isa(driver_cuda)
    if knows is not None:
        return PtxSupport.LOADS if isa <= knows else PtxSupport.TOO_NEW
    needs = toolkits.toolkit_for_ptx(isa)
    if needs is None:
        return PtxSupport.UNKNOWN
    return PtxSupport.LOADS if driver_cuda >= needs else PtxSupport.TOO_NEW


def toolkit_ptx_on_driver(toolkit: CudaVersion, driver_cuda: CudaVersion | None, toolkits: ToolkitMatrix) -> PtxSupport:
    """Whether a driver compiles the PTX that a toolkit writes; a driver at least as new as the toolkit always does."""
    if driver_cuda is not None and driver_cuda >= toolkit:
        return PtxSupport.LOADS
    return ptx_on_driver(toolkits.ptx_isa(toolkit), driver_cuda, toolkits)


class CoverageKind(Enum):
    """How a set of code serves a GPU, best first."""

    SASS = "sass"
    """Machine code runs as it is."""
    PTX_ONLY = "ptx-only"
    """The driver compiles PTX at load time."""
    UNCERTAIN = "uncertain"
    """Only code of a non-Tegra GPU for a Tegra of the same major: not promised, often works."""
    PTX_TOO_NEW = "ptx-too-new"
    """Only PTX could serve, and it is newer than the driver."""
    NONE = "none"
    """Nothing serves: error 209."""


class Direction(Enum):
    """Where a GPU stands to the code that is there."""

    GPU_NEWER = "gpu-newer-than-build"
    """Its capability is above that of all code."""
    GPU_OLDER = "gpu-older-than-build"
    """Its capability is below that of all code."""
    GAP = "gap"
    """Between (sm numbers are not chronological: 10.7 is newer than 12.1)."""
    NO_CODE = "no-code"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How a set of code serves one GPU."""

    kind: CoverageKind
    by: SmTarget | None
    """The code that serves, or that would if the driver knew its PTX; None where nothing does."""
    newest: SmTarget | None
    """The highest code that is there; None where there is none."""
    oldest: SmTarget | None
    direction: Direction

    @property
    def runs(self) -> bool:
        """Whether kernels certainly start."""
        return self.kind in (CoverageKind.SASS, CoverageKind.PTX_ONLY)


def coverage(targets: Iterable[SmTarget], cc: ComputeCapability, ptx: PtxSupport = PtxSupport.UNKNOWN) -> Coverage:
    """How the code in one module or build serves a GPU.

    `ptx` says whether the driver compiles the build's PTX (`ptx_on_driver`); where that is not known, PTX counts.
    Machine code made for exactly this GPU is preferred, then the nearest below it, as the driver does.
    """
    return _coverage(tuple(targets), cc, ptx)


@lru_cache(maxsize=4096)
def _coverage(targets: tuple[SmTarget, ...], cc: ComputeCapability, ptx: PtxSupport) -> Coverage:
    """`coverage`, remembered: rules ask it of the same few builds and GPUs again and again."""
    code = sorted(set(targets))
    sass = [target for target in code if sass_serves(target, cc)]
    jit = [target for target in code if ptx_serves(target, cc)]
    border = [target for target in code if crosses_tegra_border(target, cc)]
    if sass:
        kind, by = CoverageKind.SASS, sass[-1]
    elif jit and ptx is not PtxSupport.TOO_NEW:
        kind, by = CoverageKind.PTX_ONLY, jit[-1]
    elif border:
        kind, by = CoverageKind.UNCERTAIN, border[-1]
    elif jit:
        kind, by = CoverageKind.PTX_TOO_NEW, jit[-1]
    else:
        return Coverage(CoverageKind.NONE, None, _highest(code), _lowest(code), _direction(code, cc))
    return Coverage(kind, by, _highest(code), _lowest(code), _direction(code, cc))


def _highest(code: list[SmTarget]) -> SmTarget | None:
    return code[-1] if code else None


def _lowest(code: list[SmTarget]) -> SmTarget | None:
    return code[0] if code else None


def _direction(code: list[SmTarget], cc: ComputeCapability) -> Direction:
    if not code:
        return Direction.NO_CODE
    if cc > code[-1].compute_capability:
        return Direction.GPU_NEWER
    return Direction.GPU_OLDER if cc < code[0].compute_capability else Direction.GAP


def best_target(targets: Iterable[SmTarget], cc: ComputeCapability) -> SmTarget | None:
    """The plain target that a compiler should be given for a GPU: its own, else the highest whose code serves it; else None."""
    plain = [target for target in targets if target.suffix == "" and sass_serves(target, cc)]
    return max(plain, default=None)


class RuntimeSupport(Enum):
    """Whether a driver runs a CUDA runtime."""

    NATIVE = "native"
    """The driver is as new as the runtime."""
    MINOR_VERSION = "minor-version"
    """Older within the same major: runs, but compiles no PTX of the newer toolkit and lacks features that need the driver."""
    TOO_OLD = "too-old"
    """Error 35."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RuntimeAnswer:
    """Whether a driver runs a CUDA runtime, and why."""

    support: RuntimeSupport
    because: str
    minimum: DriverRelease | None
    """The oldest driver that runs this runtime; None where the table does not say."""


def runtime_on_driver(
    runtime: CudaVersion,
    release: DriverRelease | None,
    driver_cuda: CudaVersion | None,
    drivers: DriverMatrix,
    platform: DriverPlatform,
) -> RuntimeAnswer:
    """Whether a driver runs a runtime, from what its API reports (`driver_cuda`) and, where that is missing, its release."""
    minimum = drivers.minimum_driver(runtime, platform)
    own = drivers.max_cuda(release) if release is not None else None
    reports = driver_cuda or own
    if reports is not None:
        lifted = own is not None and own < reports
        support, because = _by_cuda(runtime, reports, None if lifted else release, minimum)
    elif release is not None:
        support, because = _by_release(runtime, release, minimum, drivers)
    else:
        support, because = RuntimeSupport.UNKNOWN, "the driver's version is not known"
    return RuntimeAnswer(support, because, minimum)


_FIRST_MAJOR_WITH_MINOR_COMPATIBILITY = 11
"""CUDA Compatibility guide, Minor Version Compatibility: CUDA 11 and later."""


def _by_cuda(
    runtime: CudaVersion, reports: CudaVersion, release: DriverRelease | None, minimum: DriverRelease | None
) -> tuple[RuntimeSupport, str]:
    """`release` is None where it is not known, or where a cuda-compat library stands above the kernel driver."""
    if reports >= runtime:
        return RuntimeSupport.NATIVE, f"the driver supports CUDA {reports.release}, at least the runtime's {runtime.release}"
    if reports.major != runtime.major:
        because = f"the driver supports CUDA {reports.release}; compatibility between minors does not reach CUDA {runtime.major}"
        return RuntimeSupport.TOO_OLD, because
    if runtime.major < _FIRST_MAJOR_WITH_MINOR_COMPATIBILITY:
        return RuntimeSupport.TOO_OLD, f"CUDA {runtime.release} needs its own driver: minors are compatible from CUDA 11 on only"
    if release is not None and minimum is not None and release < minimum:
        return RuntimeSupport.TOO_OLD, f"driver {release} is below {minimum}, from which minors are compatible"
    because = f"CUDA {reports.release} of the driver and {runtime.release} of the runtime share the major {runtime.major}"
    return RuntimeSupport.MINOR_VERSION, because


def _by_release(
    runtime: CudaVersion, release: DriverRelease, minimum: DriverRelease | None, drivers: DriverMatrix
) -> tuple[RuntimeSupport, str]:
    """For a release whose branch the table does not know."""
    if drivers.is_newer_than_table(release) and runtime <= drivers.newest_cuda:
        return RuntimeSupport.NATIVE, f"driver {release} is newer than every driver that came with CUDA {runtime.release}"
    if minimum is None:
        return RuntimeSupport.UNKNOWN, f"the table has no minimum driver for CUDA {runtime.release}"
    if release < minimum:
        return RuntimeSupport.TOO_OLD, f"driver {release} is below {minimum}, the minimum for CUDA {runtime.release}"
    return RuntimeSupport.MINOR_VERSION, f"driver {release} is at least {minimum}, the minimum for CUDA {runtime.release}"


@dataclass(frozen=True, slots=True)
class ForwardAnswer:
    """Whether a cuda-compat package can lift the CUDA version of a host's driver for a GPU, and why."""

    support: ForwardCompat
    because: str


_ELIGIBLE = frozenset({Segment.DATA_CENTER, Segment.JETSON})


def forward_compat(package_cuda: CudaVersion, host: DriverRelease, segment: Segment, drivers: DriverMatrix) -> ForwardAnswer:
    """Whether cuda-compat works here: the GPU must be eligible and the host's driver branch listed for the package."""
    branch = drivers.branch(host)
    by_branch = drivers.forward_compat(package_cuda, branch.number if branch else host.branch)
    if by_branch in (ForwardCompat.NOT_NEEDED, ForwardCompat.UNSUPPORTED):
        verb = "is not older than" if by_branch is ForwardCompat.NOT_NEEDED else "is not listed for"
        return ForwardAnswer(by_branch, f"driver branch {host.branch} {verb} the compat package of CUDA {package_cuda.release}")
    if segment is Segment.GEFORCE:
        return ForwardAnswer(ForwardCompat.UNSUPPORTED, "cuda-compat is not for GeForce GPUs: cuInit fails with error 804")
    if segment not in _ELIGIBLE:
        return ForwardAnswer(
            ForwardCompat.UNKNOWN, "cuda-compat serves data centre GPUs and only some NGC-ready workstation boards"
        )
    return ForwardAnswer(
        by_branch, f"driver branch {host.branch}: {by_branch.value} by the compat package of CUDA {package_cuda.release}"
    )


class ToolchainMatch(Enum):
    """How the nvcc that builds an extension stands to the CUDA that torch was built with."""

    SAME = "same"
    MINOR_DIFFERS = "minor-differs"
    """Builds; torch warns."""
    MAJOR_DIFFERS = "major-differs"
    """torch.utils.cpp_extension refuses to build."""


def nvcc_for_torch(nvcc: CudaVersion, torch_cuda: CudaVersion) -> ToolchainMatch:
    """How an nvcc fits torch where an extension is compiled; where none is, any difference is harmless."""
    if nvcc.major != torch_cuda.major:
        return ToolchainMatch.MAJOR_DIFFERS
    return ToolchainMatch.SAME if nvcc == torch_cuda else ToolchainMatch.MINOR_DIFFERS


class ModuleFit(Enum):
    """Whether the loaded flavour of the kernel module can drive a GPU."""

    FITS = "fits"
    NEEDS_OPEN = "needs-open"
    NEEDS_PROPRIETARY = "needs-proprietary"
    UNKNOWN = "unknown"


def module_fit(flavour: ModuleFlavour, cc: ComputeCapability, drivers: DriverMatrix) -> ModuleFit:
    """Whether a kernel module flavour drives a GPU: open only for Turing and newer, proprietary not for Blackwell and newer."""
    rule = drivers.open_module(cc)
    if rule is None:
        return ModuleFit.UNKNOWN
    if flavour is ModuleFlavour.OPEN:
        return ModuleFit.NEEDS_PROPRIETARY if rule is OpenModule.NONE else ModuleFit.FITS
    return ModuleFit.NEEDS_OPEN if rule is OpenModule.REQUIRED else ModuleFit.FITS
