from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.snapshot import HostCompiler
from cudadoctor.model.versions import DottedVersion, VersionError
from cudadoctor.probes.host_compiler import parse_compiler, read_host_compilers
from tests.fakes.fakebin import Says, fake_program
from tests.fakes.roots import linux

GCC_13 = "g++ (Ubuntu 13.2.0-23ubuntu4) 13.2.0\nCopyright (C) 2023 Free Software Foundation, Inc.\n"
GCC_12 = "g++-12 (Ubuntu 12.3.0-17ubuntu1) 12.3.0\n"
CLANG = "Ubuntu clang version 14.0.0-1ubuntu1.1\nTarget: x86_64-pc-linux-gnu\n"


def read(root: Path, **environ: str) -> tuple[HostCompiler, ...]:
    return known(read_host_compilers(linux(root, environ={"PATH": "/usr/bin", **environ}), 20))


def summary(compilers: tuple[HostCompiler, ...]) -> list[tuple[str, str, str, str]]:
    return [(c.family, c.path, str(known(c.compiler_version)), c.chosen_by) for c in compilers]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fake_program(tmp_path / "usr/bin/g++", GCC_13)
    fake_program(tmp_path / "usr/bin/g++-12", GCC_12)
    fake_program(tmp_path / "usr/bin/clang++", CLANG)
    return tmp_path


def test_the_compiler_of_the_path_comes_first_and_others_are_present(root: Path) -> None:
    assert summary(read(root)) == [
        ("gcc", "/usr/bin/g++", "13.2.0", "PATH"),
        ("clang", "/usr/bin/clang++", "14.0.0", ""),
        ("gcc", "/usr/bin/g++-12", "12.3.0", ""),
    ]


@pytest.mark.parametrize(
    ("environ", "path", "chosen_by"),
    [
        ({"NVCC_CCBIN": "/usr/bin/g++-12"}, "/usr/bin/g++-12", "NVCC_CCBIN"),
        ({"NVCC_CCBIN": "/usr/bin"}, "/usr/bin/g++", "NVCC_CCBIN"),
        ({"CUDAHOSTCXX": "g++-12", "CXX": "clang++"}, "/usr/bin/g++-12", "CUDAHOSTCXX"),
        ({"CXX": "ccache g++-12 -O2"}, "/usr/bin/g++-12", "CXX"),
        ({"NVCC_PREPEND_FLAGS": "-O3 -ccbin=/usr/bin/clang++", "CXX": "g++"}, "/usr/bin/clang++", "NVCC_PREPEND_FLAGS"),
        ({"NVCC_APPEND_FLAGS": "--compiler-bindir g++-12"}, "/usr/bin/g++-12", "NVCC_APPEND_FLAGS"),
    ],
)
def test_what_is_set_comes_before_the_path(root: Path, environ: dict[str, str], path: str, chosen_by: str) -> None:
    first = read(root, **environ)[0]
    assert (first.path, first.chosen_by) == (path, chosen_by)


def test_a_compiler_that_is_set_but_absent_is_named(root: Path) -> None:
    first = read(root, NVCC_CCBIN="g++-99")[0]
    assert first.path == "g++-99"
    assert isinstance(first.compiler_version, Missing)
    assert (first.compiler_version.reason, first.compiler_version.detail) == (
        MissingReason.NOT_FOUND,
        "g++-99 is not on the PATH",
    )


def test_no_compiler_is_an_empty_list(tmp_path: Path) -> None:
    assert read(tmp_path) == ()


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (Says(hangs=True), MissingReason.TIMEOUT),
        (Says(signal=11), MissingReason.CRASHED),
        (Says(exit_code=1), MissingReason.FAILED),
        (Says(b"\xff"), MissingReason.PARSE_ERROR),
        (Says(megabytes=100), MissingReason.FAILED),
    ],
)
def test_a_broken_compiler_is_missing_with_the_reason(tmp_path: Path, says: Says, reason: MissingReason) -> None:
    fake_program(tmp_path / "usr/bin/g++", says)
    (compiler,) = known(read_host_compilers(linux(tmp_path, environ={"PATH": "/usr/bin"}), 1))
    assert isinstance(compiler.compiler_version, Missing)
    assert compiler.compiler_version.reason is reason


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        (GCC_13, "gcc", "13.2.0"),
        ("x86_64-conda-linux-gnu-g++ (conda-forge gcc 14.3.0-17) 14.3.0", "gcc", "14.3.0"),
        ("g++ (GCC) 8.5.0 20210514 (Red Hat 8.5.0-26)", "gcc", "8.5.0"),
        ("c++ (Debian 12.2.0-14) 12.2.0", "gcc", "12.2.0"),
        (CLANG, "clang", "14.0.0"),
        ("Apple clang version 16.0.0 (clang-1600.0.26.3)", "clang", "16.0.0"),
        ("Microsoft (R) C/C++ Optimizing Compiler Version 19.38.33133 for x64\nusage: cl", "msvc", "19.38.33133"),
        ("Optimierender Microsoft C/C++ Compiler Version 19.29.30154 für x64", "msvc", "19.29.30154"),
    ],
)
def test_versions_that_compilers_print(text: str, family: str, version: str) -> None:
    assert parse_compiler(text) == (family, DottedVersion.parse(version))


@pytest.mark.parametrize("text", ["", "hello", "g++ version unknown", "g++ (" * 10_000])
def test_texts_without_a_version_are_errors(text: str) -> None:
    with pytest.raises(VersionError):
        parse_compiler(text)
