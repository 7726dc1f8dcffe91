"""What the snapshot and the texts show of the surroundings: WSL, containers, how they were started. Never a judgement."""

from __future__ import annotations

from collections.abc import Mapping

from cudadoctor.model.fact import maybe
from cudadoctor.model.snapshot import ErrorSeen, Platform, TorchBuild
from cudadoctor.rules.case import once_a_case
from cudadoctor.rules.engine import Case
from cudadoctor.rules.questions import Presence, driver_works, in_container, platform, torch, torch_build
from cudadoctor.rules.software_questions import is_partial

CONTAINER_SIGNS = (
    "shown-docker-run",
    "shown-container",
    "container-no-gpu-driver",
    "container-require-unsatisfied",
    "container-cli-failed",
    "container-unknown-device",
    "container-no-gpu-warning",
    "container-compat-note",
    "cdi-spec-missing",
    "kubernetes-no-gpu-resource",
    "shown-no-cgroups",
    "shown-driver-capabilities",
)
ASKS_FOR_GPU = (
    "--gpus",
    "runtime=nvidia",
    "runtime nvidia",
    "nvidia.com/gpu",
    "/dev/nvidia",
    "/dev/dxg",
    "nvidia_visible_devices",
    "nvidia-docker",
    "--nv",
    "--device all",
)
"""Parts of a container's command line, in lower case, that give it a GPU."""
CUDA_FAILURES = (
    "cuda-error-35",
    "cuda-error-100",
    "cuda-error-802",
    "cuda-error-803",
    "cuda-error-999",
    "cuda-init-unknown-error",
    "cuda-not-initialized",
    "cuda-os-call-failed",
    "forward-compat-unsupported",
    "driver-too-old",
    "framework-no-platform",
    "gpu-access-blocked-by-os",
    "libcuda-load-failed",
    "libcuda-symbol-missing",
    "no-nvidia-gpu",
    "nvml-init-failed",
    "nvml-unknown-error",
    "nvml-version-mismatch",
    "smi-cannot-communicate",
    "smi-no-devices",
    "stub-libcuda",
    "torch-driver-too-old",
    "torch-no-gpu-visible",
    "torch-no-nvidia-driver",
    "wsl-adapter-failed",
)
"""Errors with which CUDA or the driver's tools do not start at all."""
TENSORFLOW_REMARK = "gpu will not be used"
"""What TensorFlow prints on every import where it finds no driver."""
SERVER_CONSOLES = ("aspeed", "matrox")
"""Makers of the console chips that servers have beside their GPUs; one of them shows nothing about those."""
ASKS_FOR_CUDA = ("torch-not-compiled-with-cuda", "cpu-only-tensorflow", "cpu-only-jax", "shown-amd-gpu")
"""Texts of programs that were to use a GPU, or show another that they could use."""
SHOWS_DRIVER = ("smi-cannot-communicate", "cuda-error-999", "nvml-version-mismatch", "nvml-unknown-error", "smi-no-devices")
"""Errors that only a machine with an NVIDIA driver gives."""
NO_LIBCUDA = ("libcuda-load-failed", "torch-no-nvidia-driver")
"""Errors of programs that find no libcuda."""
NO_DRIVER_IN_REACH = (
    "libcuda-load-failed",
    "torch-no-nvidia-driver",
    "container-no-gpu-warning",
    "smi-not-installed",
    "torch-no-gpu-visible",
    "cuda-error-35",
    "cuda-error-100",
    "framework-no-platform",
    "driver-lib-missing",
    "no-nvidia-gpu",
)
"""Errors that a program prints where no driver is in reach."""


def in_wsl(case: Case) -> bool:
    """Is this WSL, as the snapshot or a text says?"""
    return platform(case.snapshot) is Platform.WSL or maybe(case.snapshot.wsl.wsl_version) is not None or case.saw("shown-wsl")


def on_windows(case: Case) -> bool:
    """Is this native Windows?"""
    return platform(case.snapshot) is Platform.WINDOWS and not case.saw("shown-wsl")


