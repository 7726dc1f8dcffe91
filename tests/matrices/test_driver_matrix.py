"""Answers about drivers against facts one can look up."""

from __future__ import annotations

from datetime import date

import pytest

from cudadoctor.matrices import DriverPlatform, Matrices, Verified
from cudadoctor.matrices.drivers import BranchType, ForwardCompat, OpenModule
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DriverRelease

LINUX, WINDOWS = DriverPlatform.LINUX, DriverPlatform.WINDOWS


def text(version: object) -> str | None:
    return None if version is None else str(version)


@pytest.mark.parametrize(
    ("runtime", "platform", "minimum"),
    [
        ("10.0", LINUX, "410.48"),
        ("10.1", LINUX, "418.39"),
        ("10.2", LINUX, "440.33"),
        ("10.2", WINDOWS, "441.22"),
        ("11.0", LINUX, "450.36.06"),
        ("11.1", LINUX, "450.80.02"),
        ("11.8", LINUX, "450.80.02"),
        ("11.8", WINDOWS, "452.39"),
        ("12.0", LINUX, "525.60.13"),
        ("12.9", LINUX, "525.60.13"),
        ("12.9", WINDOWS, "527.41"),
        ("13.0", LINUX, "580"),
        ("13.9", LINUX, "580"),
        ("9.2", LINUX, None),
        ("14.0", LINUX, None),
    ],
)
def test_minimum_driver(matrices: Matrices, runtime: str, platform: DriverPlatform, minimum: str | None) -> None:
    assert text(matrices.drivers.minimum_driver(CudaVersion.parse(runtime), platform)) == minimum


def test_the_table_minimum_of_old_toolkits_is_their_oldest_driver(matrices: Matrices) -> None:
    for row in matrices.drivers.toolkits:
        minimum = matrices.drivers.minimum_driver(row.cuda, LINUX)
        assert minimum is not None
        if row.linux_driver is not None:
            assert minimum <= row.linux_driver or row.stage == "RC" or row.cuda == CudaVersion.of(11, 1), row.cuda


@pytest.mark.parametrize(
    ("release", "cuda"),
    [
        ("390.157", "9.1"),
        ("470.256.02", "11.4"),
        ("535.261.03", "12.2"),
        ("550.163.01", "12.4"),
        ("555.58.02", "12.5"),
        ("565.77", "12.7"),
        ("580.65.06", "13.0"),
        ("620.70.06", "13.5"),
        ("452.39", "11.0"),
        ("537.13", "12.2"),
        ("566.36", "12.7"),
        ("576.57", "12.9"),
        ("582.78", "13.0"),
        ("475.14", "11.4"),
        ("396.37", None),
        ("445.75", None),
        ("700.10", None),
        ("340.108", None),
    ],
)
def test_max_cuda_of_linux_and_windows_releases(matrices: Matrices, release: str, cuda: str | None) -> None:
    assert text(matrices.drivers.max_cuda(DriverRelease.parse(release))) == cuda


def test_max_cuda_of_real_libraries(matrices: Matrices) -> None:
    """cuDriverGetVersion of four real libcuda."""
    for probe in matrices.drivers.probes:
        if probe.driver is not None:
            assert matrices.drivers.max_cuda(probe.driver) == CudaVersion.from_int(probe.driver_api)


def test_branches_follow_cuda(matrices: Matrices) -> None:
    reported = [row.max_cuda for row in matrices.drivers.branches]
    assert reported == sorted(reported)


def test_a_branch_and_its_life(matrices: Matrices) -> None:
    drivers = matrices.drivers
    long_term = drivers.branch(580)
    assert long_term is not None
    assert long_term.type is BranchType.LTS
    assert long_term.end_of_life == date(2028, 6, 30)
    assert (long_term.ended_by(date(2028, 6, 30)), long_term.ended_by(date(2028, 7, 1))) == (False, True)
    feature = drivers.branch(615)
    assert feature is not None
    assert feature.end_of_life is None
    assert feature.ended_by(date(2026, 11, 30)) is False
    assert feature.ended_by(date(2027, 1, 1)) is None
    old = drivers.branch(545)
    assert old is not None
    assert old.ended_by(date(2024, 1, 1)) is True


def test_lives_agree_with_their_dates(matrices: Matrices) -> None:
    for row in matrices.drivers.branches:
        if row.end_of_life is not None:
            assert row.ended is (row.end_of_life < row.origin.as_of), row.number


def test_newer_than_the_table(matrices: Matrices) -> None:
    drivers = matrices.drivers
    assert drivers.newest_known.number == 620
    assert drivers.newest_cuda == CudaVersion.of(13, 5)
    assert drivers.is_newer_than_table(DriverRelease.parse("630.10"))
    assert not drivers.is_newer_than_table(DriverRelease.parse("621.40"))
    assert drivers.as_of >= date(2026, 11, 30)


