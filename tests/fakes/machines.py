"""The machines of the contract (design.md, section 7) as fakes: real executables, libraries and a torch on this machine.

`build_machine("A", tmp_path)` gives the environment in which `cudadoctor check` finds that machine and nothing else.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.fakes.cuda_tools import fake_nvidia_smi, fake_toolkit
from tests.fakes.fakebin import Says, fake_program
from tests.fakes.nvml import install_fake_libcuda, install_fake_nvml
from tests.fakes.stub_torch import StubTorch, make_environment

UUID = "GPU-11111111-1111-1111-1111-111111111111"
BUS_ID = "00000000:01:00.0"
"""As the stand-in for libcuda names its first device."""


def uuid_of(index: int) -> str:
    """As the stand-in for libcuda names its devices."""
    return UUID.replace("1", str(index + 1))


def bus_id_of(index: int) -> str:
    """As the stand-in for libcuda names its devices, in NVML's spelling."""
    return BUS_ID.replace("01", f"{index + 1:02x}")


CU124 = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
CU130 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
NVCC_12_6 = (
    "sm_50",
    "sm_52",
    "sm_53",
    "sm_60",
    "sm_61",
    "sm_62",
    "sm_70",
    "sm_72",
    "sm_75",
    "sm_80",
    "sm_86",
    "sm_87",
    "sm_89",
    "sm_90",
)
NVCC_12_8 = (*NVCC_12_6, "sm_100", "sm_101", "sm_120")
NVCC_13_0 = ("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_103", "sm_110", "sm_120", "sm_121")


@dataclass(frozen=True)
class MachineSpec:
    """A machine: GPU, driver, toolkit, torch, and what is wrong with its tools."""

    gpu: str
    compute_capability: str
    memory_mib: int | None
    driver: str
    driver_cuda: str
    toolkit: tuple[str, str, Sequence[str]] | None
    """Release, build, targets."""
    torch: StubTorch
    nvml_answers: Mapping[str, object] = field(default_factory=dict)
    nvidia_smi: Says | None = None
    """What nvidia-smi does instead of describing the GPU."""
    cuda_variables: Mapping[str, object] = field(default_factory=dict)
    """For the stand-in for libcuda."""
    packages: Sequence[str] = ()
    count: int = 1
    """How many of these GPUs."""


@dataclass(frozen=True)
class Machine:
    """A built machine: start programs with exactly `env`."""

    folder: Path
    env: dict[str, str]
    python: Path
    nvidia_smi: Path


def _torch(version: str, cuda: str | None, archs: Sequence[str], gpu: tuple[str, str], **more: Any) -> StubTorch:
    return replace(StubTorch(version, cuda, archs, (gpu,)), **more)


def _no_kernel_image(torch: StubTorch) -> StubTorch:
    text = "CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors might be asynchronous"
    name, capability = torch.devices[0]
    sm = "sm_" + capability.replace(".", "")
    warning = f"{name} with CUDA capability {sm} is not compatible with the current PyTorch installation."
    return replace(torch, launch_error=text, warnings=(warning,))


_4090 = ("NVIDIA GeForce RTX 4090", "8.9")
_5090 = ("NVIDIA GeForce RTX 5090", "12.0")
_GB10 = ("NVIDIA GB10", "12.1")
_V100 = ("Tesla V100-SXM2-16GB", "7.0")
_A100 = ("NVIDIA A100-SXM4-40GB", "8.0")
_GB300 = ("NVIDIA GB300", "10.3")

_HEALTHY_4090 = MachineSpec(
    *_4090, 24564, "535.104.05", "12.2", ("12.8", "12.8.93", NVCC_12_8), _torch("2.5.1+cu124", "12.4", CU124, _4090)
)
_MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183\n"
_TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 12000). Please update your GPU driver by downloading and "
    "installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
    "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver."
)

MACHINES: Mapping[str, MachineSpec] = {
    "A": _HEALTHY_4090,
    "B": MachineSpec(
        *_5090,
        32607,
        "580.95.05",
        "13.0",
        ("12.6", "12.6.85", NVCC_12_6),
        _no_kernel_image(_torch("2.5.1+cu124", "12.4", CU124, _5090)),
    ),
    "C": MachineSpec(
        *_GB10,
        None,
        "580.95.05",
        "13.0",
        ("13.0", "13.0.88", NVCC_13_0),
        _torch("2.9.1+cu130", "13.0", ("sm_80", "sm_90", "sm_100", "sm_110", "sm_120", "compute_120"), _GB10),
    ),
    "D": MachineSpec(
        *_V100,
        16384,
        "580.95.05",
        "13.0",
        ("13.0", "13.0.88", NVCC_13_0),
        _no_kernel_image(_torch("2.9.1+cu130", "13.0", CU130, _V100)),
    ),
    "E": MachineSpec(
        *_A100,
        40960,
        "525.60.13",
        "12.0",
        None,
        _torch("2.15.0+cu130", "13.0", CU130, _A100, is_available=False, cuda_error=_TOO_OLD),
        cuda_variables={"FAKE_CUDA_DRIVER_VERSION": 12000},
    ),
    "F": replace(
        _HEALTHY_4090,
        torch=_torch(
            "2.5.1+cu124",
            "12.4",
            CU124,
            _4090,
            is_available=False,
            cuda_error="Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
            "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda "
            "driver combination",
        ),
        nvml_answers={"init": 18},
        nvidia_smi=Says(_MISMATCH, exit_code=18),
        cuda_variables={"FAKE_CUDA_INIT": 803},
    ),
    "G": replace(
        _HEALTHY_4090,
        torch=StubTorch("2.9.1+cpu", is_available=False, cuda_error="Torch not compiled with CUDA enabled", cudnn=None),
    ),
    "H": MachineSpec(
        *_GB300,
        284208,
        "710.12.01",
        "15.2",
        ("15.2", "15.2.41", ("sm_100", "sm_103", "sm_110", "sm_120", "sm_121", "sm_150")),
        _torch("3.4.0+cu152", "15.2", ("sm_100", "sm_103", "sm_120", "sm_150"), _GB300, cudnn=120100),
    ),
    "X1": replace(_HEALTHY_4090, nvidia_smi=Says(hangs=True)),
    "X2": replace(_HEALTHY_4090, torch=_torch("2.5.1+cu124", "12.4", CU124, _4090, on_import="segfault")),
}


