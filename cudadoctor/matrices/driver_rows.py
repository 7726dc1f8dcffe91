"""The rows of cuda_driver.toml, and how they are read."""

from __future__ import annotations

import calendar
from datetime import date
from enum import Enum

from msgspec import Struct

from cudadoctor.matrices.platforms import DriverPlatform
from cudadoctor.matrices.source import Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease


class BranchType(Enum):
    """The kind of a driver branch in NVIDIA's terms."""

    LTS = "lts"
    PRODUCTION = "production"
    NEW_FEATURE = "new-feature"
    DEVELOPER = "developer"
    SHORT_LIVED = "short-lived"
    LEGACY = "legacy"
    UNKNOWN = "unknown"


class OpenModule(Enum):
    """Whether NVIDIA's open kernel module drives a GPU."""

    NONE = "none"
    """Only the proprietary module does."""
    OPTIONAL = "optional"
    REQUIRED = "required"
    """Only the open module does."""


class ForwardCompat(Enum):
    """Whether a cuda-compat package serves a host's driver branch."""

    SUPPORTED = "supported"
    TOLERATED = "tolerated"
    """Official images let it start, but NVIDIA does not list it as supported."""
    UNSUPPORTED = "unsupported"
    NOT_NEEDED = "not-needed"
    """The host's driver is not older than the package, which then must not come first on the loader's path."""
    UNKNOWN = "unknown"


class ToolkitDriver(Struct, frozen=True):
    """The driver of one toolkit release."""

    cuda: CudaVersion
    stage: str
    """`GA`, `RC` or `Update N`."""
    driver_branch: int
    linux_driver: DriverRelease | None
    """None where NVIDIA prints no number."""
    windows_driver: DriverRelease | None
    bundled_linux: bool
    bundled_windows: bool
    origin: Provenance

    def driver(self, platform: DriverPlatform) -> DriverRelease | None:
        return self.linux_driver if platform is DriverPlatform.LINUX else self.windows_driver


class MinorVersionFloor(Struct, frozen=True):
    """The oldest driver that runs every minor of a CUDA major (minor-version compatibility)."""

    cuda_major: int
    from_minor: int
    """First minor that the floor holds for; an older one has its own minimum."""
    linux_minimum: DriverRelease
    windows_minimum: DriverRelease
    windows_minimum_later_notes: DriverRelease | None
    linux_first_release: DriverRelease | None
    below_branch: int | None
    """From this branch on plain backward compatibility applies; None where no such branch exists yet."""
    origin: Provenance

    def minimum(self, platform: DriverPlatform) -> DriverRelease:
        return self.linux_minimum if platform is DriverPlatform.LINUX else self.windows_minimum


class Branch(Struct, frozen=True):
    """One driver branch and its life."""

    number: int
    max_cuda: CudaVersion
    """What its API reports, the `CUDA Version` of nvidia-smi."""
    type: BranchType
    end_of_life: date | None
    """Last day of the month that NVIDIA names; None where none is published."""
    ended: bool
    """Whether it had ended at `origin.as_of`."""
    last_release: DriverRelease
    windows_last_release: DriverRelease | None
    first_open_module_tag: date | None
    verified_lifecycle: Verified
    origin: Provenance
    source_lifecycle: str | None

    def ended_by(self, day: date) -> bool | None:
        """Whether the branch gets no more fixes on `day`; None where the table cannot tell."""
        if self.end_of_life is not None:
            return day > self.end_of_life
        if self.ended:
            return True
        return False if day <= self.origin.as_of else None

    @property
    def last_windows_branch(self) -> int:
        """The highest first number that a release of this branch has on Windows (576.57 belongs to 575)."""
        seen = self.windows_last_release.branch if self.windows_last_release else self.number
        return max(self.number + 4, seen)


class DriverArchitecture(Struct, frozen=True):
    """Which driver branches know a group of compute capabilities."""

    name: str
    compute_capabilities: tuple[ComputeCapability, ...]
    first_branch: int | None
    """None where it is not known; an upper bound from Hopper on."""
    last_branch: int | None
    """None while the newest branch still knows it."""
    open_module: OpenModule
    origin: Provenance


class FirstDriver(Struct, frozen=True):
    """The first driver seen for a family of products."""

    family: str
    products: tuple[str, ...]
    branch: int
    first_seen: DriverRelease | None
    first_seen_date: date | None
    origin: Provenance


class CompatPackage(Struct, frozen=True):
    """One cuda-compat package and the host branches that it serves."""

    cuda: CudaVersion
    built_from_branch: int
    supported_host_branches: tuple[int, ...] | None
    """NVIDIA's own table; None where it has no row."""
    accepted_host_branches: tuple[int, ...] | None
    """What the check of the official images lets start; None where it was not read."""
    geforce_listed: bool
    verified_supported: Verified | None
    source_supported: str | None
    origin: Provenance

    @property
    def name(self) -> str:
        return f"cuda-compat-{self.cuda.major}-{self.cuda.minor}"


class DriverProbe(Struct, frozen=True):
    """What cudaGetDeviceCount of a real libcudart returned with a real libcuda, on a machine without a GPU."""

    runtime: CudaVersion
    library: str
    driver: DriverRelease | None
    """None: no libcuda at all."""
    driver_api: int
    device_count_error: int
    meaning: str
    origin: Provenance


def month_end(text: str) -> date:
    """The last day of `2028-06`; raises ValueError."""
    year, month = (int(part) for part in text.split("-"))
    return date(year, month, calendar.monthrange(year, month)[1])


_STAGES = {"RC": -1, "GA": 0}


def _stage_rank(stage: str) -> int:
    return _STAGES[stage] if stage in _STAGES else int(stage.removeprefix("Update "))


def _toolkit(row: Row) -> ToolkitDriver:
    row.grade("branch")
    return ToolkitDriver(
        cuda=row.parsed("cuda", CudaVersion.parse),
        stage=row.text("stage"),
        driver_branch=row.integer("driver_branch"),
        linux_driver=row.parsed_or_none("linux_driver", DriverRelease.parse),
        windows_driver=row.parsed_or_none("windows_driver", DriverRelease.parse),
        bundled_linux=row.flag("bundled_linux"),
        bundled_windows=row.flag("bundled_windows"),
        origin=row.origin(),
    )


def _floor(row: Row) -> MinorVersionFloor:
    return MinorVersionFloor(
        cuda_major=row.integer("cuda_major"),
        from_minor=row.integer("from_minor"),
        linux_minimum=row.parsed("linux_minimum", DriverRelease.parse),
        windows_minimum=row.parsed("windows_minimum", DriverRelease.parse),
        windows_minimum_later_notes=row.parsed_or_none("windows_minimum_later_notes", DriverRelease.parse),
        linux_first_release=row.parsed_or_none("linux_first_release", DriverRelease.parse),
        below_branch=row.integer_or_none("below_branch"),
        origin=row.origin(),
    )


def _branch(row: Row) -> Branch:
    row.grade("ended")
    return Branch(
        number=row.integer("branch"),
        max_cuda=row.parsed("max_cuda", CudaVersion.parse),
        type=row.one_of("type", BranchType),
        end_of_life=row.parsed_or_none("end_of_life", month_end),
        ended=row.flag("ended"),
        last_release=row.parsed("last_release", DriverRelease.parse),
        windows_last_release=row.parsed_or_none("windows_last_release", DriverRelease.parse),
        first_open_module_tag=row.parsed_or_none("first_open_module_tag", date.fromisoformat),
        verified_lifecycle=row.grade("lifecycle") or Verified.INFERRED,
        source_lifecycle=row.text_or_none("source_lifecycle"),
        origin=row.origin(),
    )


def _architecture(row: Row) -> DriverArchitecture:
    return DriverArchitecture(
        name=row.text("architecture"),
        compute_capabilities=row.many("ccs", ComputeCapability.parse),
        first_branch=row.integer_or_none("first_branch"),
        last_branch=row.integer_or_none("last_branch"),
        open_module=row.one_of("open_module", OpenModule),
        origin=row.origin(),
    )


def _first_driver(row: Row) -> FirstDriver:
    return FirstDriver(
        family=row.text("family"),
        products=row.texts("products"),
        branch=row.integer("branch"),
        first_seen=row.parsed_or_none("first_seen", DriverRelease.parse),
        first_seen_date=row.parsed_or_none("first_seen_date", date.fromisoformat),
        origin=row.origin(),
    )


def _compat_package(row: Row) -> CompatPackage:
    return CompatPackage(
        cuda=row.parsed("cuda", CudaVersion.parse),
        built_from_branch=row.integer("built_from_branch"),
        supported_host_branches=row.integers_or_none("supported_host_branches"),
        accepted_host_branches=row.integers_or_none("accepted_host_branches"),
        geforce_listed=row.flag("geforce_listed"),
        verified_supported=row.grade("supported"),
        source_supported=row.text_or_none("source_supported"),
        origin=row.origin(),
    )


def _probe(row: Row) -> DriverProbe:
    return DriverProbe(
        runtime=row.parsed("runtime", CudaVersion.parse),
        library=row.text("library"),
        driver=row.parsed_or_none("driver", DriverRelease.parse),
        driver_api=row.integer("driver_api"),
        device_count_error=row.integer("device_count_error"),
        meaning=row.text("meaning"),
        origin=row.origin(),
    )


TOOLKITS = Schema(
    _toolkit, lambda row: (row.cuda, row.stage), Order.DESCENDING, order_by=lambda row: (row.cuda, _stage_rank(row.stage))
)
FLOORS = Schema(_floor, lambda row: row.cuda_major, Order.ASCENDING)
BRANCHES = Schema(_branch, lambda row: row.number, Order.ASCENDING)
ARCHITECTURES = Schema(_architecture, lambda row: row.compute_capabilities)
FIRST_DRIVERS = Schema(_first_driver, lambda row: row.family)
COMPAT_PACKAGES = Schema(_compat_package, lambda row: row.cuda, Order.ASCENDING)
PROBES = Schema(_probe, lambda row: (row.runtime, row.driver_api))
