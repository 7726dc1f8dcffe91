"""Whole machines below a folder: files, device nodes, libraries, programs and environment of a container, a host or WSL.

`snapshot_of(machine, folder)` asks them as `check` asks this machine: every probe, NVML and libcuda in their children.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import structs

from cudadoctor.binary.loader import Resolved
from cudadoctor.diagnosis import diagnose
from cudadoctor.gpu.description import DriverDescription
from cudadoctor.gpu.driver_session import describe_driver
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Verdict
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.probes import ProbeOptions, start_collection
from cudadoctor.probes.library_files import loader_for
from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import RealSystem, Uname
from tests.fakes.cuda_tools import fake_nvidia_smi
from tests.fakes.fakebin import Says, fake_program
from tests.fakes.machines import BUS_ID, UUID
from tests.fakes.nvml import RTX_4090, built, install_fake_libcuda, install_fake_nvml
from tests.fakes.roots import LINUX, fill

RELEASE = "580.65.06"
MULTIARCH = "/usr/lib/x86_64-linux-gnu"
DEFAULT_FOLDERS = (MULTIARCH, "/usr/lib/wsl/lib")
NODES = ("nvidiactl", "nvidia-uvm", "nvidia0")
CUDA_13 = {"FAKE_CUDA_NAME": "NVIDIA GeForce RTX 4090", "FAKE_CUDA_CC": "8.9", "FAKE_CUDA_DRIVER_VERSION": "13000"}
NVML_13 = {**RTX_4090, "driver": RELEASE, "cuda": 13000}
SYSTEM_FILES = {
    "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nNAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\n',
    "/etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
}
HEALTHY_SMI = "describes the GPU"


@dataclass(frozen=True)
class WholeMachine:
    """A machine, and all that is to be said about it."""

    label: str
    root: str = ""
    """The name of the one root cause; empty where nothing is wrong."""
    fix: Sequence[str] = ()
    """What the commands of its fixes must hold."""
    remarks: Sequence[str] = ()
    """Notes that must be among the findings."""
    libraries: Sequence[str] = (MULTIARCH,)
    """Folders with the driver's libcuda and NVML."""
    library_release: str = RELEASE
    libcuda_only: Sequence[str] = ()
    """Folders with a libcuda.so.1 alone: compat packages, stubs."""
    nvml_only: bool = False
    """Do those folders hold NVML and no libcuda?"""
    nodes: Sequence[str] = NODES
    refused: int = 0
    """The error number with which the device nodes cannot be opened."""
    host_gpus: int = 1
    """NVIDIA GPUs on the PCI bus, with the kernel module loaded for them."""
    files: Mapping[str, str] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)
    cuda: Mapping[str, str] = field(default_factory=dict)
    nvml: Mapping[str, object] = field(default_factory=dict)
    nvidia_smi: Says | str | None = HEALTHY_SMI
    programs: Mapping[str, Says | str] = field(default_factory=dict)
    uname: Uname = LINUX


class FakeMachine(RootedSystem):
    """A machine whose children find its libraries where its own loader would, and its device nodes."""

    def _host_environ(self, env: Mapping[str, str] | None) -> dict[str, str]:
        nodes = {"LD_PRELOAD": str(built("fake_nodes.c", "fake_nodes.so")), "FAKE_ROOT": str(self.root)}
        return {**super()._host_environ(env), **self.loader_environment(), **nodes}

    def loader_environment(self) -> dict[str, str]:
        """The variables with which this machine's ld.so finds what the fake one's would."""
        found = [folder for folder in self.environ.get("LD_LIBRARY_PATH", "").split(":") if folder and self.is_folder(folder)]
        found += [path.rpartition("/")[0] for path in map(self.loaded, ("libcuda.so.1", "libnvidia-ml.so.1")) if path]
        folders = [self.host_path(folder) for folder in dict.fromkeys(found)]
        return {"LD_LIBRARY_PATH": ":".join(folders)}

    def loaded(self, soname: str) -> str:
        """The file that the loader picks for a name; empty where it finds none."""
        found = loader_for(self).find(soname)
        return found.path if isinstance(found, Resolved) else ""


