"""Answers about shared libraries: which CUDA major a soname belongs to, and where wheels put it."""

from __future__ import annotations

from datetime import date

from msgspec import Struct

from cudadoctor.matrices.source import Document, Provenance, Row, Schema


class CudaLibrary(Struct, frozen=True):
    """The soname of one library in one CUDA major."""

    library: str
    cuda_major: int
    soname: str
    origin: Provenance


class OtherLibrary(Struct, frozen=True):
    """A library whose soname does not follow the CUDA major."""

    library: str
    sonames: tuple[str, ...]
    owner: str
    origin: Provenance


class WheelLayout(Struct, frozen=True):
    """Where a family of wheels puts its libraries."""

    layout: str
    path: str
    origin: Provenance


class SonameMatrix(Struct, frozen=True, dict=True):
    """matrices/sonames.toml."""

    title: str
    as_of: date
    cuda: tuple[CudaLibrary, ...]
    other: tuple[OtherLibrary, ...]
    layouts: tuple[WheelLayout, ...]

    def cuda_majors_of(self, soname: str) -> tuple[int, ...]:
        """The CUDA majors that a soname or full file name (libcudart.so.12.6.77) belongs to; empty: unknown."""
        majors = {row.cuda_major for row in self.cuda if soname == row.soname or soname.startswith(f"{row.soname}.")}
        return tuple(sorted(majors))

    def cuda_major_of(self, soname: str) -> int | None:
        """The one CUDA major of a soname; None where it is shared by several (libcurand.so.10), or unknown."""
        majors = self.cuda_majors_of(soname)
        return majors[0] if len(majors) == 1 else None

    def sonames(self, cuda_major: int) -> tuple[str, ...]:
        """The sonames of a CUDA major's libraries, in order; empty where the major is unknown."""
        return tuple(sorted({row.soname for row in self.cuda if row.cuda_major == cuda_major}))

    def soname(self, library: str, cuda_major: int) -> str | None:
        """The soname of a library (`libcublas`) in a CUDA major; None: unknown, or the major has no such library."""
        return next((row.soname for row in self.cuda if row.library == library and row.cuda_major == cuda_major), None)

    def owner(self, soname: str) -> OtherLibrary | None:
        """The row of a library outside the CUDA majors (libcuda.so.1, libnccl.so.2); None: unknown."""
        return next(
            (row for row in self.other if any(soname == name or soname.startswith(f"{name}.") for name in row.sonames)), None
        )


def _cuda(row: Row) -> CudaLibrary:
    return CudaLibrary(row.text("library"), row.integer("cuda_major"), row.text("soname"), row.origin())


def _other(row: Row) -> OtherLibrary:
    return OtherLibrary(row.text("library"), row.texts("sonames"), row.text("owner"), row.origin())


def _layout(row: Row) -> WheelLayout:
    return WheelLayout(row.text("layout"), row.text("path"), row.origin())


CUDA = Schema(_cuda, lambda row: (row.library, row.cuda_major, row.soname))
OTHER = Schema(_other, lambda row: row.library)
LAYOUTS = Schema(_layout, lambda row: row.layout)


def load(document: Document) -> SonameMatrix:
    """The matrix in a parsed sonames.toml; raises MatrixError."""
    cuda, other = document.table("cuda", CUDA), document.table("other", OTHER)
    matrix = SonameMatrix(document.title, document.as_of, cuda, other, document.table("wheel_layout", LAYOUTS))
    document.finish()
    return matrix
