"""Files of the system, each hostile in some way, on a machine below a folder: the rest of the snapshot stays what it was.

Some of these cells; benchmarks/hostile_machines.py runs all of them.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.probes import ProbeOptions
from cudadoctor.probes.container import read_container
from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import RealSystem
from tests.fakes.fakebin import fake_program
from tests.fakes.roots import LINUX, linux
from tests.hostile.doctor import Run
from tests.hostile.hostilities import PROGRAM
from tests.hostile.judge import facts
from tests.hostile.system_files import (
    GPU,
    OF_FOLDERS,
    Refusing,
    SystemCell,
    as_run,
    machine,
    rooted,
    snapshot_of,
    system_cells,
    wrong,
)


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


def test_the_plain_machine_is_read(plain: Run) -> None:
    read = dict(facts(plain, "\0"))
    assert read["driver.driver_release"] == "535.104.05"
    assert read["toolkits[/usr/local/cuda-12.4].toolkit_version"] == "12.4.1"
    assert read["host.os_id"] == "ubuntu"


@pytest.mark.parametrize("cell", tuple(system_cells())[::13], ids=lambda cell: cell.name)
def test_a_hostile_file_or_folder(cell: SystemCell, tmp_path: Path, plain: Run) -> None:
    assert cell.faults(tmp_path / "root", plain) == []


@pytest.mark.parametrize("hostility", ["hangs", "SIGSEGV", "exit 0, silent", "megabytes", "no UTF-8", "localised", "folder"])
def test_a_hostile_tool_of_containers_on_a_host(hostility: str, tmp_path: Path) -> None:
    """What benchmarks/hostile_machines.py cannot ask where it runs in a container itself."""
    tool = fake_program(tmp_path / "usr/bin/nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\n")
    fake_program(tmp_path / "usr/bin/docker", "Docker version 27.3.1\n")
    system = linux(tmp_path, environ={"PATH": "/usr/bin"})
    plain = read_container(system)
    PROGRAM[hostility](tool)
    container = read_container(system)
    assert known(plain.nvidia_toolkit) == "1.17.4"
    assert isinstance(container.nvidia_toolkit, Missing)
    assert (container.kind, container.docker_snap) == (plain.kind, plain.docker_snap)


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


@pytest.mark.parametrize("path", ["/proc/driver/nvidia", "/usr/include/cudnn_version.h"])
def test_a_file_whose_reading_never_returns(path: str, tmp_path: Path, plain: Run, release: threading.Event) -> None:
    system = Stuck(machine(tmp_path / "root"), {"PATH": "/usr/bin"}, uname=LINUX, runner=RealSystem({}))
    system.stuck, system.release = path, release
    started = time.monotonic()
    snapshot = snapshot_of(system, ProbeOptions(python="/nowhere/python", timeout_s=1))
    assert time.monotonic() - started < 30  # the limit is the test's, far below the sixty seconds of the reading
    assert wrong(snapshot, plain, OF_FOLDERS) == []
    assert [run.outcome for run in snapshot.probe_runs].count("timeout") >= 1
