"""Builds the fixes of containers: the flag or request that gives them the GPU, for the engine or scheduler that runs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Fix, Where
from cudadoctor.rules.circumstances import variables
from cudadoctor.rules.driver_fixes import as_root, with_variable
from cudadoctor.rules.engine import Case, Remedy
from cudadoctor.rules.fixes import package_manager

SLURM_JOB = "SLURM_JOB_ID"
"""Set by Slurm in every job."""
COMPOSE_FILE = (
    "printf 'services: {SERVICE: {deploy: {resources: {reservations: {devices: "
    "[{driver: nvidia, count: all, capabilities: [gpu]}]}}}}}\\n' > compose.gpu.yaml"
)
"""Compose specification, deploy.resources.reservations.devices."""


def in_slurm_job(case: Case) -> bool:
    """Was the examined process started by Slurm?"""
    return SLURM_JOB in variables(case)


def start_with_gpu(case: Case) -> tuple[Remedy, ...]:
    """Starting the container with the GPU, by the engine that runs it; in a job of Slurm the job first."""
    kind = maybe(case.snapshot.container.kind) or ""
    ways = START.get(kind, (_docker, _podman))
    return (*(ask_slurm_for_gpu() if in_slurm_job(case) else ()), *(Remedy(way()) for way in ways))


def ask_slurm_for_gpu() -> tuple[Remedy, ...]:
    """Asking Slurm for a GPU."""
    return (
        Remedy(
            Fix(
                title="Ask Slurm for a GPU (in a batch script: #SBATCH --gpus=1; older clusters: --gres=gpu:1)",
                commands=("srun --gpus=1 PROGRAM",),
                where=Where.HOST,
                verify=("srun --gpus=1 nvidia-smi -L",),
            )
        ),
    )


def _docker() -> Fix:
    return Fix(
        title="Start the container with the GPU",
        commands=("docker run --gpus all IMAGE",),
        where=Where.HOST,
        verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
    )


def _compose() -> Fix:
    return Fix(
        title="Or, under docker compose, reserve the GPU for the service",
        commands=(COMPOSE_FILE, "docker compose -f compose.yaml -f compose.gpu.yaml up --detach"),
        where=Where.HOST,
        verify=("docker compose exec SERVICE nvidia-smi",),
    )


def _podman() -> Fix:
    return Fix(
        title="Start the container with the GPU, as the host's CDI specification names it",
        commands=("podman run --device nvidia.com/gpu=all IMAGE",),
        where=Where.HOST,
        verify=("nvidia-ctk cdi list", "podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi"),
    )


def _kubernetes() -> Fix:
    return Fix(
        title="Ask for a GPU in the pod's limits (resources.limits, nvidia.com/gpu: 1)",
        commands=("kubectl set resources deployment/NAME --limits=nvidia.com/gpu=1",),
        where=Where.HOST,
        verify=("kubectl describe node | grep nvidia.com/gpu",),
    )


def _apptainer() -> Fix:
    return Fix(
        title="Start the container with --nv, which binds the driver's libraries",
        commands=("apptainer exec --nv IMAGE.sif PROGRAM",),
        where=Where.HOST,
        verify=("apptainer exec --nv IMAGE.sif nvidia-smi",),
    )


def _lxc() -> Fix:
    return Fix(
        title="Give the container the GPU and the driver's libraries",
        commands=(
            "lxc config set CONTAINER nvidia.runtime=true",
            "lxc config device add CONTAINER gpu gpu",
            "lxc restart CONTAINER",
        ),
        where=Where.HOST,
        verify=("lxc exec CONTAINER -- nvidia-smi",),
    )


START: Mapping[str, tuple[Callable[[], Fix], ...]] = {
    "docker": (_docker, _compose),
    "podman": (_podman,),
    "kubernetes": (_kubernetes,),
    "singularity": (_apptainer,),
    "lxc": (_lxc,),
}
"""By the kind of container: docker run and compose references, podman-run(1), Kubernetes' "Schedule GPUs", Apptainer's "GPU
Support", LXD's and Incus's GPU devices."""


def start_anew(case: Case) -> Remedy:
    """Starting the container anew with what it was started with."""
    command = {
        "podman": "podman restart CONTAINER",
        "kubernetes": "kubectl delete pod POD",
        "lxc": "lxc restart CONTAINER",
    }.get(maybe(case.snapshot.container.kind) or "", "docker restart CONTAINER")
    title = "Let the pod be made anew" if command.startswith("kubectl") else "Start the container anew"
    return Remedy(Fix(title=title, commands=(command,), where=Where.HOST))


def install_container_toolkit(case: Case) -> tuple[Remedy, ...]:
    """Installing the NVIDIA Container Toolkit and registering it with Docker."""
    install = {
        "apt": "sudo apt-get install nvidia-container-toolkit",
        "dnf": "sudo dnf install nvidia-container-toolkit",
        "pacman": "sudo pacman -S nvidia-container-toolkit",
        "zypper": "sudo zypper install nvidia-container-toolkit",
    }.get(package_manager(case.snapshot) or "apt", "")
    return (
        as_root(
            "Install the NVIDIA Container Toolkit (from NVIDIA's repository) and register it with Docker",
            install,
            "sudo nvidia-ctk runtime configure --runtime=docker",
            "sudo systemctl restart docker",
            verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
        ),
    )


def generate_cdi_specification() -> tuple[Remedy, ...]:
    """Writing the CDI specification where the engines read it."""
    return (
        as_root(
            "Write the specification to a folder that the engine reads",
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
            "nvidia-ctk cdi list",
            verify=("podman run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",),
        ),
    )


def give_capabilities(case: Case, capabilities: str) -> tuple[Remedy, ...]:
    """Starting the container with the driver capabilities that it needs."""
    assignment = f"NVIDIA_DRIVER_CAPABILITIES={capabilities}"
    command = {
        "podman": f"podman run --device nvidia.com/gpu=all -e {assignment} IMAGE",
        "kubernetes": f"kubectl set env deployment/NAME {assignment}",
    }.get(maybe(case.snapshot.container.kind) or "", f"docker run --gpus all -e {assignment} IMAGE")
    return (
        Remedy(
            Fix(
                title=f"Start the container with the driver capabilities {capabilities}",
                commands=(command,),
                where=Where.HOST,
            ),
            with_variable("NVIDIA_DRIVER_CAPABILITIES", capabilities),
        ),
    )
