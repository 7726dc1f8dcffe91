"""GPUs that fail: Xids, lost GPUs, memory errors."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.snapshot import ComputeMode, Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    GENERATIONS,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    healthy,
    judged,
    known,
    outcome,
    roots,
    rows,
    said,
    text_only,
)
from tests.rules.software import diagnosed, error_tags, tags, with_gpu

GIB = 2**30
XID_79 = said("xid-bus-error", "NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.", bus_id="PCI:0000:01:00")
NO_LIST = structs.replace(healthy(), gpus=TIMED_OUT)
QUIET = with_gpu(
    healthy(),
    ecc_uncorrected=known(0),
    compute_mode=known(ComputeMode.DEFAULT),
    throttle_reasons=known(("gpu_idle", "sw_power_cap")),
    pcie_width=known(16),
    pcie_width_max=known(16),
    pcie_generation=known(1),
    pcie_generation_max=known(4),
    memory_total_bytes=known(24 * GIB),
    memory_used_bytes=known(GIB),
)


def xid(number: int) -> Snapshot:
    return text_only(said("xid", f"NVRM: Xid (PCI:0000:3b:00): {number}", xid=str(number), bus_id="PCI:0000:3b:00"))


TABLE: Table = {
    "xid-bus-error": (
        ("Xid 79", text_only(XID_79), FAIL),
        ("lost, as nvidia-smi says", text_only(said("device-handle-unknown-error", "GPU is lost. Reboot the system")), FAIL),
        ("lost, as NVML says", with_gpu(healthy(), error="GPU is lost"), FAIL),
        ("unknown handle", text_only(said("device-handle-unknown-error", "Unable to determine the device handle")), FAIL),
        ("unknown handle in a container", text_only(said("device-handle-unknown-error"), said("shown-container")), PASS),
        ("another Xid", xid(31), PASS),
        ("healthy", healthy(), PASS),
    ),
    "gpu-xid": (
        ("hardware", xid(54), FAIL),
        ("application", xid(31), PASS),
        ("memory has a finding of its own", xid(48), PASS),
        ("the system processor has one, too", xid(119), PASS),
        ("unheard-of", xid(9999), PASS),
        ("healthy", healthy(), PASS),
    ),
    "app-xid": (("application", xid(31), FAIL), ("hardware", xid(54), PASS), ("healthy", healthy(), PASS)),
    "ecc-uncorrected": (
        ("counted", with_gpu(QUIET, ecc_uncorrected=known(2)), FAIL),
        ("Xid 48", xid(48), FAIL),
        ("error 214", text_only(said("gpu-ecc-error")), FAIL),
        ("none", QUIET, PASS),
        ("not read", with_gpu(QUIET, ecc_uncorrected=TIMED_OUT), UNKNOWN),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
    "gpu-not-answering": (
        ("an error in place of values", with_gpu(GENERATIONS["hopper"], error="Unknown Error"), FAIL),
        ("healthy", healthy(), PASS),
        ("GPUs not listed", NO_LIST, UNKNOWN),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_bus_error_is_the_root() -> None:
    results = judged(text_only(XID_79, said("smi-no-devices", "No devices were found")))
    assert roots(results) == ["xid-bus-error"]


TICKETS = {
    "lost": (
        "$ nvidia-smi\nUnable to determine the device handle for GPU 0000:0B:00.0: GPU is lost.  "
        "Reboot the system to recover this GPU",
        {"xid-bus-error"},
        {"driver-too-old"},
    ),
    "memory": (
        "NVRM: Xid (PCI:0000:17:00): 48, pid='<unknown>', name=<unknown>, An uncorrectable double bit error (DBE)\n"
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        {"ecc-uncorrected"},
        {"xid-bus-error", "driver-too-old"},
    ),
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected, never = TICKETS[name]
    report = diagnosed(text)
    assert expected <= tags(report)
    assert not never & error_tags(report)
