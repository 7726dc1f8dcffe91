"""Answers about PyTorch builds: which exist, what GPUs their code is for, what they come with."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.matrices.source import Document, Note
from cudadoctor.matrices.torch_rows import (
    ARCH_LISTS,
    ARCH_NAMES,
    ARCH_NUMBERS,
    CONDA,
    CPU,
    INDEX,
    OTHER,
    PINS,
    RELEASES,
    SCANS,
    ArchList,
    ArchName,
    ArchNumbers,
    CondaArchList,
    OtherBuild,
    Scan,
    TorchRelease,
    TorchVariant,
    VariantPin,
    minor_of,
)
from cudadoctor.model.versions import CudaVersion, DottedVersion, SmTarget

__all__ = [
    "CPU",
    "INDEX",
    "ArchList",
    "CondaArchList",
    "TorchMatrix",
    "TorchRelease",
    "TorchVariant",
    "TorchWheel",
    "load",
    "minor_of",
]


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
            yield from self.wheels_of(release, platform)

    @cached_property
    def _wheels(self) -> dict[tuple[DottedVersion, WheelPlatform], tuple[TorchWheel, ...]]:
        """What `wheels_of` was asked for so far."""
        return {}

    def wheels_of(self, release: TorchRelease, platform: WheelPlatform) -> tuple[TorchWheel, ...]:
        """The CUDA wheels of one release for a platform, newest CUDA first."""
        asked = release.version, platform
        if asked not in self._wheels:
            self._wheels[asked] = tuple(self._wheels_built(release, platform))
        return self._wheels[asked]

    def _wheels_built(self, release: TorchRelease, platform: WheelPlatform) -> Iterator[TorchWheel]:
        for cuda in reversed(self.variants(release.version, platform)):
            archs = self.arch_list(release.version, cuda, platform)
            if archs is not None:
                variant = TorchVariant(cuda)
                default = self.on_default_index(release.version, variant, platform)
                yield TorchWheel(release, variant, archs, default)

    def arch_name(self, name: str) -> ArchName | None:
        """What a name in TORCH_CUDA_ARCH_LIST (`Ampere`) stands for; None where torch does not know it."""
        return next((row for row in self.arch_names if row.name == name), None)


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
