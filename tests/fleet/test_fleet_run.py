"""`fleet run` by programs that stand in for srun and sinfo: real ones, first on PATH, that do what nodes do at their worst."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec import structs

from cudadoctor.exit_codes import ExitCode
from cudadoctor.fleet import launchers
from cudadoctor.fleet.hostlist import HostlistError
from cudadoctor.fleet.launchers import Asking, LauncherError, ask_nodes, slurm_nodes, srun, ssh
from cudadoctor.fleet.node_answer import Answer, answer_of
from cudadoctor.model.codec import to_json
from tests.report.sample_reports import healthy_h100

REPORT = to_json(healthy_h100()).decode()
NODES = "good|idle|none\nbusy|allocated|none\nnoisy|mixed|none\nbroken|idle|none\ncut|idle|none\ndead|down*|Not responding\n"
SRUN = """#!/bin/sh
for word; do case "$word" in --nodelist=*) node=${word#--nodelist=};; esac; done
echo "$@" >> "$LOG"
case "$node" in
good) exec cat "$REPORT" ;;
noisy) echo "Welcome to noisy"; cat "$REPORT"; echo "logout" ;;
busy) echo "srun: error: Unable to allocate resources: Requested nodes are busy" >&2; exit 1 ;;
broken) echo "execve(): cudadoctor: No such file or directory
srun: error: broken: task 0: Exited with exit code 2" >&2; exit 2 ;;
cut) head -c 900 "$REPORT" ;;
hangs) exec sleep 300 ;;
waits) trap 'echo told to end >> "$LOG"; exit 1' TERM INT; sleep 300 & wait ;;
dies) kill -SEGV $$ ;;
binary) head -c 3000 /dev/urandom ;;
endless) exec yes "$(printf 'x%.0s' $(seq 500))" ;;
esac
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs on the PATH; returns the log of srun's arguments."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (tmp_path / "report.json").write_text(REPORT)
    for name, text in (("srun", SRUN), ("sinfo", f"#!/bin/sh\ncat <<'END'\n{NODES}END\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("REPORT", str(tmp_path / "report.json"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    return tmp_path / "log"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "cudadoctor", "fleet", "run", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120)


def asked(*nodes: str, start_s: float = 0.5, check_s: float = 0.5) -> dict[str, Answer]:
    asking = Asking(("cudadoctor", "check"), (), start_s, check_s, at_once=8)
    return {answer.node: answer for answer in ask_nodes(nodes, srun, asking)}


def test_every_node_is_a_report_or_a_reason(cluster: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    done = run("slurm", str(folder), "--format", "json")
    assert sorted(path.name for path in folder.glob("*.json")) == ["good.json", "noisy.json"]
    assert json.loads((folder / "noisy.json").read_text()) == json.loads(REPORT)
    summary = json.loads(done.stdout)
    assert {each["node"]: each["because"] for each in summary["no_report"]} == {
        "broken": "exit code 2: execve(): cudadoctor: No such file or directory",
        "busy": "exit code 1: srun: error: Unable to allocate resources: Requested nodes are busy",
        "cut": "its report is cut short or damaged",
        "dead": "Slurm says that it is down, and that it does not respond: Not responding",
    }
    assert summary["not_reported"] == []
    assert summary["counts"]["healthy"] == 2
    assert done.returncode == ExitCode.UNDETERMINED
    again = subprocess.run(
        [sys.executable, "-m", "cudadoctor", "fleet", "summary", str(folder), "--format", "json"], capture_output=True, text=True
    )
    assert json.loads(again.stdout)["no_report"] == summary["no_report"]


def test_what_a_node_printed_instead_is_kept(cluster: Path, tmp_path: Path) -> None:
    run("slurm", str(tmp_path / "reports"), "--nodes", "cut,good")
    assert (tmp_path / "reports" / "cut.out").read_text() == REPORT[:900]


def test_srun_is_told_the_node_the_limits_and_the_users_options(cluster: Path, tmp_path: Path) -> None:
    run(
        "slurm",
        str(tmp_path / "reports"),
        "--nodes",
        "good",
        "--timeout",
        "70",
        "--wait",
        "9",
        "--",
        "--gres=gpu:8",
        "--exclusive",
    )
    said = cluster.read_text()
    assert "--nodelist=good --nodes=1 --ntasks=1" in said
    assert "--immediate=9 --time=2 --gres=gpu:8 --exclusive" in said
    assert said.rstrip().endswith("check --format json --fail-on never --timeout 70 --node good")


@pytest.mark.parametrize(
    ("node", "because"),
    [("dies", "died of SIGSEGV"), ("binary", "printed no report"), ("endless", "printed too much")],
)
def test_a_node_that_prints_no_report_is_named_with_the_reason(cluster: Path, node: str, because: str) -> None:
    answer = asked(node, check_s=20)[node]
    assert answer.report == ""
    assert answer.because.startswith(because)


def test_a_node_that_hangs_is_given_up_and_costs_no_other(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launchers, "MARGIN_S", 1.0)
    started = time.monotonic()
    answers = asked("hangs", "good")
    assert time.monotonic() - started < 15
    assert answers["hangs"].because == "gave no answer within 2 s"
    assert json.loads(answers["good"].report)["schema"] == "cudadoctor.report/1"


def test_inside_an_allocation_its_nodes_are_the_fleet(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "goo[d]x,n[1-2]")
    with pytest.raises(HostlistError):
        slurm_nodes(())
    monkeypatch.setenv("SLURM_JOB_NODELIST", "good,n[01-02]")
    assert slurm_nodes(()) == (("good", "n01", "n02"), ())


def test_ctrl_c_ends_what_runs_and_starts_no_more(cluster: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cudadoctor", "fleet", "run", "slurm", str(tmp_path / "reports"), "--nodes", "waits,good"]
    with subprocess.Popen([*argv, "--at-once", "1"], stdout=subprocess.DEVNULL) as program:
        limit = time.monotonic() + 30
        while not cluster.exists() and time.monotonic() < limit:
            time.sleep(0.05)
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        assert program.wait(timeout=30) == ExitCode.INTERRUPTED
    said = cluster.read_text()
    assert "told to end" in said
    assert "--nodelist=good" not in said


def test_where_no_node_answers_the_verdict_is_undetermined(cluster: Path, tmp_path: Path) -> None:
    done = run("slurm", str(tmp_path / "reports"), "--nodes", "busy,broken")
    assert done.returncode == ExitCode.UNDETERMINED
    assert "2 nodes gave no report" in done.stdout


def test_earlier_reports_are_not_taken_for_answers(cluster: Path, tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "busy.json").write_text(REPORT)
    done = run("slurm", str(tmp_path / "reports"))
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "is not empty: name a new one" in done.stderr


@pytest.mark.parametrize("node", ["../up", "-oProxyCommand=sh", "a/b", ""])
def test_a_name_that_is_no_node_is_refused_before_anything_runs(cluster: Path, tmp_path: Path, node: str) -> None:
    done = run("slurm", str(tmp_path / "reports"), f"--nodes=good,{node}x/")
    assert done.returncode == ExitCode.USAGE
    assert not cluster.exists()
    assert "Traceback" not in done.stderr


def test_a_cluster_that_does_not_answer_is_said_so(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cluster.parent / "bin" / "sinfo").write_text(
        "#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller' >&2\nexit 1\n"
    )
    with pytest.raises(LauncherError, match="Unable to contact slurm controller"):
        slurm_nodes(())
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(LauncherError, match="cannot run sinfo"):
        slurm_nodes(())


def test_inside_a_job_the_nodes_of_the_job_run_a_step(cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "good,noisy")
    done = run("slurm", str(tmp_path / "reports"), "--format", "json")
    assert json.loads(done.stdout)["counts"]["healthy"] == 2
    assert cluster.read_text().count(" --overlap ") == 2


def test_a_cluster_without_nodes_is_said_so(cluster: Path, tmp_path: Path) -> None:
    (cluster.parent / "bin" / "sinfo").write_text("#!/bin/sh\n")
    done = run("slurm", str(tmp_path / "reports"))
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "sinfo names none" in done.stderr


def test_ssh_asks_no_password_and_runs_one_command() -> None:
    asking = Asking(("cuda doctor", "check"), ("-p", "2222"), 7.2, 30, 1)
    argv = ssh("node1", asking)
    assert argv[:5] == ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8")
    assert argv[5:] == ("-p", "2222", "--", "node1", "'cuda doctor' check --node node1")


def test_ssh_needs_a_list_of_nodes(tmp_path: Path) -> None:
    done = run("ssh", str(tmp_path / "reports"))
    assert done.returncode == ExitCode.USAGE
    assert "name them with --nodes" in done.stderr


def test_a_report_of_a_newer_schema_counts_and_one_of_another_program_does_not() -> None:
    newer = REPORT.replace("cudadoctor.report/1", "cudadoctor.report/2", 1)
    assert answer_of("n", newer, "", "").report == newer.rstrip()
    assert answer_of("n", '{"schema": "other/1"}', "", "").because == 'printed no report: {"schema": "other/1"}'


def report_of(node: str | None, created: str = "2026-11-30T12:00:00Z") -> str:
    return to_json(structs.replace(healthy_h100(), node=node, created=created)).decode()


def test_of_several_reports_the_newest_counts_wherever_it_stands() -> None:
    older, newer = report_of("n", "2026-11-30T12:00:00Z"), report_of("n", "2026-11-30T13:00:00Z")
    for stdout in (older + newer, newer + older, f"{older[:500]}\n{newer}", f"{newer}\n{older[:500]}"):
        assert answer_of("n", stdout, "", "").report == newer.rstrip()


def test_the_report_of_another_node_is_no_answer() -> None:
    """Written into the folder, it would be summed up as that other node, and this one would be lost."""
    answer = answer_of("n1", report_of("n2"), "", "")
    assert (answer.report, answer.because) == ("", "its report is of the node 'n2'")
    assert answer_of("n1", report_of("n2") + report_of("n1"), "", "").report == report_of("n1").rstrip()
    assert answer_of("n1", report_of(None), "", "").report == report_of(None).rstrip()


def test_a_program_that_fails_after_a_part_of_its_report_says_both() -> None:
    because = "died of SIGKILL: its report is cut short or damaged"
    assert (
        answer_of("n", report_of("n")[:500], "slurmstepd: error: Detected 1 oom-kill event", "died of SIGKILL").because == because
    )
