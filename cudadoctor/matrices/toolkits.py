"""Answers about CUDA toolkits: compile targets, PTX versions, families, component versions."""

from __future__ import annotations

from datetime import date
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.source import Document, Note, Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, DottedVersion, PtxIsa, SmTarget


class Toolkit(Struct, frozen=True):
    """One minor release: what its compilers can target."""

    cuda: CudaVersion
    ptx_isa: PtxIsa
    targets: tuple[SmTarget, ...]
    deprecated: tuple[SmTarget, ...]
    newest_by_release: SmTarget | None
    """The newest chip, where that is not the highest number."""
    nvrtc_equals_ptxas: bool | None
    probed: tuple[CudaVersion, ...]
    """Builds whose compilers were run."""
    origin: Provenance


class PtxRelease(Struct, frozen=True):
    """Which toolkit brought a PTX ISA version, and the driver branch that first compiles it."""

    ptx: PtxIsa
    cuda: CudaVersion
    driver_branch: int
    verified_driver: Verified | None
    origin: Provenance


class Target(Struct, frozen=True):
    """The life of one compile target."""

    target: SmTarget
    first_cuda: CudaVersion
    first_is_upper_bound: bool
    """True where an older toolkit may have it too."""
    last_cuda: CudaVersion | None
    """None while the newest toolkit still has it."""
    min_ptx_isa: PtxIsa | None
    origin: Provenance


class Family(Struct, frozen=True):
    """The compute capabilities that code with an `f` suffix runs on."""

    target: SmTarget
    members: tuple[ComputeCapability, ...]
    origin: Provenance


class Components(Struct, frozen=True):
    """Component versions of one toolkit release; None where the release does not name one."""

    release: DottedVersion
    nvcc: DottedVersion | None
    nvrtc: DottedVersion | None
    cudart: DottedVersion | None
    cublas: DottedVersion | None
    cufft: DottedVersion | None
    cusparse: DottedVersion | None
    cusolver: DottedVersion | None
    nvjitlink: DottedVersion | None
    origin: Provenance


class ToolkitMatrix(Struct, frozen=True, dict=True):
    """matrices/toolkit_arch.toml."""

    title: str
    as_of: date
    toolkits: tuple[Toolkit, ...]
    ptx_releases: tuple[PtxRelease, ...]
    all_targets: tuple[Target, ...]
    all_families: tuple[Family, ...]
    component_releases: tuple[Components, ...]
    notes: tuple[Note, ...]

    @property
    def newest_known(self) -> Toolkit:
        return self.toolkits[-1]

    def is_newer_than_table(self, toolkit: CudaVersion) -> bool:
        return toolkit > self.newest_known.cuda

    @cached_property
    def _by_version(self) -> dict[CudaVersion, Toolkit]:
        return {row.cuda: row for row in self.toolkits}

    def toolkit(self, toolkit: CudaVersion) -> Toolkit | None:
        return self._by_version.get(toolkit)

    def targets(self, toolkit: CudaVersion) -> tuple[SmTarget, ...] | None:
        """What a toolkit can target, in numeric order; None where the table does not know it."""
        row = self.toolkit(toolkit)
        return row.targets if row else None

    def can_target(self, toolkit: CudaVersion, target: SmTarget | ComputeCapability) -> bool | None:
        """Whether a toolkit can target this; None where the table does not know the toolkit."""
        targets = self.targets(toolkit)
        return None if targets is None else _plain(target) in targets

    @cached_property
    def _target_rows(self) -> dict[SmTarget, Target]:
        return {row.target: row for row in self.all_targets}

    def target(self, target: SmTarget | ComputeCapability) -> Target | None:
        """The life of a target; None where the table does not know it."""
        return self._target_rows.get(_plain(target))

    def first_toolkit_for(self, target: SmTarget | ComputeCapability) -> CudaVersion | None:
        """The first toolkit that can target this; None where the target is not in the table."""
        row = self.target(target)
        return row.first_cuda if row else None

    def last_toolkit_for(self, target: SmTarget | ComputeCapability) -> CudaVersion | None:
        """The last toolkit that can target this; None where the newest still can, or the target is not in the table."""
        row = self.target(target)
        return row.last_cuda if row else None

    def toolkits_for(self, target: SmTarget | ComputeCapability) -> tuple[CudaVersion, ...]:
        """The toolkits of the table that can target this, oldest first."""
        plain = _plain(target)
        return tuple(row.cuda for row in self.toolkits if plain in row.targets)

    def min_ptx_isa(self, target: SmTarget | ComputeCapability) -> PtxIsa | None:
        """The lowest PTX ISA whose `.target` may name this; None where the table does not say."""
        row = self.target(target)
        return row.min_ptx_isa if row else None

    @cached_property
    def _ptx_of_cuda(self) -> dict[CudaVersion, PtxIsa]:
        return {row.cuda: row.ptx for row in self.ptx_releases}

    def ptx_isa(self, cuda: CudaVersion) -> PtxIsa | None:
        """The PTX ISA that a toolkit writes, and the newest that a driver of that CUDA version compiles; None: unknown."""
        return self._ptx_of_cuda.get(cuda)

    def toolkit_for_ptx(self, isa: PtxIsa) -> CudaVersion | None:
        """The CUDA release that brought a PTX ISA, hence the lowest driver CUDA version that compiles it; None: unknown."""
        return next((row.cuda for row in self.ptx_releases if row.ptx == isa), None)

    def driver_branch_for_ptx(self, isa: PtxIsa) -> int | None:
        """The first driver branch that compiles a PTX ISA; None: unknown."""
        return next((row.driver_branch for row in self.ptx_releases if row.ptx == isa), None)

    def family(self, target: SmTarget) -> tuple[ComputeCapability, ...] | None:
        """The compute capabilities of a family target (`sm_100f`, `compute_100f`); None where the table has no such row."""
        return next(
            (row.members for row in self.all_families if row.target.compute_capability == target.compute_capability), None
        )

    def components(self, release: DottedVersion) -> Components | None:
        """The component versions of a toolkit release such as 12.6.3; None: unknown."""
        return next((row for row in self.component_releases if row.release == release), None)

    def release_of_nvcc(self, nvcc: DottedVersion) -> DottedVersion | None:
        """The newest toolkit release that ships an nvcc build (12.6.85 is 12.6.3); None: unknown."""
        return next((row.release for row in self.component_releases if row.nvcc == nvcc), None)


