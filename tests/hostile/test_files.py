"""Files of the system, each hostile in every way, on a machine below a folder: the rest of the snapshot stays what it was."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cudadoctor.diagnosis import diagnose
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import from_json, to_json
from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.probes import ProbeOptions, collect
from cudadoctor.probes.container import read_container
from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import RealSystem
from tests.fakes.fakebin import fake_program
from tests.fakes.roots import LINUX, fill, linux
from tests.hostile.doctor import Run
from tests.hostile.hostilities import FILE, FOLDER, PROGRAM, Hostility
from tests.hostile.judge import Expected, facts, faults_of_facts

GPU = "/sys/bus/pci/devices/0000:01:00.0"
FILES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "/etc/os-release": ('PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nVERSION_ID="24.04"\n', ("host.os",)),
    "/proc/driver/nvidia/version": (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n",
        ("driver.kernel_module", "driver.driver_release"),
    ),
    "/proc/driver/nvidia/params": ("RmProfilingAdminOnly: 1\n", ("driver.profiling_restricted",)),
    "/proc/modules": ("nvidia 56000000 2 - Live 0x0000000000000000 (PO)\n", ("driver.loaded_modules",)),
    "/proc/1/cgroup": ("0::/init.scope\n", ("container",)),
    "/proc/1/environ": ("HOME=/\0", ("container",)),
    f"{GPU}/class": ("0x030000\n", ("driver.pci_devices",)),
    f"{GPU}/vendor": ("0x10de\n", ("driver.pci_devices",)),
    f"{GPU}/device": ("0x2684\n", ("driver.pci_devices",)),
    "/lib/modules/6.8.0-45-generic/modules.dep": ("updates/dkms/nvidia.ko.zst:\n", ("driver.module_file",)),
    "/etc/ld.so.conf.d/cuda.conf": ("/opt/cuda-libraries\n", ("libraries",)),
    "/etc/ld.so.cache": ("glibc-ld.so.cache1.1", ("libraries", "driver.libcuda")),
    "/opt/cuda-libraries/libcudart.so.12": ("\x7fELF", ("libraries",)),
    "/usr/include/cudnn_version.h": (
        "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n",
        ("libraries.cudnn_headers",),
    ),
    "/usr/local/cuda-12.4/version.json": ('{"cuda": {"version": "12.4.1"}}', ("toolkits",)),
    "/usr/local/cuda-12.4/include/cuda_runtime.h": ("", ("toolkits",)),
    "/usr/local/cuda-12.4/include/cuda.h": ("#define CUDA_VERSION 12040\n", ("toolkits",)),
    "/var/lib/dpkg/info/cuda-nvcc-12-4.list": ("/usr/local/cuda-12.4/bin/nvcc\n", ("toolkits",)),
    "/etc/nv_tegra_release": ("", ("host.jetson",)),
    "/proc/device-tree/model": ("", ("host.jetson",)),
    "/usr/lib/x86_64-linux-gnu/libcuda.so.535.104.05": ("\x7fELF", ("driver.libcuda", "libraries")),
}
"""Each file, what is in it, and the facts that rest on it."""
FOLDERS = (
    "/etc",
    "/proc",
    "/sys",
    "/dev",
    "/usr/local",
    "/usr/lib/x86_64-linux-gnu",
    "/etc/ld.so.conf.d",
    "/sys/bus/pci/devices",
)
OF_FOLDERS = ("host", "driver", "container", "toolkits", "libraries", "wsl", "errors")
TRULY_OTHER = (
    "toolkits",
    "container.kind",
    "host.os_name",
    "host.os_id",
    "host.os_version",
    "host.jetson",
    "libraries",
    "driver.libcuda",
    r"driver\.pci_devices.*device_id",
)
"""Facts for which another answer is the right one where a file says other things or is gone."""
OPTIONS = ProbeOptions(python="/nowhere/python", timeout_s=20)


def machine(folder: Path) -> Path:
    """The root of a machine with all the files."""
    root = fill(folder, {path: content for path, (content, _) in FILES.items()})
    (root / "dev").mkdir()
    return root


def snapshot_of(system: RootedSystem, options: ProbeOptions = OPTIONS) -> Snapshot:
    """What the probes make of it, sent through a judged report and back."""
    snapshot = collect(system, options, torch_timeout_s=1)
    report = diagnose(snapshot, (), Matrices.load()).report
    return from_json(to_json(report), Report).snapshot


def as_run(snapshot: Snapshot) -> Run:
    """The snapshot as the judge takes it."""
    run = Run(0, 0, 0, b'{"snapshot": ' + to_json(snapshot) + b"}", "", [], [])
    assert run.report is not None
    return run


def rooted(root: Path) -> RootedSystem:
    return RootedSystem(root, {"PATH": "/usr/bin"}, uname=LINUX, runner=RealSystem({}))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The machine as it is."""
    return as_run(snapshot_of(rooted(machine(tmp_path_factory.mktemp("files") / "root"))))


def test_a_gpu_whose_identity_cannot_be_read_is_not_called_absent(tmp_path: Path) -> None:
    system = Refusing(machine(tmp_path / "root"), {"PATH": "/usr/bin"}, uname=LINUX, runner=RealSystem({}))
    system.refused, system.error = f"{GPU}/vendor", errno.EACCES
    devices = snapshot_of(system).driver.pci_devices
    assert isinstance(devices, Missing)
    assert devices.reason is MissingReason.PERMISSION_DENIED


