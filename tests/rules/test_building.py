"""What builds ask of CMake and of the system."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot
from tests.rules.build_machines import (
    judge,
    machine,
    outcome,
    told,
    unasked,
    variables,
)
from tests.rules.builders import said

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("ninja-missing", "nothing built", machine(), "pass"),
    ("ninja-missing", "torch says so", told(said("ninja-missing")), "error"),
    ("build-out-of-memory", "nothing built", machine(), "pass"),
    ("build-out-of-memory", "cc1plus was killed", told(said("build-out-of-memory", program="cc1plus")), "error"),
    ("cmake-arch-invalid", "not set", machine(), "pass"),
    ("cmake-arch-invalid", "well formed", machine(variables(CUDAARCHS="native")), "pass"),
    ("cmake-arch-invalid", "with a dot", machine(variables(CUDAARCHS="8.9")), "warning"),
    ("cmake-arch-invalid", "unknown", machine(unasked("environment")), "unknown"),
    ("cmake-arch-invalid", "CMake says so", told(said("cmake-arch-invalid")), "error"),
    ("cmake-arch-invalid", "valid if set, alone", told(said("cmake-arch-check-failed", "must be valid if set")), "error"),
    ("cmake-too-old", "nothing built", machine(), "pass"),
    ("cmake-too-old", "CMake says so", told(said("cmake-too-old", wanted="3.26", have="3.22.1")), "error"),
    ("cmake-too-old", "native handed on", told(said("cmake-arch-invalid", value="native")), "error"),
    ("system-header-missing", "nothing built", machine(), "pass"),
    ("system-header-missing", "crypt.h", told(said("system-header-missing", header="crypt.h")), "error"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected
