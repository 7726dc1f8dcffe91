from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.snapshot import Driver, LibraryOrigin, ModuleFlavour
from cudadoctor.model.versions import DriverRelease, VersionError
from cudadoctor.probes.driver import (
    parse_module_file,
    parse_modules,
    parse_procfs_version,
    parse_profiling_parameter,
    read_driver,
)
from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import Uname
from tests.fakes.nvml import install_fake_libcuda
from tests.fakes.roots import LINUX, WSL2, Forbidding, linux, windows

CLOSED = (
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
    "GCC version:  gcc version 12.3.0 (Ubuntu 12.3.0-1ubuntu1~22.04)\n"
)


@pytest.mark.parametrize(
    ("text", "release", "flavour"),
    [
        (CLOSED, "535.104.05", ModuleFlavour.PROPRIETARY),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22-I3)  Tue Sep 23",
            "580.95.05",
            ModuleFlavour.OPEN,
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  35.3.1  Release Build  (buildbrain@mobile)  Sun Mar 19",
            "35.3.1",
            ModuleFlavour.OPEN,
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 09:19:07 UTC 2022",
            "390.157",
            ModuleFlavour.PROPRIETARY,
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  610.43.02  Release Build  (dvs-builder)  GCC version:",
            "610.43.02",
            ModuleFlavour.OPEN,
        ),
    ],
)
def test_both_flavours_of_the_version_file(text: str, release: str, flavour: ModuleFlavour) -> None:
    module = parse_procfs_version(text)
    assert (module.driver_release, module.flavour) == (DriverRelease.parse(release), flavour)


@pytest.mark.parametrize("text", ["", "NVRM version:", "Kernel Module", "Kernel Module  " + "9" * 5000, "\x00" * 100])
def test_a_version_file_without_a_version_is_an_error(text: str) -> None:
    with pytest.raises(VersionError):
        parse_procfs_version(text)


def test_a_loaded_driver(tmp_path: Path) -> None:
    modules = "nvidia_uvm 4943872 2 - Live 0x0 (PO)\nnvidia 56717312 51 nvidia_uvm, Live 0x0 (PO)\nsnd_hda_intel 1 0 - Live\n"
    files = {
        "/proc/driver/nvidia/version": CLOSED,
        "/proc/driver/nvidia/params": "ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n",
        "/proc/modules": modules,
        "/dev/nvidia0": "",
        "/dev/nvidiactl": "",
        "/dev/nvidia-uvm": "",
        "/dev/null": "",
        f"/lib/modules/{LINUX.release}/modules.dep": "kernel/fs/ext4.ko:\nupdates/dkms/nvidia.ko.zst: kernel/drivers/x.ko\n",
    }
    driver = read_driver(linux(tmp_path, files))
    assert known(driver.driver_release) == DriverRelease.parse("535.104.05")
    assert known(driver.kernel_module).flavour is ModuleFlavour.PROPRIETARY
    assert known(driver.loaded_modules) == ("nvidia", "nvidia_uvm")
    assert known(driver.module_file) == f"/lib/modules/{LINUX.release}/updates/dkms/nvidia.ko.zst"
    assert known(driver.profiling_restricted) is True
    nodes = known(driver.device_nodes)
    assert [node.path for node in nodes] == ["/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl"]
    assert all(node.accessible and node.mode.startswith("-rw") for node in nodes)


def test_an_absent_driver_is_missing_with_the_reason(tmp_path: Path) -> None:
    driver = read_driver(linux(tmp_path, {"/dev": None, f"/lib/modules/{LINUX.release}/modules.dep": "kernel/fs/ext4.ko:\n"}))
    assert isinstance(driver.kernel_module, Missing)
    assert driver.kernel_module.reason is MissingReason.NOT_FOUND
    assert known(driver.device_nodes) == ()
    assert known(driver.libcuda_copies) == ()
    assert isinstance(driver.module_file, Missing)
    assert driver.module_file.reason is MissingReason.NOT_FOUND


def test_a_container_cannot_tell_whether_the_kernel_has_a_module(tmp_path: Path) -> None:
    fact = read_driver(linux(tmp_path)).module_file
    assert isinstance(fact, Missing)
    assert fact.reason is MissingReason.NOT_APPLICABLE


def test_what_may_not_be_read_is_not_called_absent(tmp_path: Path) -> None:
    driver = read_driver(Forbidding(tmp_path, {}, uname=LINUX))
    for fact in (
        driver.kernel_module,
        driver.loaded_modules,
        driver.device_nodes,
        driver.pci_devices,
        driver.profiling_restricted,
    ):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.PERMISSION_DENIED
        assert "Permission denied" in fact.detail


def test_a_folder_where_a_file_should_be_and_links_in_circles_are_failures(tmp_path: Path) -> None:
    files = {"/proc/driver/nvidia/version": None}
    driver = read_driver(linux(tmp_path, files, {"/proc/modules": "modules", "/proc/driver/nvidia/params": "params"}))
    for fact in (driver.kernel_module, driver.loaded_modules, driver.profiling_restricted):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.FAILED


def test_garbage_in_procfs_is_a_parse_error_with_its_text(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "/proc/driver/nvidia/version": b"\xff\xfe garbage",
        "/proc/driver/nvidia/params": "nothing of use",
    }
    driver = read_driver(linux(tmp_path, files))
    assert isinstance(driver.kernel_module, Missing)
    assert driver.kernel_module.reason is MissingReason.PARSE_ERROR
    assert "garbage" in driver.kernel_module.detail
    assert isinstance(driver.profiling_restricted, Missing)
    assert driver.profiling_restricted.reason is MissingReason.NOT_SUPPORTED


