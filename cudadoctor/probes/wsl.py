"""Windows Subsystem for Linux: its generation, the Windows driver's libraries, and Linux drivers that do not belong there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known
from cudadoctor.model.snapshot import Platform, Wsl
from cudadoctor.probes.asking import Answer, ask_file, folder_names, missing_file, not_applicable, not_found
from cudadoctor.probes.host import read_platform

if TYPE_CHECKING:
    from cudadoctor.system import System

LIBRARY_FOLDER = "/usr/lib/wsl/lib"
LINUX_LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
DPKG_STATUS = "/var/lib/dpkg/status"
DRIVER_PACKAGE = re.compile(
    r"^(?:nvidia-driver-[\w-]+|libnvidia-compute-[\w-]+|nvidia-dkms-[\w-]+|nvidia-kernel-[\w-]+|cuda-drivers[\w-]*)$"
)
LINUX_DRIVER_LIBRARY = re.compile(r"^lib(?:cuda|nvidia-ml)\.so\.\d{3}\.[\d.]+\Z")


def read_wsl(system: System) -> Wsl:
    """Facts about WSL; not applicable elsewhere."""
    platform = read_platform(system)
    if not (isinstance(platform, Known) and platform.value is Platform.WSL):
        outside = not_applicable("not WSL")
        return Wsl(wsl_version=outside, windows_build=outside, library_folder=outside, linux_driver_packages=outside)
    return Wsl(
        wsl_version=_generation(system),
        windows_build=not_found("the Windows build is not visible from inside without running Windows programs"),
        library_folder=_library_folder(system),
        linux_driver_packages=_linux_drivers(system),
    )


def parse_generation(kernel_release: str) -> int:
    """1 or 2, from the kernel's release: `4.4.0-19041-Microsoft` is WSL 1, `5.15.90.1-microsoft-standard-WSL2` WSL 2."""
    return 2 if "wsl2" in kernel_release.lower() or not kernel_release.startswith("4.4.") else 1


def parse_driver_packages(text: str) -> tuple[str, ...]:
    """Installed packages of the Linux display driver in a dpkg status file.

    Sample:
        Package: nvidia-driver-535
        Status: install ok installed
        Version: 535.183.01-0ubuntu1
    """
    paragraphs = (dict(re.findall(r"^(Package|Status): (.*)$", part, re.MULTILINE)) for part in text.split("\n\n"))
    return tuple(
        fields["Package"]
        for fields in paragraphs
        if DRIVER_PACKAGE.match(fields.get("Package", "")) and fields.get("Status", "").endswith(" installed")
    )


def _generation(system: System) -> Fact[int]:
    if system.uname is None:
        return not_found("the kernel is not running")
    return Known(parse_generation(system.uname.release), "uname")


def _library_folder(system: System) -> Fact[tuple[str, ...]]:
    try:
        return Known(system.list_folder(LIBRARY_FOLDER), LIBRARY_FOLDER)
    except OSError as error:
        return missing_file(error, LIBRARY_FOLDER)


def _linux_drivers(system: System) -> Fact[tuple[str, ...]]:
    answer = ask_file(system, DPKG_STATUS)
    packages = parse_driver_packages(answer.text) if isinstance(answer, Answer) else ()
    libraries = tuple(
        f"{folder}/{name}"
        for folder in LINUX_LIBRARY_FOLDERS
        for name in folder_names(system, folder)
        if LINUX_DRIVER_LIBRARY.match(name)
    )
    return Known((*packages, *libraries), "dpkg status, library folders")
