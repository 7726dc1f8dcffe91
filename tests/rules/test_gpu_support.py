"""Does the loaded driver support the GPU: flavour, branch, end of life."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.fact import Known
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Host, KernelModule, ModuleFlavour, PciDevice, Snapshot
from cudadoctor.model.versions import DriverRelease
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
    FAIL,
    GENERATIONS,
    NO_GPU,
    NOT_APPLICABLE,
    PASS,
    REFUSED,
    TIMED_OUT,
    UNKNOWN,
    Table,
    gpu,
    healthy,
    judged,
    known,
    names,
    outcome,
    rows,
    said,
    text_only,
    with_driver,
    without_driver,
)

UNLOADED = without_driver(healthy())


def pci(device_id: str, driver: str = "nvidia", bus_id: str = "0000:01:00.0") -> PciDevice:
    return PciDevice(bus_id=bus_id, vendor_id="10de", device_id=device_id, kernel_driver=driver)


def undriven(device_id: str, flavour: ModuleFlavour, release: str = "580.65.06") -> Snapshot:
    """A machine whose driver runs and lists no GPU, although this one is on the bus."""
    module = KernelModule(driver_release=DriverRelease.parse(release), flavour=flavour)
    loaded = with_driver(
        UNLOADED,
        driver_release=known(DriverRelease.parse(release), "procfs"),
        kernel_module=known(module, "procfs"),
        loaded_modules=known(("nvidia",)),
        pci_devices=known((pci(device_id),)),
    )
    return structs.replace(loaded, gpus=known((), "NVML"))


TABLE: Table = {
    "open-module-gpu-unsupported": (
        ("Volta with the open module", undriven("1db5", ModuleFlavour.OPEN), FAIL),
        ("Volta with the proprietary module", GENERATIONS["volta"], PASS),
        ("module unreadable", with_driver(healthy(), kernel_module=TIMED_OUT), UNKNOWN),
        ("no module", UNLOADED, NOT_APPLICABLE),
        ("the kernel says so", text_only(said("open-module-gpu-unsupported")), FAIL),
    ),
    "proprietary-module-gpu-unsupported": (
        ("Blackwell with the proprietary module", undriven("2b85", ModuleFlavour.PROPRIETARY), FAIL),
        ("Blackwell with the open module", GENERATIONS["blackwell"], PASS),
        ("module unreadable", with_driver(healthy(), kernel_module=TIMED_OUT), UNKNOWN),
        ("no module", UNLOADED, NOT_APPLICABLE),
        ("the kernel says so", text_only(said("proprietary-module-gpu-unsupported")), FAIL),
    ),
    "gpu-dropped-by-driver": (
        ("Kepler under branch 580", undriven("102d", ModuleFlavour.PROPRIETARY), FAIL),
        ("Pascal under a branch after 580", undriven("1b80", ModuleFlavour.PROPRIETARY, "595.45.04"), FAIL),
        ("Pascal under branch 580", undriven("1b80", ModuleFlavour.PROPRIETARY), PASS),
        ("listed by the driver itself", healthy("Tesla K80", "3.7", "590.10"), PASS),
        ("release unreadable", with_driver(undriven("102d", ModuleFlavour.PROPRIETARY), driver_release=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "driver-older-than-gpu": (
        ("RTX 5090 under branch 550", undriven("2b85", ModuleFlavour.OPEN, "550.144.03"), FAIL),
        ("RTX 5090 under branch 580", undriven("2b85", ModuleFlavour.OPEN), PASS),
        ("all GPUs listed", healthy(), PASS),
        ("bus unreadable", structs.replace(with_driver(UNLOADED, pci_devices=TIMED_OUT), gpus=REFUSED), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "driver-branch-ended": (
        ("an ended branch", healthy(driver="550.144.03", cuda="12.4", torch="2.6.0+cu124"), FAIL),
        ("a branch that lives", healthy(), PASS),
        ("a branch newer than the table", GENERATIONS["unheard-of"], PASS),
        ("the last branch of this GPU", GENERATIONS["kepler"], PASS),
        ("release unreadable", with_driver(healthy(), driver_release=TIMED_OUT), UNKNOWN),
        ("no driver", UNLOADED, NOT_APPLICABLE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_one_gpu_that_the_driver_ignores_is_a_warning_while_others_work() -> None:
    two = with_driver(healthy(), pci_devices=known((pci("2684"), pci("1db5", "", "0000:02:00.0"))))
    results = judged(two)
    assert "open-module-gpu-unsupported" in names(results, Severity.WARNING)
    assert names(results, Severity.ERROR) == []


def test_legacy_branch_that_the_kernel_names_is_installed() -> None:
    snapshot = text_only(said("gpu-legacy-driver-needed", branch="470.xx"), host=Host(os_id=known("ubuntu")))
    finding = judged(snapshot).findings[0]
    assert finding.name == "gpu-dropped-by-driver"
    assert "nvidia-driver-470" in finding.fixes[0].commands[0]


def test_gpu_and_driver_that_are_only_told_are_compared() -> None:
    told = structs.replace(
        gpu("GeForce RTX 5090", "12.0"), name=Known("GeForce RTX 5090", "statement"), compute_capability=ABSENT
    )
    snapshot = text_only(said("smi-no-devices"), gpus=known((told,)))
    old = with_driver(snapshot, driver_release=known(DriverRelease.parse("550.54"), "statement"))
    assert "driver-older-than-gpu" in names(judged(old), Severity.ERROR)
    new = with_driver(snapshot, driver_release=known(DriverRelease.parse("580.65.06"), "statement"))
    assert "driver-older-than-gpu" not in names(judged(new), Severity.ERROR)


def test_silent_blackwell_may_need_the_open_module() -> None:
    told = structs.replace(gpu("GeForce RTX 5090", "12.0"), name=Known("GeForce RTX 5090", "statement"))
    silent = text_only(said("smi-no-devices"), gpus=known((told,)))
    assert "proprietary-module-gpu-unsupported" in names(judged(silent), Severity.WARNING)
    lost = structs.replace(silent, errors=(*silent.errors, said("xid-bus-error")))
    assert "proprietary-module-gpu-unsupported" not in names(judged(lost), Severity.WARNING)


def test_the_gpu_that_the_kernel_names_by_its_pci_id_is_looked_up() -> None:
    finding = judged(text_only(said("open-module-gpu-unsupported", device="1db5"))).findings[0]
    assert "V100" in finding.what
    assert "580" in finding.fixes[0].title
