"""Settings in the environment that slow programs down or are not understood."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    healthy,
    judged,
    names,
    outcome,
    rows,
    said,
    text_only,
    with_environment,
)


def env(**variables: str) -> Snapshot:
    return with_environment(healthy(), **variables)


UNREADABLE = structs.replace(healthy(), environment=TIMED_OUT)
TABLE: Table = {
    "ptx-jit-forced": (
        ("on", env(CUDA_FORCE_PTX_JIT="1"), FAIL),
        ("off", env(CUDA_FORCE_PTX_JIT="0"), PASS),
        ("not set", healthy(), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "ptx-jit-disabled": (
        ("on", env(CUDA_DISABLE_PTX_JIT="1"), FAIL),
        ("not set", healthy(), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "launch-blocking-on": (
        ("on", env(CUDA_LAUNCH_BLOCKING="1"), FAIL),
        ("off", env(CUDA_LAUNCH_BLOCKING="0"), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "memory-caching-off": (
        ("on", env(PYTORCH_NO_CUDA_MEMORY_CACHING="1"), FAIL),
        ("not set", healthy(), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "jit-cache-off": (
        ("on", env(CUDA_CACHE_DISABLE="1"), FAIL),
        ("not set", healthy(), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "tf32-overridden": (
        ("off", env(NVIDIA_TF32_OVERRIDE="0"), FAIL),
        ("on", env(NVIDIA_TF32_OVERRIDE="1"), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "module-loading-invalid": (
        ("misspelt", env(CUDA_MODULE_LOADING="lazy"), FAIL),
        ("LAZY", env(CUDA_MODULE_LOADING="LAZY"), PASS),
        ("EAGER", env(CUDA_MODULE_LOADING="EAGER"), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "alloc-conf-malformed": (
        ("equals sign", env(PYTORCH_CUDA_ALLOC_CONF="expandable_segments=True"), FAIL),
        ("lower case", env(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:true"), FAIL),
        ("too small a split", env(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:20"), FAIL),
        ("an option nobody knows", env(PYTORCH_ALLOC_CONF="expandable_segment:True"), FAIL),
        ("well formed", env(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:128,garbage_collection_threshold:0.8"), PASS),
        ("with a list", env(PYTORCH_CUDA_ALLOC_CONF="roundup_power2_divisions:[256:1,512:2,>:4],expandable_segments:True"), PASS),
        ("empty", env(PYTORCH_CUDA_ALLOC_CONF=""), PASS),
        ("torch says so", text_only(said("alloc-conf-malformed", "Unrecognized CachingAllocator option: foo")), FAIL),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
    "nccl-setting-left-on": (
        ("peer access off", env(NCCL_P2P_DISABLE="1"), FAIL),
        ("peer access on", env(NCCL_P2P_DISABLE="0"), PASS),
        ("switch reductions off", env(NCCL_NVLS_ENABLE="0"), FAIL),
        ("loopback only", env(NCCL_SOCKET_IFNAME="lo"), FAIL),
        ("not the loopback", env(NCCL_SOCKET_IFNAME="^lo,docker0"), PASS),
        ("traced", env(NCCL_DEBUG="TRACE"), FAIL),
        ("logged", env(NCCL_DEBUG="INFO"), PASS),
        ("environment unreadable", UNREADABLE, UNKNOWN),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_settings_that_only_cost_speed_are_remarks() -> None:
    results = judged(env(CUDA_LAUNCH_BLOCKING="1", NCCL_P2P_DISABLE="1", CUDA_CACHE_DISABLE="1", NVIDIA_TF32_OVERRIDE="0"))
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []
    assert len([name for name in names(results, Severity.NOTE) if not name.startswith("benign")]) == 4


def test_an_option_that_a_newer_torch_may_know_is_a_remark() -> None:
    results = judged(env(PYTORCH_CUDA_ALLOC_CONF="an_option_of_tomorrow:1"))
    assert "alloc-conf-malformed" in names(results, Severity.NOTE)


def test_a_malformed_allocator_setting_is_quoted() -> None:
    finding = next(
        f for f in judged(env(PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb=128")).findings if f.name == "alloc-conf-malformed"
    )
    assert "'max_split_size_mb=128' is not option:value" in finding.what
    assert finding.severity is Severity.WARNING
