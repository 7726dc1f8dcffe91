"""Environment variables that change what CUDA does."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Libraries, SearchFolder, Snapshot
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
    names,
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


def searched(*folders: SearchFolder) -> Snapshot:
    return structs.replace(healthy(), libraries=Libraries(ld_library_path=known(folders)))


UNREADABLE = structs.replace(healthy(), environment=TIMED_OUT)
MIXED = structs.replace(
    healthy(), gpus=known((gpu("NVIDIA GeForce GTX 1080", "6.1", 0), gpu("NVIDIA GeForce RTX 4090", "8.9", 1)), "NVML")
)
ORDINAL = said("cuda-invalid-device-ordinal", "CUDA error: invalid device ordinal")
TWO_SHOWN = said("shown-visible-devices", "CUDA_VISIBLE_DEVICES=2,3", value="2,3")
GONE = SearchFolder(path="/usr/local/cuda-11.2/lib64", exists=False)
HERE = SearchFolder(path="/usr/local/cuda/lib64", exists=True)

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
        ("a GPU UUID", visible("GPU-0e6cf7f7"), PASS),
        ("cut on purpose", visible("0,1,-1"), PASS),
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
    "library-path-stale": (
        ("a folder that is gone", searched(GONE, HERE), FAIL),
        ("all there", searched(HERE), PASS),
        ("of NVIDIA's images", searched(SearchFolder(path="/usr/local/nvidia/lib", exists=False)), PASS),
        ("unreadable", structs.replace(healthy(), libraries=Libraries(ld_library_path=TIMED_OUT)), UNKNOWN),
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


def test_renumbering_names_the_count() -> None:
    finding = judged(text_only(ORDINAL, TWO_SHOWN)).findings[0]
    assert finding.name == "visible-devices-renumbering"
    assert "2 GPUs" in finding.what


def test_the_meant_variable_is_named() -> None:
    finding = next(f for f in judged(env(CUDA_VISIBLE_DEVICE="0")).findings if f.name == "variable-misspelt")
    assert "CUDA_VISIBLE_DEVICES" in finding.what


def test_stale_folders_are_taken_out() -> None:
    finding = next(f for f in judged(searched(GONE, HERE)).findings if f.name == "library-path-stale")
    assert finding.fixes[0].commands == ("export LD_LIBRARY_PATH=/usr/local/cuda/lib64",)