@pytest.mark.parametrize(
    ("cc", "last", "first", "module"),
    [
        ("3.5", 470, None, OpenModule.NONE),
        ("5.2", 580, None, OpenModule.NONE),
        ("6.1", 580, None, OpenModule.NONE),
        ("7.0", 580, None, OpenModule.NONE),
        ("7.5", None, 410, OpenModule.OPTIONAL),
        ("8.0", None, 450, OpenModule.OPTIONAL),
        ("8.9", None, 520, OpenModule.OPTIONAL),
        ("9.0", None, 520, OpenModule.OPTIONAL),
        ("10.3", None, 580, OpenModule.REQUIRED),
        ("12.0", None, 570, OpenModule.REQUIRED),
    ],
)
def test_architectures(matrices: Matrices, cc: str, last: int | None, first: int | None, module: OpenModule) -> None:
    capability = ComputeCapability.parse(cc)
    drivers = matrices.drivers
    assert drivers.last_branch_for(capability) == last
    assert drivers.first_branch_for(capability) == first
    assert drivers.open_module(capability) is module


def test_dropped_architectures(matrices: Matrices) -> None:
    drivers = matrices.drivers
    volta, kepler = ComputeCapability(7, 0), ComputeCapability(3, 5)
    assert drivers.drops_architecture(580, volta) is False
    assert drivers.drops_architecture(DriverRelease.parse("582.78"), volta) is False
    assert drivers.drops_architecture(DriverRelease.parse("590.48.01"), volta) is True
    assert drivers.drops_architecture(DriverRelease.parse("475.14"), kepler) is False
    assert drivers.drops_architecture(DriverRelease.parse("495.46"), kepler) is True
    assert drivers.drops_architecture(900, ComputeCapability(8, 0)) is False
    assert drivers.drops_architecture(900, ComputeCapability(20, 0)) is None


@pytest.mark.parametrize(
    ("product", "branch"),
    [
        ("NVIDIA GeForce RTX 5090", 570),
        ("GeForce RTX 5050", 575),
        ("NVIDIA H200", 550),
        ("NVIDIA L40S", 535),
        ("NVIDIA L4", 525),
        ("NVIDIA A100-SXM4-80GB", 450),
        ("NVIDIA GB300", 580),
        ("GeForce RTX 9090", None),
    ],
)
def test_first_driver(matrices: Matrices, product: str, branch: int | None) -> None:
    row = matrices.drivers.first_driver_for(product)
    assert (row.branch if row else None) == branch


def test_bundled_drivers(matrices: Matrices) -> None:
    drivers = matrices.drivers
    assert text(drivers.bundled_driver(CudaVersion.of(12, 6), LINUX)) == "560.35.05"
    assert text(drivers.bundled_driver(CudaVersion.of(12, 6), WINDOWS)) == "561.17"
    assert drivers.bundled_driver(CudaVersion.of(13, 4), LINUX) is None
    assert drivers.bundled_driver(CudaVersion.of(13, 2), WINDOWS) is None
    assert drivers.toolkit_branch(CudaVersion.of(13, 4)) == 615
    assert drivers.toolkit_branch(CudaVersion.of(12, 7)) is None
    branch = drivers.branch_for_cuda(CudaVersion.of(12, 8))
    assert branch is not None
    assert branch.number == 570
    assert drivers.branch_for_cuda(CudaVersion.of(14, 0)) is None


def test_forward_compatibility_is_what_nvidias_table_says(matrices: Matrices) -> None:
    """CUDA Compatibility guide, Forward Compatibility, 13.4 edition."""
    expected = {
        "12.4": {535},
        "12.8": {535},
        "12.9": {535, 570},
        "13.0": {535, 570},
        "13.1": {535, 570, 580},
        "13.2": {535, 570, 580, 590},
        "13.3": {535, 570, 580, 590, 595},
        "13.4": {535, 570, 580, 590, 595, 610},
    }
    drivers = matrices.drivers
    for package, hosts in expected.items():
        cuda = CudaVersion.parse(package)
        found = {row.number for row in drivers.branches if drivers.forward_compat(cuda, row.number) is ForwardCompat.SUPPORTED}
        assert found == hosts, package
    assert drivers.forward_compat(CudaVersion.of(12, 2), 470) is ForwardCompat.TOLERATED
    assert drivers.forward_compat(CudaVersion.of(13, 4), 615) is ForwardCompat.NOT_NEEDED
    assert drivers.forward_compat(CudaVersion.of(13, 5), 615) is ForwardCompat.UNKNOWN
    package_row = drivers.compat_package(CudaVersion.of(12, 4))
    assert package_row is not None
    assert package_row.name == "cuda-compat-12-4"


def test_grades_survive(matrices: Matrices) -> None:
    branch = matrices.drivers.branch(535)
    assert branch is not None
    assert branch.origin.verified is Verified.MECHANICAL
    assert "cuDriverGetVersion" in branch.origin.source
