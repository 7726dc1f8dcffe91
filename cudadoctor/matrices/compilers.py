"""Answers about host compilers: which gcc, clang and MSVC an nvcc accepts, and which glibc its headers clash with."""

from __future__ import annotations

from datetime import date
from enum import Enum

from msgspec import Struct

from cudadoctor.matrices.source import Document, MatrixError, Note, Order, Provenance, Row, Schema, Verified
from cudadoctor.model.versions import CudaVersion, DottedVersion


class HostFit(Enum):
    """How a host compiler stands to the bounds of an nvcc."""

    ACCEPTED = "accepted"
    TOO_NEW = "too-new"
    TOO_OLD = "too-old"
    """Rejected by the header (MSVC), or below the documented minimum (gcc, clang; the header does not test those)."""
    UNKNOWN = "unknown"


class CompilerBounds(Struct, frozen=True):
    """What crt/host_config.h of one nvcc build accepts; bounds are inclusive majors unless named otherwise."""

    cuda: CudaVersion
    build: CudaVersion | None
    """None for rows that hold for a whole minor."""
    gcc_max: int
    clang_max: int
    msc_ver_min: int
    msc_ver_below: int
    """First `_MSC_VER` that is rejected."""
    visual_studio: str
    grace_clang: tuple[int, int] | None
    """Lowest and highest major of NVIDIA's clang for Grace."""
    icc: str | None
    icx: str | None
    verified_msvc: Verified | None
    source_msvc: str | None
    origin: Provenance


class CompilerMinimum(Struct, frozen=True):
    """The documented lowest majors for a CUDA major; headers do not enforce them."""

    cuda_major: int
    gcc_min: int
    clang_min: int | None
    origin: Provenance


class GlibcClash(Struct, frozen=True):
    """A glibc whose headers do not compile with the headers of older toolkits, whatever the compiler."""

    glibc_from: DottedVersion
    cuda_below: CudaVersion
    """First toolkit that is free of it."""
    functions: tuple[str, ...]
    message: str
    origin: Provenance


class CompilerMatrix(Struct, frozen=True, dict=True):
    """matrices/host_compiler.toml."""

    title: str
    as_of: date
    all_bounds: tuple[CompilerBounds, ...]
    minimums: tuple[CompilerMinimum, ...]
    clashes: tuple[GlibcClash, ...]
    notes: tuple[Note, ...]

    def is_newer_than_table(self, nvcc: CudaVersion) -> bool:
        return nvcc > self.all_bounds[-1].cuda

    def bounds(self, nvcc: CudaVersion) -> CompilerBounds | None:
        """The bounds of an nvcc: of exactly this build (12.6.85), else of the newest build of its minor; None: unknown."""
        rows = [row for row in self.all_bounds if row.cuda == nvcc]
        exact = next((row for row in rows if row.build is not None and row.build.text == nvcc.text), None)
        return exact or (rows[-1] if rows else None)

    def minimum(self, nvcc: CudaVersion) -> CompilerMinimum | None:
        return next((row for row in self.minimums if row.cuda_major == nvcc.major), None)

    def gcc_fit(self, nvcc: CudaVersion, gcc: DottedVersion) -> HostFit:
        """How a gcc stands to an nvcc's bounds; only majors are tested."""
        bounds, minimum = self.bounds(nvcc), self.minimum(nvcc)
        return _fit(gcc.major, minimum.gcc_min if minimum else None, bounds.gcc_max if bounds else None)

    def clang_fit(self, nvcc: CudaVersion, clang: DottedVersion) -> HostFit:
        """How a clang stands to an nvcc's bounds; only majors are tested."""
        bounds, minimum = self.bounds(nvcc), self.minimum(nvcc)
        return _fit(clang.major, minimum.clang_min if minimum else None, bounds.clang_max if bounds else None)

    def msvc_fit(self, nvcc: CudaVersion, msc_ver: int) -> HostFit:
        """How a Microsoft compiler (`_MSC_VER`, e.g. 1944) stands to an nvcc's bounds."""
        bounds = self.bounds(nvcc)
        return HostFit.UNKNOWN if bounds is None else _fit(msc_ver, bounds.msc_ver_min, bounds.msc_ver_below - 1)

    def toolkits_for_gcc(self, gcc: DottedVersion) -> tuple[CudaVersion, ...]:
        """The toolkits of the table (by minor, oldest first) whose newest build accepts a gcc."""
        minors = {row.cuda: row for row in self.all_bounds}
        return tuple(cuda for cuda in sorted(minors) if self.gcc_fit(cuda, gcc) is HostFit.ACCEPTED)

    def glibc_clashes(self, nvcc: CudaVersion, glibc: DottedVersion) -> tuple[GlibcClash, ...]:
        """The clashes between a toolkit's headers and a glibc; empty where none is known."""
        return tuple(row for row in self.clashes if glibc >= row.glibc_from and nvcc < row.cuda_below)


