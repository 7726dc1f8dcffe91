"""The kernel module: built, allowed, not kept out by another."""

from __future__ import annotations

import pytest

from cudadoctor.model.fact import Missing, MissingReason
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Host, PciDevice, Platform, Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
    FAIL,
    GENERATIONS,
    NO_GPU,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    healthy,
    judged,
    known,
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_driver,
    with_host,
    with_wsl,
    without_driver,
)

UNLOADED = without_driver(healthy())
SMI_FAILS = said("smi-cannot-communicate", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
UNKNOWN_MODULES = with_driver(UNLOADED, loaded_modules=TIMED_OUT)


def pci(device_id: str, driver: str = "nvidia", bus_id: str = "0000:01:00.0") -> PciDevice:
    return PciDevice(bus_id=bus_id, vendor_id="10de", device_id=device_id, kernel_driver=driver)


NOUVEAU = with_driver(without_driver(healthy(), ("nouveau",)), pci_devices=known((pci("2684", "nouveau"),)))
INSTALLER = said("kernel-module-missing-for-kernel", "ERROR: Unable to load the kernel module 'nvidia.ko'")
TABLE: Table = {
    "kernel-module-missing-for-kernel": (
        ("no file for this kernel", with_driver(UNLOADED, module_file=ABSENT), FAIL),
        ("a file for this kernel", UNLOADED, PASS),
        ("modules unreadable", UNKNOWN_MODULES, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("modprobe says so", text_only(said("kernel-module-missing-for-kernel")), FAIL),
        ("the installer cannot load it", text_only(INSTALLER), FAIL),
        ("the installer cannot load it, as nouveau is there", text_only(INSTALLER, said("nouveau-loaded")), PASS),
        ("under WSL", text_only(SMI_FAILS, said("shown-wsl")), NOT_APPLICABLE),
    ),
    "secure-boot-blocking": (
        ("Secure Boot on, module built, not loaded", with_host(UNLOADED, secure_boot=known(True)), FAIL),
        ("Secure Boot off", UNLOADED, PASS),
        ("Secure Boot on and all well", with_host(healthy(), secure_boot=known(True)), PASS),
        ("Secure Boot unreadable", with_host(UNLOADED, secure_boot=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("no module to refuse", with_host(with_driver(UNLOADED, module_file=ABSENT), secure_boot=known(True)), PASS),
        ("the kernel says so", text_only(said("secure-boot-blocking", "Key was rejected by service")), FAIL),
    ),
    "nouveau-loaded": (
        (
            "bound to nouveau",
            NOUVEAU,
            FAIL,
        ),
        ("no driver bound", UNLOADED, PASS),
        ("modules unreadable", UNKNOWN_MODULES, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("lspci says so", text_only(said("nouveau-loaded", "Kernel driver in use: nouveau")), FAIL),
    ),
    "gpu-bound-to-vfio": (
        ("lent to a virtual machine", with_driver(UNLOADED, pci_devices=known((pci("2684", "vfio-pci"),))), FAIL),
        ("not lent", healthy(), PASS),
        ("bus unreadable", with_driver(healthy(), pci_devices=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "benign-module-taint": (
        ("the remark", text_only(said("module-verification-tainted")), FAIL),
        ("a refusal", text_only(said("module-verification-tainted"), said("secure-boot-blocking")), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_healthy_machine_has_no_error_and_no_warning(generation: str) -> None:
    results = judged(GENERATIONS[generation])
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []


def test_module_of_another_kernel_is_the_root_cause() -> None:
    snapshot = text_only(
        SMI_FAILS,
        said(
            "shown-dkms-status", "nvidia/535.43.02, 6.3.6-arch1-1, x86_64: installed", kernel="6.3.6-arch1-1", state="installed"
        ),
        host=Host(kernel_release=known("6.3.7-2-cachyos")),
    )
    results = judged(snapshot)
    assert roots(results) == ["kernel-module-missing-for-kernel"]
    assert "kernel-module-not-loaded" in names(results, Severity.ERROR)
    finding = next(f for f in results.findings if f.name == "kernel-module-missing-for-kernel")
    assert "6.3.7-2-cachyos" in finding.what
    assert "6.3.6-arch1-1" in finding.what


def test_module_built_for_the_running_kernel_is_not_blamed() -> None:
    snapshot = text_only(
        SMI_FAILS,
        said("shown-dkms-status", kernel="6.8.0-45-generic", state="installed"),
        said("shown-kernel", kernel="6.8.0-45-generic"),
    )
    assert "kernel-module-missing-for-kernel" not in names(judged(snapshot), Severity.ERROR)


def test_module_added_to_dkms_but_never_built() -> None:
    snapshot = text_only(SMI_FAILS, said("shown-dkms-status", state="added"), said("shown-kernel", kernel="6.8.0-45-generic"))
    assert roots(judged(snapshot)) == ["kernel-module-missing-for-kernel"]


def test_secure_boot_is_the_root_and_nouveau_its_consequence() -> None:
    snapshot = text_only(
        SMI_FAILS, said("nouveau-loaded", "Falling back to nouveau"), said("secure-boot-on", "SecureBoot enabled")
    )
    results = judged(snapshot)
    assert roots(results) == ["secure-boot-blocking"]
    assert {"nouveau-loaded", "kernel-module-not-loaded"} <= set(names(results, Severity.ERROR))


@pytest.mark.parametrize(
    ("os_id", "tool"), [("ubuntu", "apt-get"), ("fedora", "dnf"), ("arch", "pacman"), ("opensuse-leap", "zypper")]
)
def test_headers_are_installed_by_the_distribution_s_tool(os_id: str, tool: str) -> None:
    snapshot = with_host(with_driver(UNLOADED, module_file=ABSENT), os_id=known(os_id))
    finding = next(f for f in judged(snapshot).findings if f.name == "kernel-module-missing-for-kernel")
    assert tool in finding.fixes[0].commands[0]
    assert finding.fixes[0].needs_root


def test_a_gpu_lent_to_a_virtual_machine_is_a_remark_while_others_work() -> None:
    two = with_driver(healthy(), pci_devices=known((pci("2684"), pci("2684", "vfio-pci", "0000:02:00.0"))))
    results = judged(two)
    assert "gpu-bound-to-vfio" in names(results, Severity.NOTE)
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []


def test_no_linux_module_is_asked_for_under_wsl() -> None:
    snapshot = with_wsl(UNLOADED)
    assert outcome(snapshot, "secure-boot-blocking") is Outcome.NOT_APPLICABLE


def test_windows_has_no_such_module() -> None:
    snapshot = text_only(SMI_FAILS, host=Host(platform=known(Platform.WINDOWS)))
    assert outcome(snapshot, "kernel-module-missing-for-kernel") is Outcome.NOT_APPLICABLE


def test_modules_of_a_container_s_host_are_not_judged() -> None:
    hidden = with_driver(UNLOADED, module_file=Missing(MissingReason.NOT_APPLICABLE, "not visible here"))
    assert "kernel-module-missing-for-kernel" not in names(judged(hidden), Severity.ERROR)


def test_a_module_that_does_not_compile_needs_another_driver_release() -> None:
    error = said("kernel-module-missing-for-kernel", "Error! Bad return status for module build on kernel: 6.8.0-31-generic")
    finding = judged(text_only(error, host=Host(kernel_release=known("6.8.0-31-generic"), os_id=known("ubuntu")))).findings[0]
    assert finding.what == "The nvidia kernel module could not be built for kernel 6.8.0-31-generic."
    assert not any("dkms autoinstall" in command for fix in finding.fixes for command in fix.commands)


def test_a_distribution_that_is_only_named_has_its_tool() -> None:
    error = said("kernel-module-missing-for-kernel", "modprobe: FATAL: Module nvidia not found")
    finding = judged(text_only(error, host=Host(os_name=known("Fedora Linux 40")))).findings[0]
    assert finding.fixes[0].commands[0].startswith("sudo dnf install")
