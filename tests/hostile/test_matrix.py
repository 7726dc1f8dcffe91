"""`cudadoctor check` on machines with one hostile thing at a time: always a report in time, the rest of it right, nothing left.

One cell for each way of going wrong; benchmarks/hostile_machines.py runs all of the matrix (docs/hostile_machines.md).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudadoctor.commands.output import write
from cudadoctor.rules.registry import RULES
from tests.hostile.cells import Cell, own
from tests.hostile.doctor import ENTRY_POINT, LAUNCHER, ImpossibleHereError, Run
from tests.hostile.machine import RULE, Prey, machine_a
from tests.hostile.matrix import all_cells, faults_of, plain_run, run_cell

SLACK_S = 15.0
"""Beyond the deadline on a busy machine: what hangs is looked for, not what is slow."""
TELLING = (
    "nvidia-smi: megabytes",
    "nvcc: SIGSEGV",
    "libcuda: SIGSEGV",
    "torch: child keeps pipes",
    "torch's folder: unsearchable",
    "limits: 32 descriptors",
    "threads and processes: 24 more",
    "full disk: both",
    "HOME: read-only",
    "cwd: shadowing modules",
    "cwd: shadowing modules, python -m",
    "environment: ASCII",
)
"""A second each."""
CELLS = {cell.name: cell for cell in all_cells()}


@pytest.fixture(scope="session")
def plain_a(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Prey]:
    """Machine A as it is."""
    return plain_run("A", tmp_path_factory.mktemp("plain") / "machine")


@pytest.fixture(scope="session")
def plain_without_gpu(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Prey]:
    """A machine without GPU as it is."""
    return plain_run("no GPU", tmp_path_factory.mktemp("plain") / "machine")


def _faults(cell: Cell, kind: str, folder: Path, plain: tuple[Run, Prey]) -> list[str]:
    try:
        ran = run_cell(cell, kind, folder / "machine")
    except ImpossibleHereError as reason:
        pytest.skip(str(reason))
    return faults_of(cell, ran, plain, SLACK_S)


def test_the_plain_machine_is_whole(plain_a: tuple[Run, Prey]) -> None:
    run = plain_a[0]
    assert run.exit_code == 0, run.stderr
    assert run.left_running == []
    assert run.written == []


def test_the_machine_without_gpu_says_so(plain_without_gpu: tuple[Run, Prey]) -> None:
    run = plain_without_gpu[0]
    assert run.exit_code == 1, run.stderr
    assert run.report is not None
    assert "no-nvidia-gpu" in {finding["name"] for finding in run.report["findings"]}


@pytest.mark.parametrize("name", TELLING)
def test_one_hostile_thing(name: str, tmp_path: Path, plain_a: tuple[Run, Prey]) -> None:
    assert _faults(CELLS[name], "A", tmp_path, plain_a) == []


def test_a_hostile_thing_on_a_machine_without_gpu(tmp_path: Path, plain_without_gpu: tuple[Run, Prey]) -> None:
    assert _faults(CELLS["PATH: empty"], "no GPU", tmp_path, plain_without_gpu) == []


def test_nothing_outside_of_a_machine_is_made_hostile(tmp_path: Path) -> None:
    (tmp_path / "machine").mkdir()
    (tmp_path / "real").write_text("a real program")
    (tmp_path / "real").chmod(0o755)
    link = tmp_path / "machine" / "link"
    link.symlink_to(tmp_path / "real")
    own(link, tmp_path / "machine")
    link.chmod(0)
    assert os.access(tmp_path / "real", os.X_OK)
    with pytest.raises(ValueError, match="outside"):
        own(tmp_path / "real", tmp_path / "machine")


def test_cells_have_names_of_their_own() -> None:
    names = [cell.name for cell in all_cells()]
    assert sorted(set(names)) == sorted(names)


def test_a_file_named_like_a_rule_is_no_argument(tmp_path: Path) -> None:
    assert RULE in {rule.name for rule in RULES}
    prey = machine_a(tmp_path / "machine")
    said = [
        subprocess.run(
            [sys.executable, str(ENTRY_POINT), "explain", RULE], env=prey.env, cwd=cwd, capture_output=True, check=True
        )
        for cwd in (prey.cwd, prey.shadows)
    ]
    assert said[0].stdout == said[1].stdout


def test_a_width_of_thousands_of_digits_is_none(tmp_path: Path) -> None:
    prey = machine_a(tmp_path / "machine")
    argv = [sys.executable, str(ENTRY_POINT), "check", "--no-run"]
    done = [subprocess.run(argv, env={**prey.env, **more}, capture_output=True) for more in ({}, {"COLUMNS": "9" * 5000})]
    assert [run.returncode for run in done] == [0, 0]
    assert max(map(len, done[0].stdout.decode().splitlines())) == max(map(len, done[1].stdout.decode().splitlines()))


@pytest.mark.parametrize("command", [["rules"], ["matrix", "gpus"], ["--version"], ["explain", "209"]])
def test_output_that_goes_nowhere_is_an_error(command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, str(ENTRY_POINT), *command], stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert b"No space left on device" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("scan", "{shut}/libx.so"), "Permission denied"),
        (("preflight", "--root", "{shut}/root"), "no folder that can be read"),
        (("preflight", "--dockerfile", "{shut}/Dockerfile"), "Permission denied"),
        (("check", "--snapshot", "{shut}/report.json"), "Permission denied"),
    ],
)
def test_a_path_in_a_folder_that_may_not_be_searched(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    shut = tmp_path / "shut"
    shut.mkdir(mode=0o600)
    argv = [sys.executable, "-IS", str(LAUNCHER), '{"humble": true}', sys.executable, str(ENTRY_POINT)]
    done = subprocess.run([*argv, *(each.format(shut=shut) for each in arguments)], capture_output=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr.decode()
    assert done.stderr.decode().count("\n") == 1


def test_output_into_a_pipe_or_through_a_link_leaves_them_what_they_are(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write("a report", pipe)
    assert os.read(reader, 100) == b"a report"
    os.close(reader)
    assert pipe.is_fifo()
    (tmp_path / "link").symlink_to("report")
    write("a report", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "report").read_text() == "a report"