@once_a_case
def container_shown(case: Case) -> bool:
    """Is this a container, or a text about one?"""
    return in_container(case.snapshot) or case.saw(*CONTAINER_SIGNS)


def asks_for_gpu(run: ErrorSeen) -> bool:
    """Does this command line give the container a GPU?"""
    line = f"{run.text} {run.values.get('arguments', '')}".lower()
    return any(part in line for part in ASKS_FOR_GPU)


def asks_for_cdi(case: Case) -> tuple[ErrorSeen, ...]:
    """The engine's errors in which it does not know the device driver `cdi`."""
    return tuple(
        error for error in case.errors("container-no-gpu-driver") if error.values.get("driver", "").strip("\"'") == "cdi"
    )


def started_without_gpu(case: Case) -> tuple[ErrorSeen, ...]:
    """The container command lines of a text, where none of them asks for a GPU."""
    runs = case.errors("shown-docker-run")
    return () if any(asks_for_gpu(run) for run in runs) else runs


def started_with_gpu(case: Case) -> bool:
    """Does a command line of the text give the container a GPU?"""
    return any(asks_for_gpu(run) for run in case.errors("shown-docker-run"))


@once_a_case
def other_gpu_only(case: Case) -> tuple[ErrorSeen, ...]:
    """Texts that show a GPU of another vendor, or say that there is none, where nothing shows an NVIDIA GPU or its driver."""
    driver_shown = maybe(case.snapshot.driver.driver_release) is not None or case.saw("nvml-version-mismatch", "cuda-error-999")
    if driver_shown or case.gpu_presence is Presence.YES or container_shown(case):
        return ()
    others = case.errors("shown-other-gpu")
    if case.gpu_presence is not Presence.NO:
        others = tuple(error for error in others if error.values.get("gpu", "").lower().split(" ")[0] not in SERVER_CONSOLES)
    return (*case.errors("no-nvidia-gpu"), *others[:1])


@once_a_case
def cpu_is_meant(case: Case) -> tuple[ErrorSeen, ...]:
    """Remarks of a framework that works on the CPU, or the other vendor's GPU beside a CPU build, where nothing asks for CUDA."""
    if not is_partial(case.snapshot) or case.gpu_presence is Presence.YES:
        return ()
    if container_shown(case) or in_wsl(case) or case.saw(*CUDA_FAILURES, *NO_DRIVER_IN_REACH, *ASKS_FOR_CUDA):
        return ()
    build = torch(case.snapshot)
    cpu = build is not None and torch_build(build) is TorchBuild.CPU
    return (*case.errors("no-gpu-remark"), *(other_gpu_only(case) if cpu else ()))


def remarks_without_gpu(case: Case) -> tuple[ErrorSeen, ...]:
    """Lines in which a framework remarks that it found no driver and works on the CPU, where nothing shows an NVIDIA GPU."""
    texts = case.errors("libcuda-load-failed")
    if not texts or any(TENSORFLOW_REMARK not in error.text.lower() for error in texts):
        return ()
    shows_gpu = case.gpu_presence is Presence.YES or case.saw(*SHOWS_DRIVER)
    return () if shows_gpu or container_shown(case) or in_wsl(case) else texts


def cuda_fails(case: Case) -> bool:
    """Is there evidence that CUDA does not start: cuInit failed, or a text says so?"""
    if driver_works(case.snapshot):
        return False
    status = maybe(case.snapshot.driver.cu_init)
    return (status is not None and status.code != 0) or case.saw(*CUDA_FAILURES)


def cu_init_code(case: Case) -> int | None:
    """The code that cuInit answered; None where it was not asked or did not answer."""
    status = maybe(case.snapshot.driver.cu_init)
    return status.code if status is not None else None


def variables(case: Case) -> Mapping[str, str]:
    """The CUDA-related environment variables; empty where they were not read."""
    return maybe(case.snapshot.environment) or {}