def test_what_is_no_number_does_not_come_into_the_report(tmp_path: Path) -> None:
    root = machine(tmp_path / "root")
    (root / f"{GPU}/device".lstrip("/")).write_text("x" * 100_000)
    devices = known(snapshot_of(rooted(root)).driver.pci_devices)
    assert [device.device_id for device in devices] == [""]


def check(snapshot: Snapshot, plain: Run, may_change: tuple[str, ...]) -> None:
    expected = Expected((*may_change, "errors"), other_values=TRULY_OTHER)
    crashed = [run for run in snapshot.probe_runs if run.outcome == "crashed" and run.detail]
    assert crashed == []
    assert list(faults_of_facts(as_run(snapshot), plain, expected, ("\0", "\0"))) == []


def test_the_plain_machine_is_read(plain: Run) -> None:
    read = dict(facts(plain, "\0"))
    assert read["driver.driver_release"] == "535.104.05"
    assert read["toolkits[/usr/local/cuda-12.4].toolkit_version"] == "12.4.1"
    assert read["host.os_id"] == "ubuntu"


@pytest.mark.parametrize("hostility", [name for name in FILE if name != "unreadable"])
@pytest.mark.parametrize("path", FILES)
def test_a_hostile_file(path: str, hostility: str, tmp_path: Path, plain: Run) -> None:
    root = machine(tmp_path / "root")
    FILE[hostility](root / path.lstrip("/"))
    check(snapshot_of(rooted(root)), plain, FILES[path][1])


@pytest.mark.parametrize("hostility", [name for name in FOLDER if name not in {"unreadable", "unsearchable", "folder"}])
@pytest.mark.parametrize("path", FOLDERS)
def test_a_hostile_folder(path: str, hostility: str, tmp_path: Path, plain: Run) -> None:
    root = machine(tmp_path / "root")
    make: Hostility = FOLDER[hostility]
    make(root / path.lstrip("/"))
    check(snapshot_of(rooted(root)), plain, OF_FOLDERS)


@pytest.mark.parametrize("hostility", [name for name in PROGRAM if name not in {"unreadable", "not executable"}])
def test_a_hostile_tool_of_containers_on_a_host(hostility: str, tmp_path: Path) -> None:
    """What benchmarks/hostile_machines.py cannot ask where it runs in a container itself."""
    tool = fake_program(tmp_path / "usr/bin/nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\n")
    fake_program(tmp_path / "usr/bin/docker", "Docker version 27.3.1\n")
    system = linux(tmp_path, environ={"PATH": "/usr/bin"})
    plain = read_container(system)
    PROGRAM[hostility](tool)
    container = read_container(system)
    assert known(plain.nvidia_toolkit) == "1.17.4"
    assert isinstance(container.nvidia_toolkit, Missing) or hostility in {"localised", "absurd numbers"}
    assert (container.kind, container.docker_snap) == (plain.kind, plain.docker_snap)


class Refusing(RootedSystem):
    """A machine whose kernel refuses one file or folder with an error."""

    refused = ""
    error = 0

    def _guard(self, path: str) -> None:
        if path.startswith(self.refused):
            raise OSError(self.error, os.strerror(self.error), path)

    def read_text(self, path: str) -> str:
        self._guard(path)
        return super().read_text(path)

    def list_folder(self, path: str) -> tuple[str, ...]:
        self._guard(path)
        return super().list_folder(path)


@pytest.mark.parametrize("number", [5, 13, 116], ids=os.strerror)
@pytest.mark.parametrize("path", [*FILES, "/proc", "/sys", "/dev", "/etc"])
def test_a_file_that_the_kernel_refuses(path: str, number: int, tmp_path: Path, plain: Run) -> None:
    system = Refusing(machine(tmp_path / "root"), {"PATH": "/usr/bin"}, uname=LINUX, runner=RealSystem({}))
    system.refused, system.error = path, number
    check(snapshot_of(system), plain, FILES[path][1] if path in FILES else OF_FOLDERS)


class Stuck(RootedSystem):
    """A machine on which the reading of one file never returns: a dead network file system, a wedged driver's procfs."""

    stuck = ""
    release = threading.Event()

    def read_text(self, path: str) -> str:
        if path.startswith(self.stuck):
            self.release.wait(60)
        return super().read_text(path)


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Set at the end, so that no thread of a test stays behind."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("path", ["/proc/driver/nvidia", "/etc/os-release", "/usr/include/cudnn_version.h", "/proc/1/cgroup"])
def test_a_file_whose_reading_never_returns(path: str, tmp_path: Path, plain: Run, release: threading.Event) -> None:
    system = Stuck(machine(tmp_path / "root"), {"PATH": "/usr/bin"}, uname=LINUX, runner=RealSystem({}))
    system.stuck, system.release = path, release
    started = time.monotonic()
    snapshot = snapshot_of(system, ProbeOptions(python="/nowhere/python", timeout_s=1))
    assert time.monotonic() - started < 30  # the limit is the test's, far below the sixty seconds of the reading
    check(snapshot, plain, OF_FOLDERS)
    assert [run.outcome for run in snapshot.probe_runs].count("timeout") >= 1
