"""What a toolkit holds, and how many there are."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.model.versions import CudaVersion
from tests.rules import builders
from tests.rules.build_machines import (
    changed,
    errors,
    findings,
    judge,
    kit,
    machine,
    nvcc_proof,
    outcome,
    told,
    toolkits,
    unasked,
)
from tests.rules.builders import said

BROKEN = Missing(MissingReason.FAILED, "exit code 127: cannot execute binary file", "nvcc")
OLD_NVCC = structs.replace(
    kit("10.2"), toolkit_version=Known(CudaVersion.parse("10.2.89"), "/usr/local/cuda-10.2/bin/nvcc --version"), targets=BROKEN
)
TWO_RELEASES = (kit("12.8"), kit("11.8", found_by=("/usr/local/cuda-11.8",), chosen=False))

CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("toolkit-incomplete", "complete", machine(), "pass"),
    ("toolkit-incomplete", "no toolkit", machine(toolkits()), "not_applicable"),
    ("toolkit-incomplete", "libraries only", machine(toolkits(kit("12.8", missing=("nvcc", "ptxas")))), "not_applicable"),
    ("toolkit-incomplete", "unknown", machine(unasked("toolkits")), "unknown"),
    ("toolkit-incomplete", "no library headers", machine(toolkits(kit("12.8", missing=("cuSPARSE headers",)))), "note"),
    ("toolkit-incomplete", "no ptxas", machine(toolkits(kit("12.8", missing=("ptxas",)))), "warning"),
    ("toolkit-incomplete", "the shell does not find cicc", told(said("toolkit-program-missing", program="/x/bin/cicc")), "error"),
    ("toolkit-headers-missing", "nothing built", machine(), "pass"),
    ("toolkit-headers-missing", "cusparse.h", told(said("toolkit-headers-missing", header="cusparse.h")), "error"),
    ("toolkit-libs-missing-at-link", "nothing built", machine(), "pass"),
    ("toolkit-libs-missing-at-link", "-lcudart", told(said("toolkit-libs-missing-at-link", library="-lcudart")), "error"),
    (
        "toolkit-libs-missing-at-link",
        "WSL has -lcuda elsewhere",
        builders.with_wsl(changed(machine(), errors(said("toolkit-libs-missing-at-link", library="-lcuda")))),
        "not_applicable",
    ),
    ("nvcc-fails", "it runs", machine(), "pass"),
    ("nvcc-fails", "its files tell the version", machine(toolkits(structs.replace(kit("12.8"), targets=BROKEN))), "warning"),
    ("nvcc-fails", "too old to list its targets", machine(toolkits(OLD_NVCC)), "pass"),
    ("nvcc-fails", "no toolkit", machine(toolkits()), "not_applicable"),
    ("nvcc-fails", "unknown", machine(unasked("toolkits")), "unknown"),
    ("toolkit-links-differ", "one", machine(), "pass"),
    ("toolkit-links-differ", "unknown", machine(unasked("toolkits")), "unknown"),
    (
        "toolkit-links-differ",
        "two ways, two toolkits",
        machine(toolkits(kit("12.8", found_by=("PATH",)), kit("12.4", found_by=("/usr/local/cuda",), chosen=False))),
        "note",
    ),
    ("several-toolkits", "one", machine(), "pass"),
    (
        "several-toolkits",
        "two",
        machine(toolkits(*TWO_RELEASES)),
        "note",
    ),
    ("several-toolkits", "unknown", machine(unasked("toolkits")), "unknown"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def test_nvcc_that_does_not_run(matrices: Matrices) -> None:
    broken = structs.replace(kit("12.8"), toolkit_version=BROKEN)
    (found,) = findings(judge(machine(toolkits(broken)), matrices), "nvcc-fails")
    assert "exit code 127: cannot execute binary file" in found.what


def test_incomplete_toolkit_that_compiles_is_only_noted(matrices: Matrices) -> None:
    snapshot = machine(toolkits(kit("12.8", missing=("ptxas",))))
    assert outcome(judge(snapshot, matrices, nvcc_proof()), "toolkit-incomplete") == "note"
