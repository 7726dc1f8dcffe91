from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Known, Missing, MissingReason, known
from cudadoctor.model.snapshot import Platform
from cudadoctor.probes.host import parse_os_release, parse_secure_boot, read_host
from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import RealSystem, Uname
from tests.fakes.roots import LINUX, WSL2, Forbidding, linux, windows

UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nNAME="Ubuntu"\nVERSION_ID="24.04"\n# a comment=1\nID=ubuntu\nID_LIKE=debian\n'


def test_an_ubuntu_host(tmp_path: Path) -> None:
    host = read_host(linux(tmp_path, {"/etc/os-release": UBUNTU}))
    assert known(host.platform) is Platform.LINUX
    assert known(host.architecture) == "x86_64"
    assert known(host.os_name) == "Ubuntu 24.04.1 LTS"
    assert known(host.os_id) == "ubuntu"
    assert str(known(host.os_version)) == "24.04"
    assert known(host.kernel_release) == "6.8.0-45-generic"
    assert isinstance(host.jetson, Missing)
    assert host.jetson.reason is MissingReason.NOT_APPLICABLE


def test_the_second_place_of_os_release_is_read_where_the_first_is_missing(tmp_path: Path) -> None:
    host = read_host(linux(tmp_path, {"/usr/lib/os-release": "NAME=Arch\nID=arch\n"}))
    assert known(host.os_name) == "Arch"
    assert isinstance(host.os_version, Missing), "a rolling distribution has no version"


@pytest.mark.parametrize(
    ("files", "links", "reason"),
    [
        ({}, {}, MissingReason.NOT_FOUND),
        ({"/etc/os-release": None}, {}, MissingReason.FAILED),
        ({}, {"/etc/os-release": "os-release"}, MissingReason.FAILED),
    ],
)
def test_an_unreadable_os_release_is_missing_with_the_reason(
    tmp_path: Path, files: dict[str, None], links: dict[str, str], reason: MissingReason
) -> None:
    fact = read_host(linux(tmp_path, files, links)).os_id
    assert isinstance(fact, Missing)
    assert fact.reason is reason
    assert "/etc/os-release" in fact.detail


def test_what_may_not_be_read_is_not_called_absent(tmp_path: Path) -> None:
    host = read_host(Forbidding(tmp_path, {}, uname=LINUX))
    assert isinstance(host.os_id, Missing)
    assert host.os_id.reason is MissingReason.PERMISSION_DENIED
    assert host.os_id.detail == "could not read /etc/os-release: Permission denied"


@pytest.mark.parametrize("text", ["", "=", "\x00\x01\x02", "ID=" + "x" * 100_000, "PRETTY_NAME"])
def test_hostile_os_release_files_do_no_harm(tmp_path: Path, text: str) -> None:
    read_host(linux(tmp_path, {"/etc/os-release": text}))
    assert isinstance(parse_os_release(text), dict)


def test_wsl_is_told_by_its_kernel(tmp_path: Path) -> None:
    assert known(read_host(linux(tmp_path, uname=WSL2)).platform) is Platform.WSL


def test_windows_and_macos_hosts(tmp_path: Path) -> None:
    host = read_host(windows(tmp_path, {}))
    assert known(host.platform) is Platform.WINDOWS
    assert known(host.architecture) == "x86_64"
    mac = RootedSystem(tmp_path, {}, platform="darwin", uname=Uname("Darwin", "24.1.0", "arm64"))
    assert known(read_host(mac).platform) is Platform.MACOS
    assert known(read_host(mac).architecture) == "aarch64"


def test_other_systems_have_no_cuda(tmp_path: Path) -> None:
    fact = read_host(RootedSystem(tmp_path, {}, platform="freebsd14", uname=Uname("FreeBSD", "14.1", "amd64"))).platform
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.NOT_SUPPORTED


def test_an_image_has_no_kernel(tmp_path: Path) -> None:
    host = read_host(linux(tmp_path, {"/etc/os-release": UBUNTU}, uname=None))
    assert known(host.os_id) == "ubuntu"
    for fact in (host.architecture, host.kernel_release, host.glibc):
        assert isinstance(fact, Missing)


def test_the_real_host_has_a_glibc() -> None:
    fact = read_host(RealSystem()).glibc
    assert not isinstance(fact, Known) or known(fact).major == 2


@pytest.mark.parametrize(("text", "on"), [("\x06\0\0\0\x01", True), ("\x06\0\0\0\0", False)])
def test_secure_boot_is_read_from_the_efi_variable(tmp_path: Path, text: str, on: bool) -> None:
    path = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    assert known(read_host(linux(tmp_path, {path: text})).secure_boot) is on


@pytest.mark.parametrize("text", ["", "\x06\0\0\0", "\x06\0\0\0x"])
def test_a_broken_efi_variable_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="SecureBoot"):
        parse_secure_boot(text)


def test_without_efi_secure_boot_does_not_apply(tmp_path: Path) -> None:
    fact = read_host(linux(tmp_path)).secure_boot
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.NOT_APPLICABLE


def test_a_jetson_is_told_by_its_device_tree(tmp_path: Path) -> None:
    model = "NVIDIA Jetson AGX Orin Developer Kit"
    assert known(read_host(linux(tmp_path / "a", {"/proc/device-tree/model": model + "\0"})).jetson) == model
    assert isinstance(read_host(linux(tmp_path / "b", {"/proc/device-tree/model": "Raspberry Pi 5\0"})).jetson, Missing)
    release = "# R36 (release), REVISION: 4.0, GCID: 37537400, BOARD: generic"
    assert known(read_host(linux(tmp_path / "c", {"/etc/nv_tegra_release": release})).jetson) == release
