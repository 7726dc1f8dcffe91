"""`fleet run` on a Ray cluster of several nodes that really runs on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.exit_codes import ExitCode


def run(*arguments: str, ray_address: str = "") -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cudadoctor", "fleet", "run", *arguments, "--no-run", "--format", "json"]
    env = {**os.environ, **({"RAY_ADDRESS": ray_address} if ray_address else {})}
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, env=env)


def silent(folder: Path) -> dict[str, str]:
    path = folder / "no-report.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {row["node"]: row["because"] for row in rows}


@pytest.fixture
def ray_cluster() -> Any:
    """A cluster of three nodes in processes of this machine."""
    pytest.importorskip("ray", reason="the extra cudadoctor[ray] is not installed")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


def test_every_ray_node_reports_and_a_dead_one_is_named(ray_cluster: Any, tmp_path: Path) -> None:
    victim = ray_cluster.add_node(num_cpus=1)
    ray_cluster.wait_for_nodes()
    run("ray", str(tmp_path / "all"), ray_address=ray_cluster.address)
    assert len(list((tmp_path / "all").glob("*.json"))) == 3
    assert silent(tmp_path / "all") == {}
    ray_cluster.remove_node(victim)
    run("ray", str(tmp_path / "rest"), ray_address=ray_cluster.address)
    assert len(list((tmp_path / "rest").glob("*.json"))) == 2
    assert [because.split(":")[0] for because in silent(tmp_path / "rest").values()] == ["Ray says that it is dead"]


def test_a_ray_task_that_hangs_is_given_up(ray_cluster: Any, tmp_path: Path) -> None:
    arguments = ("--wait", "1", "--timeout", "1", "--command", "sh -c 'exec sleep 300'")
    done = run("ray", str(tmp_path / "reports"), *arguments, ray_address=ray_cluster.address)
    assert done.returncode == ExitCode.UNDETERMINED
    assert set(silent(tmp_path / "reports").values()) == {"gave no answer within 16 s"}


def test_where_no_ray_answers_the_command_says_so(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra cudadoctor[ray] is not installed")
    done = run("ray", str(tmp_path / "reports"))
    assert done.returncode == ExitCode.USAGE
    assert "no Ray cluster answers" in done.stderr


@pytest.mark.slow
def test_an_address_where_no_ray_answers_is_given_up(tmp_path: Path) -> None:
    """With its own 20 attempts, Ray was still trying after 100 s."""
    pytest.importorskip("ray", reason="the extra cudadoctor[ray] is not installed")
    done = run("ray", str(tmp_path / "reports"), ray_address="127.0.0.1:6399")
    assert done.returncode == ExitCode.USAGE
    assert "no Ray cluster answers" in done.stderr
