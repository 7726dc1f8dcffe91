"""Rules about starting containers: is there a runtime, was the GPU asked for, does the host satisfy the image (CD6xx)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import LibraryOrigin
from cudadoctor.rules import container_fixes, driver_fixes, fixes
from cudadoctor.rules.circumstances import (
    NO_DRIVER_IN_REACH,
    NO_LIBCUDA,
    asks_for_cdi,
    container_shown,
    in_wsl,
    started_with_gpu,
    started_without_gpu,
)
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, seen, variable_evidence
from cudadoctor.rules.planned_questions import unsatisfied_conditions
from cudadoctor.rules.questions import NVIDIA_VENDOR, driver_works, in_container, pci_gpus

GIVEN_DEVICES = "NVIDIA_VISIBLE_DEVICES"
GPU_NODE = re.compile(r"/dev/nvidia\d+\Z")
"""The node of one GPU; the control nodes beside it are passed in with the libraries, also where no GPU is."""


def container_toolkit_missing(case: Case) -> Iterable[Problem]:
    """Docker has no NVIDIA runtime: the NVIDIA Container Toolkit is not installed or not registered with it.

    What it checks: the engine's errors ("could not select device driver", "unknown runtime specified nvidia"); on a host with
    Docker, whether the toolkit's programs exist.

    Why it matters: the engine by itself does not know GPUs; the toolkit mounts the driver's files and device nodes.

    How to fix: install the toolkit, register it with the engine, restart the engine.

    When it is wrong: Docker from the snap package ignores the host's toolkit; docker-snap then names the cause. Docker Desktop
    brings its own.

    Sources: NVIDIA Container Toolkit installation guide.
    """
    texts = seen(case, "container-no-gpu-driver")
    if texts and asks_for_cdi(case):
        raise NotApplicableError("the engine was asked for CDI (cdi-spec-missing says so)")
    if texts:
        yield Problem(
            subject="container engine",
            what="The container engine has no NVIDIA runtime: the NVIDIA Container Toolkit is not installed or not registered with it.",
            why="The engine itself knows no GPUs; the toolkit adds the driver's files and device nodes to the container.",
            evidence=texts,
            remedies=container_fixes.install_container_toolkit(case),
            references=(driver_fixes.TOOLKIT_GUIDE,),
        )
        return
    container = case.snapshot.container
    if isinstance(container.docker_snap, Missing):
        known(container.docker_snap)
    if isinstance(container.nvidia_toolkit, Missing) and container.nvidia_toolkit.reason is MissingReason.NOT_FOUND:
        if not driver_works(case.snapshot):
            return
        yield Problem(
            subject="container engine",
            what="Docker is installed without the NVIDIA Container Toolkit: its containers get no GPU.",
            why="Matters only for containers that are to use the GPU.",
            evidence=_toolkit_absent(container.nvidia_toolkit),
            remedies=container_fixes.install_container_toolkit(case),
            severity=Severity.NOTE,
        )


def _toolkit_absent(missing: Missing) -> tuple[Evidence, ...]:
    return (Evidence(fact="container.nvidia_toolkit", value=missing.detail or "not found", source=missing.source or "PATH"),)


def docker_snap(case: Case) -> Iterable[Problem]:
    """Docker comes from the snap package, which does not use the host's NVIDIA runtime.

    What it checks: where the docker program lies; snapd's words in a text.

    Why it matters: the snap is confined: it neither reads the host's configuration nor runs the host's runtime hook, so --gpus
    fails although the toolkit is installed.

    How to fix: remove the snap and install Docker from docker.com or the distribution; then register the toolkit.

    When it is wrong: newer snaps bring an NVIDIA part of their own; where containers do get the GPU, this is a remark.

    Sources: snapcraft.io, the docker snap; NVIDIA Container Toolkit troubleshooting.
    """
    texts = seen(case, "docker-snap")
    fact = case.snapshot.container.docker_snap
    if not texts and not known(fact):
        return
    fails = case.saw("container-no-gpu-driver", "container-cli-failed", "nvml-unknown-error", "cdi-spec-missing")
    yield Problem(
        subject="container engine",
        what="Docker comes from the snap package, which does not use the host's NVIDIA runtime.",
        why="The snap is confined: it does not see the host's NVIDIA Container Toolkit, so --gpus fails."
        if fails
        else "Matters only for containers that are to use the GPU.",
        evidence=(*texts, *evidence("container.docker_snap", fact, value="snap")),
        severity=Severity.ERROR if fails else Severity.NOTE,
        remedies=(
            driver_fixes.as_root(
                "Replace the snap by Docker's own package, then register the toolkit",
                "sudo snap remove docker",
                "sudo apt-get install docker.io",
                "sudo nvidia-ctk runtime configure --runtime=docker",
                "sudo systemctl restart docker",
                verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
            ),
        ),
    )


def container_gpus_flag_missing(case: Case) -> Iterable[Problem]:
    """The container was started without the GPU.

    What it checks: in a container, that neither device nodes nor driver libraries were passed in while the host's driver shows
    (under WSL 2, whose kernel shows none, that the bridge /dev/dxg is not there);
    in a text, a command line without --gpus (or its like) together with an error that says that no driver is in reach.

    Why it matters: the driver's libraries and the GPU's device nodes are added at start only. Nothing that is installed inside
    the image can replace them.

    How to fix: start the container with --gpus all (Docker), a device reservation (compose), --device nvidia.com/gpu=all
    (Podman), --nv (Apptainer), or a GPU limit (Kubernetes); in a job of Slurm, ask for the GPU first (--gpus=1). An image build
    has no GPU at all.

    When it is wrong: where the command line asks for the GPU, the runtime or the driver is at fault; that has other findings.

    Sources: docker run reference; NVIDIA Container Toolkit documentation.
    """
    if driver_works(case.snapshot):
        return
    runs = started_without_gpu(case)
    errors = case.errors(*NO_DRIVER_IN_REACH)
    warned = case.errors("container-no-gpu-warning")
    if runs and errors:
        yield _started_without(case, (*as_evidence(runs, 1), *as_evidence(errors)), Confidence.CERTAIN)
    elif warned and not started_with_gpu(case):
        yield _started_without(case, as_evidence(warned), Confidence.LIKELY)
    elif in_container(case.snapshot):
        yield from _nothing_passed_in(case)
    elif container_shown(case) and case.saw(*NO_LIBCUDA) and not started_with_gpu(case):
        if not case.saw("shown-mounted-driver-libraries", "container-no-gpu-driver", "container-cli-failed"):
            texts = as_evidence((*case.errors(*NO_LIBCUDA), *case.errors("shown-container")[:1]))
            yield replace(_started_without(case, texts, Confidence.POSSIBLE), severity=Severity.WARNING)
    else:
        known(case.snapshot.container.kind)


def _started_without(case: Case, texts: tuple[Evidence, ...], confidence: Confidence) -> Problem:
    return Problem(
        subject="container",
        what="The container was started without the GPU.",
        why="The driver's libraries and the GPU's device nodes are added when a container starts; the image cannot bring them.",
        evidence=texts,
        remedies=container_fixes.start_with_gpu(case),
        confidence=confidence,
    )


def _nothing_passed_in(case: Case) -> Iterable[Problem]:
    """The problem where the host has a GPU and this container got nothing of it."""
    driver, container = case.snapshot.driver, case.snapshot.container
    nodes = [node for node in known(driver.device_nodes) if node.path.startswith(("/dev/nvidia", "/dev/dxg"))]
    copies = [copy for copy in maybe(driver.libcuda_copies) or () if copy.origin in (LibraryOrigin.DRIVER, LibraryOrigin.WSL)]
    injected = maybe(container.injected_libraries)
    if nodes or copies or injected:
        return
    if in_wsl(case):
        bridge = Evidence(fact="driver.device_nodes", value="no /dev/dxg in this container", source="/dev")
        yield _started_without(case, (bridge,), Confidence.LIKELY)
        return
    if _host_shows_no_gpu(case):
        raise NotApplicableError("no NVIDIA GPU on the host's PCI bus")
    host_gpus = pci_gpus(case.snapshot, NVIDIA_VENDOR)
    if not host_gpus and not isinstance(driver.kernel_module, Known):
        known(driver.kernel_module)
        return
    proof = (
        Evidence(fact="driver.device_nodes", value="no /dev/nvidia* in this container", source="/dev"),
        *evidence("driver.driver_release", driver.driver_release),
        *(
            Evidence(fact="driver.pci_devices", value=f"{device.bus_id} 10de:{device.device_id}", source="sysfs")
            for device in host_gpus[:2]
        ),
    )
    yield _started_without(case, proof, Confidence.CERTAIN)


def _host_shows_no_gpu(case: Case) -> bool:
    """Do the host's PCI bus and modules, which containers see, show no NVIDIA GPU? Under WSL they never show one."""
    driver = case.snapshot.driver
    if in_wsl(case) or pci_gpus(case.snapshot, NVIDIA_VENDOR) or isinstance(driver.kernel_module, Known):
        return False
    return isinstance(driver.pci_devices, Known)


