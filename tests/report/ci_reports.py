"""Reports for the CI formats: all samples, all hostile ones, and one about a Dockerfile."""

from __future__ import annotations

from msgspec import structs

from cudadoctor.model.finding import Evidence, Finding, Fix, Severity, Where
from cudadoctor.model.report import Report, Verdict
from cudadoctor.model.snapshot import Snapshot, TextReading
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import CREATED, SAMPLES, TOOL

NAMES = [*SAMPLES, "dockerfile", *HOSTILE]


def of_line(fact: str, value: str, line: int | None, source: str = "Dockerfile") -> Evidence:
    return Evidence(fact=fact, value=value, source=source, line=line)


NVCC_MISSING = Finding(
    code="CD201",
    name="nvcc-missing",
    severity=Severity.ERROR,
    subject="nvcc",
    what="flash-attn is compiled with CUDA, and there is no nvcc.",
    why="An image whose tag says runtime brings no compiler.",
    evidence=(
        of_line("builds", "pip install flash-attn", 4),
        of_line("toolkits", "none with nvcc", 2),
        of_line("host.glibc", "2.35", 9, "images matrix"),
    ),
    fixes=(
        Fix(
            title="Build in the devel variant of the base image",
            commands=("FROM nvidia/cuda:12.4.1-devel-ubuntu22.04",),
            where=Where.CONTAINER,
        ),
    ),
)
REQUIREMENT = Finding(
    code="CD890", name="requirement-not-met", severity=Severity.WARNING, subject="driver", what="driver 535 is below 550."
)


def dockerfile() -> Report:
    """An image that lacks a compiler, and a requirement that no line of the Dockerfile is about."""
    reading = TextReading(kind="dockerfile", values={"file": "Dockerfile", "base_line": 2})
    return Report(
        tool=TOOL,
        created=CREATED,
        verdict=Verdict.PROBLEMS,
        summary="1 problem: nvcc-missing.",
        findings=(NVCC_MISSING, REQUIREMENT),
        snapshot=Snapshot(readings=(reading,)),
    )


def report_of(name: str) -> Report:
    """The report of that name; in hostile ones the Dockerfile's name is hostile too."""
    if name == "dockerfile":
        return dockerfile()
    if name in SAMPLES:
        return SAMPLES[name]()
    return with_file_named(hostile_report(HOSTILE[name]), HOSTILE[name])


def with_file_named(report: Report, name: str) -> Report:
    """The report as if a Dockerfile of that name had been judged."""
    reading = TextReading(kind="dockerfile", values={"file": name})
    return structs.replace(report, snapshot=structs.replace(report.snapshot, readings=(reading,)))


def is_inert(text: str) -> bool:
    """Does the text hold only visible characters, spaces and newlines?"""
    return all(character.isprintable() or character == "\n" for character in text)