def build_machine(name: str, folder: Path) -> Machine:
    """Machine A to H, X1 or X2; skips the test without a C compiler, which builds the libraries."""
    return build(MACHINES[name], folder)


def build(spec: MachineSpec, folder: Path) -> Machine:
    """The machine of a spec, below `folder`."""
    programs, libraries, home = folder / "bin", folder / "lib", folder / "home"
    home.mkdir(parents=True)
    variables = install_fake_nvml(libraries, {**nvml_answers(spec), **spec.nvml_answers}, f"libnvidia-ml.so.{spec.driver}")
    install_fake_libcuda(libraries, f"libcuda.so.{spec.driver}")
    smi = programs / "nvidia-smi"
    if spec.nvidia_smi is not None:
        fake_program(smi, spec.nvidia_smi)
    else:
        fake_nvidia_smi(smi, spec.driver, spec.driver_cuda, [smi_fields(spec, index) for index in range(spec.count)])
    python = make_environment(folder / "venv", spec.torch, spec.packages)
    path = [str(python.parent), str(programs)]
    if spec.toolkit is not None:
        path.append(str(fake_toolkit(folder / f"cuda-{spec.toolkit[0]}", *spec.toolkit).parent))
    env = {
        **_basic_environment(),
        **variables,
        **{key: str(value) for key, value in cuda_variables(spec).items()},
        "PATH": os.pathsep.join([*path, str(_bare_programs(folder / "system"))]),
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "VIRTUAL_ENV": str(folder / "venv"),
    }
    return Machine(folder, env, python, smi)


def nvml_answers(spec: MachineSpec) -> dict[str, object]:
    """What NVML says of a healthy machine of that spec."""
    major, minor = spec.driver_cuda.split(".")
    of_machine: dict[str, object] = {"driver": spec.driver, "cuda": int(major) * 1000 + int(minor) * 10, "count": spec.count}
    return of_machine | {
        f"{index}.{key}": value for index in range(spec.count) for key, value in _answers_of_gpu(spec, index).items()
    }


def _answers_of_gpu(spec: MachineSpec, index: int) -> dict[str, object]:
    memory = {} if spec.memory_mib is None else {"total": spec.memory_mib << 20, "used": 400 << 20}
    return {
        "name": spec.gpu,
        "uuid": uuid_of(index),
        "pci": bus_id_of(index),
        "cc": spec.compute_capability,
        "compute_mode": 0,
        "persistence": 1,
        "processes": 0,
        "pcie_gen": 4,
        "pcie_gen_max": 4,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "throttle": 1,
        "temperature": 35,
        "utilization": 0,
        **memory,
    }


def smi_fields(spec: MachineSpec, index: int = 0) -> dict[str, object]:
    """What nvidia-smi says of one of its GPUs."""
    memory = {} if spec.memory_mib is None else {"memory.total": str(spec.memory_mib), "memory.used": "400"}
    return {
        "index": str(index),
        "name": spec.gpu,
        "uuid": uuid_of(index),
        "pci.bus_id": bus_id_of(index),
        "driver_version": spec.driver,
        "compute_mode": "Default",
        "persistence_mode": "Enabled",
        "compute_cap": spec.compute_capability,
        **memory,
    }


def cuda_variables(spec: MachineSpec) -> dict[str, object]:
    """For the stand-in for libcuda: the same GPU, and kernels that compute."""
    major, minor = spec.driver_cuda.split(".")
    return {
        "FAKE_CUDA_NAME": spec.gpu,
        "FAKE_CUDA_DEVICES": spec.count,
        "FAKE_CUDA_CC": spec.compute_capability,
        "FAKE_CUDA_MEMORY": (spec.memory_mib or 122_502) << 20,
        "FAKE_CUDA_DRIVER_VERSION": int(major) * 1000 + int(minor) * 10,
        "FAKE_CUDA_COMPUTE": 1,
        **spec.cuda_variables,
    }


def _basic_environment() -> dict[str, str]:
    """What a process needs here; none of this machine's own CUDA."""
    return {name: os.environ[name] for name in ("LANG", "TMPDIR", "TERM") if name in os.environ}


def _bare_programs(folder: Path) -> Path:
    """A folder with links to the host compiler and shell of this machine, and nothing of its CUDA."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("gcc", "g++", "cc", "c++", "ld", "as", "sh", "env", "uname"):
        found = shutil.which(name)
        if found and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return folder
