from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.probes.wsl import parse_driver_packages, parse_generation, read_wsl
from tests.fakes.roots import WSL2, linux


@pytest.mark.parametrize(
    ("release", "generation"),
    [
        ("5.15.167.4-microsoft-standard-WSL2", 2),
        ("6.18.33.2-microsoft-standard-WSL2", 2),
        ("4.4.0-19041-Microsoft", 1),
        ("4.19.128-microsoft-standard", 2),
    ],
)
def test_the_generation_is_told_by_the_kernel(release: str, generation: int) -> None:
    assert parse_generation(release) == generation


def test_a_wsl_with_a_linux_driver_in_it(tmp_path: Path) -> None:
    status = (
        "Package: nvidia-driver-535\nStatus: install ok installed\nVersion: 535.183.01\n\n"
        "Package: nvidia-driver-470\nStatus: deinstall ok config-files\n\n"
        "Package: nvidia-settings\nStatus: install ok installed\n"
    )
    files = {
        "/usr/lib/wsl/lib/libcuda.so.1": "",
        "/usr/lib/wsl/lib/nvidia-smi": "",
        "/var/lib/dpkg/status": status,
        "/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01": "",
        "/usr/lib/x86_64-linux-gnu/libcudart.so.12.2.140": "",
    }
    wsl = read_wsl(linux(tmp_path, files, uname=WSL2))
    assert known(wsl.wsl_version) == 2
    assert known(wsl.library_folder) == ("libcuda.so.1", "nvidia-smi")
    assert known(wsl.linux_driver_packages) == ("nvidia-driver-535", "/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01")


def test_a_wsl_without_the_windows_driver_says_so(tmp_path: Path) -> None:
    wsl = read_wsl(linux(tmp_path, {}, uname=WSL2))
    assert isinstance(wsl.library_folder, Missing)
    assert wsl.library_folder.reason is MissingReason.NOT_FOUND
    assert known(wsl.linux_driver_packages) == ()


def test_elsewhere_nothing_of_it_applies(tmp_path: Path) -> None:
    wsl = read_wsl(linux(tmp_path))
    for fact in (wsl.wsl_version, wsl.windows_build, wsl.library_folder, wsl.linux_driver_packages):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.NOT_APPLICABLE


@pytest.mark.parametrize("text", ["", "\n\n\n", "Package: \nStatus: \n", "\x00" * 1000])
def test_hostile_package_lists_do_no_harm(text: str) -> None:
    assert parse_driver_packages(text) == ()
