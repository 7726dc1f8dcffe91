"""The hook of the pre-commit framework: its definition, and the program that it calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudadoctor.commands.pre_commit import split
from cudadoctor.exit_codes import ExitCode

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
CPU_ONLY = "FROM ubuntu:24.04\nRUN echo hello\n"
TOO_OLD = "FROM nvidia/cuda:12.4.1-runtime-ubuntu22.04\nRUN apt-get install -y python3-pip\nRUN pip install torch==2.5.1+cu124\n"
UNCLEAR = "FROM python:3.12\nRUN pip install -r requirements.txt\n"


def hook() -> dict[str, Any]:
    (only,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    return dict(only)


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The console script, as the wrapper that pip writes calls it."""
    code = "from cudadoctor.commands.pre_commit import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1"},
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    texts = {"Dockerfile": CPU_ONLY, "gpu.Dockerfile": TOO_OLD, "unclear.Dockerfile": UNCLEAR, "-q.Dockerfile": TOO_OLD}
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_the_hook_calls_a_program_that_the_package_installs() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["scripts"]
    assert scripts[hook()["entry"]] == "cudadoctor.commands.pre_commit:main"
    assert hook()["language"] == "python"


def test_the_hook_has_the_keys_that_pre_commit_knows() -> None:
    assert hook().keys() <= {"id", "name", "description", "entry", "args", "language", "types", "require_serial"}
    assert hook()["types"] == ["dockerfile"]


def test_the_hooks_own_arguments_name_no_option(repository: Path) -> None:
    done = run(*hook()["args"], "Dockerfile", cwd=repository)
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr


def test_options_hold_for_every_file_and_the_worst_code_counts(repository: Path) -> None:
    done = run("--gpu", "12.0", "--", "Dockerfile", "gpu.Dockerfile", cwd=repository)
    assert done.returncode == ExitCode.PROBLEMS
    assert "== Dockerfile\n" in done.stdout
    assert "arch-missing-in-wheel" in done.stdout.partition("== gpu.Dockerfile\n")[2]


def test_problems_count_more_than_what_is_undetermined(repository: Path) -> None:
    assert run("--gpu", "12.0", "--", "unclear.Dockerfile", cwd=repository).returncode == ExitCode.UNDETERMINED
    assert run("--gpu", "12.0", "--", "gpu.Dockerfile", "unclear.Dockerfile", cwd=repository).returncode == ExitCode.PROBLEMS


def test_the_policy_of_the_repository_names_the_gpus(repository: Path) -> None:
    (repository / "cudadoctor.toml").write_text('gpus = ["12.0"]\n', encoding="utf-8")
    assert run("--", "gpu.Dockerfile", cwd=repository).returncode == ExitCode.PROBLEMS


def test_a_name_that_begins_with_a_dash_is_a_name(repository: Path) -> None:
    done = run("--gpu", "12.0", "--", "-q.Dockerfile", cwd=repository)
    assert done.returncode == ExitCode.PROBLEMS, done.stderr


def test_options_without_an_end_are_refused(repository: Path) -> None:
    done = run("--gpu", "12.0", "gpu.Dockerfile", cwd=repository)
    assert done.returncode == ExitCode.USAGE
    assert "args: [--gpu, H100, --]" in done.stderr


def test_an_unknown_option_and_a_missing_file_are_usage_errors(repository: Path) -> None:
    assert run("--unheard-of", "--", "Dockerfile", cwd=repository).returncode == ExitCode.USAGE
    assert run("--", "absent.Dockerfile", cwd=repository).returncode == ExitCode.USAGE


@pytest.mark.parametrize(
    ("arguments", "options", "files"),
    [
        (["--", "a", "b"], [], ["a", "b"]),
        (["--gpu", "9.0", "--", "a"], ["--gpu", "9.0"], ["a"]),
        (["a", "b"], [], ["a", "b"]),
        (["--", "a", "--"], [], ["a", "--"]),
        ([], [], []),
    ],
)
def test_the_end_of_the_options(arguments: list[str], options: list[str], files: list[str]) -> None:
    assert split(arguments) == (options, files)
