"""The part of the matrix that lies in files of the system, on a machine below a folder; run in this process."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cudadoctor.diagnosis import diagnose
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import from_json, to_json
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.probes import ProbeOptions, collect
from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import RealSystem
from tests.fakes.roots import LINUX, fill
from tests.hostile.doctor import Run
from tests.hostile.hostilities import FILE, FOLDER
from tests.hostile.judge import Expected, faults_of_facts

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


def wrong(snapshot: Snapshot, plain: Run, may_change: tuple[str, ...]) -> list[str]:
    """What is wrong with a snapshot in which only these facts may be missing."""
    expected = Expected((*may_change, "errors"), other_values=TRULY_OTHER)
    crashed = [f"a probe crashed: {run}" for run in snapshot.probe_runs if run.outcome == "crashed" and run.detail]
    return [*crashed, *faults_of_facts(as_run(snapshot), plain, expected, ("\0", "\0"))]


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


REFUSALS = {f"error {os.strerror(number)}": number for number in (errno.EIO, errno.EACCES, errno.ESTALE)}


@dataclass(frozen=True)
class SystemCell:
    """One file or folder of the system with one hostility."""

    thing: str
    hostility: str

    @property
    def name(self) -> str:
        """For people and for pytest."""
        return f"{self.thing}: {self.hostility}"

    def faults(self, folder: Path, plain: Run) -> list[str]:
        """What is wrong on that machine, made below `folder`."""
        root = machine(folder)
        system = Refusing(root, {"PATH": "/usr/bin"}, uname=LINUX, runner=RealSystem({}))
        if self.hostility in REFUSALS:
            system.refused, system.error = self.thing, REFUSALS[self.hostility]
        else:
            system.refused = "none of them"
            (FILE if self.thing in FILES else FOLDER)[self.hostility](root / self.thing.lstrip("/"))
        return wrong(snapshot_of(system), plain, FILES[self.thing][1] if self.thing in FILES else OF_FOLDERS)


def system_cells() -> Iterator[SystemCell]:
    """Each file and folder with each hostility; permissions, which a super-user passes over, as refusals of the kernel."""
    of_files = [name for name in FILE if name != "unreadable"]
    of_folders = [name for name in FOLDER if name not in {"unreadable", "unsearchable", "folder"}]
    for things, hostilities in ((FILES, of_files), (FOLDERS, of_folders)):
        for thing in things:
            yield from (SystemCell(thing, hostility) for hostility in (*hostilities, *REFUSALS))
