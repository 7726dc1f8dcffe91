"""Answers about cuDNN: which GPUs and CUDA majors a version serves, what its files are called, who wants which."""

from __future__ import annotations

from datetime import date

from msgspec import Struct

from cudadoctor.matrices.platforms import DriverPlatform
from cudadoctor.matrices.source import Document, MatrixError, Note, Order, Provenance, Row, Schema
from cudadoctor.model.versions import ComputeCapability, DottedVersion, DriverRelease, SmTarget

_FIRST_MAJOR_WITH_TEN_THOUSANDS = 9


class CudnnSeries(Struct, frozen=True):
    """A range of minors (inclusive) with the same requirements; `last` is None while it goes on."""

    first: DottedVersion
    last: DottedVersion | None
    cuda_majors: tuple[int, ...]
    min_cc: tuple[ComputeCapability, ...]
    """One for each of `cuda_majors`."""
    soname: str
    version_header: str
    origin: Provenance

    def covers(self, version: DottedVersion) -> bool:
        return _within(version, self.first, self.last)


class CudnnWheel(Struct, frozen=True):
    """One wheel that was unpacked."""

    package: str
    version: DottedVersion
    cuda_major: int
    min_cc: ComputeCapability
    ops: tuple[SmTarget, ...]
    """Code in libcudnn_ops: machine code, then PTX."""
    libraries: tuple[str, ...]
    headers: tuple[str, ...]
    wheel_tag: str
    origin: Provenance


class CudnnPackage(Struct, frozen=True):
    """The life of one wheel name."""

    name: str
    first: DottedVersion
    last: DottedVersion
    current: bool
    """Whether newer versions are still to come."""
    origin: Provenance


class CudnnDriver(Struct, frozen=True):
    """The driver that cuDNN itself asks for with one CUDA major."""

    first: DottedVersion
    last: DottedVersion | None
    cuda_major: int
    from_cc: ComputeCapability | None
    """Holds only for GPUs from here on; None for all."""
    linux_minimum: DriverRelease
    windows_minimum: DriverRelease
    origin: Provenance


class RenamedLibraries(Struct, frozen=True):
    """Libraries of cuDNN 8 and what took their place in cuDNN 9."""

    v8: tuple[str, ...]
    v9: tuple[str, ...]
    origin: Provenance


class CudnnUser(Struct, frozen=True):
    """Which soname a framework's range of versions (inclusive minors) loads."""

    package: str
    first: DottedVersion
    last: DottedVersion | None
    soname: str
    origin: Provenance


class CudnnMatrix(Struct, frozen=True, dict=True):
    """matrices/cudnn.toml."""

    title: str
    as_of: date
    all_series: tuple[CudnnSeries, ...]
    wheels: tuple[CudnnWheel, ...]
    packages: tuple[CudnnPackage, ...]
    drivers: tuple[CudnnDriver, ...]
    renamed: tuple[RenamedLibraries, ...]
    users: tuple[CudnnUser, ...]
    notes: tuple[Note, ...]

    @property
    def newest_known(self) -> DottedVersion:
        return max(row.last for row in self.packages)

    def is_newer_than_table(self, version: DottedVersion) -> bool:
        return version > self.newest_known

    def series(self, version: DottedVersion) -> CudnnSeries | None:
        """The series of a version; None where the table does not know it."""
        return next((row for row in self.all_series if row.covers(version)), None)

    def soname(self, version: DottedVersion) -> str | None:
        """The main library's soname, e.g. `libcudnn.so.9`; None: unknown."""
        row = self.series(version)
        return row.soname if row else None

    def cuda_majors(self, version: DottedVersion) -> tuple[int, ...]:
        """The CUDA majors that a version is built for; empty: unknown."""
        row = self.series(version)
        return row.cuda_majors if row else ()

    def min_cc(self, version: DottedVersion, cuda_major: int) -> ComputeCapability | None:
        """The lowest compute capability that a version serves with a CUDA major; None: unknown, or no such build."""
        row = self.series(version)
        if row is None or cuda_major not in row.cuda_majors:
            return None
        return row.min_cc[row.cuda_majors.index(cuda_major)]

    def serves(self, version: DottedVersion, cuda_major: int, cc: ComputeCapability) -> bool | None:
        """Whether a version still has kernels for a GPU (a newer GPU is not judged); None: unknown."""
        lowest = self.min_cc(version, cuda_major)
        return None if lowest is None else cc >= lowest

    def newest_for(self, cc: ComputeCapability, cuda_major: int) -> CudnnSeries | None:
        """The newest series that serves a GPU with a CUDA major; None where none does."""
        rows = (row for row in reversed(self.all_series) if self.serves(row.first, cuda_major, cc))
        return next(rows, None)

    def minimum_driver(
        self, version: DottedVersion, cuda_major: int, cc: ComputeCapability, platform: DriverPlatform
    ) -> DriverRelease | None:
        """The oldest driver that a version asks for; None where the table does not say."""
        rows = [row for row in self.drivers if row.cuda_major == cuda_major and _within(version, row.first, row.last)]
        asked = [row for row in rows if row.from_cc is None or cc >= row.from_cc]
        return max((_minimum(row, platform) for row in asked), default=None)

    def expected_soname(self, package: str, version: DottedVersion) -> str | None:
        """The soname that a framework's version loads; None: unknown, or it loads none."""
        rows = (row for row in self.users if row.package == package and _within(version, row.first, row.last))
        return next((row.soname for row in rows), None)

    def successors(self, library: str) -> tuple[str, ...]:
        """What took the place of a cuDNN 8 library (`libcudnn_ops_infer`) in cuDNN 9; empty where nothing is known."""
        stem = library.split(".so")[0]
        return next((row.v9 for row in self.renamed if stem in row.v8), ())

    def libraries(self, major: int) -> tuple[str, ...]:
        """All file names (sonames) that wheels of a cuDNN major have brought, in order."""
        return tuple(sorted({name for row in self.wheels if row.version.major == major for name in row.libraries}))


