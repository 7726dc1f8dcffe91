"""Microsoft's compiler under nvcc."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import Platform, Snapshot
from tests.rules import builders
from tests.rules.build_machines import (
    changed,
    compiler,
    compilers,
    findings,
    judge,
    machine,
    outcome,
    printed_kit,
    told,
    toolkits,
)
from tests.rules.builders import said


def windows(release: str) -> Snapshot:
    host = builders.with_host(machine(), platform=Known(Platform.WINDOWS, "test"))
    return changed(host, compilers(compiler(release, family="msvc", path="cl.exe")))


CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("msvc-too-new", "not Windows", machine(), "not_applicable"),
    ("msvc-too-new", "accepted", windows("19.38.33133"), "pass"),
    ("msvc-too-new", "newer", windows("19.99.1"), "warning"),
    ("msvc-too-new", "nvcc says so", told(said("msvc-version-unsupported", lowest="2017", highest="2022")), "error"),
    (
        "msvc-too-new",
        "the same text for one too old",
        changed(
            told(said("msvc-version-unsupported")), toolkits(printed_kit("12.4")), compilers(compiler("18.0", family="msvc"))
        ),
        "pass",
    ),
    ("msvc-missing", "nothing built", machine(), "pass"),
    ("msvc-missing", "nvcc says so", told(said("msvc-missing")), "error"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


def test_newer_toolkit_for_windows_is_installed_as_windows_does(matrices: Matrices) -> None:
    (found,) = findings(judge(told(said("msvc-version-unsupported", wanted="12.4")), matrices), "msvc-too-new")
    assert found.fixes[-1].commands[0] == "winget install --id Nvidia.CUDA --version 12.9"
