"""The faults of benchmarks/real_faults.py: what they are made of, how answers are judged, some on a stand-in machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.binary.packages import installed_packages
from cudadoctor.commands.triage import diagnose_text
from cudadoctor.matrices import Matrices
from cudadoctor.rules.registry import RULES
from tests.fakes.machines import MACHINES, build
from tests.real_faults import traces
from tests.real_faults.catalogue import FAULTS
from tests.real_faults.fault import Check, Expected, Fault
from tests.real_faults.machine import Machine, NotHereError
from tests.real_faults.run import Said, check, run_fault, wrong
from tests.real_faults.stand_ins import add_extension, newer_gcc, small_library, toolkit_without

HERE = Machine({"PATH": "/usr/bin:/bin"}, sys.executable)
RIGHT = Expected("arch-missing-in-wheel", "pip install", layers={"nvcc": "failed"}, exit_codes=(1,))


def said(*findings: Mapping[str, Any], exit_code: int = 1, nvcc: str = "failed", left: tuple[str, ...] = ()) -> Said:
    proofs = [{"layer": "nvcc", "outcome": nvcc}]
    return Said(exit_code, 1.0, {"findings": list(findings), "proofs": proofs, "verdict": "problems"}, left_running=left)


def found(name: str, command: str = "pip install torch", severity: str = "error", *, root: bool = True) -> dict[str, Any]:
    return {"name": name, "severity": severity, "root": root, "fixes": [{"commands": [command], "rechecked": True}]}


WHEEL = found("arch-missing-in-wheel")


def test_faults_are_many_and_expect_what_exists() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) >= 25
    assert len(set(names)) == len(names)
    rules = {rule.name for rule in RULES} | {""}
    assert {name for fault in FAULTS for name in (fault.expected.root, *fault.expected.beside)} <= rules


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (said(), "arch-missing-in-wheel is no root"),
        (said(found("arch-missing-in-wheel", root=False)), "arch-missing-in-wheel is no root"),
        (said(WHEEL, found("driver-too-old")), "false root: driver-too-old"),
        (said(WHEEL, found("toolkit-too-old", severity="warning")), "false root: toolkit-too-old"),
        (said(found("arch-missing-in-wheel", "reboot")), "no fix with 'pip install' but ['reboot']"),
        (said(WHEEL, nvcc="passed"), "nvcc: passed, not failed"),
        (said(WHEEL, exit_code=0), "exit code 0"),
        (said(WHEEL, left=("nvcc -cubin",)), "left running: nvcc -cubin"),
    ],
)
def test_each_wrong_answer_is_seen(answer: Said, fault: str) -> None:
    assert list(wrong(RIGHT, answer)) == [fault]


def test_a_right_answer_may_have_notes_consequences_and_what_the_machine_has_anyway() -> None:
    others = (found("several-toolkits", severity="note"), found("torch-proof-fails", root=False), found("driver-too-old"))
    assert list(wrong(RIGHT, said(WHEEL, *others), ("driver-too-old",))) == []


def test_a_fault_that_is_none_allows_no_claim() -> None:
    assert list(wrong(Expected(""), said(WHEEL))) == ["false root: arch-missing-in-wheel"]


def test_a_toolkit_of_links_lacks_one_file_and_leaves_the_machines_own(tmp_path: Path) -> None:
    real = tmp_path / "real"
    for name in ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "nvvm/lib/x", "include/cuda.h"):
        (real / name).parent.mkdir(parents=True, exist_ok=True)
        (real / name).write_text(name)
    machine = Machine({"PATH": str(real / "bin")}, sys.executable)
    (real / "bin" / "nvcc").chmod(0o755)
    root = toolkit_without(machine, tmp_path / "cuda", ("nvvm/bin/cicc",))
    assert not (root / "bin" / "nvcc").is_symlink()
    assert (root / "bin" / "ptxas").resolve() == real / "bin" / "ptxas"
    assert not (root / "nvvm" / "bin" / "cicc").exists()
    assert (root / "nvvm" / "lib" / "x").read_text() == "nvvm/lib/x"
    assert (real / "nvvm" / "bin" / "cicc").exists()


def test_a_newer_gcc_says_so_to_the_preprocessor(tmp_path: Path) -> None:
    gcc = _or_skip(lambda: newer_gcc(HERE, tmp_path, 19))
    asked = subprocess.run([str(gcc), "-E", "-P", "-x", "c++", "-"], input=b"__GNUC__\n", capture_output=True, check=True)
    assert asked.stdout.split() == [b"19"]


def test_an_extension_is_recorded_as_pip_does_it(tmp_path: Path) -> None:
    library = _or_skip(lambda: small_library(HERE, tmp_path / "_C.so"))
    target = add_extension(tmp_path / "site-packages", "fastkernels", library)
    (package,) = installed_packages((str(tmp_path / "site-packages"),))
    assert (package.name, package.version, list(package.files())) == ("fastkernels", "1.0", [str(target)])


def test_what_changes_on_the_machine_is_seen(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho Enabled\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    machine = Machine({"PATH": f"{tmp_path}:/bin"}, sys.executable)
    before = traces.state(machine, (str(tmp_path),))
    assert traces.changed(before, traces.state(machine, (str(tmp_path),))) == ()
    (tmp_path / "libcuda.so.1").touch()
    assert traces.changed(before, traces.state(machine, (str(tmp_path),))) == (str(tmp_path),)


@pytest.mark.parametrize("name", ["every GPU hidden", "a compat libcuda of an older CUDA", "a toolkit without cicc"])
def test_fault_on_a_stand_in_machine(name: str, stand_in: tuple[Machine, Said], tmp_path: Path) -> None:
    machine, healthy = stand_in
    fault: Fault = next(fault for fault in FAULTS if fault.name == name)
    answer = run_fault(fault, machine, tmp_path / "fault")
    assert list(wrong(fault.expected, answer, healthy.claims)) == []
    assert not (tmp_path / "fault").exists()


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> tuple[Machine, Said]:
    folder = tmp_path_factory.mktemp("machine")
    spec = replace(MACHINES["C"], gpu="NVIDIA H200", compute_capability="9.0")
    built = build(spec, folder / "built")
    machine = Machine(built.env, str(built.python))
    (folder / "healthy").mkdir()
    return machine, check(machine, Check(), folder / "healthy")


def _or_skip(make: Any) -> Path:
    try:
        made: Path = make()
    except NotHereError as reason:
        pytest.skip(str(reason))
    return made


@pytest.mark.parametrize(
    ("text", "root"),
    [
        (
            "  what():  i < config_.size() INTERNAL ASSERT FAILED at "
            '"/pytorch/c10/core/AllocatorConfig.h":124, please report a bug to PyTorch. Index out of bounds in ConfigTokenizer',
            "alloc-conf-malformed",
        ),
        ("sh: 1: /opt/cuda/bin/../nvvm/bin/cicc: not found", "toolkit-incomplete"),
        ("Failed to launch twice kernel (error code invalid argument)!", "launch-config"),
        ("program.cu:11: CUDA error 1: invalid argument", None),
        ("Failed to allocate device vector A (error code invalid argument)!", None),
    ],
)
def test_texts_as_they_were_printed_on_an_h200(text: str, root: str | None) -> None:
    """By torch 2.11, nvcc 13.0 and programs of it; what may have many causes is given none."""
    found = diagnose_text(text, Matrices.load()).report.findings
    assert [finding.name for finding in found if finding.root] == ([root] if root else [])
