"""docs/ci.md says what is so: inputs, metrics and options that exist, YAML that parses."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudadoctor.cli_options import ReportFormat
from cudadoctor.matrices import Matrices
from cudadoctor.policy import read_policy
from cudadoctor.report import RENDERERS, RenderOptions
from tests.report.sample_reports import healthy_h100

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
DOCUMENTS: list[dict[str, Any]] = [yaml.safe_load(block) for language, block in BLOCKS if language == "yaml"]


def steps() -> list[dict[str, Any]]:
    return [step for each in DOCUMENTS for job in each.get("jobs", {}).values() for step in job["steps"]]


def test_the_action_is_used_with_inputs_that_it_has() -> None:
    path = ".github/actions/cudadoctor"
    inputs = yaml.safe_load((ROOT / path / "action.yml").read_text(encoding="utf-8"))["inputs"]
    used = [step for step in steps() if f"cudadoctor/{path}@" in step["uses"]]
    assert len(used) == 2
    assert all(step["with"].keys() <= inputs.keys() for step in used)


def test_the_hook_is_called_by_its_id() -> None:
    (hook,) = [hook for each in DOCUMENTS for repo in each.get("repos", ()) for hook in repo["hooks"]]
    assert hook["id"] == yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))[0]["id"]
    assert hook["args"][-1] == "--"


def test_the_metrics_are_those_that_are_written() -> None:
    written = set(re.findall(r"^# TYPE (\w+)", RENDERERS["prometheus"](healthy_h100(), RenderOptions()), re.MULTILINE))
    assert set(re.findall(r"`(cudadoctor_\w+)`", TEXT)) == written
    expressions = [rule["expr"] for each in DOCUMENTS for group in each.get("groups", ()) for rule in group["rules"]]
    assert all(set(re.findall(r"cudadoctor_\w+", expression)) <= written for expression in expressions)


def test_the_formats_are_those_of_the_command_line() -> None:
    table = TEXT.partition("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert {"github", "sarif", "junit", "prometheus"} == named
    assert named <= {each.value for each in ReportFormat} == set(RENDERERS)


def test_the_policy_is_one(tmp_path: Path) -> None:
    (block,) = [block for language, block in BLOCKS if language == "toml"]
    (tmp_path / "cudadoctor.toml").write_text(block, encoding="utf-8")
    policy = read_policy(tmp_path / "cudadoctor.toml", Matrices.load())
    assert (policy.gpus, policy.driver, policy.fail_on) == (("H100", "RTX 4090"), "550", "warning")


@pytest.mark.parametrize("command", sorted(set(re.findall(r"cudadoctor (check|preflight) (--.*)", TEXT))))
def test_the_options_exist(command: tuple[str, str]) -> None:
    name, options = command
    argv = [sys.executable, "-m", "cudadoctor", name, "--help"]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    shown = subprocess.run(argv, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, env=env, check=True).stdout
    assert all(option in shown for option in re.findall(r"--[\w-]+", options))