def container_visible_devices_none(case: Case) -> Iterable[Problem]:
    """NVIDIA_VISIBLE_DEVICES tells the container runtime to pass no GPU into this container.

    What it checks: the values none, void and empty in a container that has no GPU.

    Why it matters: the runtime obeys: with void it adds nothing, with none the driver's libraries but no GPU.

    How to fix: start the container with NVIDIA_VISIBLE_DEVICES=all or a list of GPUs, or with --gpus.

    When it is wrong: with CDI the runtime sets void itself and passes the GPU in another way; the rule speaks only where CUDA
    does not work.

    Sources: NVIDIA Container Toolkit documentation, environment variables.
    """
    value = known(case.snapshot.environment).get(GIVEN_DEVICES)
    if value is None or value.strip().lower() not in ("none", "void", ""):
        return
    if not in_container(case.snapshot):
        raise NotApplicableError("the variable is read by container runtimes only")
    nodes = [node for node in maybe(case.snapshot.driver.device_nodes) or () if GPU_NODE.match(node.path)]
    if driver_works(case.snapshot) or nodes:
        return
    if _host_shows_no_gpu(case):
        raise NotApplicableError("no NVIDIA GPU on the host's PCI bus")
    yield Problem(
        subject=GIVEN_DEVICES,
        what=f"{GIVEN_DEVICES}={value!r} tells the container runtime to pass no GPU into this container.",
        why="The runtime adds device nodes and driver libraries only for the GPUs named there.",
        evidence=variable_evidence(GIVEN_DEVICES, value),
        remedies=container_fixes.start_with_gpu(case),
    )


