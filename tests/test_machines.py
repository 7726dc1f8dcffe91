"""The machines of design.md section 7, whole: `cudadoctor check` as a process on fake tools, libraries and a stub torch."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.codec import from_json
from cudadoctor.model.fact import Known
from cudadoctor.model.report import Report
from tests.fakes.machines import Machine, build_machine

DEADLINE_S = 90
"""For a run on a busy machine; the runs themselves take one to four seconds."""


class Checked:
    """What `check` said about a machine."""

    def __init__(self, machine: Machine, *options: str) -> None:
        argv = [sys.executable, "-m", "cudadoctor", "check", "--format", "json", *options]
        started = time.monotonic()
        done = subprocess.run(argv, env=machine.env, capture_output=True, timeout=DEADLINE_S, cwd=machine.folder)
        self.seconds = time.monotonic() - started
        self.exit_code = ExitCode(done.returncode)
        self.stderr = done.stderr.decode()
        self.report: dict[str, Any] = json.loads(done.stdout)
        self.typed = from_json(done.stdout, Report)
        self.findings = {finding["name"]: finding for finding in self.report["findings"]}

    def named(self, severity: str) -> set[str]:
        """The names of the findings of one severity."""
        return {finding["name"] for finding in self.report["findings"] if finding["severity"] == severity}

    @property
    def roots(self) -> list[str]:
        """The names of the errors that are root causes."""
        return [finding["name"] for finding in self.report["findings"] if finding["root"] and finding["severity"] == "error"]

    def commands(self, name: str) -> str:
        """All commands of a finding's fixes."""
        return "\n".join(command for fix in self.findings[name]["fixes"] for command in fix["commands"])

    def outcomes(self, layer: str) -> set[str]:
        """How the proofs of a layer ended."""
        return {proof["outcome"] for proof in self.report["proofs"] if proof["layer"] == layer}


def check(name: str, folder: Path, *options: str) -> Checked:
    return Checked(build_machine(name, folder), *options)


def test_a_older_driver_with_minor_version_compatibility_works(tmp_path: Path) -> None:
    checked = check("A", tmp_path)
    assert checked.exit_code is ExitCode.OK
    assert checked.report["verdict"] == "healthy"
    assert checked.named("error") == set()
    assert checked.named("warning") == {"ptx-newer-than-driver"}
    assert "sm_86" in checked.findings["benign-same-major-arch"]["what"]
    assert {"benign-same-major-arch", "benign-smi-vs-nvcc"} <= checked.named("note")
    assert checked.outcomes("driver-jit") == {"passed"}
    assert checked.outcomes("torch") == {"passed"}


def test_b_gpu_newer_than_torch_and_toolkit(tmp_path: Path) -> None:
    checked = check("B", tmp_path)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["arch-missing-in-wheel"]
    finding = checked.findings["arch-missing-in-wheel"]
    assert "gpu-newer-than-build" in finding["tags"]
    assert [fix["rechecked"] for fix in finding["fixes"]][:1] == [True]
    assert "+cu13" in checked.commands("arch-missing-in-wheel")
    assert "sm_120" in checked.findings["toolkit-too-old"]["what"]
    assert checked.outcomes("nvcc") == {"skipped"}
    assert checked.outcomes("driver-jit") == {"passed"}
    assert checked.findings["torch-proof-fails"]["root"] is False


def test_c_gb10_is_served_by_sm_120(tmp_path: Path) -> None:
    checked = check("C", tmp_path)
    assert checked.exit_code is ExitCode.OK
    assert checked.named("error") | checked.named("warning") == set()


def test_d_volta_needs_an_older_cuda_line(tmp_path: Path) -> None:
    checked = check("D", tmp_path)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["arch-missing-in-wheel"]
    assert "gpu-older-than-build" in checked.findings["arch-missing-in-wheel"]["tags"]
    assert "+cu126" in checked.commands("arch-missing-in-wheel")
    assert "toolkit-too-new" in checked.findings


