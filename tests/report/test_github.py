"""Annotations, read as a runner reads them: one line a finding, whatever the values hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.report import RENDERERS, Charset, JudgedFile, RenderOptions
from tests.report.ci_reports import NAMES, NVCC_MISSING, dockerfile, is_inert, report_of
from tests.report.hostile import HOSTILE
from tests.report.sample_reports import ARCH_MISSING, SAMPLES, healthy_h100, rtx_5090_old_wheel
from tests.report.workflow_commands import Command, command, commands


def rendered(name: str, options: RenderOptions | None = None) -> str:
    return RENDERERS["github"](report_of(name), options or RenderOptions())


def annotated(name: str) -> list[Command]:
    return commands(rendered(name))


@pytest.mark.parametrize("name", [*SAMPLES, "dockerfile"])
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}/report.github.txt", rendered(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_line_is_an_annotation(name: str) -> None:
    for each in annotated(name):
        assert each.name in ("error", "warning", "notice")
        assert each.properties["title"]
        assert each.properties.keys() <= {"file", "line", "title"}


@pytest.mark.parametrize("name", HOSTILE)
def test_values_are_inert(name: str) -> None:
    found = annotated(name)
    assert [each.name for each in found] == ["error", "notice", "notice"]
    assert is_inert(rendered(name))
    assert all(is_inert(each.message) and is_inert("".join(each.properties.values())) for each in found)
    assert rendered(name, RenderOptions(charset=Charset.ASCII)).isascii()


@pytest.mark.parametrize("text", ["100%", "%0A", "%250A", "a:b,c=d", "::error::x", "x::y", "##[error]x", "a\nb", "a%3Ab%2Cc"])
def test_values_read_back_exactly(text: str) -> None:
    finding = structs.replace(ARCH_MISSING, subject=text, what=text, why="", fixes=(), explains=())
    report = structs.replace(healthy_h100(), findings=(finding,))
    (found, verdict) = commands(RENDERERS["github"](report, RenderOptions(judged=JudgedFile("a,b:c/50%", ""))))
    shown = text.replace("\n", "\\n")
    assert found.properties == {"file": "a,b:c/50%", "title": f"CD412 arch-missing-in-wheel: {shown}"}
    assert found.message == text.replace("\n", " ")
    assert verdict.name == "notice"


def test_a_finding_of_a_dockerfile_is_at_its_line() -> None:
    at, about, verdict = annotated("dockerfile")
    assert at.name == "error"
    assert at.properties == {"file": "Dockerfile", "line": "4", "title": "CD201 nvcc-missing: nvcc"}
    assert "Fix: Build in the devel variant of the base image (in the container):\n  FROM nvidia/cuda" in at.message
    assert about.properties["file"] == "Dockerfile"
    assert "line" not in about.properties
    assert "file" not in verdict.properties


def test_lines_of_a_pasted_text_are_its_lines() -> None:
    report = structs.replace(dockerfile(), findings=(NVCC_MISSING,))
    found = commands(RENDERERS["github"](report, RenderOptions(judged=JudgedFile("logs/build.txt"))))
    assert found[0].properties["file"] == "logs/build.txt"
    assert found[0].properties["line"] == "4"


def test_a_machine_has_no_file() -> None:
    assert all("file" not in each.properties for each in annotated("rtx_5090_old_wheel"))


def test_consequences_stand_in_the_message_of_their_cause() -> None:
    found = annotated("rtx_5090_old_wheel")
    assert [each.name for each in found] == ["error", "warning", "notice"]
    assert "It explains: CD802 torch-proof-fails: GPU 0" in found[0].message


def test_the_worst_comes_first_also_where_only_a_consequence_is_bad() -> None:
    note = structs.replace(ARCH_MISSING, code="CD001", severity=Severity.NOTE, explains=())
    warning = structs.replace(ARCH_MISSING, severity=Severity.WARNING)
    report = structs.replace(rtx_5090_old_wheel(), findings=(note, warning, rtx_5090_old_wheel().findings[2]))
    found = commands(RENDERERS["github"](report, RenderOptions()))
    assert [each.name for each in found] == ["error", "notice", "notice"]
    assert "CD412" in found[0].properties["title"]


def test_an_open_verdict_warns_with_the_reasons() -> None:
    (verdict,) = annotated("undetermined")
    assert verdict.name == "warning"
    assert verdict.properties == {"title": "cudadoctor: undetermined"}
    assert "\nNot determined: crashed (torch child): import torch died of SIGSEGV" in verdict.message


def test_a_healthy_machine_says_so() -> None:
    (verdict,) = annotated("healthy_h100")
    assert verdict == Command("notice", {"title": "cudadoctor: healthy"}, healthy_h100().summary)


@pytest.mark.parametrize("line", ["error::x", "::error x", "::unheard-of::x", ""])
def test_the_reader_refuses_what_is_no_command(line: str) -> None:
    with pytest.raises(ValueError, match="not a command"):
        command(line)