def container_require_unsatisfied(case: Case) -> Iterable[Problem]:
    """The image asks for a newer driver than the host has (NVIDIA_REQUIRE_CUDA), so the container is not started.

    What it checks: the runtime's "requirement error: unsatisfied condition".

    Why it matters: CUDA images name the CUDA version that they need. Within a CUDA major the programs in it might run on the
    older driver all the same (minor-version compatibility), but PTX and new features would not.

    How to fix: use an image of a CUDA version that the driver serves, or update the host's driver. NVIDIA_DISABLE_REQUIRE=1
    skips the check, at one's own risk.

    When it is wrong: never seen; the runtime names condition and driver.

    Sources: NVIDIA Container Toolkit documentation, NVIDIA_REQUIRE_*; libnvidia-container.
    """
    yield from unsatisfied_conditions(case)
    errors = case.errors("container-require-unsatisfied")
    if not errors:
        return
    values = {key: value for error in errors for key, value in error.values.items()}
    condition = values.get("condition") or (f"cuda>={values['image_cuda']}" if "image_cuda" in values else "")
    driver = case.snapshot.driver
    supports = maybe(driver.driver_cuda_version)
    reach = (
        f"; driver {maybe(driver.driver_release) or ''} supports CUDA up to {supports}".replace("driver  ", "the driver ")
        if supports
        else ""
    )
    yield Problem(
        subject="container",
        what=f"The image requires {condition or 'a newer driver'}{reach}.",
        why="The container runtime checks NVIDIA_REQUIRE_CUDA of the image and does not start the container.",
        evidence=(
            *as_evidence(errors),
            *evidence("driver.driver_release", driver.driver_release),
            *evidence("driver.driver_cuda_version", driver.driver_cuda_version),
        ),
        remedies=(
            Remedy(
                Fix(
                    title=f"Use an image for CUDA {supports.release} or older (its tag names the version)"
                    if supports
                    else "Use an image of an older CUDA version",
                    where=Where.HOST,
                )
            ),
            *fixes.update_driver(case, None),
            Remedy(
                Fix(
                    title="Or skip the check (same CUDA major only; PTX of a newer toolkit will still fail)",
                    commands=("docker run --gpus all -e NVIDIA_DISABLE_REQUIRE=1 IMAGE",),
                    where=Where.HOST,
                )
            ),
        ),
    )


