"""The host: operating system, kernel, C library, Secure Boot, Jetson board."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import Host, Platform
from cudadoctor.model.versions import DottedVersion
from cudadoctor.probes.asking import Answer, ask_file, folder_names, not_applicable, not_found, parsed

if TYPE_CHECKING:
    from cudadoctor.system import System

OS_RELEASE_FILES = ("/etc/os-release", "/usr/lib/os-release")
EFI_FOLDER = "/sys/firmware/efi"
EFI_VARIABLES = "/sys/firmware/efi/efivars"
DEVICE_TREE_MODEL = "/proc/device-tree/model"
TEGRA_RELEASE = "/etc/nv_tegra_release"
TEGRA_WORDS = ("jetson", "tegra", "orin", "xavier", "thor", "agx")


def read_host(system: System) -> Host:
    """What there is to know about the host without running anything."""
    os_name, os_id, os_version = _operating_system(system)
    return Host(
        platform=read_platform(system),
        architecture=_architecture(system),
        os_name=os_name,
        os_id=os_id,
        os_version=os_version,
        kernel_release=_kernel_release(system),
        glibc=_glibc(system),
        secure_boot=_secure_boot(system),
        jetson=_jetson(system),
    )


def read_platform(system: System) -> Fact[Platform]:
    """Linux, WSL, Windows or macOS."""
    if system.platform == "win32":
        return Known(Platform.WINDOWS, "Python")
    if system.platform == "darwin":
        return Known(Platform.MACOS, "Python")
    if not system.platform.startswith("linux"):
        return Missing(MissingReason.NOT_SUPPORTED, f"CUDA does not exist on {system.platform}", "Python")
    release = _kernel_release(system)
    wsl = isinstance(release, Known) and "microsoft" in release.value.lower()
    return Known(Platform.WSL if wsl else Platform.LINUX, release.source if wsl else "Python")


def parse_os_release(text: str) -> dict[str, str]:
    """The assignments of an os-release file, quotes removed.

    Sample:
        PRETTY_NAME="Ubuntu 24.04.1 LTS"
        NAME="Ubuntu"
        VERSION_ID="24.04"
        ID=ubuntu
        ID_LIKE=debian
    """
    pairs = (line.strip().partition("=") for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def parse_secure_boot(text: str) -> bool:
    """Is Secure Boot on? From the EFI variable: four bytes of attributes, then one byte of value; raises ValueError.

    Sample: "\\x06\\x00\\x00\\x00\\x01"
    """
    if len(text) < 5 or text[4] not in "\0\1":
        raise ValueError("not a SecureBoot variable")
    return text[4] == "\1"


def _operating_system(system: System) -> tuple[Fact[str], Fact[str], Fact[DottedVersion]]:
    if system.platform != "linux":
        return _name_from_uname(system)
    answers = [ask_file(system, path) for path in OS_RELEASE_FILES]
    found = next((answer for answer in answers if isinstance(answer, Answer)), None)
    if found is None:
        absent = next(answer for answer in answers if isinstance(answer, Missing))
        return absent, absent, absent
    fields = parse_os_release(found.text)
    name = fields.get("PRETTY_NAME") or fields.get("NAME", "")
    return (
        _known_text(name, found.source, "PRETTY_NAME"),
        _known_text(fields.get("ID", ""), found.source, "ID"),
        parsed(DottedVersion.parse, fields["VERSION_ID"], found.source)
        if "VERSION_ID" in fields
        else not_found("VERSION_ID is not set (a rolling distribution)", found.source),
    )


def _name_from_uname(system: System) -> tuple[Fact[str], Fact[str], Fact[DottedVersion]]:
    if system.uname is None:
        return NOT_ASKED, NOT_ASKED, NOT_ASKED
    name = {"Darwin": "macOS"}.get(system.uname.system, system.uname.system)
    return (
        Known(f"{name} {system.uname.release}", "uname"),
        Known(name.lower(), "uname"),
        parsed(DottedVersion.parse, system.uname.release, "uname"),
    )


def _known_text(value: str, source: str, key: str) -> Fact[str]:
    return Known(value, source) if value else not_found(f"{key} is not set", source)


def _architecture(system: System) -> Fact[str]:
    if system.uname is None:
        return NOT_ASKED
    names = {"amd64": "x86_64", "arm64": "aarch64"}
    return Known(names.get(system.uname.machine.lower(), system.uname.machine), "uname")


def _kernel_release(system: System) -> Fact[str]:
    return NOT_ASKED if system.uname is None else Known(system.uname.release, "uname")


def _glibc(system: System) -> Fact[DottedVersion]:
    """The C library of the running system; that of an unpacked image would need its programs to run."""
    if system.platform != "linux":
        return not_applicable("no glibc on this platform")
    if system.uname is None:
        return NOT_ASKED
    try:
        version = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError, AttributeError):
        return not_found("the C library is not glibc", "confstr")
    return parsed(DottedVersion.parse, version.removeprefix("glibc "), "confstr")


def _secure_boot(system: System) -> Fact[bool]:
    if system.platform != "linux":
        return NOT_ASKED
    if not system.exists(EFI_FOLDER):
        return not_applicable("the system was not started by UEFI, or hides it", EFI_FOLDER)
    names = [name for name in folder_names(system, EFI_VARIABLES) if name.startswith("SecureBoot-")]
    if not names:
        return not_found(f"no SecureBoot variable in {EFI_VARIABLES}", EFI_VARIABLES)
    answer = ask_file(system, f"{EFI_VARIABLES}/{names[0]}")
    return answer if isinstance(answer, Missing) else parsed(parse_secure_boot, answer.text, answer.source)


def _jetson(system: System) -> Fact[str]:
    """The model of an NVIDIA Tegra board."""
    model = ask_file(system, DEVICE_TREE_MODEL)
    if isinstance(model, Answer):
        name = model.text.strip("\0 \n")
        if any(word in name.lower() for word in TEGRA_WORDS):
            return Known(name, model.source)
    release = ask_file(system, TEGRA_RELEASE)
    if isinstance(release, Answer):
        return Known(release.text.strip().splitlines()[0][:120] if release.text.strip() else "Tegra", release.source)
    return not_applicable("not a Tegra board", DEVICE_TREE_MODEL)
