"""The rows of ecosystem.toml, and how they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from msgspec import Struct
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from cudadoctor.matrices.source import Order, Provenance, Row, Schema, Verified
from cudadoctor.matrices.toolkits import ToolkitMatrix
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget

FIRST_BLACKWELL_MAJOR = 10
"""Triton uses its second ptxas from this compute capability on (triton/backends/nvidia/compiler.py, get_ptxas)."""


class PinnedRelease(Struct, frozen=True):
    """A release of a package that is built for one torch (vllm, xformers)."""

    version: Version
    torch: SpecifierSet
    python: SpecifierSet
    flashinfer: SpecifierSet | None
    xformers: SpecifierSet | None
    glibc_tag: str | None
    origin: Provenance


class TritonRelease(Struct, frozen=True):
    """One release of triton and the assemblers it bundles."""

    version: Version
    torch: tuple[Version, ...]
    """Releases of torch that pin it."""
    python: SpecifierSet | None
    ptxas: CudaVersion
    ptxas_blackwell: CudaVersion | None
    """The second assembler for compute capability 10.0 and up; None where there is none."""
    ptxas_lowest: SmTarget
    ptxas_newest: tuple[SmTarget, ...]
    """The end of the list that the first assembler prints."""
    min_cc: ComputeCapability
    verified_min_cc: Verified | None
    origin: Provenance

    def ptxas_for(self, cc: ComputeCapability) -> CudaVersion:
        """The assembler that is used for a GPU."""
        if self.ptxas_blackwell is not None and cc.major >= FIRST_BLACKWELL_MAJOR:
            return self.ptxas_blackwell
        return self.ptxas

    def can_target(self, cc: ComputeCapability, toolkits: ToolkitMatrix) -> bool | None:
        """Whether its assembler knows a GPU; None where the toolkit table does not know the assembler."""
        if cc < self.min_cc:
            return False
        return toolkits.can_target(self.ptxas_for(cc), cc)


class FlashAttention(Struct, frozen=True):
    """A range of minors (inclusive; `last` None while it goes on) of one of the flash-attention packages."""

    package: str
    first: Version
    last: Version | None
    min_cc: ComputeCapability
    max_cc: ComputeCapability | None
    """None where newer GPUs are served too."""
    only_ccs: tuple[ComputeCapability, ...]
    """Empty where everything from `min_cc` on is served."""
    min_cuda: CudaVersion | None
    """The oldest nvcc that builds it."""
    torch: SpecifierSet | None
    python: SpecifierSet | None
    origin: Provenance

    def serves(self, cc: ComputeCapability) -> bool:
        if self.only_ccs:
            return cc in self.only_ccs
        return cc >= self.min_cc and (self.max_cc is None or cc <= self.max_cc)


class BitsandbytesLibrary(Struct, frozen=True):
    """The library in a wheel of bitsandbytes for one CUDA version."""

    version: Version
    cuda: CudaVersion
    targets: tuple[SmTarget, ...]
    origin: Provenance


class TensorflowRelease(Struct, frozen=True):
    """A range of releases (inclusive) of TensorFlow and the CUDA it is built for."""

    first: Version
    last: Version
    python: SpecifierSet | None
    python_tested: str | None
    cuda: CudaVersion | None
    cuda_runtime: str | None
    """The pin of the extra `and-cuda`."""
    cudnn: str | None
    cudnn_pin: str | None
    numpy: SpecifierSet | None
    extra: str | None
    origin: Provenance


class JaxPlugin(Struct, frozen=True):
    """One release of a JAX CUDA plugin."""

    package: str
    version: Version
    cuda_major: int
    python: SpecifierSet
    cuda_runtime: SpecifierSet
    cudnn: SpecifierSet
    nvcc: SpecifierSet
    nccl: SpecifierSet
    origin: Provenance


class OnnxRuntime(Struct, frozen=True):
    """One release of onnxruntime-gpu on the default index."""

    version: Version
    python: SpecifierSet | None
    cuda_major: int
    cudnn_major: int
    extras: tuple[str, ...]
    origin: Provenance


class CupyRelease(Struct, frozen=True):
    """One release of a CuPy package, which is for one CUDA major."""

    package: str
    version: Version
    cuda_major: int
    python: SpecifierSet
    numpy: SpecifierSet
    origin: Provenance


class BinaryScan(Struct, frozen=True):
    """What one wheel holds: GPU code, and the libraries it names."""

    package: str
    version: Version
    targets: tuple[SmTarget, ...]
    needed: tuple[str, ...]
    built_with_cuda: CudaVersion | None
    origin: Provenance


class Versioned(Protocol):
    @property
    def version(self) -> Version: ...


V = TypeVar("V", bound=Versioned)


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(str(error)) from error


def _specifier(text: str) -> SpecifierSet:
    try:
        return SpecifierSet(text)
    except InvalidSpecifier as error:
        raise ValueError(str(error)) from error


def _targets(row: Row) -> tuple[SmTarget, ...]:
    return (*row.many("sm", SmTarget.parse), *row.many("ptx", SmTarget.parse))


def _pinned(row: Row) -> PinnedRelease:
    return PinnedRelease(
        version=row.parsed("version", _version),
        torch=row.parsed("torch", _specifier),
        python=row.parsed("python", _specifier),
        flashinfer=row.parsed_or_none("flashinfer", _specifier),
        xformers=row.parsed_or_none("xformers", _specifier),
        glibc_tag=row.text_or_none("glibc_tag"),
        origin=row.origin(),
    )


def _triton(row: Row) -> TritonRelease:
    return TritonRelease(
        version=row.parsed("version", _version),
        torch=row.many("torch", _version),
        python=row.parsed_or_none("python", _specifier),
        ptxas=row.parsed("ptxas", CudaVersion.parse),
        ptxas_blackwell=row.parsed_or_none("ptxas_blackwell", CudaVersion.parse),
        ptxas_lowest=row.parsed("ptxas_lowest", SmTarget.parse),
        ptxas_newest=row.many("ptxas_newest", SmTarget.parse),
        min_cc=row.parsed("min_cc", ComputeCapability.parse),
        verified_min_cc=row.grade("min_cc"),
        origin=row.origin(),
    )


def _flash(row: Row) -> FlashAttention:
    return FlashAttention(
        package=row.text("package"),
        first=row.parsed("first", _version),
        last=row.parsed_or_none("last", _version),
        min_cc=row.parsed("min_cc", ComputeCapability.parse),
        max_cc=row.parsed_or_none("max_cc", ComputeCapability.parse),
        only_ccs=row.many("only_ccs", ComputeCapability.parse),
        min_cuda=row.parsed_or_none("min_cuda", CudaVersion.parse),
        torch=row.parsed_or_none("torch", _specifier),
        python=row.parsed_or_none("python", _specifier),
        origin=row.origin(),
    )


def _bitsandbytes(row: Row) -> BitsandbytesLibrary:
    version, cuda = row.parsed("version", _version), row.parsed("cuda", CudaVersion.parse)
    return BitsandbytesLibrary(version, cuda, _targets(row), row.origin())


def _tensorflow(row: Row) -> TensorflowRelease:
    return TensorflowRelease(
        first=row.parsed("first", _version),
        last=row.parsed("last", _version),
        python=row.parsed_or_none("python", _specifier),
        python_tested=row.text_or_none("python_tested"),
        cuda=row.parsed_or_none("cuda", CudaVersion.parse),
        cuda_runtime=row.text_or_none("cuda_runtime"),
        cudnn=row.text_or_none("cudnn"),
        cudnn_pin=row.text_or_none("cudnn_pin"),
        numpy=row.parsed_or_none("numpy", _specifier),
        extra=row.text_or_none("extra"),
        origin=row.origin(),
    )


def _jax(row: Row) -> JaxPlugin:
    return JaxPlugin(
        package=row.text("package"),
        version=row.parsed("version", _version),
        cuda_major=row.integer("cuda_major"),
        python=row.parsed("python", _specifier),
        cuda_runtime=row.parsed("cuda_runtime", _specifier),
        cudnn=row.parsed("cudnn", _specifier),
        nvcc=row.parsed("nvcc", _specifier),
        nccl=row.parsed("nccl", _specifier),
        origin=row.origin(),
    )


def _onnxruntime(row: Row) -> OnnxRuntime:
    return OnnxRuntime(
        version=row.parsed("version", _version),
        python=row.parsed_or_none("python", _specifier),
        cuda_major=row.integer("cuda_major"),
        cudnn_major=row.integer("cudnn_major"),
        extras=row.texts("extras"),
        origin=row.origin(),
    )


def _cupy(row: Row) -> CupyRelease:
    return CupyRelease(
        package=row.text("package"),
        version=row.parsed("version", _version),
        cuda_major=row.integer("cuda_major"),
        python=row.parsed("python", _specifier),
        numpy=row.parsed("numpy", _specifier),
        origin=row.origin(),
    )


def _binary(row: Row) -> BinaryScan:
    return BinaryScan(
        package=row.text("package"),
        version=row.parsed("version", _version),
        targets=_targets(row),
        needed=row.texts("needed"),
        built_with_cuda=row.parsed_or_none("built_with_cuda", CudaVersion.parse),
        origin=row.origin(),
    )


def _by_version(build: Callable[[Row], V]) -> Schema[V]:
    return Schema(build, lambda row: row.version, Order.DESCENDING)


XFORMERS = _by_version(_pinned)
VLLM = _by_version(_pinned)
TRITON = _by_version(_triton)
FLASH_ATTENTION = Schema(_flash, lambda row: (row.package, row.first), Order.ASCENDING)
BITSANDBYTES = Schema(_bitsandbytes, lambda row: (row.version, row.cuda))
TENSORFLOW = Schema(_tensorflow, lambda row: (row.first, row.last))
JAX = Schema(_jax, lambda row: (row.package, row.version))
ONNXRUNTIME = _by_version(_onnxruntime)
CUPY = Schema(_cupy, lambda row: (row.package, row.version))
BINARIES = Schema(_binary, lambda row: (row.package, row.version))
