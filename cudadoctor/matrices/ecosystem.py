"""Answers about packages on top of CUDA: which torch, CUDA, Python and GPU each release wants."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from msgspec import Struct
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from cudadoctor.matrices.ecosystem_rows import (
    BINARIES,
    BITSANDBYTES,
    CUPY,
    FLASH_ATTENTION,
    JAX,
    ONNXRUNTIME,
    TENSORFLOW,
    TRITON,
    VLLM,
    XFORMERS,
    BinaryScan,
    BitsandbytesLibrary,
    CupyRelease,
    FlashAttention,
    JaxPlugin,
    OnnxRuntime,
    PinnedRelease,
    TensorflowRelease,
    TritonRelease,
    V,
)
from cudadoctor.matrices.source import Document, Note
from cudadoctor.model.versions import CudaVersion

__all__ = [
    "EcosystemMatrix",
    "FlashAttention",
    "PinnedRelease",
    "TritonRelease",
    "load",
]


class EcosystemMatrix(Struct, frozen=True, dict=True):
    """matrices/ecosystem.toml. Rows exist for single releases; the nearest not newer row answers for those between."""

    title: str
    as_of: date
    xformers: tuple[PinnedRelease, ...]
    vllm: tuple[PinnedRelease, ...]
    triton: tuple[TritonRelease, ...]
    flash_attention: tuple[FlashAttention, ...]
    bitsandbytes: tuple[BitsandbytesLibrary, ...]
    tensorflow: tuple[TensorflowRelease, ...]
    jax: tuple[JaxPlugin, ...]
    onnxruntime: tuple[OnnxRuntime, ...]
    cupy: tuple[CupyRelease, ...]
    binaries: tuple[BinaryScan, ...]
    notes: tuple[Note, ...]

    def xformers_release(self, version: Version) -> PinnedRelease | None:
        return _exact(self.xformers, version)

    def vllm_release(self, version: Version) -> PinnedRelease | None:
        return _exact(self.vllm, version)

    def torch_for(self, package: str, version: Version) -> SpecifierSet | None:
        """The torch that a release of vllm or xformers wants; None: unknown."""
        rows = {"vllm": self.vllm, "xformers": self.xformers}.get(package, ())
        row = _exact(rows, version)
        return row.torch if row else None

    def release_for_torch(self, package: str, torch: Version) -> PinnedRelease | None:
        """The newest release of vllm or xformers that takes a torch; None where none is known."""
        rows = {"vllm": self.vllm, "xformers": self.xformers}.get(package, ())
        return next((row for row in rows if row.torch.contains(torch.public, prereleases=True)), None)

    def triton_release(self, version: Version) -> TritonRelease | None:
        """The row of a release, or of another one of the same minor; None: unknown."""
        same_minor = [row for row in self.triton if row.version.release[:2] == version.release[:2]]
        return _exact(same_minor, version) or (same_minor[0] if same_minor else None)

    def flash_attention_release(self, package: str, version: Version) -> FlashAttention | None:
        """The row of a flash-attn, flash-attn-3 or flash-attn-4 version; None: unknown."""
        rows = (row for row in self.flash_attention if row.package == package)
        return next((row for row in rows if _within(version, row.first, row.last)), None)

    def bitsandbytes_library(self, version: Version, cuda: CudaVersion) -> BitsandbytesLibrary | None:
        """The library that a release has for a CUDA version of torch; None where it has none or the release is unknown."""
        return next((row for row in self.bitsandbytes if row.version == version and row.cuda == cuda), None)

    def bitsandbytes_cudas(self, version: Version) -> tuple[CudaVersion, ...]:
        """The CUDA versions that a release has libraries for; empty: unknown."""
        return tuple(row.cuda for row in self.bitsandbytes if row.version == version)

    def tensorflow_release(self, version: Version) -> TensorflowRelease | None:
        """The row that names the CUDA of a release, by minor; None: unknown."""
        rows = [row for row in self.tensorflow if _within(version, row.first, row.last)]
        return next((row for row in rows if row.cuda is not None), rows[0] if rows else None)

    def jax_plugin(self, package: str, version: Version) -> JaxPlugin | None:
        return _nearest((row for row in self.jax if row.package == package), version)

    def onnxruntime_release(self, version: Version) -> OnnxRuntime | None:
        return _nearest(self.onnxruntime, version)

    def cupy_major(self, package: str) -> int | None:
        """The CUDA major that a CuPy package (`cupy-cuda12x`) is for; None: unknown."""
        return next((row.cuda_major for row in self.cupy if row.package == package), None)

    def binary(self, package: str, version: Version) -> BinaryScan | None:
        """What exactly this wheel was found to hold; None where it was not scanned."""
        return _exact((row for row in self.binaries if row.package == package), version)

    def notes_on(self, package: str) -> tuple[Note, ...]:
        """What else is known about a package, in words."""
        return tuple(note for note in self.notes if note.topic == package)


def _exact(rows: Iterable[V], version: Version) -> V | None:
    return next((row for row in rows if row.version.public == version.public), None)


def _nearest(rows: Iterable[V], version: Version) -> V | None:
    """The row of this release, of another one of its minor, or of the last minor before it; None beyond the newest minor."""
    ordered = sorted(rows, key=lambda row: row.version, reverse=True)
    minor = version.release[:2]
    if not ordered or minor > ordered[0].version.release[:2]:
        return None
    same_minor = [row for row in ordered if row.version.release[:2] == minor]
    earlier = [row for row in ordered if row.version < version]
    return _exact(ordered, version) or next(iter([*same_minor, *earlier]), None)


def _within(version: Version, first: Version, last: Version | None) -> bool:
    """Whether a version lies in a range by its minor; an open range ends with its major."""
    minor = version.release[:2]
    if last is None:
        return version.major == first.major and minor >= first.release[:2]
    return first.release[:2] <= minor <= last.release[:2]


def load(document: Document) -> EcosystemMatrix:
    """The matrix in a parsed ecosystem.toml; raises MatrixError."""
    matrix = EcosystemMatrix(
        title=document.title,
        as_of=document.as_of,
        xformers=document.table("xformers", XFORMERS),
        vllm=document.table("vllm", VLLM),
        triton=document.table("triton", TRITON),
        flash_attention=document.table("flash_attn", FLASH_ATTENTION),
        bitsandbytes=document.table("bitsandbytes", BITSANDBYTES),
        tensorflow=document.table("tensorflow", TENSORFLOW),
        jax=document.table("jax", JAX),
        onnxruntime=document.table("onnxruntime", ONNXRUNTIME),
        cupy=document.table("cupy", CUPY),
        binaries=document.table("binary", BINARIES),
        notes=document.notes(),
    )
    document.finish()
    return matrix