def container_unknown_device(case: Case) -> Iterable[Problem]:
    """The container asks for a GPU that does not exist on the host.

    What it checks: the runtime's "unknown device".

    Why it matters: the container does not start.

    How to fix: name an existing index or UUID (nvidia-smi -L lists them).

    When it is wrong: after a change of MIG instances the old UUIDs are gone; then it is right, and the list has to be renewed.

    Sources: libnvidia-container; docker run reference, --gpus.
    """
    errors = case.errors("container-unknown-device")
    if errors:
        device = errors[0].values.get("device", "")
        yield Problem(
            subject="container",
            what=f"The container asks for the GPU {device!r}, which the host does not have."
            if device
            else "The container asks for a GPU that the host does not have.",
            why="The container runtime passes in only GPUs that exist under that index or UUID.",
            evidence=as_evidence(errors),
            tags=("visible-devices-invalid",),
            remedies=(
                Remedy(
                    Fix(
                        title="Name a GPU that exists",
                        commands=("nvidia-smi -L", "docker run --gpus '\"device=0\"' IMAGE"),
                        where=Where.HOST,
                    )
                ),
            ),
        )


def kubernetes_gpu_not_offered(case: Case) -> Iterable[Problem]:
    """No node offers nvidia.com/gpu: the device plug-in does not run or sees no GPU.

    What it checks: the scheduler's and the device plug-in's texts.

    Why it matters: pods that ask for a GPU stay pending.

    How to fix: set the node's container runtime to nvidia, install driver and device plug-in (or the GPU operator), and look at
    the plug-in's log.

    When it is wrong: where the node's GPUs are all in use, "Insufficient nvidia.com/gpu" is right and nothing is broken.

    Sources: Kubernetes device plug-ins; NVIDIA k8s-device-plugin.
    """
    texts = seen(case, "kubernetes-no-gpu-resource")
    if texts:
        yield Problem(
            subject="Kubernetes",
            what="No node offers the GPU (nvidia.com/gpu), or all are in use.",
            why="The device plug-in offers GPUs only where NVML works in its own container, which needs the nvidia runtime there.",
            evidence=texts,
            confidence=Confidence.LIKELY,
            remedies=(
                driver_fixes.as_root(
                    "On the node: make nvidia the runtime of containerd, then look at the plug-in's log",
                    "sudo nvidia-ctk runtime configure --runtime=containerd --set-as-default",
                    "sudo systemctl restart containerd",
                    verify=(
                        "kubectl describe node | grep nvidia.com/gpu",
                        "kubectl logs -n kube-system -l name=nvidia-device-plugin-ds",
                    ),
                ),
            ),
        )


