"""Environment variables that decide which GPU and which driver a program gets."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    GENERATIONS,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    broken,
    gpu,
    healthy,
    judged,
    known,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_driver,
    with_environment,
)


def env(**variables: str) -> Snapshot:
    return with_environment(healthy(), **variables)


def visible(value: str, snapshot: Snapshot | None = None) -> Snapshot:
    return with_environment(snapshot or GENERATIONS["ampere"], CUDA_VISIBLE_DEVICES=value)


UNREADABLE = structs.replace(healthy(), environment=TIMED_OUT)
MIXED = structs.replace(
    healthy(), gpus=known((gpu("NVIDIA GeForce GTX 1080", "6.1", 0), gpu("NVIDIA GeForce RTX 4090", "8.9", 1)), "NVML")
)
WITH_UUID = structs.replace(
    healthy(), gpus=known((structs.replace(gpu("A100", "8.0"), uuid=known("GPU-0e6cf7f7-1111-2222-3333-444444444444")),), "NVML")
)
ORDINAL = said("cuda-invalid-device-ordinal", "CUDA error: invalid device ordinal")
TWO_SHOWN = said("shown-visible-devices", "CUDA_VISIBLE_DEVICES=2,3", value="2,3")
TABLE: Table = {
    "visible-devices-hide-all": (
        ("empty", visible(""), FAIL),
        ("-1", visible("-1"), FAIL),
        ("one GPU", visible("0"), PASS),
        ("not set", healthy(), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "visible-devices-invalid": (
        ("beyond the last GPU", visible("0,9"), FAIL),
        ("a word", visible("all"), FAIL),
        ("quotes kept", visible('"0"'), FAIL),
        ("all four", visible("0,1,2,3"), PASS),
        ("a MIG UUID", visible("MIG-0e6cf7f7-0000-4000-8000-000000000000"), PASS),
        ("a GPU UUID where none is known", visible("GPU-0e6cf7f7"), PASS),
        ("the beginning of a GPU's UUID", visible("GPU-0E6CF7F7", WITH_UUID), PASS),
        ("the UUID of another machine's GPU", visible("GPU-0123abcd", WITH_UUID), FAIL),
        ("cut on purpose", visible("0,1,-1"), PASS),
        ("one twice", visible("0,1,0"), FAIL),
        ("one twice behind the cut", visible("0,-1,0"), PASS),
        ("with the command that follows", visible("0,1 python train.py"), PASS),
        ("blanks inside", visible("0, all"), FAIL),
        ("beyond the GPUs that a text happens to show", visible("3", text_only(gpus=known((gpu("A100", "8.0"),)))), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "visible-devices-renumbering": (
        ("set in the environment", with_environment(text_only(ORDINAL), CUDA_VISIBLE_DEVICES="2,3"), FAIL),
        ("set in the text", text_only(ORDINAL, TWO_SHOWN), FAIL),
        ("not set", text_only(ORDINAL), PASS),
        ("MIG", text_only(ORDINAL, TWO_SHOWN, said("shown-mig")), PASS),
        ("no error", visible("2,3"), PASS),
    ),
    "device-ordinal-absent": (
        ("not set", text_only(ORDINAL), FAIL),
        ("set", text_only(ORDINAL, TWO_SHOWN), PASS),
        ("MIG", text_only(ORDINAL, said("mig-single-instance")), PASS),
    ),
    "mig-uuid-app-unsupported": (
        ("int() of a UUID", text_only(said("mig-uuid-app-unsupported", "invalid literal for int()", device="MIG-xxxx")), FAIL),
        ("no error", healthy(), PASS),
    ),
    "device-order-differs": (
        ("two models", MIXED, FAIL),
        ("by PCI address", with_environment(MIXED, CUDA_DEVICE_ORDER="PCI_BUS_ID"), PASS),
        ("misspelt", with_environment(MIXED, CUDA_DEVICE_ORDER="PCI_BUS"), FAIL),
        ("one model", GENERATIONS["ampere"], NOT_APPLICABLE),
        ("GPUs not listed", structs.replace(healthy(), gpus=TIMED_OUT), UNKNOWN),
    ),
    "variable-misspelt": (
        ("a letter short", env(CUDA_VISIBLE_DEVICE="0"), FAIL),
        ("a variable that is read", env(CUDA_VISIBLE_DEVICES="0"), PASS),
        ("a variable of the user's", env(CUDA_MY_PROGRAM_SETTING="0"), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "mps-connection-failed": (
        ("805", broken(healthy(), 805, "CUDA_ERROR_MPS_CONNECTION_FAILED"), FAIL),
        ("all well", healthy(), PASS),
        ("the text says so", text_only(said("mps-connection-failed")), FAIL),
        ("cuInit does not answer", with_driver(healthy(), cu_init=TIMED_OUT), UNKNOWN),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_hidden_gpus_are_the_root_and_unsetting_is_rechecked() -> None:
    snapshot = visible("-1", broken(healthy(), 100, "CUDA_ERROR_NO_DEVICE"))
    results = judged(snapshot)
    assert roots(results) == ["visible-devices-hide-all"]
    finding = next(f for f in results.findings if f.name == "visible-devices-hide-all")
    assert finding.fixes[0].rechecked
    assert finding.fixes[0].commands == ("unset CUDA_VISIBLE_DEVICES",)
    assert "visible-devices-invalid" in finding.tags


def test_renumbering_names_the_count() -> None:
    finding = judged(text_only(ORDINAL, TWO_SHOWN)).findings[0]
    assert finding.name == "visible-devices-renumbering"
    assert "2 GPUs" in finding.what


def test_the_meant_variable_is_named() -> None:
    finding = next(f for f in judged(env(CUDA_VISIBLE_DEVICE="0")).findings if f.name == "variable-misspelt")
    assert "CUDA_VISIBLE_DEVICES" in finding.what
