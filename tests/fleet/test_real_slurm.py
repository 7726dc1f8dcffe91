"""`fleet run` and the scripts of deploy/slurm on a Slurm that really runs, of this machine's own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.exit_codes import ExitCode
from tests.fleet.real_slurm import RealSlurm, missing_daemons

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.skipif(bool(missing_daemons()), reason=f"not installed: {missing_daemons()} (Debian: slurmctld slurmd munge)"),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    """Three nodes, and a fourth without a slurmd."""
    with tempfile.TemporaryDirectory(prefix="slurm") as folder:  # short: the path of a socket has at most 107 bytes
        running = RealSlurm(Path(folder), nodes=3, absent=1)
        try:
            yield running
        finally:
            running.stop()


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "cudadoctor", "fleet", "run", "slurm", str(folder), "--no-run", "--format", "json", *arguments]


def run(slurm: RealSlurm, folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the summary."""
    done = subprocess.run(command(folder, *arguments), env=slurm.env, capture_output=True, text=True, timeout=240)
    return done.returncode, json.loads(done.stdout)


def reasons(summary: dict[str, Any]) -> dict[str, str]:
    return {each["node"]: each["because"] for each in summary["no_report"]}


def jobs_left(slurm: RealSlurm) -> str:
    """The jobs that are still there after the time that Slurm takes to clean up."""
    limit = time.monotonic() + 10
    while (left := slurm.ask("squeue", "--noheader")) and time.monotonic() < limit:
        time.sleep(0.2)
    return left


def program(path: Path, body: str) -> str:
    """A command for `--command`; what it is given goes to cudadoctor where it says so."""
    path.write_text(f'#!/bin/sh\ndoctor() {{ {sys.executable} -m cudadoctor "$@"; }}\n{body}\n')
    path.chmod(0o755)
    return str(path)


def test_every_node_is_a_report_or_a_reason(slurm: RealSlurm, tmp_path: Path) -> None:
    _, summary = run(slurm, tmp_path / "reports")
    assert sorted(path.stem for path in (tmp_path / "reports").glob("*.json")) == slurm.nodes
    assert sorted(node for row in summary["classes"] for node in row["nodes"]) == slurm.nodes
    assert list(reasons(summary)) == ["node4"]
    assert reasons(summary)["node4"].startswith("Slurm says that it is unknown")


def test_nodes_that_fail_cost_no_other_and_leave_no_job_behind(slurm: RealSlurm, tmp_path: Path) -> None:
    body = """case "$SLURMD_NODENAME" in
node2) echo Welcome; doctor "$@" | head -c 900 ;;
node3) exec sleep 300 ;;
*) doctor "$@" ;;
esac"""
    given = ("--nodes", "node[1-3]", "--wait", "10", "--timeout", "10", "--command", program(tmp_path / "half_dead", body))
    _, summary = run(slurm, tmp_path / "reports", *given)
    assert [row["nodes"] for row in summary["classes"]] == [["node1"]]
    assert list(reasons(summary)) == ["node2", "node3"]
    assert reasons(summary)["node2"] == "its report is cut short or damaged"
    assert reasons(summary)["node3"].startswith("gave no answer within 35 s")
    assert jobs_left(slurm) == ""


def test_ctrl_c_cancels_the_jobs(slurm: RealSlurm, tmp_path: Path) -> None:
    given = ("--nodes", "node[1-3]", "--command", program(tmp_path / "hangs", "exec sleep 300"))
    with subprocess.Popen(command(tmp_path / "reports", *given), env=slurm.env, stdout=subprocess.DEVNULL) as running:
        limit = time.monotonic() + 30
        while len(slurm.ask("squeue", "--noheader", "--states=running").splitlines()) < 3 and time.monotonic() < limit:
            time.sleep(0.2)
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == ExitCode.INTERRUPTED
    assert jobs_left(slurm) == ""


def test_inside_a_job_its_nodes_are_asked_beside_its_other_steps(slurm: RealSlurm, tmp_path: Path) -> None:
    script = 'srun -N2 -n2 sleep 60 & sleep 1; "$@"; code=$?; kill $!; exit $code'
    salloc = ("salloc", "--nodes=2", "--ntasks=2", "--quiet", "sh", "-c", script, "sh")
    argv = [*salloc, *command(tmp_path / "reports", "--wait", "10")]
    done = subprocess.run(argv, env=slurm.env, capture_output=True, text=True, timeout=240)
    assert done.stdout, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["counts"]["nodes"], reasons(summary)) == (2, {})


