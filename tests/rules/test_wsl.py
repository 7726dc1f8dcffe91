"""WSL: its own libcuda, foreign drivers, the Windows build."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity, Where
from cudadoctor.model.snapshot import LibraryCopy, LibraryOrigin, Snapshot, Wsl
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    ABSENT,
    FAIL,
    NOT_APPLICABLE,
    PASS,
    TIMED_OUT,
    UNKNOWN,
    Table,
    broken,
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
)

WSL = said("shown-wsl", "Linux version 5.15.90.1-microsoft-standard-WSL2")
LOST = said("libcuda-load-failed", "libcuda.so.1: cannot open shared object file: No such file or directory")
ERROR_100 = said("cuda-error-100", "Call to cuInit results in CUDA_ERROR_NO_DEVICE (100)")
BARE = with_driver(
    healthy(), kernel_module=ABSENT, pci_devices=known(()), device_nodes=known(()), libcuda_copies=known(()), module_file=ABSENT
)
WORKS = with_wsl(BARE)
UNFOUND = with_wsl(with_driver(BARE, cu_init=ABSENT, visible_device_count=ABSENT))
FAILS = with_wsl(broken(BARE, 100, "CUDA_ERROR_NO_DEVICE"))
SILENT = with_wsl(with_driver(BARE, cu_init=TIMED_OUT, visible_device_count=TIMED_OUT))
PACKAGES = known(("nvidia-driver-535", "libnvidia-compute-535"))


def wsl(snapshot: Snapshot, **facts: object) -> Snapshot:
    return structs.replace(snapshot, wsl=structs.replace(snapshot.wsl, **facts))


def build(text: str) -> DottedVersion:
    return DottedVersion.parse(text)


def linux_library(text: str) -> Snapshot:
    return text_only(WSL, ERROR_100, said("shown-linux-libcuda", text, path="/usr/lib/x86_64-linux-gnu/libcuda.so.1"))


def installed(packages: str) -> Snapshot:
    return text_only(WSL, ERROR_100, said("shown-package-install", packages=packages))


def unlinked(library: str) -> Snapshot:
    return text_only(WSL, said("toolkit-libs-missing-at-link", f"cannot find {library}", library=library))


LINUX_DRIVER = Wsl(linux_driver_packages=known(("nvidia-utils-510",)))
TABLE: Table = {
    "wsl-libcuda-path": (
        ("in its folder but not found", UNFOUND, FAIL),
        ("not even in its folder", wsl(UNFOUND, library_folder=known(())), PASS),
        ("all well", WORKS, PASS),
        ("plain Linux", healthy(), NOT_APPLICABLE),
        ("a text from WSL", text_only(WSL, LOST), FAIL),
        ("a text from Linux", text_only(LOST), UNKNOWN),
        ("the linker misses -lcuda", unlinked("-lcuda"), FAIL),
        ("the linker misses -lcudart", unlinked("-lcudart"), PASS),
        ("a function not found", text_only(WSL, said("libcuda-symbol-missing", 'Function "cuDeviceGetCount" not found')), FAIL),
    ),
    "wsl-linux-driver-installed": (
        ("packages, and CUDA fails", wsl(FAILS, linux_driver_packages=PACKAGES), FAIL),
        ("no packages", FAILS, PASS),
        ("packages unreadable", wsl(FAILS, linux_driver_packages=TIMED_OUT), UNKNOWN),
        ("plain Linux", healthy(), NOT_APPLICABLE),
        ("a library of Linux in the text", linux_library("/usr/lib/x86_64-linux-gnu/libcuda.so.1"), FAIL),
        ("its absence in the text", linux_library("ls: cannot access '/usr/lib/x86_64-linux-gnu/libcuda.so.1'"), PASS),
        ("a driver installed in the text", installed("nvidia-driver-535"), FAIL),
        ("the meta package of toolkit and driver", installed("cuda-12-4"), FAIL),
        ("only the toolkit installed", installed("cuda-toolkit-12-4"), PASS),
    ),
    "wsl-windows-build-unsupported": (
        ("before 21H2", wsl(FAILS, windows_build=known(build("10.0.19043.1586"))), FAIL),
        ("a preview before Windows 11", wsl(FAILS, windows_build=known(build("10.0.21343.1000"))), FAIL),
        ("Windows 10 22H2", wsl(FAILS, windows_build=known(build("10.0.19045.3693"))), PASS),
        ("Windows 11", wsl(FAILS, windows_build=known(build("10.0.22631.2861"))), PASS),
        (
            "blocked, with a Linux driver inside",
            text_only(said("gpu-access-blocked-by-os"), said("shown-wsl"), wsl=LINUX_DRIVER),
            NOT_APPLICABLE,
        ),
        ("a build that is only numbered", wsl(FAILS, windows_build=known(build("19043"))), FAIL),
        ("all well on an old build", wsl(WORKS, windows_build=known(build("10.0.19043.1586"))), PASS),
        ("cuInit does not answer", SILENT, UNKNOWN),
        ("plain Linux", healthy(), NOT_APPLICABLE),
        ("blocked by the operating system", text_only(WSL, said("gpu-access-blocked-by-os")), FAIL),
        ("build in the text", text_only(WSL, ERROR_100, said("shown-windows-build", build="10.0.19042.928")), FAIL),
    ),
    "wsl-generation-one": (
        ("generation 1", wsl(FAILS, wsl_version=known(1)), FAIL),
        ("generation 2", FAILS, PASS),
        ("not told", wsl(FAILS, wsl_version=TIMED_OUT), UNKNOWN),
        ("plain Linux", healthy(), NOT_APPLICABLE),
    ),
    "wsl-adapter-failed": (
        ("no adapter found", text_only(said("wsl-adapter-failed", "WSL environment detected but no adapters were found")), FAIL),
        ("all well", WORKS, PASS),
    ),
    "benign-wsl-ldconfig": (
        ("the remark", text_only(said("benign-wsl-ldconfig")), FAIL),
        ("nothing", WORKS, PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_wsl_where_all_works_has_no_error_and_no_warning() -> None:
    results = judged(WORKS)
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []


def test_a_linux_driver_is_only_a_remark_while_cuda_works() -> None:
    results = judged(wsl(WORKS, linux_driver_packages=PACKAGES))
    assert "wsl-linux-driver-installed" in names(results, Severity.NOTE)
    assert names(results, Severity.ERROR) + names(results, Severity.WARNING) == []


def test_a_linux_driver_is_the_root_of_no_device() -> None:
    results = judged(wsl(FAILS, linux_driver_packages=PACKAGES))
    assert roots(results) == ["wsl-linux-driver-installed"]


def test_a_linux_libcuda_that_the_loader_picks_is_named() -> None:
    copy = LibraryCopy(
        soname="libcuda.so.1",
        path="/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        real_path="/usr/lib/x86_64-linux-gnu/libcuda.so.535.183.01",
        origin=LibraryOrigin.DRIVER,
        wins=True,
    )
    results = judged(with_driver(FAILS, libcuda_copies=known((copy,))))
    finding = next(f for f in results.findings if f.name == "wsl-linux-driver-installed")
    assert any("/usr/lib/x86_64-linux-gnu" in proof.value for proof in finding.evidence)
    assert finding.fixes[0].where is Where.WSL


def test_old_windows_is_the_root_of_error_35() -> None:
    snapshot = text_only(WSL, said("cuda-error-35"), said("shown-windows-build", build="10.0.19043.1586"))
    assert roots(judged(snapshot)) == ["wsl-windows-build-unsupported"]


def test_libcuda_s_folder_is_the_root_of_a_missing_libcuda() -> None:
    results = judged(text_only(WSL, LOST, said("shown-wsl-libcuda")))
    assert roots(results) == ["wsl-libcuda-path"]
    finding = next(f for f in results.findings if f.name == "wsl-libcuda-path")
    assert "/usr/lib/wsl/lib" in finding.fixes[0].commands[0]


def test_lines_of_dxgkrnl_alone_are_a_remark() -> None:
    dxgk = said("wsl-adapter-failed", "misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22")
    results = judged(text_only(dxgk))
    assert "wsl-adapter-failed" in names(results, Severity.NOTE)
    assert names(results, Severity.ERROR) == []


def test_the_driver_is_never_updated_inside_wsl() -> None:
    snapshot = with_host(wsl(FAILS, linux_driver_packages=PACKAGES), os_id=known("ubuntu"))
    commands = [command for f in judged(snapshot).findings for fix in f.fixes for command in fix.commands]
    assert not any("nvidia-driver" in command and "install" in command for command in commands)