def test_e_driver_below_the_floor_of_the_cuda_major(tmp_path: Path) -> None:
    checked = check("E", tmp_path)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["driver-too-old"]
    assert "580" in checked.findings["driver-too-old"]["why"]
    assert "arch-missing-in-wheel" not in checked.findings


def test_f_version_mismatch_wants_a_reboot_not_a_reinstall(tmp_path: Path) -> None:
    checked = check("F", tmp_path)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["nvml-version-mismatch"]
    assert "reboot" in checked.commands("nvml-version-mismatch")
    assert "install" not in checked.commands("nvml-version-mismatch")


def test_g_cpu_build_of_torch(tmp_path: Path) -> None:
    checked = check("G", tmp_path)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["cpu-only-torch"]
    assert "--index-url https://download.pytorch.org/whl/cu" in checked.commands("cpu-only-torch")


def test_h_newer_than_every_table_is_no_alarm(tmp_path: Path) -> None:
    checked = check("H", tmp_path)
    assert checked.exit_code is ExitCode.OK
    assert checked.named("error") | checked.named("warning") == set()


def test_x1_nvidia_smi_that_never_returns(tmp_path: Path) -> None:
    checked = check("X1", tmp_path)
    assert checked.exit_code is ExitCode.UNDETERMINED
    assert "nvidia-smi-hangs" in checked.findings
    assert checked.named("error") == set()
    waited = [run["seconds"] for run in checked.report["snapshot"]["probe_runs"] if run["probe"] == "nvidia-smi"]
    assert len(waited) == 1
    assert waited[0] < 5  # the doctor's own limit, paid once; not a measure of speed


def test_x2_torch_that_dies_at_import(tmp_path: Path) -> None:
    checked = check("X2", tmp_path)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["torch-import-fails"]
    assert "SIGSEGV" in checked.findings["torch-import-fails"]["what"]
    assert checked.outcomes("driver-jit") == {"passed"}
    assert isinstance(checked.typed.snapshot.toolkits, Known)


def test_hidden_devices_are_named_and_the_gpu_is_proven_all_the_same(tmp_path: Path) -> None:
    machine = build_machine("A", tmp_path)
    machine.env["CUDA_VISIBLE_DEVICES"] = ""
    checked = Checked(machine)
    assert checked.roots == ["visible-devices-hide-all"]
    assert checked.findings["no-device-visible"]["root"] is False
    assert checked.outcomes("driver-jit") == {"passed"}


def test_no_run_runs_no_kernel(tmp_path: Path) -> None:
    checked = check("A", tmp_path, "--no-run")
    assert checked.exit_code is ExitCode.OK
    assert {proof["outcome"] for proof in checked.report["proofs"]} <= {"skipped"}


def test_a_saved_report_is_judged_like_the_machine(tmp_path: Path) -> None:
    machine = build_machine("B", tmp_path)
    first = Checked(machine)
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(first.report), encoding="utf-8")
    again = Checked(machine, "--snapshot", str(saved))
    assert again.exit_code is first.exit_code
    assert [finding["name"] for finding in again.report["findings"]] == [finding["name"] for finding in first.report["findings"]]


@pytest.mark.parametrize("hostile", ["[red]not markup[/red]", "\x1b[31mred\x1b[0m", "$(touch pwned)"])
def test_hostile_environment_values_stay_text(hostile: str, tmp_path: Path) -> None:
    machine = build_machine("A", tmp_path)
    machine.env["CUDA_VISIBLE_DEVICES"] = hostile
    argv = [sys.executable, "-m", "cudadoctor", "check", "--no-run"]
    done = subprocess.run(argv, env=machine.env, capture_output=True, timeout=DEADLINE_S, cwd=machine.folder)
    assert b"\x1b" not in done.stdout
    assert b"visible-devices-invalid" in done.stdout
    assert not (machine.folder / "pwned").exists()