def _plain(target: SmTarget | ComputeCapability) -> SmTarget:
    if isinstance(target, ComputeCapability):
        return target.sm
    return SmTarget(CodeKind.SASS, target.compute_capability, target.suffix)


def _toolkit(row: Row) -> Toolkit:
    return Toolkit(
        cuda=row.parsed("cuda", CudaVersion.parse),
        ptx_isa=row.parsed("ptx_isa", PtxIsa.parse),
        targets=row.many("targets", SmTarget.parse),
        deprecated=row.many("deprecated", SmTarget.parse),
        newest_by_release=row.parsed_or_none("newest_by_release", SmTarget.parse),
        nvrtc_equals_ptxas=row.flag_or_none("nvrtc_equals_ptxas"),
        probed=row.many("probed", CudaVersion.parse),
        origin=row.origin(),
    )


def _ptx(row: Row) -> PtxRelease:
    return PtxRelease(
        ptx=row.parsed("ptx", PtxIsa.parse),
        cuda=row.parsed("cuda", CudaVersion.parse),
        driver_branch=row.integer("driver_branch"),
        verified_driver=row.grade("driver"),
        origin=row.origin(),
    )


def _target(row: Row) -> Target:
    return Target(
        target=row.parsed("target", SmTarget.parse),
        first_cuda=row.parsed("first_cuda", CudaVersion.parse),
        first_is_upper_bound=row.flag_or_none("first_is_upper_bound") or False,
        last_cuda=row.parsed_or_none("last_cuda", CudaVersion.parse),
        min_ptx_isa=row.parsed_or_none("min_ptx_isa", PtxIsa.parse),
        origin=row.origin(),
    )


def _family(row: Row) -> Family:
    return Family(row.parsed("target", SmTarget.parse), row.many("members", ComputeCapability.parse), row.origin())


def _components(row: Row) -> Components:
    def version(name: str) -> DottedVersion | None:
        return row.parsed_or_none(name, DottedVersion.parse)

    return Components(
        release=row.parsed("release", DottedVersion.parse),
        nvcc=version("nvcc"),
        nvrtc=version("nvrtc"),
        cudart=version("cudart"),
        cublas=version("cublas"),
        cufft=version("cufft"),
        cusparse=version("cusparse"),
        cusolver=version("cusolver"),
        nvjitlink=version("nvjitlink"),
        origin=row.origin(),
    )


TOOLKITS = Schema(_toolkit, lambda row: row.cuda, Order.ASCENDING)
PTX_RELEASES = Schema(_ptx, lambda row: row.cuda, Order.ASCENDING)
TARGETS = Schema(_target, lambda row: row.target, Order.ASCENDING)
FAMILIES = Schema(_family, lambda row: row.target, Order.ASCENDING)
COMPONENTS = Schema(_components, lambda row: row.release, Order.DESCENDING)


def load(document: Document) -> ToolkitMatrix:
    """The matrix in a parsed toolkit_arch.toml; raises MatrixError."""
    matrix = ToolkitMatrix(
        title=document.title,
        as_of=document.as_of,
        toolkits=document.table("toolkit", TOOLKITS),
        ptx_releases=document.table("ptx_isa", PTX_RELEASES),
        all_targets=document.table("target", TARGETS),
        all_families=document.table("family", FAMILIES),
        component_releases=document.table("component", COMPONENTS),
        notes=document.notes(),
    )
    document.finish()
    return matrix