def docker_too_old(case: Case) -> Iterable[Problem]:
    """This Docker does not know the option --gpus, which came with 19.03.

    What it checks: Docker's "unknown flag: --gpus".

    Why it matters: without it the GPU is given by the nvidia runtime only.

    How to fix: update Docker; or use --runtime=nvidia.

    When it is wrong: podman and other engines that are called docker use --device nvidia.com/gpu=all.

    Sources: Docker release notes, 19.03.
    """
    texts = seen(case, "docker-too-old")
    if texts:
        yield Problem(
            subject="container engine",
            what="This Docker does not know --gpus; the option came with Docker 19.03.",
            why="Without it the GPU is given by the nvidia runtime, or by CDI device names.",
            evidence=texts,
            remedies=(
                driver_fixes.as_root(
                    "Update Docker", "sudo apt-get install --only-upgrade docker-ce docker.io", verify=("docker --version",)
                ),
                Remedy(Fix(title="Or use the nvidia runtime", commands=("docker run --runtime=nvidia IMAGE",), where=Where.HOST)),
            ),
        )


def shm_too_small(case: Case) -> Iterable[Problem]:
    """The container's shared memory (/dev/shm) is too small for the program.

    What it checks: the texts of torch's data loaders, NCCL and NVIDIA's images.

    Why it matters: containers get 64 MB by default; data loaders with workers and NCCL need more, and die with a bus error.

    How to fix: start the container with --ipc=host or a larger --shm-size.

    When it is wrong: outside of containers a full /dev/shm gives the same text.

    Sources: docker run reference, --shm-size; PyTorch README, Docker image.
    """
    texts = seen(case, "shm-too-small")
    if texts:
        yield Problem(
            subject="shared memory",
            what="The shared memory of the container is too small for the program.",
            why="Containers get 64 MB by default; data loaders with workers and NCCL need more.",
            evidence=texts,
            severity=Severity.WARNING,
            remedies=(
                Remedy(
                    Fix(
                        title="Start the container with the host's shared memory, or with more",
                        commands=("docker run --gpus all --ipc=host IMAGE", "docker run --gpus all --shm-size=8g IMAGE"),
                        where=Where.HOST,
                        verify=("df -h /dev/shm",),
                    )
                ),
            ),
        )


RULES = (
    Rule(
        "CD601",
        "container-toolkit-missing",
        Severity.ERROR,
        "Docker has no NVIDIA runtime",
        container_toolkit_missing,
        explained_by=("docker-snap",),
    ),
    Rule("CD602", "docker-snap", Severity.ERROR, "Docker comes from the snap package", docker_snap),
    Rule(
        "CD603",
        "container-gpus-flag-missing",
        Severity.ERROR,
        "The container was started without the GPU",
        container_gpus_flag_missing,
        explained_by=("container-visible-devices-none", "container-toolkit-missing"),
    ),
    Rule(
        "CD604",
        "container-require-unsatisfied",
        Severity.ERROR,
        "The image requires a newer driver",
        container_require_unsatisfied,
    ),
    Rule(
        "CD610",
        "container-visible-devices-none",
        Severity.ERROR,
        "NVIDIA_VISIBLE_DEVICES passes in no GPU",
        container_visible_devices_none,
    ),
    Rule(
        "CD612",
        "container-unknown-device",
        Severity.ERROR,
        "The container asks for a GPU that does not exist",
        container_unknown_device,
    ),
    Rule(
        "CD613",
        "shm-too-small",
        Severity.WARNING,
        "The container's shared memory is too small",
        shm_too_small,
    ),
    Rule(
        "CD614",
        "kubernetes-gpu-not-offered",
        Severity.ERROR,
        "No node offers the GPU",
        kubernetes_gpu_not_offered,
        explained_by=("container-toolkit-missing", "kernel-module-not-loaded", "driver-userspace-missing"),
    ),
    Rule("CD618", "docker-too-old", Severity.ERROR, "Docker does not know --gpus", docker_too_old),
)
