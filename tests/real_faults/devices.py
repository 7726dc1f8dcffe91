"""Faults of devices and drivers: hidden GPUs, closed device nodes, a libcuda that is not the driver's, tools that hang."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

from cudadoctor.model.versions import DriverRelease
from cudadoctor.probes.driver import parse_procfs_version
from tests.fakes.build import FAKES
from tests.fakes.fakebin import python_program
from tests.hostile.doctor import LAUNCHER
from tests.real_faults.fault import Check, Expected, Fault
from tests.real_faults.machine import Machine, NotHereError
from tests.real_faults.stand_ins import run_tool

NODES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm")
OTHER_UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"
NOBODY = 65534
PROC_VERSION = Path("/proc/driver/nvidia/version")
OLD_COMPAT = "570.86.10"
"""A release of cuda-compat-12-8, older than every driver of CUDA 13."""
HIDDEN = Expected("visible-devices-hide-all", "unset CUDA_VISIBLE_DEVICES", layers={"driver-jit": "passed"}, exit_codes=(1,))
INVALID = Expected("visible-devices-invalid", "unset CUDA_VISIBLE_DEVICES", exit_codes=(1,))


def visible(value: str) -> Check:
    return Check({"CUDA_VISIBLE_DEVICES": value})


def nodes_that_nobody_may_open(machine: Machine, folder: Path) -> Check:
    """The same device nodes, closed, over the machine's in a mount namespace that ends with the run."""
    if os.geteuid() != 0:
        raise NotHereError("only root makes device nodes")
    mounts = []
    for node in filter(os.path.exists, NODES):
        closed = folder / Path(node).name
        os.mknod(closed, stat.S_IFCHR, Path(node).stat().st_rdev)
        closed.chmod(0)
        os.chown(closed, NOBODY, NOBODY)
        mounts.append([f"bind:{closed}", node])
    if not mounts:
        raise NotHereError("no device nodes")
    conditions = json.dumps({"mounts": mounts, "humble": True})
    return Check(launcher=(sys.executable, "-IS", str(LAUNCHER), conditions))


def stub_libcuda_first(machine: Machine, folder: Path) -> Check:
    stubs = sorted(machine.toolkit.rglob("stubs/libcuda.so"))
    if not stubs:
        raise NotHereError("this toolkit has no stub libcuda")
    (folder / "stubs").mkdir()
    (folder / "stubs" / "libcuda.so.1").symlink_to(stubs[0])
    return Check(machine.in_front("LD_LIBRARY_PATH", folder / "stubs"))


def toolkits_compat_library(machine: Machine, folder: Path) -> Check:
    """The toolkit's own compat library, which must be older than the driver."""
    library = machine.toolkit / "compat" / "libcuda.so.1"
    if not library.exists() or not PROC_VERSION.exists():
        raise NotHereError("this toolkit has no compat library")
    release = DriverRelease.parse(library.resolve().name.removeprefix("libcuda.so."))
    if release >= parse_procfs_version(PROC_VERSION.read_text()).driver_release:
        raise NotHereError("the toolkit's compat library is newer than the driver")
    return Check(machine.in_front("LD_LIBRARY_PATH", library.parent))


def compat_library_of_an_older_line(machine: Machine, folder: Path) -> Check:
    """A stand-in that answers as the compat library of an older CUDA does."""
    compat = folder / "cuda-12.8" / "compat"
    compat.mkdir(parents=True)
    library = compat / f"libcuda.so.{OLD_COMPAT}"
    source = ["-x", "c", str(FAKES / "fake_libcuda.c"), "-lm"]
    run_tool(
        machine, [machine.program("gcc"), "-O1", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", *source, "-o", str(library)]
    )
    (compat / "libcuda.so.1").symlink_to(library.name)
    answers = {"FAKE_CUDA_INIT": "803", "FAKE_CUDA_DRIVER_VERSION": "12080"}
    return Check({**machine.in_front("LD_LIBRARY_PATH", compat), **answers})


def libcuda_that_is_no_library(machine: Machine, folder: Path) -> Check:
    """What a copy over a full disk leaves: the beginning of the real file."""
    (folder / "libcuda.so.1").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(4000))
    return Check(machine.in_front("LD_LIBRARY_PATH", folder))


def nvidia_smi_hangs(machine: Machine, folder: Path) -> Check:
    python_program(folder / "bin" / "nvidia-smi", "import time\ntime.sleep(600)\n")
    return Check(machine.in_front("PATH", folder / "bin"))


FAULTS = (
    Fault("every GPU hidden", lambda machine, folder: visible(""), HIDDEN),
    Fault("every GPU hidden by -1", lambda machine, folder: visible("-1"), HIDDEN),
    Fault("a GPU that does not exist", lambda machine, folder: visible("63"), INVALID),
    Fault("a word for a GPU", lambda machine, folder: visible("cuda:0"), INVALID),
    Fault("the UUID of another machine's GPU", lambda machine, folder: visible(OTHER_UUID), INVALID),
    Fault("a GPU named twice", lambda machine, folder: visible("0,0"), INVALID),
    Fault("device nodes that may not be opened", nodes_that_nobody_may_open, Expected("device-permission", r"usermod|chmod")),
    Fault("the toolkit's stub libcuda first", stub_libcuda_first, Expected("stub-libcuda", "LD_LIBRARY_PATH", exit_codes=(1,))),
    Fault(
        "the toolkit's compat libcuda, older than the driver",
        toolkits_compat_library,
        Expected("cuda-compat-in-image", "LD_LIBRARY_PATH", exit_codes=(1,)),
    ),
    Fault(
        "a compat libcuda of an older CUDA",
        compat_library_of_an_older_line,
        Expected("cuda-compat-in-image", "LD_LIBRARY_PATH", exit_codes=(1,)),
    ),
    Fault("a libcuda that is no library", libcuda_that_is_no_library, Expected("libcuda-missing", "LD_LIBRARY_PATH")),
    Fault(
        "nvidia-smi never returns",
        nvidia_smi_hangs,
        Expected("nvidia-smi-hangs", "", layers={"driver-jit": "passed"}, exit_codes=(4,)),
    ),
)
