"""Answers about host compilers against facts one can look up."""

from __future__ import annotations

import itertools

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.compilers import HostFit
from cudadoctor.model.versions import CudaVersion, DottedVersion


@pytest.mark.parametrize(
    ("nvcc", "gcc", "fit"),
    [
        ("11.8", "11.4.0", HostFit.ACCEPTED),
        ("11.8", "12.1", HostFit.TOO_NEW),
        ("12.0", "12.3", HostFit.ACCEPTED),
        ("12.3", "13.2.0", HostFit.TOO_NEW),
        ("12.4", "13.2.0", HostFit.ACCEPTED),
        ("12.6.85", "14.2", HostFit.TOO_NEW),
        ("12.8", "14.3", HostFit.ACCEPTED),
        ("13.0", "15", HostFit.ACCEPTED),
        ("13.3", "16", HostFit.TOO_NEW),
        ("13.4", "16.1", HostFit.ACCEPTED),
        ("12.6", "5.4", HostFit.TOO_OLD),
        ("14.0", "13", HostFit.UNKNOWN),
    ],
)
def test_gcc(matrices: Matrices, nvcc: str, gcc: str, fit: HostFit) -> None:
    assert matrices.compilers.gcc_fit(CudaVersion.parse(nvcc), DottedVersion.parse(gcc)) is fit


@pytest.mark.parametrize(
    ("nvcc", "clang", "fit"),
    [
        ("12.2.91", "16", HostFit.TOO_NEW),
        ("12.2.140", "16.0.6", HostFit.ACCEPTED),
        ("12.2", "16", HostFit.ACCEPTED),
        ("12.6", "18.1", HostFit.ACCEPTED),
        ("12.6", "19.1", HostFit.TOO_NEW),
        ("13.5", "22", HostFit.ACCEPTED),
        ("12.6", "6", HostFit.TOO_OLD),
        ("14.0", "18", HostFit.UNKNOWN),
    ],
)
def test_clang_by_build_where_builds_of_a_minor_differ(matrices: Matrices, nvcc: str, clang: str, fit: HostFit) -> None:
    assert matrices.compilers.clang_fit(CudaVersion.parse(nvcc), DottedVersion.parse(clang)) is fit


@pytest.mark.parametrize(
    ("nvcc", "msc_ver", "fit"),
    [
        ("12.1", 1939, HostFit.ACCEPTED),
        ("12.1", 1940, HostFit.TOO_NEW),
        ("12.4", 1940, HostFit.ACCEPTED),
        ("12.6", 1900, HostFit.TOO_OLD),
        ("13.0", 1910, HostFit.TOO_OLD),
        ("13.2", 1950, HostFit.ACCEPTED),
        ("14.0", 1950, HostFit.UNKNOWN),
    ],
)
def test_msvc(matrices: Matrices, nvcc: str, msc_ver: int, fit: HostFit) -> None:
    assert matrices.compilers.msvc_fit(CudaVersion.parse(nvcc), msc_ver) is fit


@pytest.mark.parametrize(
    ("nvcc", "glibc", "functions"),
    [
        ("12.9", "2.40", []),
        ("12.9", "2.41", ["cospi"]),
        ("13.0", "2.41", []),
        ("13.0", "2.42", ["rsqrt"]),
        ("13.1", "2.43", ["rsqrt"]),
        ("12.6", "2.42", ["cospi", "rsqrt"]),
        ("13.2", "2.42", []),
    ],
)
def test_glibc_clashes(matrices: Matrices, nvcc: str, glibc: str, functions: list[str]) -> None:
    clashes = matrices.compilers.glibc_clashes(CudaVersion.parse(nvcc), DottedVersion.parse(glibc))
    assert [name for row in clashes for name in row.functions if name in ("cospi", "rsqrt")] == functions
    assert all("exception specification" in row.message for row in clashes)


def test_bounds_only_rise(matrices: Matrices) -> None:
    rows = matrices.compilers.all_bounds
    for older, newer in itertools.pairwise(rows):
        assert older.gcc_max <= newer.gcc_max, newer.build
        assert older.clang_max <= newer.clang_max, newer.build
        assert older.msc_ver_below <= newer.msc_ver_below, newer.build
        assert newer.msc_ver_min < newer.msc_ver_below


def test_toolkits_for_a_gcc(matrices: Matrices) -> None:
    found = [str(version) for version in matrices.compilers.toolkits_for_gcc(DottedVersion.parse("14.2"))]
    assert (found[0], found[-1]) == ("12.8", "13.5")
    assert matrices.compilers.is_newer_than_table(CudaVersion.of(13, 6))
    bounds = matrices.compilers.bounds(CudaVersion.of(13, 1))
    assert bounds is not None
    assert bounds.grace_clang == (16, 21)
