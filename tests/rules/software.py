"""Small changes to machines, and pasted texts, for the tests of rules about frameworks, packages, GPUs and programs."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from cudadoctor.commands.triage import diagnose_text
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Gpu, Package, PythonEnvironment, Snapshot, TextReading, Torch, TorchBuild
from tests.rules.builders import MATRICES, known


def with_torch(snapshot: Snapshot, **facts: Any) -> Snapshot:
    """The machine with other facts about its torch."""
    fact = snapshot.python.torch
    build = structs.replace(fact.value if hasattr(fact, "value") else Torch(), **facts)
    return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=known(build)))


def cpu_torch(snapshot: Snapshot, version: str = "2.9.1+cpu") -> Snapshot:
    """The machine with a CPU build of torch."""
    return with_torch(
        snapshot,
        torch_version=known(version),
        build=known(TorchBuild.CPU),
        torch_cuda_version=Torch().torch_cuda_version,
        arch_list=known(()),
        is_available=known(False),
    )


def with_packages(snapshot: Snapshot, **versions: str) -> Snapshot:
    """The machine with these packages; `_` in a name stands for `-`, and `@` in a version comes before conda's build."""
    listed = []
    for name, version in versions.items():
        number, _, build = version.partition("@")
        listed.append(
            Package(name=name.replace("_", "-"), package_version=number, build=build, channel="conda-forge" if build else "")
        )
    return structs.replace(snapshot, python=structs.replace(snapshot.python, packages=known(tuple(listed))))


def with_gpu(snapshot: Snapshot, **facts: Any) -> Snapshot:
    """The machine whose first GPU has other facts."""
    fact = snapshot.gpus
    listed: tuple[Gpu, ...] = fact.value if hasattr(fact, "value") else ()
    return structs.replace(snapshot, gpus=known((structs.replace(listed[0], **facts), *listed[1:])))


def with_reading(snapshot: Snapshot, kind: str, **values: Any) -> Snapshot:
    """The text with what a reader understood of it."""
    return structs.replace(snapshot, readings=(*snapshot.readings, TextReading(kind=kind, values=values)))


def python_of(**facts: Any) -> PythonEnvironment:
    """A Python of which a text tells these facts about torch."""
    return PythonEnvironment(torch=known(Torch(**facts)))


def diagnosed(text: str) -> Report:
    """The report of a pasted text."""
    return diagnose_text(text, MATRICES).report


def tags(report: Report) -> set[str]:
    """Names and tags of all findings."""
    return {finding.name for finding in report.findings} | {tag for finding in report.findings for tag in finding.tags}


def error_tags(report: Report) -> set[str]:
    """Names and tags of the errors."""
    errors = [finding for finding in report.findings if finding.severity is Severity.ERROR]
    return {finding.name for finding in errors} | {tag for finding in errors for tag in finding.tags}
