"""The summary of a fleet, as data: what `fleet summary --format json` prints and every other format shows."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct, field

from cudadoctor.model.report import Tool

SCHEMA: Final = "cudadoctor.fleet/1"


class GpuCount(Struct, frozen=True):
    """How many GPUs of one name a node has."""

    name: str
    count: int


class FindingName(Struct, frozen=True, order=True):
    """A rule that found an error or a warning."""

    code: str
    name: str
    severity: str


class NodeSubjects(Struct, frozen=True):
    """What a node's findings are about, each as `CD501 GPU 3`."""

    node: str
    subjects: tuple[str, ...]


class NodeClass(Struct, frozen=True, kw_only=True):
    """Nodes that are alike; a text is null where it is unknown, and `none` where there is no such thing on the node."""

    nodes: tuple[str, ...]
    is_usual: bool
    """True for the largest class without problems of the nodes with these models of GPU."""
    gpus: tuple[GpuCount, ...] | None
    driver_release: str | None
    toolkit_version: str | None
    torch_version: str | None
    verdict: str
    findings: tuple[FindingName, ...]
    """Errors and warnings that no other finding explains; notes are harmless and make no class of their own."""
    about: tuple[NodeSubjects, ...]
    """For nodes with findings, what those are about."""


class Share(Struct, frozen=True):
    """A version and the nodes that have it."""

    version: str | None
    nodes: tuple[str, ...]


class Drift(Struct, frozen=True):
    """A part of which the nodes with the same models of GPU have several versions, the most frequent first."""

    gpus: tuple[str, ...]
    part: str
    """driver, toolkit or torch."""
    shares: tuple[Share, ...]


class FewerGpus(Struct, frozen=True):
    """A node with fewer GPUs than most nodes with the same model have."""

    node: str
    gpu: str
    count: int
    usual: int
    nodes_with_usual: int


class KernelTime(Struct, frozen=True):
    """One kernel on all GPUs of one model; `spread_ms` is 1.4826 times the median absolute deviation."""

    gpu: str
    layer: str
    kernel: str
    target: str
    compiler: str
    gpus: int
    median_ms: float
    spread_ms: float
    limit_ms: float
    """A longer time counts as slow."""
    slowest_ms: float
    slowest_node: str


class SlowGpu(Struct, frozen=True):
    """A straggler: slow in `slow_kernels` of the `judged_kernels` that have a usual time; `ratio` is the median over the slow."""

    node: str
    index: int
    gpu: str
    ratio: float
    slow_kernels: int
    judged_kernels: int
    worst_kernel: str
    worst_ms: float
    usual_ms: float
    gpus_compared: int


class UnreadableInput(Struct, frozen=True):
    """What is no report: the file (empty for standard input), the line (0 where it is the file as a whole), and why."""

    file: str
    line: int
    because: str


class SilentNode(Struct, frozen=True):
    """A node that was asked and gave no report, and why."""

    node: str
    because: str


class Counts(Struct, frozen=True, kw_only=True):
    """How many there are of each."""

    reports: int
    nodes: int
    healthy: int
    problems: int
    undetermined: int
    superseded: int
    """Older reports of nodes of which a newer one was there."""
    unreadable: int
    newer_schema: int
    """Reports of a schema that came after this cudadoctor, read as far as it is understood."""


class FleetSummary(Struct, frozen=True, kw_only=True):
    """A fleet; fields in the order in which they are printed."""

    schema: Literal["cudadoctor.fleet/1"] = field(default=SCHEMA)
    tool: Tool
    summary: str
    counts: Counts
    classes: tuple[NodeClass, ...]
    """The odd ones first: with problems, undetermined, then fewer nodes before more."""
    drift: tuple[Drift, ...]
    fewer_gpus: tuple[FewerGpus, ...]
    stragglers: tuple[SlowGpu, ...]
    kernels: tuple[KernelTime, ...]
    """The slowest against the usual first."""
    no_report: tuple[SilentNode, ...] = ()
    """Nodes that gave no report when `fleet run` asked them last."""
    not_reported: tuple[str, ...]
    """Nodes of `--nodes` without a report, of which `no_report` does not say why."""
    not_listed: tuple[str, ...]
    """Nodes with a report that `--nodes` does not name."""
    unreadable: tuple[UnreadableInput, ...]
    """The first thousand; `counts` has the number of all."""
    seconds: float | None = None
    peak_memory_bytes: int | None = None
