"""Answers about toolkits against facts one can look up."""

from __future__ import annotations

import itertools

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, PtxIsa, SmTarget


def cuda(text: str) -> CudaVersion:
    return CudaVersion.parse(text)


def sm(text: str) -> SmTarget:
    return SmTarget.parse(text)


@pytest.mark.parametrize(
    ("target", "first", "last"),
    [
        ("sm_35", "5.0", "11.8"),
        ("sm_50", "6.0", "12.9"),
        ("sm_70", "9.0", "12.9"),
        ("sm_75", "10.0", None),
        ("sm_80", "11.0", None),
        ("sm_86", "11.1", None),
        ("sm_89", "11.8", None),
        ("sm_90a", "12.0", None),
        ("sm_100", "12.8", None),
        ("sm_101", "12.8", "12.9"),
        ("sm_110", "13.0", None),
        ("sm_120", "12.8", None),
        ("sm_121", "12.9", None),
        ("sm_107", "13.4", None),
    ],
)
def test_first_and_last_toolkit(matrices: Matrices, target: str, first: str, last: str | None) -> None:
    toolkits = matrices.toolkits
    assert str(toolkits.first_toolkit_for(sm(target))) == first
    assert toolkits.last_toolkit_for(sm(target)) == (cuda(last) if last else None)
    assert toolkits.first_toolkit_for(sm(target.replace("sm_", "compute_"))) == cuda(first)


def test_unknown_targets_and_toolkits_have_no_answer(matrices: Matrices) -> None:
    toolkits = matrices.toolkits
    assert toolkits.first_toolkit_for(ComputeCapability(20, 0)) is None
    assert toolkits.targets(cuda("14.0")) is None
    assert toolkits.targets(cuda("12.7")) is None
    assert toolkits.can_target(cuda("14.0"), ComputeCapability(9, 0)) is None
    assert toolkits.is_newer_than_table(cuda("13.6"))
    assert not toolkits.is_newer_than_table(cuda("13.5"))


def test_what_a_toolkit_can_target(matrices: Matrices) -> None:
    toolkits = matrices.toolkits
    twelve_six = toolkits.targets(cuda("12.6.85"))
    assert twelve_six is not None
    assert (twelve_six[0], twelve_six[-1]) == (sm("sm_50"), sm("sm_90a"))
    assert toolkits.can_target(cuda("12.6"), ComputeCapability(12, 0)) is False
    assert toolkits.can_target(cuda("12.8"), ComputeCapability(12, 0)) is True
    assert toolkits.can_target(cuda("13.0"), ComputeCapability(7, 0)) is False
    assert [str(version) for version in toolkits.toolkits_for(sm("sm_101"))] == ["12.8", "12.9"]


def test_targets_only_ever_leave_at_a_major(matrices: Matrices) -> None:
    rows = matrices.toolkits.toolkits
    for older, newer in itertools.pairwise(rows):
        if older.cuda.major == newer.cuda.major:
            assert set(older.targets) <= set(newer.targets), newer.cuda


def test_ptx_versions(matrices: Matrices) -> None:
    toolkits = matrices.toolkits
    assert toolkits.ptx_isa(cuda("12.6")) == PtxIsa(8, 5)
    assert toolkits.ptx_isa(cuda("12.7")) == PtxIsa(8, 6)
    assert toolkits.ptx_isa(cuda("13.5")) == PtxIsa(9, 5)
    assert toolkits.ptx_isa(cuda("14.0")) is None
    assert toolkits.toolkit_for_ptx(PtxIsa(8, 5)) == cuda("12.5")
    assert toolkits.toolkit_for_ptx(PtxIsa(10, 0)) is None
    assert toolkits.driver_branch_for_ptx(PtxIsa(8, 7)) == 570
    assert toolkits.min_ptx_isa(sm("sm_90a")) == PtxIsa(8, 0)
    assert toolkits.min_ptx_isa(sm("sm_50")) is None


def test_ptx_versions_never_fall(matrices: Matrices) -> None:
    versions = [row.ptx for row in matrices.toolkits.ptx_releases]
    assert versions == sorted(versions)


def test_families(matrices: Matrices) -> None:
    toolkits = matrices.toolkits
    members = toolkits.family(sm("compute_100f"))
    assert members is not None
    assert [str(cc) for cc in members] == ["10.0", "10.3", "10.7"]
    assert toolkits.family(sm("sm_90")) is None
    families = {row.target for row in toolkits.all_families}
    assert {row.target for row in toolkits.all_targets if row.target.suffix == "f"} == families


def test_components(matrices: Matrices) -> None:
    toolkits = matrices.toolkits
    row = toolkits.components(DottedVersion.parse("12.6.3"))
    assert row is not None
    assert str(row.nvcc) == "12.6.85"
    assert str(row.cublas) == "12.6.4.1"
    assert str(toolkits.release_of_nvcc(DottedVersion.parse("12.6.85"))) == "12.6.3"
    assert toolkits.release_of_nvcc(DottedVersion.parse("12.6.99")) is None
    assert toolkits.components(DottedVersion.parse("1.0")) is None


def test_a_components_nvcc_is_of_its_release(matrices: Matrices) -> None:
    for row in matrices.toolkits.component_releases:
        assert row.nvcc is not None
        assert row.nvcc.parts[:2] == row.release.parts[:2]
        assert row.cudart is None or row.cudart.parts[:2] == row.release.parts[:2]
