"""Rules about the NVIDIA container runtime and what it may do on the host (CD6xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.rules import container_fixes, driver_fixes
from cudadoctor.rules.circumstances import asks_for_cdi, container_shown
from cudadoctor.rules.driver_access import NOT_PERMITTED
from cudadoctor.rules.driver_answers import CUDA_ERROR_UNKNOWN
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.questions import driver_works


def _in_some_container(case: Case) -> None:
    """Ends the rule where this is no container, no job of Slurm, and no text is about a container."""
    if not container_shown(case) and not container_fixes.in_slurm_job(case):
        known(case.snapshot.container.kind)
        raise NotApplicableError("not a container")


def cdi_spec_missing(case: Case) -> Iterable[Problem]:
    """The container engine does not find the CDI specification that describes the GPU.

    What it checks: the engine's "unresolvable CDI devices" and its like.

    Why it matters: with CDI the device name nvidia.com/gpu=... is looked up in YAML or JSON files under /etc/cdi and
    /var/run/cdi. Without the file, with one that the engine does not read, or with one of an older driver, the name leads
    nowhere.

    How to fix: generate the specification into /etc/cdi; again after each driver update.

    When it is wrong: rootless engines may read other folders (cdi_spec_dirs in containers.conf).

    Sources: Container Device Interface; NVIDIA Container Toolkit documentation, CDI.
    """
    texts = seen(case, "cdi-spec-missing")
    if texts:
        yield Problem(
            subject="container engine",
            what="The container engine finds no CDI specification for the GPU in the folders that it reads.",
            why="The name nvidia.com/gpu=... is looked up in the files of /etc/cdi and /var/run/cdi.",
            evidence=texts,
            remedies=container_fixes.generate_cdi_specification(),
        )
        return
    off = asks_for_cdi(case)
    if off:
        yield Problem(
            subject="container engine",
            what="Docker does not know the device driver 'cdi': CDI is not switched on in it.",
            why="Docker 25 and later read CDI specifications only with the feature switched on; older ones do not.",
            evidence=as_evidence(off),
            remedies=(
                driver_fixes.as_root(
                    "Switch CDI on in Docker",
                    "sudo nvidia-ctk runtime configure --runtime=docker --cdi.enabled",
                    "sudo systemctl restart docker",
                    verify=("docker run --rm --device nvidia.com/gpu=all ubuntu nvidia-smi",),
                ),
            ),
        )


def nvml_unknown_cgroup(case: Case) -> Iterable[Problem]:
    """The container may not use the GPU's device nodes: its device control group does not allow them (any more).

    What it checks: NVML's "Unknown Error" in a container, and device nodes that may not be opened although their file mode
    allows it, in a container or in a job of Slurm.

    Why it matters: the container runtime allows the nodes in the device control group. With no-cgroups = true (meant for
    rootless engines) it does not; and where systemd manages the groups, a `systemctl daemon-reload` takes the rule away from
    running containers. Slurm allows a job only the GPUs that it asked for.

    How to fix: in a job of Slurm, ask for a GPU (--gpus=1). Else set no-cgroups = false and restart the engine; for the second case start the container anew, and use CDI or
    Docker's cgroupfs driver to keep it from happening again.

    When it is wrong: on the host itself the same words mean a driver in a bad state.

    Sources: NVIDIA Container Toolkit, troubleshooting: "Failed to initialize NVML: Unknown Error".
    """
    if driver_works(case.snapshot):
        return
    texts = seen(case, "nvml-unknown-error")
    driver = case.snapshot.driver
    status = maybe(driver.nvml)
    if status is not None and status.code == CUDA_ERROR_UNKNOWN:
        texts = (*evidence("driver.nvml", driver.nvml, value=f"{status.code} {status.message}"), *texts)
    denied = [node for node in maybe(driver.device_nodes) or () if NOT_PERMITTED in node.detail.lower()]
    if not texts and not denied:
        if status is None:
            known(driver.nvml)
        return
    _in_some_container(case)
    proof = Evidence(fact="driver.device_nodes", value=f"{denied[0].path}: {denied[0].detail}", source="/dev") if denied else None
    group = "container" if container_shown(case) else "job"
    yield Problem(
        subject=group,
        what=f"The {group}'s device control group does not allow the GPU's device nodes.",
        why=_why_denied(case),
        evidence=(*texts, *((proof,) if proof is not None else ()), *seen(case, "shown-no-cgroups", "shown-cgroup-reload")),
        remedies=_allow_devices(case),
        confidence=Confidence.CERTAIN if denied or case.saw("shown-no-cgroups") else Confidence.LIKELY,
        references=(driver_fixes.TOOLKIT_GUIDE,),
    )


def _why_denied(case: Case) -> str:
    if not container_shown(case):
        return "Slurm allows a job only the GPUs that it asked for, and this one asked for none."
    if case.saw("shown-no-cgroups"):
        return "no-cgroups = true (meant for rootless engines) keeps the NVIDIA runtime from allowing them, so NVML cannot open them."
    return "Either no-cgroups = true keeps the NVIDIA runtime from allowing them, or a systemctl daemon-reload took the rule away while the container ran."


def _allow_devices(case: Case) -> tuple[Remedy, ...]:
    configure = driver_fixes.as_root(
        "Let the NVIDIA runtime set the device control group",
        "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups=false --in-place",
        "sudo systemctl restart docker",
        verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
    )
    if case.saw("shown-no-cgroups"):
        return (configure,)
    if not container_shown(case):
        return container_fixes.ask_slurm_for_gpu()
    restart = container_fixes.start_anew(case)
    pass_nodes = Remedy(
        Fix(
            title="To keep a daemon-reload from taking the GPU away, name the nodes as devices (or use CDI)",
            commands=(
                "docker run --gpus all --device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia-uvm-tools --device /dev/nvidia0 IMAGE",
            ),
            where=Where.HOST,
        )
    )
    return (restart, configure, pass_nodes)


def container_rootless_cgroups(case: Case) -> Iterable[Problem]:
    """A rootless container engine may not change the device control group, and the NVIDIA runtime tries to.

    What it checks: the runtime's "bpf_prog_query(BPF_CGROUP_DEVICE) failed" and its like.

    Why it matters: the container does not start.

    How to fix: tell the runtime to leave the control group alone (no-cgroups = true), in the user's configuration; or use CDI.

    When it is wrong: with a root engine the same setting breaks the access to the GPU (nvml-unknown-cgroup).

    Sources: NVIDIA Container Toolkit documentation, rootless mode.
    """
    texts = seen(case, "container-rootless-cgroups")
    if texts:
        yield Problem(
            subject="container engine",
            what="The rootless engine may not change the device control group, which the NVIDIA runtime tries to do.",
            why="The container does not start. In a rootless engine the files' own permissions decide, no device group is needed.",
            evidence=texts,
            remedies=(
                driver_fixes.as_root(
                    "Tell the NVIDIA runtime to leave the control group alone (rootless engines only)",
                    "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place",
                    verify=("docker run --rm --gpus all ubuntu nvidia-smi",),
                ),
            ),
        )


def container_hook_failed(case: Case) -> Iterable[Problem]:
    """The NVIDIA container runtime could not prepare the container.

    What it checks: errors of nvidia-container-cli that no other rule explains.

    Why it matters: the container does not start. The words after the colon are the reason: the driver's, the loader's or a
    mount's.

    How to fix: mend what the reason names; `nvidia-smi` and `nvidia-container-cli info` on the host show whether the driver is
    well.

    When it is wrong: where another finding names the cause, this is its consequence.

    Sources: libnvidia-container.
    """
    for error in case.errors("container-cli-failed")[:1]:
        reason = error.values.get("reason") or error.values.get("device") or ""
        yield Problem(
            subject="container engine",
            what="The NVIDIA container runtime could not prepare the container" + (f": {reason}." if reason else "."),
            why="The container does not start; the reason lies on the host.",
            evidence=as_evidence((error,)),
            remedies=(
                driver_fixes.as_root(
                    "See whether the host's driver is well",
                    "nvidia-smi",
                    "sudo nvidia-container-cli -k -d /dev/tty info",
                    verify=(),
                ),
            ),
        )


def container_cgroup_v2_unsupported(case: Case) -> Iterable[Problem]:
    """The NVIDIA Container Toolkit is too old for this host's control groups (version 2).

    What it checks: the runtime's "cgroup subsystem devices not found".

    Why it matters: distributions of 2021 and later mount control groups of version 2 only; the toolkit knows them from
    libnvidia-container 1.8 on.

    How to fix: update the toolkit; or boot with systemd.unified_cgroup_hierarchy=0.

    When it is wrong: never seen.

    Sources: libnvidia-container, release notes of 1.8.0.
    """
    texts = seen(case, "container-cgroup-v2-unsupported")
    if texts:
        yield Problem(
            subject="container engine",
            what="The installed NVIDIA Container Toolkit does not know control groups of version 2, which this host uses.",
            why="libnvidia-container knows them from 1.8 on.",
            evidence=texts,
            remedies=container_fixes.install_container_toolkit(case),
        )


RULES = (
    Rule("CD606", "cdi-spec-missing", Severity.ERROR, "No CDI specification for the GPU", cdi_spec_missing),
    Rule(
        "CD607",
        "nvml-unknown-cgroup",
        Severity.ERROR,
        "The container's control group does not allow the GPU",
        nvml_unknown_cgroup,
        explained_by=("docker-snap",),
        needs_gpu=True,
    ),
    Rule(
        "CD611",
        "container-hook-failed",
        Severity.ERROR,
        "The NVIDIA container runtime failed",
        container_hook_failed,
        explained_by=(
            "nvml-version-mismatch",
            "kernel-module-not-loaded",
            "driver-userspace-missing",
            "container-require-unsatisfied",
            "container-unknown-device",
            "container-rootless-cgroups",
            "wsl-windows-build-unsupported",
            "wsl-adapter-failed",
            "nvml-unknown-cgroup",
            "docker-snap",
            "driver-libs-in-image",
            "container-cgroup-v2-unsupported",
        ),
    ),
    Rule(
        "CD615",
        "container-rootless-cgroups",
        Severity.ERROR,
        "A rootless engine may not set the control group",
        container_rootless_cgroups,
    ),
    Rule(
        "CD617",
        "container-cgroup-v2-unsupported",
        Severity.ERROR,
        "The container toolkit is too old for cgroup v2",
        container_cgroup_v2_unsupported,
    ),
)
