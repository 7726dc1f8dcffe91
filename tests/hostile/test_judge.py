"""The judge of the hostile machines finds what a doctor does wrong: each doctor here does one thing wrong."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.doctor import Place, Run, run_doctor
from tests.hostile.judge import Expected, faults

REPORT: dict[str, Any] = {
    "schema": "cudadoctor.report/1",
    "tool": {"version": "0", "matrices_as_of": "2026-01-01"},
    "created": "2026-01-01T00:00:00Z",
    "verdict": "healthy",
    "summary": "",
    "findings": [],
    "unknown": [],
    "proofs": [],
    "snapshot": {"probe_runs": [], "host": {"os_id": {"state": "known", "value": "ubuntu", "source": "/etc/os-release"}}},
}
PRINTS = f"print({json.dumps(json.dumps(REPORT))})"


def doctor(body: str, folder: Path) -> Run:
    """A doctor that runs these statements, with half a second for it."""
    work = folder / "machine" / "work"
    work.mkdir(parents=True)
    program = (sys.executable, "-S", "-c", f"import os, subprocess, sys, time\n{body}")
    return run_doctor(Place({"PATH": "/usr/bin:/bin"}, work, (folder / "machine",), program=program), 0.5)


def told(run: Run, plain: Run, **expected: Any) -> list[str]:
    return list(faults(run, plain, Expected(**expected), ("\0", "\0"), slack=0.5))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return doctor(PRINTS, tmp_path_factory.mktemp("plain"))


def test_a_doctor_that_does_well_has_no_fault(plain: Run) -> None:
    assert told(plain, plain) == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (f"{PRINTS}\nsys.stdout.flush(); time.sleep(1.2)", "took"),
        (f"{PRINTS}\nsys.exit(3)", "ended with 3"),
        (f"{PRINTS}\nprint('Traceback (most recent call last)', file=sys.stderr)", "Traceback"),
        (f"{PRINTS}\nsubprocess.Popen(['sleep', '60'], start_new_session=True)", "left running"),
        (f"{PRINTS}\nopen('left', 'w')", "wrote"),
        (f"{PRINTS}\nos.mkdir('../left')", "wrote"),
        ("pass", "printed no report"),
        ("print('{}')", "does not validate"),
    ],
)
def test_a_doctor_that_does_one_thing_wrong(body: str, fault: str, tmp_path: Path, plain: Run) -> None:
    found = told(doctor(body, tmp_path), plain)
    assert any(fault in each for each in found), found


def changed(plain: Run, change: Callable[[dict[str, Any]], None]) -> Run:
    report = copy.deepcopy(plain.report)
    assert report is not None
    change(report)
    return Run(plain.timeout, plain.exit_code, 0, json.dumps(report).encode(), "", [], [])


def test_a_fact_that_changes_elsewhere_or_is_invented_is_a_fault(plain: Run) -> None:
    def other(report: dict[str, Any]) -> None:
        report["snapshot"]["host"]["os_id"]["value"] = "debian"

    def missing(report: dict[str, Any]) -> None:
        report["snapshot"]["host"]["os_id"] = {"state": "missing", "reason": "timeout", "detail": ""}

    assert len(told(changed(plain, other), plain)) == 1
    assert len(told(changed(plain, other), plain, facts=("host",))) == 1
    assert told(changed(plain, other), plain, other_values=("host",)) == []
    assert len(told(changed(plain, missing), plain)) == 1
    assert told(changed(plain, missing), plain, facts=("host",)) == []


def test_an_error_and_a_proof_that_should_not_be_are_faults(plain: Run) -> None:
    def accuse(report: dict[str, Any]) -> None:
        finding = {"code": "CD101", "name": "no-nvidia-gpu", "severity": "error", "subject": "machine", "what": "", "why": ""}
        report["findings"] = [finding]

    def fail(report: dict[str, Any]) -> None:
        report["proofs"] = [{"layer": "nvcc", "gpu": 0, "kernel": "k", "target": "sm_90", "outcome": "failed"}]

    assert any("error findings" in each for each in told(changed(plain, accuse), plain))
    assert not any("error findings" in each for each in told(changed(plain, accuse), plain, errors=("no-nvidia-gpu",)))
    assert any(each.startswith("proof") for each in told(changed(plain, fail), plain))
    assert not any(each.startswith("proof") for each in told(changed(plain, fail), plain, layers=("nvcc",)))


def test_a_probe_that_crashed_is_a_fault_unless_nothing_could_work(plain: Run) -> None:
    def crash(report: dict[str, Any]) -> None:
        report["snapshot"]["probe_runs"] = [{"probe": "nvml", "seconds": 0.1, "outcome": "crashed", "detail": "MemoryError"}]

    assert any("a probe crashed" in each for each in told(changed(plain, crash), plain))
    assert told(changed(plain, crash), plain, starved=True) == []
