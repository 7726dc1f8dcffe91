"""What deploy/ offers to clusters: scripts run with a stand-in for scontrol, manifests held against the schemas of Kubernetes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes.machines import build_machine

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))


def doctor(folder: Path, body: str) -> Path:
    """A program called as cudadoctor is."""
    program = folder / "cudadoctor"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return program


SCONTROL = """#!/bin/sh
case "$1" in
show) echo "   State=$STATE ThreadsPerCore=1" ;;
*) printf '%s\\n' "$@" >> "$LOG" ;;
esac
"""


def run(script: Path, program: Path, folder: Path, state: str = "IDLE", **env: str) -> tuple[int, list[str]]:
    """The exit code, and what scontrol was told of a node in this state."""
    log = folder / "scontrol.log"
    (folder / "scontrol").write_text(SCONTROL)
    (folder / "scontrol").chmod(0o755)
    given = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CUDADOCTOR": str(program),
        "SLURMD_NODENAME": "node7",
        "STATE": state,
        "LOG": str(log),
        **env,
    }
    done = subprocess.run([str(script)], env=given, capture_output=True, timeout=90)
    return done.returncode, log.read_text().splitlines() if log.exists() else []


@pytest.mark.parametrize(("script", "code"), [("health-check.sh", 0), ("prolog.sh", 1)])
def test_a_node_with_a_problem_is_drained_and_the_reason_says_what_it_is(tmp_path: Path, script: str, code: int) -> None:
    machine = build_machine("G", tmp_path)
    program = doctor(tmp_path, f'exec {sys.executable} -m cudadoctor "$@"')
    path = f"{tmp_path}:{machine.env['PATH']}:{os.environ['PATH']}"
    returned, told = run(DEPLOY / "slurm" / script, program, tmp_path, **{**machine.env, "PATH": path})
    assert told[:3] == ["update", "NodeName=node7", "State=DRAIN"]
    assert told[3].startswith("Reason=cudadoctor: CD401 cpu-only-torch")
    assert returned == code


@pytest.mark.parametrize("script", ["health-check.sh", "prolog.sh"])
@pytest.mark.parametrize("code", [0, 2, 3, 4, 130])
def test_what_is_well_or_not_determined_drains_nothing(tmp_path: Path, script: str, code: int) -> None:
    assert run(DEPLOY / "slurm" / script, doctor(tmp_path, f"exit {code}"), tmp_path) == (0, [])


@pytest.mark.parametrize("script", ["health-check.sh", "prolog.sh"])
def test_a_doctor_that_is_not_installed_drains_nothing(tmp_path: Path, script: str) -> None:
    assert run(DEPLOY / "slurm" / script, tmp_path / "absent", tmp_path) == (0, [])


@pytest.mark.parametrize("script", ["health-check.sh", "prolog.sh"])
def test_a_doctor_that_cannot_start_drains_nothing(tmp_path: Path, script: str) -> None:
    """A Python without one of its packages ends with 1, on every node at once."""
    program = doctor(tmp_path, f"exec {sys.executable} -c 'import no_such_package'")
    assert run(DEPLOY / "slurm" / script, program, tmp_path) == (0, [])


SICK = "echo 'x CD101 no-nvidia-gpu  machine'; exit 1"


@pytest.mark.parametrize(("state", "is_drained"), [("IDLE", True), ("MIXED", True), ("IDLE+DRAIN", False), ("DOWN+DRAIN", False)])
def test_the_reason_of_a_node_that_is_drained_already_stays(tmp_path: Path, state: str, is_drained: bool) -> None:
    assert bool(run(DEPLOY / "slurm" / "health-check.sh", doctor(tmp_path, SICK), tmp_path, state)[1]) is is_drained


@pytest.mark.parametrize("script", ["health-check.sh", "prolog.sh"])
def test_a_script_that_slurm_gives_no_path_gives_one(tmp_path: Path, script: str) -> None:
    said = tmp_path / "said"
    program = doctor(tmp_path, f'env > "{said}"')
    subprocess.run([str(DEPLOY / "slurm" / script)], env={"CUDADOCTOR": str(program)}, capture_output=True, timeout=90)
    assert "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" in said.read_text().splitlines()


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document is not None]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_keep_to_the_schemas_of_kubernetes(path: Path) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed (23 MB)")
    for document in documents(path):
        validator.validate(document, "1.31", strict=True)
    broken = {**documents(path)[0], "kind": "Job", "apiVersion": "batch/v1", "spec": {"completions": "two"}}
    with pytest.raises(validator.ValidationError):
        validator.validate(broken, "1.31", strict=True)


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_the_commands_of_the_manifests_are_ones_that_this_cudadoctor_has(path: Path) -> None:
    for document in documents(path):
        containers = document.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        for command in (container["command"] for container in containers if container["command"][0] == "cudadoctor"):
            done = subprocess.run([sys.executable, "-m", *command, "--help"], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr


@pytest.fixture
def condition(tmp_path: Path) -> Path:
    """The script of the plugin."""
    script = tmp_path / "check.sh"
    script.write_text(documents(DEPLOY / "kubernetes" / "node-condition.yaml")[0]["data"]["check.sh"])
    script.chmod(0o755)
    return script


def said_of_the_node(script: Path, program: Path, **env: str) -> tuple[int, str]:
    given = {"PATH": os.environ["PATH"], **env, "CUDADOCTOR": str(program)}
    done = subprocess.run([str(script)], env=given, capture_output=True, text=True, timeout=90)
    return done.returncode, done.stdout


def test_a_node_condition_follows_the_exit_code_and_names_the_problem(condition: Path, tmp_path: Path) -> None:
    machine = build_machine("G", tmp_path / "machine")
    program = doctor(tmp_path, f'exec {sys.executable} -m cudadoctor "$@"')
    env = {**machine.env, "PATH": f"{machine.env['PATH']}:{os.environ['PATH']}"}
    code, words = said_of_the_node(condition, program, **env)
    assert code == 1
    assert words.startswith("CD401 cpu-only-torch")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("exit 0", 0, "exit code 0\n"),
        ("echo '? CD105 nvidia-smi-hangs  machine'; exit 4", 4, "CD105 nvidia-smi-hangs\n"),
        (f"exec {sys.executable} -c 'import no_such_package'", 2, "exit code 2\n"),
        ("kill -9 $$", 137, "exit code 137\n"),
    ],
    ids=["well", "undetermined", "does-not-start", "killed"],
)
def test_a_condition_is_unknown_where_nothing_is_determined(
    condition: Path, tmp_path: Path, body: str, code: int, words: str
) -> None:
    assert said_of_the_node(condition, doctor(tmp_path, body)) == (code, words)


def test_the_plugin_meets_what_node_problem_detector_checks_at_its_start() -> None:
    """As `Validate` of its pkg/custompluginmonitor/types/config.go: known conditions, limits within the limit of the whole."""
    monitor = json.loads(documents(DEPLOY / "kubernetes" / "node-condition.yaml")[0]["data"]["monitor.json"])
    assert monitor["plugin"] == "custom"
    assert {rule["condition"] for rule in monitor["rules"]} == {condition["type"] for condition in monitor["conditions"]}
    assert {rule["timeout"] for rule in monitor["rules"]} == {monitor["pluginConfig"]["timeout"]}