def test_gpus_on_the_pci_bus(tmp_path: Path) -> None:
    files: dict[str, str] = {}
    for address, (kind, vendor, device) in {
        "0000:01:00.0": ("0x030000", "0x10de", "0x2684"),
        "0000:01:00.1": ("0x040300", "0x10de", "0x22ba"),
        "0000:02:00.0": ("0x030200", "0x10DE", "0x20B5"),
        "0000:03:00.0": ("0x030000", "0x1234", "0x1111"),
        "0000:04:00.0": ("0x030000", "0x1002", "0x744c"),
    }.items():
        folder = f"/sys/bus/pci/devices/{address}"
        files |= {f"{folder}/class": kind, f"{folder}/vendor": vendor, f"{folder}/device": device}
    files["/sys/bus/pci/drivers/nouveau/module"] = ""
    links = {"/sys/bus/pci/devices/0000:01:00.0/driver": "../../drivers/nouveau"}
    devices = known(read_driver(linux(tmp_path, files, links)).pci_devices)
    assert [(d.bus_id, d.vendor_id, d.device_id, d.kernel_driver) for d in devices] == [
        ("0000:01:00.0", "10de", "2684", "nouveau"),
        ("0000:02:00.0", "10de", "20b5", ""),
        ("0000:04:00.0", "1002", "744c", ""),
    ]


def test_every_libcuda_is_found_and_the_loader_s_choice_marked(tmp_path: Path) -> None:
    root = tmp_path / "root"
    install_fake_libcuda(root / "usr/lib/x86_64-linux-gnu", "libcuda.so.580.95.05")
    install_fake_libcuda(root / "usr/local/cuda-12.6/compat", "libcuda.so.560.35.05")
    stubs = root / "usr/local/cuda-12.6/lib64/stubs"
    install_fake_libcuda(stubs)
    (stubs / "libcuda.so.1").rename(stubs / "libcuda.so")
    (stubs / "libcuda.so.1").symlink_to("libcuda.so")
    folder = "/usr/local/cuda-12.6/lib64/stubs"
    copies = known(read_driver(linux(root, environ={"LD_LIBRARY_PATH": folder})).libcuda_copies)
    found = {copy.real_path: (copy.origin, copy.wins, copy.via, str(maybe(copy.library_version))) for copy in copies}
    assert found == {
        f"{folder}/libcuda.so": (LibraryOrigin.STUB, True, "LD_LIBRARY_PATH", "None"),
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05": (LibraryOrigin.DRIVER, False, "default folders", "580.95.05"),
        "/usr/local/cuda-12.6/compat/libcuda.so.560.35.05": (LibraryOrigin.COMPAT, False, "", "560.35.05"),
    }


def test_a_folder_of_stubs_does_not_win_by_the_plain_name(tmp_path: Path) -> None:
    install_fake_libcuda(tmp_path / "usr/lib/x86_64-linux-gnu", "libcuda.so.580.95.05")
    install_fake_libcuda(tmp_path / "opt/stubs")
    (tmp_path / "opt/stubs/libcuda.so.1").rename(tmp_path / "opt/stubs/libcuda.so")
    copies = known(read_driver(linux(tmp_path, environ={"LD_LIBRARY_PATH": "/opt/stubs"})).libcuda_copies)
    assert [(copy.real_path, copy.soname, copy.wins) for copy in copies] == [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "libcuda.so.1", True),
        ("/opt/stubs/libcuda.so", "libcuda.so", False),
    ]


def test_under_wsl_the_kernel_driver_is_windows_s(tmp_path: Path) -> None:
    install_fake_libcuda(tmp_path / "usr/lib/wsl/lib")
    driver = read_driver(linux(tmp_path, {"/dev/dxg": ""}, uname=WSL2))
    for fact in (driver.kernel_module, driver.module_file, driver.profiling_restricted):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.NOT_APPLICABLE
    assert [copy.origin for copy in known(driver.libcuda_copies)] == [LibraryOrigin.WSL]
    assert [node.path for node in known(driver.device_nodes)] == ["/dev/dxg"]


def test_windows_and_macos(tmp_path: Path) -> None:
    driver = read_driver(windows(tmp_path, {r"C:\Windows\System32\nvcuda.dll": ""}))
    assert [copy.path for copy in known(driver.libcuda_copies)] == [r"C:\Windows\System32\nvcuda.dll"]
    mac = read_driver(RootedSystem(tmp_path, {}, platform="darwin", uname=Uname("Darwin", "24.1.0", "arm64")))
    for name in Driver.__struct_fields__:
        fact = getattr(mac, name)
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("kernel/nvidia-580/nvidia.ko: kernel/drivers/char/ipmi/ipmi_msghandler.ko", "kernel/nvidia-580/nvidia.ko"),
        ("extra/nvidia.ko.xz:\n", "extra/nvidia.ko.xz"),
        ("updates/dkms/nvidia-current.ko.xz:", "updates/dkms/nvidia-current.ko.xz"),
        ("updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko", ""),
        ("kernel/drivers/net/forcenvidia.ko:", ""),
        ("", ""),
    ],
)
def test_the_module_file_of_the_kernel(text: str, file: str) -> None:
    assert parse_module_file(text) == file


def test_profiling_parameter_and_modules_of_hostile_texts() -> None:
    assert parse_profiling_parameter("RmProfilingAdminOnly: 0\n") is False
    with pytest.raises(ValueError, match="RmProfilingAdminOnly"):
        parse_profiling_parameter("RmProfilingAdminOnly: yes")
    assert parse_modules("\n \n\x00nvidia\n") == ()
