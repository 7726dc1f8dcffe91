"""The rows of torch_builds.toml, and how they are read."""

from __future__ import annotations

from msgspec import Struct

from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.matrices.source import MatrixError, Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, DottedVersion, SmTarget

INDEX = "https://download.pytorch.org/whl"
"""PyTorch's own package index, one folder a variant (pytorch.org, Get Started)."""


class TorchVariant(Struct, frozen=True):
    """What a wheel of torch is built for: a CUDA version, or the CPU alone."""

    cuda: CudaVersion | None

    @classmethod
    def parse(cls, tag: str) -> TorchVariant:
        """Read `cu126` or `cpu`; raises VersionError."""
        return cls(None if tag == "cpu" else CudaVersion.from_tag(tag))

    @property
    def tag(self) -> str:
        return self.cuda.tag if self.cuda else "cpu"

    @property
    def index_url(self) -> str:
        """The package index that holds only this variant."""
        return f"{INDEX}/{self.tag}"

    def __str__(self) -> str:
        return self.tag


CPU = TorchVariant(None)


class TorchRelease(Struct, frozen=True):
    """One release; component pins are those of the default Linux x86-64 wheel."""

    version: DottedVersion
    released: str | None
    """Year and month."""
    default_linux_x86_64: TorchVariant | None
    default_linux_aarch64: TorchVariant | None
    default_windows: TorchVariant | None
    variants: tuple[CudaVersion, ...]
    """Those of Linux x86-64."""
    pythons: tuple[str, ...]
    """As `3.12` or `3.13t` (free-threaded)."""
    requires_python: str
    toolkit_pin: DottedVersion | None
    cudnn: DottedVersion | None
    nccl: DottedVersion | None
    nvshmem: DottedVersion | None
    triton: DottedVersion | None
    x86_64_tag: str
    aarch64_tag: str | None
    min_glibc: DottedVersion
    verified_variants: Verified | None
    verified_windows: Verified | None
    verified_default: Verified | None
    origin: Provenance

    @property
    def minor(self) -> DottedVersion:
        return minor_of(self.version)


class ArchList(Struct, frozen=True):
    """What torch.cuda.get_arch_list() prints for a variant on a platform, for a range of minors (inclusive)."""

    torch_first: DottedVersion
    torch_last: DottedVersion
    variant: CudaVersion
    platform: WheelPlatform
    sass: tuple[SmTarget, ...]
    ptx: SmTarget | None
    ptx_unknown: bool
    origin: Provenance

    @property
    def targets(self) -> tuple[SmTarget, ...]:
        """Machine code, then PTX if there is any."""
        return (*self.sass, self.ptx) if self.ptx else self.sass

    @property
    def verified(self) -> Verified:
        return self.origin.verified

    def covers_minor(self, minor: DottedVersion) -> bool:
        return self.torch_first <= minor <= self.torch_last


class CondaArchList(Struct, frozen=True):
    """The code in conda builds of torch, which differs from that in wheels."""

    torch_first: DottedVersion
    torch_last: DottedVersion
    channel: str
    cuda: tuple[CudaVersion, ...]
    platforms: tuple[str, ...]
    sass: tuple[SmTarget, ...]
    ptx: SmTarget | None
    ptx_unknown: bool
    origin: Provenance

    @property
    def targets(self) -> tuple[SmTarget, ...]:
        return (*self.sass, self.ptx) if self.ptx else self.sass


class OtherBuild(Struct, frozen=True):
    """Code in builds that are neither: Jetson wheels, NGC containers."""

    build: str
    sass: tuple[SmTarget, ...]
    ptx: SmTarget | None
    ptx_unknown: bool
    origin: Provenance


class VariantPin(Struct, frozen=True):
    """Components of a variant that is not the default one, for a range of minors (inclusive)."""

    torch_first: DottedVersion
    torch_last: DottedVersion
    variant: CudaVersion
    cudnn: DottedVersion
    nccl: DottedVersion | None
    origin: Provenance


class Scan(Struct, frozen=True):
    """Fat binaries counted in a library of a wheel."""

    torch: DottedVersion
    build: str
    library: str
    counts: str
    origin: Provenance


class ArchName(Struct, frozen=True):
    """A name that TORCH_CUDA_ARCH_LIST may hold, and what torch makes of it."""

    name: str
    expands_to: tuple[ComputeCapability, ...]
    ptx: bool
    origin: Provenance


class ArchNumbers(Struct, frozen=True):
    """The numbers that one release of torch allows in TORCH_CUDA_ARCH_LIST."""

    torch: DottedVersion
    numbers: tuple[str, ...]
    origin: Provenance


def minor_of(version: DottedVersion) -> DottedVersion:
    """2.8 for 2.8.0+cu128."""
    return DottedVersion((version.major, version.minor), f"{version.major}.{version.minor}")


