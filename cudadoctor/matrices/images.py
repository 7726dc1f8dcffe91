"""Answers about base images and distributions, for Dockerfiles whose image is not here to be looked into."""

from __future__ import annotations

from datetime import date
from enum import Enum

from msgspec import Struct

from cudadoctor.matrices.source import Document, Provenance, Row, Schema
from cudadoctor.model.versions import CudaVersion, DottedVersion


class HowBuilt(Enum):
    """What installing a package from the index, or from its repository, compiles."""

    COMPILED = "compiled"
    PREBUILT_OR_COMPILED = "prebuilt-or-compiled"
    """Its setup fetches a wheel of the project's own where one fits, and compiles else."""
    NEEDS_FORCE_CUDA = "needs-force-cuda"
    """Without a visible GPU it is compiled for CUDA only where FORCE_CUDA=1 is set."""
    COMPILED_ON_USE = "compiled-on-use"


class NgcImage(Struct, frozen=True):
    """NVIDIA's PyTorch container of a month; torch is a pre-release that NVIDIA builds itself."""

    tag: str
    cuda: CudaVersion
    torch: str
    ubuntu: str
    origin: Provenance


class Distribution(Struct, frozen=True):
    """A release of a distribution and its default compiler, C library, Python and, where packaged, CUDA compiler."""

    id: str
    release: str
    codename: str | None
    gcc: int
    glibc: DottedVersion
    python: DottedVersion
    nvcc: CudaVersion | None
    origin: Provenance


class SourceBuild(Struct, frozen=True):
    """A Python package that is compiled on installation; `arch_variable` is the list of architectures that it reads."""

    package: str
    how: HowBuilt
    arch_variable: str | None
    origin: Provenance


class ImageMatrix(Struct, frozen=True):
    """matrices/images.toml."""

    title: str
    as_of: date
    ngc: tuple[NgcImage, ...]
    distributions: tuple[Distribution, ...]
    source_builds: tuple[SourceBuild, ...]

    def ngc_image(self, tag: str) -> NgcImage | None:
        """The container of a month, `24.05`; None where the table does not know it."""
        return next((row for row in self.ngc if row.tag == tag), None)

    def distribution(self, name: str, release: str) -> Distribution | None:
        """A release by its number or its codename; None where the table does not know it."""
        return next((row for row in self.distributions if row.id == name and release in (row.release, row.codename)), None)

    def by_codename(self, codename: str) -> Distribution | None:
        """The release with this codename; None where the table does not know it."""
        return next((row for row in self.distributions if row.codename == codename), None)

    def source_build(self, package: str) -> SourceBuild | None:
        """How a package is built on installation; None where nothing is known to be compiled."""
        return next((row for row in self.source_builds if row.package == package), None)


def _ngc(row: Row) -> NgcImage:
    return NgcImage(row.text("tag"), row.parsed("cuda", CudaVersion.parse), row.text("torch"), row.text("ubuntu"), row.origin())


def _distribution(row: Row) -> Distribution:
    return Distribution(
        id=row.text("id"),
        release=row.text("release"),
        codename=row.text_or_none("codename"),
        gcc=row.integer("gcc"),
        glibc=row.parsed("glibc", DottedVersion.parse),
        python=row.parsed("python", DottedVersion.parse),
        nvcc=row.parsed_or_none("nvcc", CudaVersion.parse),
        origin=row.origin(),
    )


def _source_build(row: Row) -> SourceBuild:
    return SourceBuild(row.text("package"), row.one_of("how", HowBuilt), row.text_or_none("arch_variable"), row.origin())


NGC = Schema(_ngc, lambda row: row.tag)
DISTRIBUTIONS = Schema(_distribution, lambda row: (row.id, row.release))
SOURCE_BUILDS = Schema(_source_build, lambda row: row.package)


def load(document: Document) -> ImageMatrix:
    """The matrix in a parsed images.toml; raises MatrixError."""
    matrix = ImageMatrix(
        title=document.title,
        as_of=document.as_of,
        ngc=document.table("ngc", NGC),
        distributions=document.table("distribution", DISTRIBUTIONS),
        source_builds=document.table("source_build", SOURCE_BUILDS),
    )
    document.finish()
    return matrix
