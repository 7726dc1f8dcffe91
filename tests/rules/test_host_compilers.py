"""C++ compilers and glibc under nvcc."""

from __future__ import annotations

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import Platform, Snapshot
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules.host_compilers import msc_ver
from tests.rules import builders
from tests.rules.build_machines import (
    changed,
    compiler,
    compilers,
    errors_of,
    findings,
    glibc,
    judge,
    kit,
    machine,
    nvcc_proof,
    outcome,
    told,
    toolkits,
    unasked,
    variables,
)
from tests.rules.builders import said

BROKEN_NAME = compiler("", chosen_by="CUDAHOSTCXX", path="/opt/gone/g++")


def windows(release: str) -> Snapshot:
    host = builders.with_host(machine(), platform=Known(Platform.WINDOWS, "test"))
    return changed(host, compilers(compiler(release, family="msvc", path="cl.exe")))


CASES: tuple[tuple[str, str, Snapshot, str], ...] = (
    ("host-compiler-too-new", "gcc 13 and CUDA 12.8", machine(), "pass"),
    ("host-compiler-too-new", "gcc 14 and CUDA 12.4", machine(toolkits(kit("12.4")), compilers(compiler("14.2.0"))), "warning"),
    ("host-compiler-too-new", "CUDA newer than the table", machine(toolkits(kit("19.1")), compilers(compiler("29.1"))), "pass"),
    (
        "host-compiler-too-new",
        "a newer gcc that nothing chooses",
        machine(compilers(compiler("13.1"), compiler("15.1", ""))),
        "pass",
    ),
    ("host-compiler-too-new", "clang", machine(compilers(compiler("30.0.0", family="clang"))), "warning"),
    ("host-compiler-too-new", "no toolkit", machine(toolkits()), "not_applicable"),
    ("host-compiler-too-new", "no compiler", machine(compilers()), "not_applicable"),
    ("host-compiler-too-new", "unknown", machine(unasked("host_compilers")), "unknown"),
    ("host-compiler-too-new", "nvcc says so", told(said("host-compiler-too-new", limit="12")), "error"),
    ("host-compiler-too-old", "gcc 13", machine(), "pass"),
    ("host-compiler-too-old", "gcc 4.8 and CUDA 12", machine(compilers(compiler("4.8.5"))), "warning"),
    ("host-compiler-too-old", "unknown", machine(unasked("host_compilers")), "unknown"),
    ("host-compiler-too-old", "torch says so", told(said("host-compiler-too-old")), "error"),
    ("host-compiler-too-old", "no toolkit", machine(toolkits()), "not_applicable"),
    ("host-compiler-missing", "gcc 13", machine(), "pass"),
    ("host-compiler-missing", "none beside an nvcc", machine(compilers()), "note"),
    ("host-compiler-missing", "no toolkit", machine(toolkits(), compilers()), "not_applicable"),
    ("host-compiler-missing", "unknown", machine(unasked("host_compilers")), "unknown"),
    ("host-compiler-missing", "a build says so", told(said("host-compiler-missing")), "error"),
    ("host-compiler-path-broken", "not set", machine(), "pass"),
    (
        "host-compiler-path-broken",
        "names nothing",
        machine(compilers(BROKEN_NAME, compiler("13.3.0")), variables(CUDAHOSTCXX="/opt/gone/g++")),
        "warning",
    ),
    ("host-compiler-path-broken", "unknown", machine(unasked("host_compilers")), "unknown"),
    ("glibc-too-new", "2.39", machine(), "pass"),
    ("glibc-too-new", "2.41 and CUDA 12.8", machine(glibc("2.41")), "warning"),
    ("glibc-too-new", "2.41 and CUDA 13.0", machine(glibc("2.41"), toolkits(kit("13.0"))), "pass"),
    ("glibc-too-new", "2.42 and CUDA 13.0", machine(glibc("2.42"), toolkits(kit("13.0"))), "warning"),
    ("glibc-too-new", "2.42 and CUDA 13.2", machine(glibc("2.42"), toolkits(kit("13.2"))), "pass"),
    ("glibc-too-new", "unknown", machine(unasked("toolkits")), "unknown"),
    ("glibc-too-new", "Windows", windows("19.38"), "not_applicable"),
    ("glibc-too-new", "cospi", told(said("glibc-too-new", function="cospi")), "error"),
    ("glibc-too-new", "another function", told(said("glibc-too-new", function="my_function")), "pass"),
)


@pytest.mark.parametrize(("rule", "special", "snapshot", "expected"), CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES])
def test_outcome(rule: str, special: str, snapshot: Snapshot, expected: str, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == expected


@pytest.mark.parametrize(
    ("rule", "snapshot"),
    [
        ("host-compiler-too-new", machine(toolkits(kit("12.4")), compilers(compiler("14.2.0")))),
        ("glibc-too-new", machine(glibc("2.41"))),
    ],
)
def test_what_compiles_is_no_fault(rule: str, snapshot: Snapshot, matrices: Matrices) -> None:
    assert outcome(judge(snapshot, matrices), rule) == "warning"
    assert outcome(judge(snapshot, matrices, nvcc_proof()), rule) == "pass"


def test_fixes_for_a_new_gcc_are_rechecked(matrices: Matrices) -> None:
    results = judge(machine(toolkits(kit("12.4")), compilers(compiler("14.2.0"))), matrices)
    (found,) = findings(results, "host-compiler-too-new")
    assert found.fixes[0].commands == ("sudo apt-get install g++-13", "export NVCC_CCBIN=g++-13 CUDAHOSTCXX=g++-13")
    assert found.fixes[1].commands[0].startswith("sudo apt-get install cuda-toolkit-12-")
    assert all(fix.rechecked for fix in found.fixes)


def test_fix_for_a_new_glibc_is_a_toolkit_that_is_free_of_it(matrices: Matrices) -> None:
    (found,) = findings(judge(machine(glibc("2.41")), matrices), "glibc-too-new")
    assert found.fixes[0].commands[0] == "sudo apt-get install cuda-toolkit-13-0"
    assert found.fixes[0].rechecked


def test_broken_variable_names_the_value_and_the_fix(matrices: Matrices) -> None:
    snapshot = machine(compilers(BROKEN_NAME, compiler("13.3.0")), variables(CUDAHOSTCXX="/opt/gone/g++"))
    (found,) = findings(judge(snapshot, matrices), "host-compiler-path-broken")
    assert found.what == "CUDAHOSTCXX='/opt/gone/g++': there is no such compiler."
    assert found.fixes[0].commands == ("unset CUDAHOSTCXX",)
    assert found.fixes[0].rechecked


def test_cmakes_variable_does_not_decide_for_nvcc(matrices: Matrices) -> None:
    snapshot = machine(compilers(compiler("15.1", chosen_by="CUDAHOSTCXX"), compiler("13.3.0")))
    assert outcome(judge(snapshot, matrices), "host-compiler-too-new") == "pass"


def test_cmake_message_after_a_refused_compiler_is_no_finding(matrices: Matrices) -> None:
    snapshot = told(
        said("cmake-arch-check-failed", "CMAKE_CUDA_ARCHITECTURES must be valid if set."),
        said("host-compiler-too-new", limit="11"),
    )
    assert errors_of(judge(snapshot, matrices)) == {"host-compiler-too-new"}


def test_msc_ver_of_a_compiler_version() -> None:
    assert msc_ver(DottedVersion.parse("19.44.35207")) == 1944
    assert msc_ver(DottedVersion.parse("19.9")) == 1909
    assert msc_ver(DottedVersion.parse("14.40.33807")) == 1940