def version_of(number: int) -> DottedVersion:
    """The version in CUDNN_VERSION or cudnnGetVersion(): 8907 is 8.9.7, 92800 is 9.28.0; raises ValueError."""
    if number < 1000:
        raise ValueError(f"not a cuDNN version number: {number}")
    unit = 10_000 if number >= _FIRST_MAJOR_WITH_TEN_THOUSANDS * 10_000 else 1000
    return DottedVersion.parse(f"{number // unit}.{number % unit // 100}.{number % 100}")


def _minimum(row: CudnnDriver, platform: DriverPlatform) -> DriverRelease:
    return row.linux_minimum if platform is DriverPlatform.LINUX else row.windows_minimum


def _within(version: DottedVersion, first: DottedVersion, last: DottedVersion | None) -> bool:
    """Whether a version lies in a range of minors; an open range ends with its major."""
    minor = (version.major, version.minor)
    if last is None:
        return version.major == first.major and minor >= (first.major, first.minor)
    return (first.major, first.minor) <= minor <= (last.major, last.minor)


def _series(row: Row) -> CudnnSeries:
    series = CudnnSeries(
        first=row.parsed("first", DottedVersion.parse),
        last=row.parsed_or_none("last", DottedVersion.parse),
        cuda_majors=row.integers("cuda_majors"),
        min_cc=row.many("min_cc", ComputeCapability.parse),
        soname=row.text("soname"),
        version_header=row.text("version_header"),
        origin=row.origin(),
    )
    if len(series.cuda_majors) != len(series.min_cc):
        raise MatrixError(f"{row.where}: cuda_majors and min_cc differ in length")
    return series


def _wheel(row: Row) -> CudnnWheel:
    return CudnnWheel(
        package=row.text("package"),
        version=row.parsed("version", DottedVersion.parse),
        cuda_major=row.integer("cuda_major"),
        min_cc=row.parsed("min_cc", ComputeCapability.parse),
        ops=(*row.many("ops_sm", SmTarget.parse), *row.many("ops_ptx", SmTarget.parse)),
        libraries=row.texts("libraries"),
        headers=row.texts("headers"),
        wheel_tag=row.text("wheel_tag"),
        origin=row.origin(),
    )


def _package(row: Row) -> CudnnPackage:
    return CudnnPackage(
        name=row.text("package"),
        first=row.parsed("first", DottedVersion.parse),
        last=row.parsed("last", DottedVersion.parse),
        current=row.flag_or_none("current") or False,
        origin=row.origin(),
    )


def _driver(row: Row) -> CudnnDriver:
    return CudnnDriver(
        first=row.parsed("first", DottedVersion.parse),
        last=row.parsed_or_none("last", DottedVersion.parse),
        cuda_major=row.integer("cuda_major"),
        from_cc=row.parsed_or_none("from_cc", ComputeCapability.parse),
        linux_minimum=row.parsed("linux_minimum", DriverRelease.parse),
        windows_minimum=row.parsed("windows_minimum", DriverRelease.parse),
        origin=row.origin(),
    )


def _user(row: Row) -> CudnnUser:
    return CudnnUser(
        package=row.text("package"),
        first=row.parsed("first", DottedVersion.parse),
        last=row.parsed_or_none("last", DottedVersion.parse),
        soname=row.text("soname"),
        origin=row.origin(),
    )


def _renamed(row: Row) -> RenamedLibraries:
    return RenamedLibraries(row.texts("v8"), row.texts("v9"), row.origin())


SERIES = Schema(_series, lambda row: row.first, Order.ASCENDING)
WHEELS = Schema(_wheel, lambda row: (row.package, row.version), Order.ASCENDING, order_by=lambda row: row.version)
PACKAGES = Schema(_package, lambda row: row.name, Order.ASCENDING)
DRIVERS = Schema(_driver, lambda row: (row.cuda_major, row.first))
RENAMED = Schema(_renamed, lambda row: (row.v8, row.v9))
USERS = Schema(_user, lambda row: (row.package, row.first))


def load(document: Document) -> CudnnMatrix:
    """The matrix in a parsed cudnn.toml; raises MatrixError."""
    matrix = CudnnMatrix(
        title=document.title,
        as_of=document.as_of,
        all_series=document.table("series", SERIES),
        wheels=document.table("wheel", WHEELS),
        packages=document.table("package", PACKAGES),
        drivers=document.table("driver", DRIVERS),
        renamed=document.table("renamed", RENAMED),
        users=document.table("expects", USERS),
        notes=document.notes(),
    )
    document.finish()
    return matrix
