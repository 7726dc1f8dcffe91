"""The few fields of a report that a summary of many needs; everything else is skipped as it is read."""

from __future__ import annotations

import re
from collections import Counter
from typing import Generic, Literal, TypeVar

import msgspec
from msgspec import Struct

from cudadoctor.model.codec import DocumentError
from cudadoctor.model.fact import MissingReason
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import SCHEMA, Verdict

T = TypeVar("T")

LONGEST_TEXT = 253
"""Of a node's name, a version and the like; as long as the name of a host in the DNS can be. What is longer is cut."""
ABSENT = "none"
"""The text of a fact that is known to have no value."""
_ABSENCES = (MissingReason.NOT_FOUND.value, MissingReason.NOT_APPLICABLE.value)
_NEWER = re.compile(r"cudadoctor\.report/([2-9]|[1-9]\d{1,3})")


class ReadFact(Struct, Generic[T], frozen=True):
    """A fact, known or missing."""

    state: str = "missing"
    value: T | None = None
    reason: str = ""

    @property
    def text(self) -> str | None:
        """The value, `none` where it is known to be absent, None where it is unknown."""
        if self.state == "known" and self.value is not None:
            return str(self.value)[:LONGEST_TEXT]
        return ABSENT if self.reason in _ABSENCES else None


class ReadGpu(Struct, frozen=True):
    """A GPU's number and name."""

    index: int
    name: ReadFact[str] = ReadFact()


class ReadToolkit(Struct, frozen=True):
    """A toolkit's version, and whether builds would use it."""

    toolkit_version: ReadFact[str] = ReadFact()
    chosen_for_builds: bool = False


class ReadTorch(Struct, frozen=True):
    """torch's version."""

    torch_version: ReadFact[str] = ReadFact()


class ReadPython(Struct, frozen=True):
    """The examined Python."""

    torch: ReadFact[ReadTorch] = ReadFact()


class ReadDriver(Struct, frozen=True):
    """The driver."""

    driver_release: ReadFact[str] = ReadFact()


class ReadSnapshot(Struct, frozen=True):
    """What the machine is made of."""

    gpus: ReadFact[tuple[ReadGpu, ...]] = ReadFact()
    driver: ReadDriver = ReadDriver()
    toolkits: ReadFact[tuple[ReadToolkit, ...]] = ReadFact()
    python: ReadPython = ReadPython()


class ReadFinding(Struct, frozen=True):
    """Which rule found something, about what."""

    code: str
    name: str
    severity: str
    subject: str = ""
    root: bool = True


class ReadProof(Struct, frozen=True):
    """Which kernel ran, and how long."""

    layer: str
    kernel: str
    outcome: str
    gpu: int | None = None
    target: str | None = None
    compiler: str | None = None
    run_ms: float | None = None


class NodeReport(Struct, frozen=True):
    """One machine's report, as far as a summary needs it."""

    schema: str
    created: str
    verdict: str
    node: str | None = None
    findings: tuple[ReadFinding, ...] = ()
    proofs: tuple[ReadProof, ...] = ()
    snapshot: ReadSnapshot = ReadSnapshot()

    @property
    def is_newer(self) -> bool:
        """Is it of a schema that came after this cudadoctor?"""
        return self.schema != SCHEMA

    @property
    def gpus(self) -> tuple[tuple[str, int], ...] | None:
        """The names of the GPUs, each with how many there are; None where they could not be read."""
        found = self.snapshot.gpus
        if found.value is None:
            return () if found.text == ABSENT else None
        return tuple(sorted(Counter(gpu.name.text or "unreadable GPU" for gpu in found.value).items()))

    @property
    def driver_release(self) -> str | None:
        """The release of the kernel driver."""
        return self.snapshot.driver.driver_release.text

    @property
    def toolkit(self) -> str | None:
        """The version of the toolkit that builds would use."""
        toolkits = self.snapshot.toolkits
        if toolkits.value is None:
            return toolkits.text
        chosen = [toolkit for toolkit in toolkits.value if toolkit.chosen_for_builds]
        return chosen[0].toolkit_version.text if chosen else ABSENT

    @property
    def torch(self) -> str | None:
        """torch's version."""
        torch = self.snapshot.python.torch
        return torch.value.torch_version.text if torch.value is not None else torch.text

    @property
    def problems(self) -> tuple[ReadFinding, ...]:
        """The errors and warnings that no other finding explains; notes are harmless."""
        found = tuple(finding for finding in self.findings if finding.severity != Severity.NOTE.value)
        return tuple(finding for finding in found if finding.root) or found


class NoReport(Struct, frozen=True, kw_only=True):
    """What stands in the place of a report of a node that was asked and gave none."""

    schema: Literal["cudadoctor.no-report/1"] = "cudadoctor.no-report/1"
    node: str
    created: str
    because: str


_DECODER = msgspec.json.Decoder(NodeReport)
_NO_REPORT_DECODER = msgspec.json.Decoder(NoReport)


def read_node_report(data: bytes | str) -> NodeReport:
    """The report in `data`; raises DocumentError, in words, where it is none, cut short, or newer and not understood."""
    try:
        report = _DECODER.decode(data)
    except RecursionError as error:
        raise DocumentError("is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise DocumentError(f"is no whole report: {error}") from error
    newer = _NEWER.fullmatch(report.schema)
    if report.schema != SCHEMA and newer is None:
        raise DocumentError(f"is no report: its schema is {report.schema[:60]!r}, not {SCHEMA}")
    if report.verdict not in _VERDICTS:
        of_newer = f" (its schema, {report.schema}, is newer than this cudadoctor)" if newer else ""
        raise DocumentError(f"is not understood: its verdict is {report.verdict[:60]!r}{of_newer}")
    return report


def read_no_report(data: bytes | str) -> NoReport | None:
    """The word that there is no report, and why; None where `data` says nothing of the kind."""
    try:
        return _NO_REPORT_DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


_VERDICTS = frozenset(verdict.value for verdict in Verdict)