def _release(row: Row) -> TorchRelease:
    def version(name: str) -> DottedVersion | None:
        return row.parsed_or_none(name, DottedVersion.parse)

    return TorchRelease(
        version=row.parsed("torch", DottedVersion.parse),
        released=row.text_or_none("released"),
        default_linux_x86_64=row.parsed_or_none("default_linux_x86_64", TorchVariant.parse),
        default_linux_aarch64=row.parsed_or_none("default_linux_aarch64", TorchVariant.parse),
        default_windows=row.parsed_or_none("default_windows", TorchVariant.parse),
        variants=row.many("variants", CudaVersion.from_tag),
        pythons=row.texts("python"),
        requires_python=row.text("requires_python"),
        toolkit_pin=version("toolkit_pin"),
        cudnn=version("cudnn"),
        nccl=version("nccl"),
        nvshmem=version("nvshmem"),
        triton=version("triton"),
        x86_64_tag=row.text("x86_64_tag"),
        aarch64_tag=row.text_or_none("aarch64_tag"),
        min_glibc=row.parsed("min_glibc", DottedVersion.parse),
        verified_variants=row.grade("variants"),
        verified_windows=row.grade("windows"),
        verified_default=row.grade("default"),
        origin=row.origin(),
    )


def _ptx(row: Row) -> SmTarget | None:
    target = row.parsed_or_none("ptx", SmTarget.parse)
    if target is not None and target.kind is not CodeKind.PTX:
        raise MatrixError(f"{row.where}: ptx is no compute_ target: {target}")
    return target


def _arch_list(row: Row) -> ArchList:
    return ArchList(
        torch_first=row.parsed("torch_first", DottedVersion.parse),
        torch_last=row.parsed("torch_last", DottedVersion.parse),
        variant=row.parsed("variant", CudaVersion.from_tag),
        platform=row.one_of("platform", WheelPlatform),
        sass=row.many("sm", SmTarget.parse),
        ptx=_ptx(row),
        ptx_unknown=row.flag_or_none("ptx_unknown") or False,
        origin=row.origin(),
    )


def _conda(row: Row) -> CondaArchList:
    return CondaArchList(
        torch_first=row.parsed("torch_first", DottedVersion.parse),
        torch_last=row.parsed("torch_last", DottedVersion.parse),
        channel=row.text("channel"),
        cuda=row.many("cuda", CudaVersion.parse),
        platforms=row.texts("platforms"),
        sass=row.many("sm", SmTarget.parse),
        ptx=_ptx(row),
        ptx_unknown=row.flag_or_none("ptx_unknown") or False,
        origin=row.origin(),
    )


def _other(row: Row) -> OtherBuild:
    sass, ptx = row.many("sm", SmTarget.parse), _ptx(row)
    return OtherBuild(row.text("build"), sass, ptx, row.flag_or_none("ptx_unknown") or False, row.origin())


def _pin(row: Row) -> VariantPin:
    return VariantPin(
        torch_first=row.parsed("torch_first", DottedVersion.parse),
        torch_last=row.parsed("torch_last", DottedVersion.parse),
        variant=row.parsed("variant", CudaVersion.from_tag),
        cudnn=row.parsed("cudnn", DottedVersion.parse),
        nccl=row.parsed_or_none("nccl", DottedVersion.parse),
        origin=row.origin(),
    )


def _scan(row: Row) -> Scan:
    torch, build = row.parsed("torch", DottedVersion.parse), row.text("build")
    return Scan(torch, build, row.text("library"), row.text("counts"), row.origin())


def _arch_name(row: Row) -> ArchName:
    return ArchName(row.text("name"), row.many("expands_to", ComputeCapability.parse), row.flag("ptx"), row.origin())


def _arch_numbers(row: Row) -> ArchNumbers:
    return ArchNumbers(row.parsed("torch", DottedVersion.parse), row.texts("numbers"), row.origin())


_PLATFORMS = tuple(WheelPlatform)

RELEASES = Schema(_release, lambda row: row.version, Order.DESCENDING)
ARCH_LISTS = Schema(
    _arch_list,
    lambda row: (row.platform, row.variant, row.torch_first),
    Order.ASCENDING,
    order_by=lambda row: (_PLATFORMS.index(row.platform), row.torch_first, row.variant),
)
CONDA = Schema(_conda, lambda row: (row.channel, row.cuda, row.platforms, row.torch_first))
OTHER = Schema(_other, lambda row: row.build)
PINS = Schema(_pin, lambda row: (row.variant, row.torch_first))
SCANS = Schema(_scan, lambda row: (row.torch, row.build, row.library))
ARCH_NAMES = Schema(_arch_name, lambda row: row.name)
ARCH_NUMBERS = Schema(_arch_numbers, lambda row: row.torch, Order.DESCENDING)
