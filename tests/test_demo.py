"""The recordings: each still says what it was recorded for, is marked in every format, and names nobody."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from cudadoctor.commands.demo import judged, load, names
from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.finding import Severity

ROOTS = {
    "cpu-only-torch": {"cpu-only-torch"},
    "crashing-torch": {"torch-import-fails"},
    "docker-without-gpus": {"container-gpus-flag-missing"},
    "gb10": set(),
    "hanging-nvidia-smi": set(),
    "healthy": set(),
    "newer-than-tables": set(),
    "old-driver": {"driver-too-old"},
    "old-gpu": {"arch-missing-in-wheel"},
    "old-wheel": {"arch-missing-in-wheel"},
    "slurm-apptainer": {"container-gpus-flag-missing"},
    "version-mismatch": {"nvml-version-mismatch"},
    "wsl-linux-driver": {"wsl-linux-driver-installed"},
    "wsl-stub": {"stub-libcuda"},
    "ticket-build": {"nvcc-torch-mismatch"},
    "ticket-extension": {"extension-abi-mismatch"},
}


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cudadoctor", "demo", *arguments], capture_output=True, text=True, timeout=60)


def test_every_demo_is_expected_here() -> None:
    assert names() == sorted(ROOTS)


@pytest.mark.parametrize("name", ROOTS)
def test_the_root_causes(name: str) -> None:
    findings = judged(load(name)).report.findings
    assert {each.name for each in findings if each.root and each.severity is Severity.ERROR} == ROOTS[name]


def test_the_list_has_a_line_for_each() -> None:
    done = demo()
    assert done.returncode == ExitCode.OK
    assert [line.split()[0] for line in done.stdout.splitlines()[2:]] == names()


@pytest.mark.parametrize("format", ["text", "json", "markdown", "html", "junit"])
def test_a_replay_is_marked_in_every_format_and_ends_with_0(format: str) -> None:
    done = demo("old-wheel", "--format", format)
    assert done.returncode == ExitCode.OK
    assert "not this machine" in " ".join(done.stdout.split())
    assert done.stderr.startswith("cudadoctor: a replay, not this machine: RTX 5090")


def test_it_says_what_check_said_of_the_machine() -> None:
    replayed = json.loads(demo("old-wheel", "--format", "json").stdout)
    recorded = load("old-wheel").report
    assert recorded is not None
    assert [each["code"] for each in replayed["findings"]] == [each.code for each in recorded.findings]
    assert len(replayed["proofs"]) == len(recorded.proofs) > 0


def test_an_unknown_name_is_refused() -> None:
    done = demo("../report")
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, "")
    assert "lists them" in done.stderr