def build_whole(machine: WholeMachine, folder: Path) -> FakeMachine:
    """The machine's files, below `folder`."""
    root = fill(folder, {**SYSTEM_FILES, **_kernel(machine), **machine.files})
    variables: dict[str, str] = {}
    for library_folder in machine.libraries:
        place = root / library_folder.lstrip("/")
        answers = {**NVML_13, **machine.nvml}
        variables = install_fake_nvml(place, answers, f"libnvidia-ml.so.{machine.library_release}")
        if not machine.nvml_only:
            install_fake_libcuda(place, f"libcuda.so.{machine.library_release}")
    for library_folder in machine.libcuda_only:
        install_fake_libcuda(root / library_folder.lstrip("/"))
    if machine.nvidia_smi == HEALTHY_SMI:
        fields = {"index": "0", "name": "NVIDIA GeForce RTX 4090", "uuid": UUID, "pci.bus_id": BUS_ID, "driver_version": RELEASE}
        fake_nvidia_smi(root / "usr/bin/nvidia-smi", RELEASE, "13.0", [fields] if machine.nvml.get("count", 1) else [])
    elif machine.nvidia_smi is not None:
        fake_program(root / "usr/bin/nvidia-smi", machine.nvidia_smi)
    for name, says in machine.programs.items():
        fake_program(root / "usr/bin" / name, says)
    _write_loader_cache(root)
    variables.pop("LD_LIBRARY_PATH", None)
    environ = {"PATH": "/usr/bin", **CUDA_13, **variables, **machine.cuda, **machine.environ}
    refused = {"REFUSED_NODES": str(machine.refused)} if machine.refused else {}
    return FakeMachine(root, {**environ, **refused}, uname=machine.uname, runner=RealSystem({}))


def snapshot_of(machine: WholeMachine, folder: Path) -> Snapshot:
    """What `check` sees of it, kernels and torch apart."""
    system = build_whole(machine, folder)
    collection = start_collection(system, ProbeOptions(python="/nowhere/python", timeout_s=20))
    try:
        return collection.complete(time.monotonic() + 20, _driver_word(system))
    finally:
        collection.stop()


def _driver_word(system: FakeMachine) -> DriverDescription:
    library = system.loaded("libcuda.so.1")
    if not library:
        return DriverDescription(None, load_error="libcuda.so.1: cannot open shared object file: No such file or directory")
    said = describe_driver({**system.environ, **system.loader_environment()}, system.host_path(library), timeout_s=20)
    return structs.replace(said, libcuda=tuple(path.removeprefix(str(system.root)) for path in said.libcuda))


def _kernel(machine: WholeMachine) -> dict[str, str | bytes | None]:
    """procfs, sysfs and /dev as the kernel of the host shows them, in containers too."""
    files: dict[str, str | bytes | None] = {f"/dev/{name}": "" for name in ("null", *machine.nodes)}
    files |= {"/sys/bus/pci/devices": None, "/proc/modules": "", "/proc/self/mountinfo": ""}
    for index in range(machine.host_gpus):
        device = f"/sys/bus/pci/devices/0000:0{index + 1}:00.0"
        files |= {f"{device}/class": "0x030000\n", f"{device}/vendor": "0x10de\n", f"{device}/device": "0x2684\n"}
    if machine.host_gpus:
        line = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {RELEASE}  Release Build  (root@build)\n"
        files |= {
            "/proc/driver/nvidia/version": line,
            "/proc/driver/nvidia/params": "RmProfilingAdminOnly: 1\n",
            "/proc/modules": "nvidia_uvm 4943872 2 - Live 0x0 (PO)\nnvidia 56000000 2 - Live 0x0 (PO)\n",
        }
    return files


def _write_loader_cache(root: Path) -> None:
    """/etc/ld.so.cache of the root, made by this machine's own ldconfig."""
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/usr/bin")
    if ldconfig is None:
        raise RuntimeError("no ldconfig: the loader's cache of a fake machine cannot be made")
    subprocess.run([ldconfig, "-X", "-r", str(root)], check=True, capture_output=True, timeout=60)


def wrong_about(machine: WholeMachine, folder: Path) -> list[str]:
    """What is wrong in the report on it: another root or verdict, a false alarm, a fix or a remark that is not there."""
    report = diagnose(snapshot_of(machine, folder / "root"), (), Matrices.load()).report
    errors = [each for each in report.findings if each.severity is Severity.ERROR]
    explained = {code for each in errors for code in each.explains}
    commands = "\n".join(command for each in errors[:1] for fix in each.fixes for command in fix.commands)
    wanted = Verdict.PROBLEMS if machine.root else Verdict.HEALTHY
    return [
        *(f"root {each.name}" for each in errors if each.root and each.name != machine.root),
        *(f"unexplained {each.name}" for each in errors if not each.root and each.code not in explained),
        *(f"warning {each.name}" for each in report.findings if each.severity is Severity.WARNING),
        *(f"no {name}" for name in {machine.root, *machine.remarks} - {each.name for each in report.findings} if name),
        *(f"no fix {part}" for part in machine.fix if part not in commands),
        *([f"verdict {report.verdict.value}"] if report.verdict is not wanted else []),
    ]
