"""Whole containers and the hosts of containers: the one root, the flag that mends it, and no false alarm."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fakebin import Says
from tests.fakes.whole_machines import MULTIARCH, RELEASE, WholeMachine, wrong_about

DOCKER = {"/.dockerenv": ""}
PODMAN = {"/run/.containerenv": 'engine="podman-5.2.3"\n'}
APPTAINER = {"/.singularity.d/runscript": ""}
POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
MOUNTED = "".join(
    f"70{number} 700 8:2 /x {MULTIARCH}/{name}.so.{RELEASE} ro,nosuid - ext4 /dev/sda2 rw\n"
    for number, name in enumerate(("libcuda", "libnvidia-ml"))
)
INJECTED = {"/proc/self/mountinfo": MOUNTED}
FLAG_MISSING = "container-gpus-flag-missing"
NO_DEVICE = {"FAKE_CUDA_INIT": "100"}
UNKNOWN_ERROR = Says("Failed to initialize NVML: Unknown Error\n", exit_code=255)
COMPAT = "/usr/local/cuda-12.8/compat"
STUBS = "/usr/local/cuda-12.8/lib64/stubs"


def bare(label: str, root: str, fix: tuple[str, ...] = (), **more: Any) -> WholeMachine:
    """A container into which nothing was passed."""
    return WholeMachine(label, root, fix, libraries=(), nodes=(), nvidia_smi=None, **more)


MACHINES = (
    WholeMachine("docker with --gpus all", files=DOCKER | INJECTED),
    WholeMachine(
        "docker by CDI, which sets NVIDIA_VISIBLE_DEVICES=void",
        files=DOCKER | INJECTED,
        environ={"NVIDIA_VISIBLE_DEVICES": "void"},
    ),
    WholeMachine("podman by CDI", files=PODMAN | INJECTED),
    WholeMachine(
        "a pod with one of the eight GPUs of its node",
        files=INJECTED,
        environ=POD,
        host_gpus=8,
        nodes=("nvidiactl", "nvidia-uvm", "nvidia3"),
    ),
    WholeMachine(
        "apptainer with --nv",
        files=APPTAINER,
        environ={"LD_LIBRARY_PATH": "/.singularity.d/libs"},
        libraries=("/.singularity.d/libs",),
    ),
    WholeMachine(
        "a job of Slurm with its GPU",
        environ={"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0", "CUDA_VISIBLE_DEVICES": "0"},
    ),
    WholeMachine(
        "a host with docker and its toolkit",
        programs={"docker": "Docker version 27.3.1\n", "nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.17.4\n"},
    ),
    WholeMachine(
        "a host with docker alone",
        programs={"docker": "Docker version 27.3.1\n"},
        remarks=("container-toolkit-missing",),
    ),
    bare(
        "docker without --gpus",
        FLAG_MISSING,
        ("docker run --gpus all IMAGE", "docker compose"),
        files=DOCKER,
    ),
    bare(
        "podman without --device",
        FLAG_MISSING,
        ("podman run --device nvidia.com/gpu=all IMAGE",),
        files=PODMAN,
    ),
    bare(
        "a pod without a limit",
        FLAG_MISSING,
        ("--limits=nvidia.com/gpu=1",),
        environ=POD,
    ),
    bare(
        "apptainer without --nv",
        FLAG_MISSING,
        ("apptainer exec --nv",),
        files=APPTAINER,
    ),
    bare(
        "apptainer without --nv in a job of Slurm",
        FLAG_MISSING,
        ("apptainer exec --nv", "srun --gpus=1"),
        files=APPTAINER,
        environ={"SLURM_JOB_ID": "7"},
    ),
    WholeMachine(
        "an image with NVIDIA_VISIBLE_DEVICES=none: libraries and control nodes, but no GPU",
        "container-visible-devices-none",
        ("docker run --gpus all IMAGE",),
        files=DOCKER | INJECTED,
        environ={"NVIDIA_VISIBLE_DEVICES": "none"},
        nodes=("nvidiactl", "nvidia-uvm"),
        cuda=NO_DEVICE,
        nvml={"count": 0},
        nvidia_smi=Says("No devices were found\n", exit_code=6),
    ),
    bare(
        "a pod whose runtime was told void",
        "container-visible-devices-none",
        ("--limits=nvidia.com/gpu=1",),
        environ=POD | {"NVIDIA_VISIBLE_DEVICES": "void"},
    ),
    WholeMachine(
        "a pod whose libraries lie where the loader does not look",
        "container-driver-libs-not-on-path",
        ("export LD_LIBRARY_PATH=/usr/local/nvidia/lib64",),
        environ=POD,
        libraries=("/usr/local/nvidia/lib64",),
        nvidia_smi=None,
    ),
    WholeMachine(
        "docker after a systemctl daemon-reload",
        "nvml-unknown-cgroup",
        ("docker restart CONTAINER", "no-cgroups=false", "--device /dev/nvidiactl"),
        files=DOCKER | INJECTED,
        refused=errno.EPERM,
        cuda={"FAKE_CUDA_INIT": "999"},
        nvml={"init": 999},
        nvidia_smi=UNKNOWN_ERROR,
    ),
    WholeMachine(
        "a pod whose device group was taken away",
        "nvml-unknown-cgroup",
        ("kubectl delete pod",),
        files=INJECTED,
        environ=POD,
        refused=errno.EPERM,
        cuda={"FAKE_CUDA_INIT": "999"},
        nvml={"init": 999},
        nvidia_smi=UNKNOWN_ERROR,
    ),
    WholeMachine(
        "a job of Slurm that asked for no GPU",
        "nvml-unknown-cgroup",
        ("srun --gpus=1",),
        environ={"SLURM_JOB_ID": "7"},
        refused=errno.EPERM,
        cuda=NO_DEVICE,
        nvml={"count": 0},
        nvidia_smi=Says("No devices were found\n", exit_code=6),
    ),
    WholeMachine(
        "a rootless container whose user may not open the nodes",
        "device-permission",
        ("chmod a+rw",),
        files=PODMAN | INJECTED,
        refused=errno.EACCES,
        cuda=NO_DEVICE,
        nvml={"init": 4},
        nvidia_smi=Says("Failed to initialize NVML: Insufficient Permissions\n", exit_code=4),
    ),
    WholeMachine(
        "the image's compat libcuda before that of a newer driver",
        "cuda-compat-in-image",
        ("LD_LIBRARY_PATH",),
        files=DOCKER | INJECTED,
        environ={"LD_LIBRARY_PATH": COMPAT},
        libcuda_only=(COMPAT,),
        cuda={"FAKE_CUDA_INIT": "803"},
    ),
    WholeMachine(
        "the image's compat libcuda on a GPU that it does not serve",
        "forward-compat-unsupported",
        ("LD_LIBRARY_PATH",),
        files=DOCKER | INJECTED,
        environ={"LD_LIBRARY_PATH": COMPAT},
        libcuda_only=(COMPAT,),
        cuda={"FAKE_CUDA_INIT": "804"},
    ),
    WholeMachine(
        "the toolkit's stub first",
        "stub-libcuda",
        ("LD_LIBRARY_PATH",),
        files=DOCKER | INJECTED,
        environ={"LD_LIBRARY_PATH": STUBS},
        libcuda_only=(STUBS,),
        cuda={"FAKE_CUDA_INIT": "34", "FAKE_CUDA_NAMELESS": "1"},
    ),
    WholeMachine(
        "only the capability utility",
        "driver-capabilities-missing",
        ("-e NVIDIA_DRIVER_CAPABILITIES=compute,utility",),
        files=DOCKER | INJECTED,
        environ={"NVIDIA_DRIVER_CAPABILITIES": "utility"},
        nvml_only=True,
    ),
    WholeMachine(
        "LXC without the unified-memory node",
        "uvm-device-missing",
        ("nvidia-modprobe -u",),
        files={"/proc/1/environ": "PATH=/bin\0container=lxc\0"},
        nodes=("nvidiactl", "nvidia0"),
        cuda={"FAKE_CUDA_INIT": "999"},
    ),
    WholeMachine(
        "an image with the libraries of another driver in it",
        "driver-libs-in-image",
        ("RUN rm -f",),
        files=DOCKER,
        library_release="570.86.10",
        cuda={"FAKE_CUDA_INIT": "803"},
        nvml={"init": 18},
        nvidia_smi=Says("Failed to initialize NVML: Driver/library version mismatch\n", exit_code=18),
    ),
    bare(
        "docker on a machine without any NVIDIA GPU",
        "no-nvidia-gpu",
        files=DOCKER,
        host_gpus=0,
    ),
)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.label)
def test_a_container_or_its_host(machine: WholeMachine, tmp_path: Path) -> None:
    assert wrong_about(machine, tmp_path) == []
