"""The NVIDIA container runtime and what it may do on the host."""

from __future__ import annotations

import pytest

from cudadoctor.model.snapshot import ApiStatus, Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    IN_CONTAINER,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    broken,
    healthy,
    inside,
    judged,
    known,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_container,
    with_driver,
)

NVML_UNKNOWN = said("nvml-unknown-error", "Failed to initialize NVML: Unknown Error")
UNKNOWN_NVML = inside(with_driver(broken(healthy(), 999), nvml=known(ApiStatus(code=999, message="Unknown Error"), "NVML")))
TABLE: Table = {
    "cdi-spec-missing": (
        ("Docker without CDI", text_only(said("container-no-gpu-driver", driver="cdi")), FAIL),
        ("Docker without a runtime", text_only(said("container-no-gpu-driver", driver="nvidia")), PASS),
        ("the engine says so", text_only(said("cdi-spec-missing", "unresolvable CDI devices nvidia.com/gpu=all")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "nvml-unknown-cgroup": (
        ("NVML fails inside", UNKNOWN_NVML, FAIL),
        ("NVML fails outside", with_container(UNKNOWN_NVML, kind=IN_CONTAINER), NOT_APPLICABLE),
        ("all well inside", inside(healthy()), PASS),
        ("NVML does not answer", inside(with_driver(broken(healthy(), 999), nvml=TIMED_OUT)), UNKNOWN),
        ("in the text of a container", text_only(NVML_UNKNOWN, said("shown-docker-run", arguments="--gpus all")), FAIL),
        ("in a text of unknown place", text_only(NVML_UNKNOWN), UNKNOWN),
    ),
    "container-hook-failed": (
        ("the hook says so", text_only(said("container-cli-failed", reason="ldcache error")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "container-cgroup-v2-unsupported": (
        ("the hook says so", text_only(said("container-cgroup-v2-unsupported")), FAIL),
        ("all well", healthy(), PASS),
    ),
    "container-rootless-cgroups": (
        ("the hook says so", text_only(said("container-rootless-cgroups")), FAIL),
        ("all well", healthy(), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_no_cgroups_is_named_and_set_back() -> None:
    snapshot = text_only(NVML_UNKNOWN, said("shown-docker-run", arguments="--gpus all"), said("shown-no-cgroups"))
    finding = judged(snapshot).findings[0]
    assert finding.name == "nvml-unknown-cgroup"
    assert "no-cgroups=false" in finding.fixes[0].commands[0]
    assert len(finding.fixes) == 1


def test_hook_failure_is_explained_by_a_version_mismatch() -> None:
    results = judged(text_only(said("container-cli-failed", reason="nvml error"), said("nvml-version-mismatch")))
    assert roots(results) == ["nvml-version-mismatch"]
