"""Answers about speed: what a healthy GPU of a model measures, and which share of a rated peak is usual."""

from __future__ import annotations

from datetime import date
from enum import Enum

from msgspec import Struct

from cudadoctor.matrices.source import Document, Note, Provenance, Row, Schema


class Figure(Enum):
    """What is compared; how each is read off a run: cudadoctor/bench/figures.py."""

    COPY = "copy"
    """GB/s, read and written."""
    GEMM_TENSOR = "gemm-tensor"
    """TFLOPS of our best kernel on tensor cores."""
    GEMM_LIBRARY = "gemm-library"
    """TFLOPS of torch.mm for the same problem."""
    GEMM_F32 = "gemm-f32"
    """TFLOPS without tensor cores."""
    ATTENTION = "attention"
    """TFLOPS, causal, fp16."""
    TRANSFER = "transfer"
    """GB/s from pinned host memory."""
    PEER_NVLINK = "peer-nvlink"
    """GB/s from one GPU to another over NVLink, in one direction."""
    PEER_PCIE = "peer-pcie"
    """The same over PCIe."""


class Peak(Enum):
    """What a share is a share of."""

    BANDWIDTH = "bandwidth"
    TENSOR = "tensor"
    FP32 = "fp32"
    LINK = "link"
    NVLINK = "nvlink"


class ModelSpeed(Struct, frozen=True):
    """The range measured on one model."""

    gpu: str
    figure: Figure
    low: float
    high: float
    origin: Provenance


class UsualShare(Struct, frozen=True):
    """The usual share of a rated peak, of any model."""

    figure: Figure
    of: Peak
    low: float
    high: float
    origin: Provenance


class LinkRate(Struct, frozen=True):
    """What one lane of a PCIe generation carries, in GB/s."""

    generation: int
    gb_s_per_lane: float
    origin: Provenance


class NvlinkRate(Struct, frozen=True):
    """What one NVLink of a version carries in one direction, in GB/s."""

    version: str
    gb_s_per_link: float
    origin: Provenance


class ExpectedSpeed(Struct, frozen=True):
    """matrices/expected_speed.toml."""

    title: str
    as_of: date
    models: tuple[ModelSpeed, ...]
    shares: tuple[UsualShare, ...]
    links: tuple[LinkRate, ...]
    nvlinks: tuple[NvlinkRate, ...]
    notes: tuple[Note, ...]

    def of_model(self, gpu: str, figure: Figure) -> ModelSpeed | None:
        """The range measured on the model of that catalogue name; None where there is none."""
        return next((row for row in self.models if row.gpu == gpu and row.figure is figure), None)

    def share(self, figure: Figure) -> UsualShare | None:
        """The usual share for a figure; None where none is known."""
        return next((row for row in self.shares if row.figure is figure), None)

    def link_gb_s(self, generation: int, width: int) -> float | None:
        """What a PCIe link carries; None for a generation that has no row."""
        rate = next((row.gb_s_per_lane for row in self.links if row.generation == generation), None)
        return rate * width if rate is not None else None

    def nvlink_gb_s(self, version: str, count: int) -> float | None:
        """What that many NVLinks carry in one direction; None for a version that has no row."""
        rate = next((row.gb_s_per_link for row in self.nvlinks if row.version == version), None)
        return rate * count if rate is not None else None


def _model(row: Row) -> ModelSpeed:
    return ModelSpeed(row.text("gpu"), row.one_of("figure", Figure), row.number("low"), row.number("high"), row.origin())


def _share(row: Row) -> UsualShare:
    return UsualShare(row.one_of("figure", Figure), row.one_of("of", Peak), row.number("low"), row.number("high"), row.origin())


def _link(row: Row) -> LinkRate:
    return LinkRate(row.integer("generation"), row.number("gb_s_per_lane"), row.origin())


def _nvlink(row: Row) -> NvlinkRate:
    return NvlinkRate(row.text("version"), row.number("gb_s_per_link"), row.origin())


def load(document: Document) -> ExpectedSpeed:
    """The matrix in a parsed expected_speed.toml; raises MatrixError."""
    matrix = ExpectedSpeed(
        title=document.title,
        as_of=document.as_of,
        models=document.table("model", Schema(_model, lambda row: (row.gpu, row.figure.value))),
        shares=document.table("share", Schema(_share, lambda row: row.figure.value)),
        links=document.table("link", Schema(_link, lambda row: row.generation)),
        nvlinks=document.table("nvlink", Schema(_nvlink, lambda row: row.version)),
        notes=document.notes(),
    )
    document.finish()
    return matrix
