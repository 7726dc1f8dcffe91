"""`recommend` over 40 GPUs, 6 drivers and 4 Pythons: every line is supported by the matrix, and no newer one would be."""

from __future__ import annotations

from itertools import product

import pytest

from cudadoctor.commands.recommend import RecommendOptions, install_line, reasons, target_of
from cudadoctor.matrices import DriverPlatform, Matrices, WheelPlatform
from cudadoctor.matrices.torch_builds import TorchWheel
from cudadoctor.model.versions import DriverRelease
from cudadoctor.named import GpuNameError, capability_of, release_of
from cudadoctor.recommend import Target, advise

GPUS = (
    "GeForce GTX 680",
    "Tesla K40m",
    "Tesla K80",
    "GeForce GTX 750 Ti",
    "GeForce GTX 980 Ti",
    "Tesla M60",
    "Quadro M4000",
    "Tesla P100",
    "GeForce GTX 1080 Ti",
    "Tesla P4",
    "Quadro P6000",
    "TITAN V",
    "Tesla V100",
    "GeForce GTX 1650",
    "GeForce RTX 2080 Ti",
    "Tesla T4",
    "Quadro RTX 5000",
    "TITAN RTX",
    "A100",
    "A30",
    "GeForce RTX 3060 Ti",
    "GeForce RTX 3090",
    "A10",
    "A40",
    "RTX A6000",
    "GeForce RTX 4060 Ti",
    "GeForce RTX 4090",
    "L4",
    "L40S",
    "RTX 6000 Ada",
    "H100",
    "H200",
    "GH200",
    "B200",
    "GB200",
    "B300",
    "GeForce RTX 5060 Ti",
    "GeForce RTX 5090",
    "RTX PRO 6000 Blackwell",
    "GB10",
)
DRIVERS = ("418.226.00", "470.256.02", "525.60.13", "550.54.15", "580.95.05", "615.10.01")
PYTHONS = ("3.9", "3.11", "3.12", "3.14")


@pytest.fixture(scope="module")
def matrices() -> Matrices:
    return Matrices.load()


def supported(wheel: TorchWheel, target: Target, matrices: Matrices) -> bool:
    """Said again from the rules of the contract, not by the code under test: same major and lower minor, floor, Python."""
    capability, cuda = target.capabilities[0], wheel.variant.cuda
    assert cuda is not None and target.driver_release is not None
    codes = [code for code in wheel.targets if str(code).startswith("sm_") and code.suffix == ""]
    exact = [code for code in wheel.targets if str(code) in (f"sm_{capability.number}a",)]
    covered = any(
        code.compute_capability.major == capability.major and code.compute_capability.minor <= capability.minor for code in codes
    )
    newest = matrices.drivers.max_cuda(target.driver_release)
    floor = matrices.drivers.minimum_driver(cuda, DriverPlatform.LINUX)
    runs = (newest is not None and newest >= cuda) or (floor is not None and target.driver_release >= floor)
    return (covered or bool(exact)) and runs and target.python in wheel.release.pythons


def test_forty_gpus_are_known(matrices: Matrices) -> None:
    assert len(set(GPUS)) == 40
    assert {capability_of(name, matrices).major for name in GPUS} == {3, 5, 6, 7, 8, 9, 10, 12}


@pytest.mark.parametrize("platform", [WheelPlatform.LINUX_X86_64, WheelPlatform.LINUX_AARCH64], ids=lambda p: p.value)
def test_every_recommendation_is_supported_and_the_newest(platform: WheelPlatform, matrices: Matrices) -> None:
    none = 0
    for name, driver, python in product(GPUS, DRIVERS, PYTHONS):
        target = Target(
            wheels=platform,
            driver_platform=DriverPlatform.LINUX,
            capabilities=(capability_of(name, matrices),),
            driver_release=DriverRelease.parse(driver),
            python=python,
        )
        fitting = [wheel for wheel in matrices.torch.wheels(platform, python) if supported(wheel, target, matrices)]
        advice = advise(target, matrices)
        said = " ".join(reasons(target, advice))
        if not fitting:
            none += 1
            assert advice.wheel is None, (name, driver, python)
            assert said.startswith("No torch wheel is known")
        else:
            assert advice.wheel is not None, (name, driver, python)
            assert advice.wheel in fitting
            assert advice.wheel.release.version == max(wheel.release.version for wheel in fitting)
            assert install_line(advice.wheel).endswith(f"/whl/{advice.wheel.variant.tag}")
    assert none  # a Kepler GPU or a 418 driver with Python 3.14 has none


def test_no_release_is_named_for_a_cuda_that_it_does_not_have(matrices: Matrices) -> None:
    """torch 2.8.0 has no cu121 (a folk claim): it is never recommended, whatever the driver."""
    for wheel in matrices.torch.wheels(WheelPlatform.LINUX_X86_64):
        if str(wheel.release.version).startswith("2.8."):
            assert wheel.variant.tag != "cu121"


def test_a_bare_branch_means_its_last_release(matrices: Matrices) -> None:
    branch = matrices.drivers.branch(550)
    assert branch is not None
    assert release_of("550", matrices) == branch.last_release
    assert release_of("550.54.15", matrices).text == "550.54.15"


@pytest.mark.parametrize("name", ["RTX", "GeForce", "Voodoo", "", "9.9.9", "2.0"])
def test_a_name_that_leaves_several_or_none_is_refused(name: str, matrices: Matrices) -> None:
    with pytest.raises(GpuNameError):
        capability_of(name, matrices)


def test_options_override_this_machine(matrices: Matrices) -> None:
    here = Target(WheelPlatform.LINUX_X86_64, DriverPlatform.LINUX, python="3.9")
    target = target_of(RecommendOptions(("RTX 4090",), "580", "3.12", "windows"), here, matrices)
    assert (target.wheels, target.driver_platform, target.python) == (WheelPlatform.WINDOWS, DriverPlatform.WINDOWS, "3.12")
    assert str(target.capabilities[0]) == "8.9"
