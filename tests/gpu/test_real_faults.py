"""Faults made real on a machine with a GPU, one at a time: the root named, no false root, the fix right.

`benchmarks/real_faults.py` runs the same faults side by side and prints a table. The machine stays as it was.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.real_faults import traces
from tests.real_faults.catalogue import FAULTS
from tests.real_faults.fault import Check, Fault
from tests.real_faults.machine import Machine, NotHereError
from tests.real_faults.run import Said, check, run_fault, wrong
from tests.real_faults.steadiness import on_a_busy_gpu, repeated

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def machine() -> Machine:
    found = Machine(dict(os.environ), shutil.which("python3") or sys.executable)
    try:
        found.capability  # noqa: B018 - asks the driver
    except NotHereError as reason:
        pytest.skip(str(reason))
    return found


@pytest.fixture(scope="module")
def healthy(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Said:
    return check(machine, Check(), tmp_path_factory.mktemp("healthy"))


def test_the_machine_as_it_is(healthy: Said) -> None:
    assert healthy.claims == ()
    assert healthy.exit_code == 0
    assert healthy.outcomes("driver-jit") == {"passed"}


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.name for fault in FAULTS])
def test_fault(fault: Fault, machine: Machine, healthy: Said, tmp_path: Path) -> None:
    before = traces.state(machine)
    try:
        said = run_fault(fault, machine, tmp_path / "fault")
    except NotHereError as reason:
        pytest.skip(str(reason))
    print(said.text, said.report["summary"], *(found["what"] for found in said.report["findings"]), sep="\n")
    assert list(wrong(fault.expected, said, healthy.claims)) == []
    assert traces.changed(before, traces.state(machine)) == ()


def test_ten_runs_say_the_same(machine: Machine, healthy: Said, tmp_path: Path) -> None:
    assert {said.verdict for said in repeated(machine, 10, tmp_path)} == {healthy.verdict}


def test_a_busy_gpu_changes_nothing_and_its_program_computes_right(machine: Machine, healthy: Said, tmp_path: Path) -> None:
    try:
        runs, neighbour = on_a_busy_gpu(machine, 3, tmp_path)
    except NotHereError as reason:
        pytest.skip(str(reason))
    assert {said.verdict for said in runs} == {healthy.verdict}
    assert neighbour.products > 0
    assert neighbour.wrong == 0