@pytest.fixture
def sick_doctor(tmp_path: Path) -> str:
    """Finds a problem on node2 only, as `check --quiet` prints it."""
    sick = """echo 'x CD510 gpu-lost  GPU 3'; exit 1"""
    return program(tmp_path / "cudadoctor", f'case " $* " in *" node2 "*) {sick} ;; esac')


def resumed(slurm: RealSlurm, node: str) -> None:
    slurm.ask("scontrol", "update", f"NodeName={node}", "State=RESUME")
    limit = time.monotonic() + 20
    while slurm.states([node]) != {"idle"} and time.monotonic() < limit:
        time.sleep(0.2)


def test_the_health_check_drains_the_sick_node_with_the_reason(slurm: RealSlurm, sick_doctor: str) -> None:
    for node in slurm.nodes:
        env = {**slurm.env, "CUDADOCTOR": sick_doctor, "SLURMD_NODENAME": node}
        assert subprocess.run([str(DEPLOY / "health-check.sh")], env=env, timeout=60).returncode == 0
    try:
        assert slurm.states(["node2"]) == {"drained"}
        assert slurm.states(["node1", "node3"]) == {"idle"}
        assert slurm.ask("sinfo", "--noheader", "--nodes=node2", "--format=%E") == "cudadoctor: CD510 gpu-lost"
    finally:
        resumed(slurm, "node2")


def test_the_prolog_drains_the_sick_node_before_a_job_starts(sick_doctor: str, tmp_path: Path) -> None:
    """As slurmd calls it: with hardly an environment."""
    prolog = tmp_path / "prolog.sh"
    prolog.write_text((DEPLOY / "prolog.sh").read_text().replace("/opt/cudadoctor/bin/cudadoctor", sick_doctor))
    prolog.chmod(0o755)
    settings = f"Prolog={prolog}\nPrologFlags=Alloc\n"
    with tempfile.TemporaryDirectory(prefix="slurm") as folder:
        slurm = RealSlurm(Path(folder), nodes=2, settings=settings)
        try:
            env = {**slurm.env, "SLURM_EXIT_IMMEDIATE": "20"}
            sick = subprocess.Popen(["srun", "--nodelist=node2", "--immediate=20", "true"], env=env, stderr=subprocess.DEVNULL)
            limit = time.monotonic() + 30
            while not slurm.states(["node2"]) <= {"drained", "draining"} and time.monotonic() < limit:
                time.sleep(0.2)
            assert slurm.states(["node2"]) <= {"drained", "draining"}
            assert slurm.ask("sinfo", "--noheader", "--nodes=node2", "--format=%E") == "cudadoctor: CD510 gpu-lost"
            well = ("srun", "--nodelist=node1", "--immediate=20", "true")
            assert subprocess.run(well, env=env, stdin=subprocess.DEVNULL, timeout=60).returncode == 0
            sick.terminate()
            sick.wait(timeout=30)
        finally:
            slurm.stop()


def test_a_node_that_dies_is_named(slurm: RealSlurm, tmp_path: Path) -> None:
    """The last test: its slurmd and the step's do not come back."""
    slow = program(tmp_path / "slow", 'sleep 4; doctor "$@"')
    given = ("--nodes", "node[1-2]", "--wait", "5", "--timeout", "10", "--command", slow)
    with subprocess.Popen(command(tmp_path / "reports", *given), env=slurm.env, stdout=subprocess.PIPE, text=True) as running:
        limit = time.monotonic() + 30
        while "node1" not in slurm.ask("squeue", "--noheader", "--states=running", "--format=%N") and time.monotonic() < limit:
            time.sleep(0.1)
        job = slurm.ask("squeue", "--noheader", "--nodelist=node1", "--format=%i")
        slurm.kill("node1")
        for pid in slurm.ask("pgrep", "-f", rf"slurmstepd: \[{job}\.").split():
            if f"{slurm.folder}" in Path(f"/proc/{pid}/environ").read_text(errors="replace"):
                os.kill(int(pid), signal.SIGKILL)
        stdout, _ = running.communicate(timeout=120)
    summary = json.loads(stdout)
    assert [row["nodes"] for row in summary["classes"]] == [["node2"]]
    assert list(reasons(summary)) == ["node1"]
