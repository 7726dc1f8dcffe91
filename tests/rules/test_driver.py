"""The driver: presence, age, versions that do not fit, libraries that are not found, calls that hang; what one cuInit answers."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.fact import Known, Missing, MissingReason, OtherSource
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import ApiStatus, Driver, Host, LibraryOrigin, Platform, Snapshot
from cudadoctor.model.versions import CudaVersion, DriverRelease
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
    broken,
    healthy,
    judged,
    known,
    libcuda,
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
    with_driver,
    with_environment,
    with_host,
    with_wsl,
    without_driver,
)


def driver_of(release: str, cuda: str) -> Driver:
    return Driver(driver_release=known(DriverRelease.parse(release)), driver_cuda_version=known(CudaVersion.parse(cuda)))


OLD = broken(healthy(driver="525.60.13", cuda="12.0", torch="2.9.1+cu130"), 35)
MISMATCH = structs.replace(
    with_driver(
        broken(healthy(), 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        nvml=known(ApiStatus(code=18, name="NVML_ERROR_LIB_RM_VERSION_MISMATCH", message="Driver/library version mismatch")),
        nvidia_smi=known(ApiStatus(code=18, message="Failed to initialize NVML: Driver/library version mismatch")),
    ),
    gpus=REFUSED,
)
UNREADABLE = with_driver(OLD, driver_release=TIMED_OUT, driver_cuda_version=TIMED_OUT, cu_init=TIMED_OUT)
UNLOADED = without_driver(healthy())
SILENT = with_driver(healthy(), cu_init=TIMED_OUT, visible_device_count=TIMED_OUT)
NO_LIBRARY = with_driver(healthy(), cu_init=ABSENT, visible_device_count=ABSENT, libcuda_copies=known(()))
DAMAGED = "/opt/driver/libcuda.so.1: file too short"
DAMAGED_LIBRARY = with_environment(
    with_driver(healthy(), cu_init=Missing(MissingReason.NOT_FOUND, DAMAGED, "libcuda")),
    LD_LIBRARY_PATH="/opt/driver/:/opt/mine",
)
STUB = with_driver(
    broken(healthy(), 34, "CUDA_ERROR_STUB_LIBRARY"),
    libcuda_copies=known((libcuda("/usr/local/cuda/lib64/stubs/libcuda.so", LibraryOrigin.STUB),)),
)
ERROR_35 = said("cuda-error-35", "CUDA driver version is insufficient for CUDA runtime version")
TOLD_OLD = said("torch-driver-too-old", "The NVIDIA driver on your system is too old (found version 11040)", driver_cuda="11040")
SMI_FAILS = said("smi-cannot-communicate")
OTHER_RELEASE = Known(DriverRelease.parse("580.65.06"), "procfs", None, (OtherSource("nvidia-smi", "570.124.06"),))

TABLE: Table = {
    "no-nvidia-gpu": (
        ("none on the bus", NO_GPU, FAIL),
        ("one that works", healthy(), PASS),
        ("bus and tools silent", with_driver(NO_GPU, pci_devices=TIMED_OUT, nvml=TIMED_OUT, nvidia_smi=TIMED_OUT), UNKNOWN),
        ("macOS", with_host(NO_GPU, platform=known(Platform.MACOS)), NOT_APPLICABLE),
    ),
    "driver-too-old": (
        ("below the floor of the major", OLD, FAIL),
        ("minor-version compatibility", GENERATIONS["volta"], PASS),
        ("release unreadable", UNREADABLE, UNKNOWN),
        ("no torch", structs.replace(healthy(), python=structs.replace(healthy().python, torch=ABSENT)), NOT_APPLICABLE),
        ("torch says so", text_only(TOLD_OLD), FAIL),
        ("error 35", text_only(ERROR_35), FAIL),
        ("error 35 under WSL", text_only(ERROR_35, said("shown-wsl")), UNKNOWN),
        ("error 35 without libcuda", text_only(ERROR_35, said("libcuda-load-failed")), UNKNOWN),
        ("an image asks for more", text_only(said("container-compat-note", wanted="470.57", have="460.32")), FAIL),
    ),
    "nvml-version-mismatch": (
        ("NVML says so", MISMATCH, FAIL),
        ("all well", healthy(), PASS),
        ("NVML and nvidia-smi silent", with_driver(healthy(), nvml=TIMED_OUT, nvidia_smi=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("nvidia-smi says so", text_only(said("nvml-version-mismatch")), FAIL),
    ),
    "kernel-module-not-loaded": (
        ("not in the list", UNLOADED, FAIL),
        ("all well", healthy(), PASS),
        ("list unreadable", with_driver(UNLOADED, loaded_modules=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("under WSL", text_only(SMI_FAILS, said("shown-wsl")), NOT_APPLICABLE),
        ("nvidia-smi says so", text_only(SMI_FAILS), FAIL),
        ("NVML says so", text_only(said("nvml-init-failed", "nvml error: driver not loaded")), FAIL),
        ("NVML says something else", text_only(said("nvml-init-failed", "Failed to initialize NVML: GPU is lost")), UNKNOWN),
    ),
    "libcuda-missing": (
        ("not found", NO_LIBRARY, FAIL),
        ("cut short", DAMAGED_LIBRARY, FAIL),
        ("all well", healthy(), PASS),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("nothing answers", with_driver(NO_LIBRARY, cu_init=TIMED_OUT, libcuda_copies=TIMED_OUT), UNKNOWN),
        ("a program says so", text_only(said("libcuda-load-failed", "libcuda.so.1: cannot open shared object file")), FAIL),
    ),
    "stub-libcuda": (
        ("the stub is loaded", STUB, FAIL),
        ("all well", healthy(), PASS),
        ("nothing answers", with_driver(healthy(), cu_init=TIMED_OUT, libcuda_copies=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("a program says so", text_only(said("stub-libcuda", "CUDA driver is a stub library")), FAIL),
    ),
    "system-driver-mismatch": (
        ("803", broken(healthy(), 803), FAIL),
        ("all well", healthy(), PASS),
        ("cuInit silent", SILENT, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("a program says so", text_only(said("cuda-error-803")), FAIL),
    ),
    "forward-compat-unsupported": (
        ("804", broken(healthy(), 804), FAIL),
        ("all well", healthy(), PASS),
        ("cuInit silent", SILENT, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("a program says so", text_only(said("forward-compat-unsupported")), FAIL),
    ),
    "no-device-visible": (
        ("100", broken(healthy(), 100), FAIL),
        ("none counted", with_driver(healthy(), visible_device_count=known(0)), FAIL),
        ("a build without a GPU", text_only(said("cuda-error-100"), said("arch-list-empty-no-gpu")), NOT_APPLICABLE),
        ("all well", healthy(), PASS),
        ("cuInit silent", SILENT, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
        ("a program says so", text_only(said("cuda-error-100")), FAIL),
    ),
    "nvidia-smi-hangs": (
        ("no answer", with_driver(healthy(), nvidia_smi=TIMED_OUT), FAIL),
        ("all well", healthy(), PASS),
        ("not asked", text_only(), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "driver-call-hangs": (
        ("cuInit silent", SILENT, FAIL),
        ("NVML crashes", with_driver(healthy(), nvml=Missing(MissingReason.CRASHED, "died of SIGSEGV", "NVML")), FAIL),
        ("all well", healthy(), PASS),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "driver-sources-disagree": (
        ("procfs and nvidia-smi", with_driver(healthy(), driver_release=OTHER_RELEASE), FAIL),
        ("all agree", healthy(), PASS),
        ("release unreadable", with_driver(healthy(), driver_release=TIMED_OUT), UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
    "cuda-init-fails": (
        ("an error of its own", broken(healthy(), 304, "CUDA_ERROR_OPERATING_SYSTEM"), FAIL),
        ("all well", healthy(), PASS),
        ("cuInit silent", SILENT, UNKNOWN),
        ("no GPU", NO_GPU, NOT_APPLICABLE),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


OLD_COMPAT = broken(healthy(driver="580.159.04", cuda="12.8", torch="2.9.1+cu130"), 803)
COMPAT = known((libcuda("/usr/local/cuda/compat/libcuda.so.1", LibraryOrigin.COMPAT),))


@pytest.mark.parametrize(
    ("snapshot", "root"),
    [
        (OLD, "driver-too-old"),
        (STUB, "stub-libcuda"),
        (MISMATCH, "nvml-version-mismatch"),
        (broken(healthy(), 803), "system-driver-mismatch"),
        (with_driver(broken(healthy(), 803), libcuda_copies=COMPAT), "cuda-compat-in-image"),
        (with_driver(OLD_COMPAT, libcuda_copies=COMPAT), "cuda-compat-in-image"),
        (broken(healthy(), 804), "forward-compat-unsupported"),
        (broken(GENERATIONS["hopper"], 802), "fabric-manager-not-running"),
        (broken(healthy(), 805), "mps-connection-failed"),
        (broken(healthy(), 304), "cuda-init-fails"),
        (UNLOADED, "kernel-module-not-loaded"),
    ],
    ids=[
        "35",
        "34",
        "803 after an upgrade",
        "803",
        "803 with compat",
        "an older compat hides what the driver can do",
        "804",
        "802",
        "805",
        "304",
        "no module",
    ],
)
def test_one_root_for_what_cu_init_answers(snapshot: Snapshot, root: str) -> None:
    assert roots(judged(snapshot)) == [root]


def test_old_driver_names_release_reach_and_floor() -> None:
    finding = next(f for f in judged(OLD).findings if f.name == "driver-too-old")
    assert "525.60.13" in finding.what
    assert "12.0" in finding.what
    assert "580" in finding.why


def test_application_without_torch_is_judged_by_its_own_words() -> None:
    snapshot = structs.replace(
        text_only(ERROR_35), driver=driver_of("566.36", "12.7"), host=Host(platform=known(Platform.WINDOWS))
    )
    finding = judged(snapshot).findings[0]
    assert finding.name == "driver-too-old"
    assert "566.36" in finding.what


def test_mismatch_wants_no_installation() -> None:
    finding = next(f for f in judged(MISMATCH).findings if f.name == "nvml-version-mismatch")
    commands = " ".join(command for fix in finding.fixes for command in fix.commands)
    assert "install" not in commands
    assert "reboot" in commands


def test_taking_the_stub_out_of_the_path_names_the_folder() -> None:
    snapshot = structs.replace(STUB, environment=known({"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs:/opt/lib"}))
    finding = next(f for f in judged(snapshot).findings if f.name == "stub-libcuda")
    assert finding.fixes[0].commands == ("export LD_LIBRARY_PATH=/opt/lib",)


def test_a_damaged_libcuda_is_named_and_taken_out_of_the_path() -> None:
    finding = next(found for found in judged(DAMAGED_LIBRARY).findings if found.name == "libcuda-missing")
    assert "/opt/driver/libcuda.so.1: file too short" in finding.what
    assert finding.fixes[0].commands == ("export LD_LIBRARY_PATH=/opt/mine",)


def test_driver_of_windows_is_updated_there() -> None:
    library = known((libcuda("/usr/lib/wsl/lib/libcuda.so.1", LibraryOrigin.WSL),))
    old = with_wsl(with_driver(healthy(driver="566.36", cuda="12.7", torch="2.9.1+cu130"), libcuda_copies=library))
    snapshot = with_driver(old, cu_init=known(ApiStatus(code=35)), visible_device_count=REFUSED, kernel_module=ABSENT)
    finding = next(f for f in judged(snapshot).findings if f.name == "driver-too-old")
    assert any(fix.where.value == "windows" for fix in finding.fixes)


def test_hanging_tool_is_a_warning_and_no_error() -> None:
    results = judged(with_driver(healthy(), nvidia_smi=TIMED_OUT))
    assert names(results, Severity.WARNING) == ["nvidia-smi-hangs"]
    assert names(results, Severity.ERROR) == []