def _fit(found: int, lowest: int | None, highest: int | None) -> HostFit:
    if highest is None:
        return HostFit.UNKNOWN
    if found > highest:
        return HostFit.TOO_NEW
    return HostFit.TOO_OLD if lowest is not None and found < lowest else HostFit.ACCEPTED


def _pair(row: Row, name: str) -> tuple[int, int] | None:
    numbers = row.integers_or_none(name)
    if numbers is None:
        return None
    if len(numbers) != 2 or numbers[0] > numbers[1]:
        raise MatrixError(f"{row.where}: {name} is not a lowest and a highest number: {numbers}")
    return numbers[0], numbers[1]


def _bounds(row: Row) -> CompilerBounds:
    return CompilerBounds(
        cuda=row.parsed("cuda", CudaVersion.parse),
        build=row.parsed_or_none("build", CudaVersion.parse),
        gcc_max=row.integer("gcc_max"),
        clang_max=row.integer("clang_max"),
        msc_ver_min=row.integer("msc_ver_min"),
        msc_ver_below=row.integer("msc_ver_below"),
        visual_studio=row.text("visual_studio"),
        grace_clang=_pair(row, "grace_clang"),
        icc=row.text_or_none("icc"),
        icx=row.text_or_none("icx"),
        verified_msvc=row.grade("msvc"),
        source_msvc=row.text_or_none("source_msvc"),
        origin=row.origin(),
    )


def _minimum(row: Row) -> CompilerMinimum:
    return CompilerMinimum(row.integer("cuda_major"), row.integer("gcc_min"), row.integer_or_none("clang_min"), row.origin())


def _clash(row: Row) -> GlibcClash:
    return GlibcClash(
        glibc_from=row.parsed("glibc_from", DottedVersion.parse),
        cuda_below=row.parsed("cuda_below", CudaVersion.parse),
        functions=row.texts("functions"),
        message=row.text("message"),
        origin=row.origin(),
    )


def _build_rank(row: CompilerBounds) -> tuple[CudaVersion, DottedVersion]:
    return row.cuda, DottedVersion.parse((row.build or row.cuda).text)


BOUNDS = Schema(_bounds, lambda row: (row.build or row.cuda).text, Order.ASCENDING, order_by=_build_rank)
MINIMUMS = Schema(_minimum, lambda row: row.cuda_major, Order.ASCENDING)
CLASHES = Schema(_clash, lambda row: row.glibc_from, Order.ASCENDING)


def load(document: Document) -> CompilerMatrix:
    """The matrix in a parsed host_compiler.toml; raises MatrixError."""
    matrix = CompilerMatrix(
        title=document.title,
        as_of=document.as_of,
        all_bounds=document.table("nvcc", BOUNDS),
        minimums=document.table("minimum", MINIMUMS),
        clashes=document.table("glibc_clash", CLASHES),
        notes=document.notes(),
    )
    document.finish()
    return matrix
