"""PTX and its assembler, older than what they are given."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot
from tests.rules.build_machines import (
    changed,
    findings,
    judge,
    kit,
    machine,
    outcome,
    packages,
    told,
    toolkits,
    unasked,
)
from tests.rules.builders import said

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("ptx-newer-than-driver", "driver is newer", machine(), "pass"),
    ("ptx-newer-than-driver", "driver is older", machine(cuda="12.2"), "warning"),
    ("ptx-newer-than-driver", "unknown", machine(unasked("toolkits")), "unknown"),
    ("ptx-newer-than-driver", "no toolkit", machine(toolkits()), "not_applicable"),
    ("ptx-newer-than-driver", "error 222", told(said("ptx-newer-than-driver")), "error"),
    ("ptxas-too-old", "no triton", machine(), "not_applicable"),
    ("ptxas-too-old", "unknown packages", changed(machine(), lambda s: told()), "unknown"),
    ("ptxas-too-old", "a triton that knows the GPU", machine(packages(triton="3.5.0")), "pass"),
    ("ptxas-too-old", "a triton older than the GPU", machine(packages(triton="3.5.0"), gpu="NVIDIA GB10", cc="12.1"), "warning"),
    ("ptxas-too-old", "ptxas says so", told(said("ptxas-too-old", arch="sm_121")), "error"),
    ("ptxas-too-old", "a removed architecture is no lack", told(said("ptxas-too-old", arch="sm_35")), "unknown"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def test_ptxas_of_an_installed_toolkit_is_suggested(matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("13.0")), packages(triton="3.5.0"), gpu="NVIDIA GB10", cc="12.1")
    (found,) = findings(judge(snapshot, matrices), "ptxas-too-old")
    assert found.fixes[0].commands == ("export TRITON_PTXAS_PATH=/usr/local/cuda-13.0/bin/ptxas",)
