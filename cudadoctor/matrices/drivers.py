"""Answers about drivers: what a runtime needs, what a branch supports and until when, which GPUs it knows."""

from __future__ import annotations

from datetime import date
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.driver_rows import (
    ARCHITECTURES,
    BRANCHES,
    COMPAT_PACKAGES,
    FIRST_DRIVERS,
    FLOORS,
    PROBES,
    TOOLKITS,
    Branch,
    BranchType,
    CompatPackage,
    DriverArchitecture,
    DriverProbe,
    FirstDriver,
    ForwardCompat,
    MinorVersionFloor,
    OpenModule,
    ToolkitDriver,
)
from cudadoctor.matrices.platforms import DriverPlatform
from cudadoctor.matrices.source import Document, Note
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease

__all__ = [
    "Branch",
    "BranchType",
    "CompatPackage",
    "DriverArchitecture",
    "DriverMatrix",
    "DriverProbe",
    "FirstDriver",
    "ForwardCompat",
    "MinorVersionFloor",
    "OpenModule",
    "ToolkitDriver",
    "load",
]


class DriverMatrix(Struct, frozen=True, dict=True):
    """matrices/cuda_driver.toml."""

    title: str
    as_of: date
    toolkits: tuple[ToolkitDriver, ...]
    floors: tuple[MinorVersionFloor, ...]
    branches: tuple[Branch, ...]
    architectures: tuple[DriverArchitecture, ...]
    first_drivers: tuple[FirstDriver, ...]
    compat_packages: tuple[CompatPackage, ...]
    probes: tuple[DriverProbe, ...]
    notes: tuple[Note, ...]

    @property
    def newest_known(self) -> Branch:
        """The newest branch of the table; a newer one is live truth, never an alarm."""
        return self.branches[-1]

    @property
    def newest_cuda(self) -> CudaVersion:
        """The newest CUDA release of the table."""
        return self.toolkits[0].cuda

    def floor(self, cuda: CudaVersion) -> MinorVersionFloor | None:
        """The minor-version floor that holds for `cuda`; None where each toolkit has its own minimum, or unknown."""
        return next((floor for floor in self.floors if floor.cuda_major == cuda.major and cuda.minor >= floor.from_minor), None)

    def minimum_driver(self, runtime: CudaVersion, platform: DriverPlatform) -> DriverRelease | None:
        """The oldest driver that runs a CUDA runtime: the floor of its major, or its own minimum up to 11.0; None: unknown."""
        floor = self.floor(runtime)
        if floor is not None:
            return floor.minimum(platform)
        releases = [row.driver(platform) for row in self.toolkits if row.cuda == runtime]
        return min((release for release in releases if release is not None), default=None)

    def bundled_driver(self, toolkit: CudaVersion, platform: DriverPlatform) -> DriverRelease | None:
        """The driver that came with the newest update of a toolkit; None where none did, or unknown."""
        return next((row.driver(platform) for row in self.toolkits if row.cuda == toolkit), None)

    def toolkit_branch(self, toolkit: CudaVersion) -> int | None:
        """The driver branch that was made for a toolkit, which runs its newest features; None: unknown."""
        return next((row.driver_branch for row in self.toolkits if row.cuda == toolkit), None)

    def branch(self, release: DriverRelease | int) -> Branch | None:
        """The branch that a release (Linux or Windows number) belongs to; None where the table does not know it."""
        number = release if isinstance(release, int) else release.branch
        row = next((row for row in reversed(self.branches) if row.number <= number), None)
        return row if row is not None and number <= row.last_windows_branch else None

    def is_newer_than_table(self, release: DriverRelease | int) -> bool:
        """Whether a release is of a branch later than the newest row."""
        number = release if isinstance(release, int) else release.branch
        return number > self.newest_known.last_windows_branch

    def max_cuda(self, release: DriverRelease | int) -> CudaVersion | None:
        """The newest CUDA that a driver's API supports; None where the branch is unknown or newer than the table."""
        row = self.branch(release)
        return row.max_cuda if row else None

    def branch_for_cuda(self, cuda: CudaVersion) -> Branch | None:
        """The oldest branch whose API reports at least `cuda`; None where the table has none."""
        return next((row for row in self.branches if row.max_cuda >= cuda), None)

    @cached_property
    def _architecture_of(self) -> dict[ComputeCapability, DriverArchitecture]:
        return {cc: row for row in self.architectures for cc in row.compute_capabilities}

    def architecture(self, cc: ComputeCapability) -> DriverArchitecture | None:
        """The row for a compute capability; None where it is newer than the table."""
        return self._architecture_of.get(cc)

    def last_branch_for(self, cc: ComputeCapability) -> int | None:
        """The last branch that knows a GPU (470 for Kepler, 580 for Maxwell to Volta); None: still supported, or unknown."""
        row = self.architecture(cc)
        return row.last_branch if row else None

    def first_branch_for(self, cc: ComputeCapability) -> int | None:
        """The first branch that knows a GPU; None where the table does not say."""
        row = self.architecture(cc)
        return row.first_branch if row else None

    def drops_architecture(self, release: DriverRelease | int, cc: ComputeCapability) -> bool | None:
        """Whether a driver no longer knows a GPU of this compute capability; None where the capability is not in the table."""
        row = self.architecture(cc)
        if row is None:
            return None
        number = release if isinstance(release, int) else release.branch
        branch = self.branch(number)
        return row.last_branch is not None and (branch.number if branch else number) > row.last_branch

    def first_driver_for(self, product: str) -> FirstDriver | None:
        """The first driver seen for a product name, e.g. `GeForce RTX 5090`; None where no row names it."""
        wanted = product.lower().removeprefix("nvidia ")
        rows = ((name, row) for row in self.first_drivers for name in row.products)
        matches = [(len(name), row) for name, row in rows if _begins_with(wanted, name.lower())]
        return max(matches, key=lambda match: match[0])[1] if matches else None

    def open_module(self, cc: ComputeCapability) -> OpenModule | None:
        """Whether the open kernel module drives a GPU; None where the capability is not in the table."""
        row = self.architecture(cc)
        return row.open_module if row else None

    def compat_package(self, cuda: CudaVersion) -> CompatPackage | None:
        return next((row for row in self.compat_packages if row.cuda == cuda), None)

    def forward_compat(self, package_cuda: CudaVersion, host_branch: int) -> ForwardCompat:
        """Whether the cuda-compat package of a CUDA release serves a host's driver branch (the GPU must be eligible too)."""
        package = self.compat_package(package_cuda)
        if package is None:
            return ForwardCompat.UNKNOWN
        if host_branch >= package.built_from_branch:
            return ForwardCompat.NOT_NEEDED
        if package.supported_host_branches is None and package.accepted_host_branches is None:
            return ForwardCompat.UNKNOWN
        accepted = host_branch in (package.accepted_host_branches or ())
        if package.supported_host_branches is None:
            return ForwardCompat.SUPPORTED if accepted else ForwardCompat.UNSUPPORTED
        if host_branch in package.supported_host_branches:
            return ForwardCompat.SUPPORTED
        return ForwardCompat.TOLERATED if accepted else ForwardCompat.UNSUPPORTED


def _begins_with(wanted: str, name: str) -> bool:
    return wanted == name or wanted.startswith((f"{name} ", f"{name}-"))


def load(document: Document) -> DriverMatrix:
    """The matrix in a parsed cuda_driver.toml; raises MatrixError."""
    matrix = DriverMatrix(
        title=document.title,
        as_of=document.as_of,
        toolkits=document.table("toolkit", TOOLKITS),
        floors=document.table("minor_version", FLOORS),
        branches=document.table("branch", BRANCHES),
        architectures=document.table("architecture", ARCHITECTURES),
        first_drivers=document.table("first_driver", FIRST_DRIVERS),
        compat_packages=document.table("forward_compat", COMPAT_PACKAGES),
        probes=document.table("probe", PROBES),
        notes=document.notes(),
    )
    document.finish()
    return matrix
