"""The doctor as a library, on fake machines and pasted text."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import cudadoctor
from cudadoctor.diagnosis import SelectionError
from cudadoctor.model.codec import to_json
from cudadoctor.model.fact import known
from cudadoctor.model.proof import ProofOutcome
from cudadoctor.model.report import Verdict
from cudadoctor.readers.paste import PasteError
from cudadoctor.system import RealSystem
from tests.fakes.machines import build_machine

MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"


def test_probe_then_judge_says_what_the_command_says(tmp_path: Path) -> None:
    machine = build_machine("G", tmp_path)
    system = RealSystem(machine.env)
    snapshot = cudadoctor.probe(python=str(machine.python), system=system)
    report = cudadoctor.judge(snapshot)
    assert [finding.name for finding in report.findings if finding.root][:1] == ["cpu-only-torch"]
    assert report.proofs == ()
    argv = [sys.executable, "-m", "cudadoctor", "check", "--no-run", "--format", "json"]
    printed = json.loads(subprocess.run(argv, env=machine.env, capture_output=True, timeout=90, cwd=machine.folder).stdout)
    assert [finding["name"] for finding in printed["findings"]] == [finding.name for finding in report.findings]


def test_prove_runs_the_kernels(tmp_path: Path) -> None:
    machine = build_machine("A", tmp_path)
    proofs = cudadoctor.prove(python=str(machine.python), system=RealSystem(machine.env))
    assert {proof.outcome for proof in proofs if proof.layer.value == "driver-jit"} == {ProofOutcome.PASSED}


def test_judging_hides_names_and_probing_does_not(tmp_path: Path) -> None:
    machine = build_machine("A", tmp_path)
    snapshot = cudadoctor.probe(python=str(machine.python), system=RealSystem(machine.env))
    (gpu,) = known(snapshot.gpus)
    assert known(gpu.uuid).startswith("GPU-1111")
    assert b"GPU-1111" not in to_json(cudadoctor.judge(snapshot))


def test_selection_is_the_command_lines(tmp_path: Path) -> None:
    report = cudadoctor.triage(MISMATCH)
    only = cudadoctor.judge(report.snapshot, select=["nvml-version-mismatch"])
    assert [finding.name for finding in only.findings] == ["nvml-version-mismatch"]
    assert cudadoctor.judge(report.snapshot, ignore=["CD103"]).verdict is not Verdict.PROBLEMS
    with pytest.raises(SelectionError, match="no-such-rule"):
        cudadoctor.judge(report.snapshot, select=["no-such-rule"])


def test_triage_takes_text_and_refuses_what_is_none() -> None:
    assert [finding.name for finding in cudadoctor.triage(MISMATCH).findings] == ["nvml-version-mismatch"]
    with pytest.raises(PasteError):
        cudadoctor.triage(b"\x7fELF\x00\x00\x00")


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, cudadoctor; print(sorted(name for name in sys.modules if name.startswith('cudadoctor.')))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        cudadoctor.no_such_function  # noqa: B018  # the access is what is tested
