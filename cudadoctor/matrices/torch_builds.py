"""Answers about PyTorch builds: which exist, what GPUs their code is for, what they come with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.matrices.source import Document, MatrixError, Note, Order, Provenance, Row, Schema, Verified
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


class TorchWheel(Struct, frozen=True):
    """One installable wheel: a release, its variant, and the code in it."""

    release: TorchRelease
    variant: TorchVariant
    archs: ArchList
    on_default_index: bool

    @property
    def targets(self) -> tuple[SmTarget, ...]:
        return self.archs.targets


class TorchMatrix(Struct, frozen=True, dict=True):
    """matrices/torch_builds.toml."""

    title: str
    as_of: date
    releases: tuple[TorchRelease, ...]
    arch_lists: tuple[ArchList, ...]
    conda_arch_lists: tuple[CondaArchList, ...]
    other_builds: tuple[OtherBuild, ...]
    variant_pins: tuple[VariantPin, ...]
    scans: tuple[Scan, ...]
    arch_names: tuple[ArchName, ...]
    arch_numbers: tuple[ArchNumbers, ...]
    notes: tuple[Note, ...]

    @property
    def newest_known(self) -> TorchRelease:
        return self.releases[0]

    def is_newer_than_table(self, version: DottedVersion) -> bool:
        """Whether a version is of a minor later than the newest row (a later patch release counts as its minor)."""
        return minor_of(version) > self.newest_known.minor

    @cached_property
    def _by_version(self) -> dict[DottedVersion, TorchRelease]:
        return {row.version: row for row in self.releases}

    def release(self, version: DottedVersion) -> TorchRelease | None:
        """The row of exactly this release (`+cu126` is ignored); None where the table has none."""
        return self._by_version.get(DottedVersion(version.parts, version.text))

    def releases_of(self, minor: DottedVersion) -> tuple[TorchRelease, ...]:
        """The releases of a minor, newest first."""
        return tuple(row for row in self.releases if row.minor == minor_of(minor))

    @cached_property
    def _lists(self) -> dict[tuple[CudaVersion, WheelPlatform], tuple[ArchList, ...]]:
        lists: dict[tuple[CudaVersion, WheelPlatform], tuple[ArchList, ...]] = {}
        for row in self.arch_lists:
            lists[row.variant, row.platform] = (*lists.get((row.variant, row.platform), ()), row)
        return lists

    def arch_list(self, version: DottedVersion, variant: CudaVersion, platform: WheelPlatform) -> ArchList | None:
        """The code in a wheel; None where no such wheel is known. Ask the installed torch itself first."""
        minor = minor_of(version)
        return next((row for row in self._lists.get((variant, platform), ()) if row.covers_minor(minor)), None)

    def conda_arch_list(self, version: DottedVersion, cuda: CudaVersion, channel: str, platform: str) -> CondaArchList | None:
        """The code in a conda build; None where no such build is known."""
        minor = minor_of(version)
        for row in self.conda_arch_lists:
            fits = row.channel == channel and cuda in row.cuda and platform in row.platforms
            if fits and row.torch_first <= minor <= row.torch_last:
                return row
        return None

    def variants(self, version: DottedVersion, platform: WheelPlatform) -> tuple[CudaVersion, ...]:
        """The CUDA variants that exist of a minor on a platform, oldest first; empty where none are known."""
        minor = minor_of(version)
        return tuple(sorted(row.variant for row in self.arch_lists if row.platform is platform and row.covers_minor(minor)))

    def exists(self, version: DottedVersion, variant: CudaVersion, platform: WheelPlatform) -> bool | None:
        """Whether a wheel exists; None where the release is newer than the table or not in it."""
        return variant in self.variants(version, platform) if self.releases_of(version) else None

    def default_variant(self, version: DottedVersion, platform: WheelPlatform) -> TorchVariant | None:
        """What `pip install torch==version` brings from the default index; None where there is no wheel, or unknown."""
        row = self.release(version)
        if row is None:
            return None
        return {
            WheelPlatform.LINUX_X86_64: row.default_linux_x86_64,
            WheelPlatform.LINUX_AARCH64: row.default_linux_aarch64,
            WheelPlatform.WINDOWS: row.default_windows,
        }[platform]

    def on_default_index(self, version: DottedVersion, variant: TorchVariant, platform: WheelPlatform) -> bool:
        """Whether the default index (not only PyTorch's own) has this wheel."""
        return self.default_variant(version, platform) == variant

    def pythons(self, version: DottedVersion) -> tuple[str, ...]:
        """The Python versions that wheels of a release exist for; empty: unknown."""
        row = self.release(version)
        return row.pythons if row else ()

    def cudnn(self, version: DottedVersion, variant: CudaVersion) -> DottedVersion | None:
        """The cuDNN that a Linux x86-64 wheel comes with; None: unknown."""
        pin = self._pin(version, variant)
        if pin is not None:
            return pin.cudnn
        row = self._default(version, variant)
        return row.cudnn if row else None

    def nccl(self, version: DottedVersion, variant: CudaVersion) -> DottedVersion | None:
        """The NCCL that a Linux x86-64 wheel comes with; None: unknown."""
        row = self._default(version, variant)
        if row is not None:
            return row.nccl
        pin = self._pin(version, variant)
        return pin.nccl if pin else None

    def _default(self, version: DottedVersion, variant: CudaVersion) -> TorchRelease | None:
        row = self.release(version)
        return row if row is not None and row.default_linux_x86_64 == TorchVariant(variant) else None

    def _pin(self, version: DottedVersion, variant: CudaVersion) -> VariantPin | None:
        minor = minor_of(version)
        rows = (row for row in self.variant_pins if row.variant == variant)
        return next((row for row in rows if row.torch_first <= minor <= row.torch_last), None)

    def wheels(self, platform: WheelPlatform, python: str | None = None) -> Iterator[TorchWheel]:
        """All CUDA wheels for a platform (and Python, `3.12` or `3.13t`): newest release first, then newest CUDA first."""
        for release in self.releases:
            if python is not None and python not in release.pythons:
                continue
            for cuda in reversed(self.variants(release.version, platform)):
                archs = self.arch_list(release.version, cuda, platform)
                if archs is not None:
                    variant = TorchVariant(cuda)
                    default = self.on_default_index(release.version, variant, platform)
                    yield TorchWheel(release, variant, archs, default)

    def arch_name(self, name: str) -> ArchName | None:
        """What a name in TORCH_CUDA_ARCH_LIST (`Ampere`) stands for; None where torch does not know it."""
        return next((row for row in self.arch_names if row.name == name), None)


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


def load(document: Document) -> TorchMatrix:
    """The matrix in a parsed torch_builds.toml; raises MatrixError."""
    matrix = TorchMatrix(
        title=document.title,
        as_of=document.as_of,
        releases=document.table("release", RELEASES),
        arch_lists=document.table("arch_list", ARCH_LISTS),
        conda_arch_lists=document.table("conda_arch_list", CONDA),
        other_builds=document.table("other_build", OTHER),
        variant_pins=document.table("variant_pin", PINS),
        scans=document.table("scan", SCANS),
        arch_names=document.table("arch_name", ARCH_NAMES),
        arch_numbers=document.table("arch_number", ARCH_NUMBERS),
        notes=document.notes(),
    )
    document.finish()
    return matrix
