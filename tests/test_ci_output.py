"""The CI formats through the command line: real Dockerfiles and texts, paths as a CI job sees them, the step summary."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.codec import to_json
from tests.report.sample_reports import rtx_5090_old_wheel
from tests.report.workflow_commands import Command, commands

DOCKERFILE = """ARG CUDA=12.4.1
FROM nvidia/cuda:${CUDA}-runtime-ubuntu22.04
RUN apt-get update && apt-get install -y python3-pip
RUN pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124
"""
CI_VARIABLES = ("GITHUB_WORKSPACE", "GITHUB_STEP_SUMMARY", "CI_PROJECT_DIR", "WORKSPACE")


def run(*arguments: str, cwd: Path, stdin: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    outside = {name: value for name, value in os.environ.items() if name not in CI_VARIABLES}
    return subprocess.run(
        [sys.executable, "-m", "cudadoctor", *arguments],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**outside, "PYTHONUTF8": "1", "PYTHONPATH": str(Path(__file__).parents[1]), **variables},
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "deploy").mkdir(parents=True)
    (folder / "deploy" / "Dockerfile").write_text(DOCKERFILE, encoding="utf-8")
    return folder


def error_of(done: subprocess.CompletedProcess[str], title: str) -> Command:
    return next(each for each in commands(done.stdout) if title in each.properties["title"])


def preflight(dockerfile: str, output_format: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return run("preflight", "--dockerfile", dockerfile, "--gpu", "12.0", "--format", output_format, cwd=cwd, **variables)


def test_an_annotation_points_at_the_line_of_the_dockerfile(checkout: Path) -> None:
    done = preflight("deploy/Dockerfile", "github", checkout)
    assert done.returncode == ExitCode.PROBLEMS
    found = error_of(done, "arch-missing-in-wheel")
    assert (found.name, found.properties["file"], found.properties["line"]) == ("error", "deploy/Dockerfile", "4")


def test_the_path_is_relative_to_the_checkout_not_to_the_working_folder(checkout: Path) -> None:
    done = preflight("Dockerfile", "github", checkout / "deploy", GITHUB_WORKSPACE=str(checkout))
    assert error_of(done, "arch-missing-in-wheel").properties["file"] == "deploy/Dockerfile"


def test_of_a_file_outside_only_the_name_is_told(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    done = preflight(str(checkout / "deploy" / "Dockerfile"), "github", tmp_path / "elsewhere")
    assert error_of(done, "arch-missing-in-wheel").properties["file"] == "Dockerfile"


def test_sarif_points_at_the_same_line(checkout: Path) -> None:
    (only,) = json.loads(preflight("deploy/Dockerfile", "sarif", checkout).stdout)["runs"]
    rules = [rule["name"] for rule in only["tool"]["driver"]["rules"]]
    found = next(each for each in only["results"] if rules[each["ruleIndex"]] == "arch-missing-in-wheel")
    place = found["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "deploy/Dockerfile", "uriBaseId": "%SRCROOT%"}
    assert place["region"] == {"startLine": 4}


def test_a_finding_of_a_pasted_text_points_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("step 1\nAssertionError: Torch not compiled with CUDA enabled\n", encoding="utf-8")
    found = error_of(run("triage", "job.log", "--format", "github", cwd=tmp_path), "cpu-only-torch")
    assert (found.properties["file"], found.properties["line"]) == ("job.log", "2")


def test_standard_input_is_no_file(tmp_path: Path) -> None:
    text = "AssertionError: Torch not compiled with CUDA enabled\n"
    found = error_of(run("triage", "-", "--format", "github", cwd=tmp_path, stdin=text), "cpu-only-torch")
    assert "file" not in found.properties


@pytest.mark.parametrize("output_format", ["junit", "sarif", "github", "prometheus"])
def test_output_goes_to_the_file_with_the_same_exit_code(output_format: str, checkout: Path) -> None:
    there = run(
        *("preflight", "--dockerfile", "deploy/Dockerfile", "--gpu", "12.0"),
        *("--format", output_format, "--output", "report"),
        cwd=checkout,
    )
    assert (there.returncode, there.stdout) == (ExitCode.PROBLEMS, "")
    assert "arch-missing-in-wheel" in (checkout / "report").read_text(encoding="utf-8")
    assert sorted(path.name for path in checkout.iterdir()) == ["deploy", "report"], "no part of a file stays behind"


# The step summary


def saved(folder: Path) -> str:
    (folder / "saved.json").write_bytes(to_json(rtx_5090_old_wheel()))
    return "saved.json"


def test_the_step_summary_is_added_to(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n", encoding="utf-8")
    done = run("check", "--snapshot", saved(tmp_path), "--format", "github", cwd=tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == ExitCode.PROBLEMS
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("before\n**")
    assert "`arch-missing-in-wheel`" in text
    assert all(commands(done.stdout)), "the annotations stay on standard output"


@pytest.mark.parametrize("output_format", ["text", "junit", "sarif", "prometheus"])
def test_other_formats_leave_the_step_summary_alone(output_format: str, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    run("check", "--snapshot", saved(tmp_path), "--format", output_format, cwd=tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert not summary.exists()


def test_a_summary_that_cannot_be_written_changes_neither_annotations_nor_exit_code(tmp_path: Path) -> None:
    done = run("check", "--snapshot", saved(tmp_path), "--format", "github", cwd=tmp_path, GITHUB_STEP_SUMMARY=str(tmp_path))
    assert done.returncode == ExitCode.PROBLEMS
    assert "cannot write the step summary" in done.stderr
    assert error_of(done, "arch-missing-in-wheel")


def test_a_summary_never_grows_beyond_githubs_limit(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_bytes(b"x" * (1024 * 1024 - 100))
    done = run("check", "--snapshot", saved(tmp_path), "--format", "github", cwd=tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    assert summary.stat().st_size == 1024 * 1024 - 100
    assert "does not fit into the step summary" in done.stderr
