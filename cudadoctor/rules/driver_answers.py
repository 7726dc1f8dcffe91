"""Rules about what the driver answers: no device, an error, nothing, or two things at once (CD118 to CD125)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Known, Missing, MissingReason, known
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.rules import fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import cu_init_is, seen, status_words
from cudadoctor.rules.questions import (
    Presence,
    gpus,
)

CUDA_ERROR_NO_DEVICE = 100
CUDA_ERROR_SYSTEM_NOT_READY = 802
CUDA_ERROR_UNKNOWN = 999
"""cuda.h."""


"""Numbers of the CUDA driver API (cuda.h) and NVML (nvml.h); matrices/cuda_errors.toml has all of them with sources."""


def no_device_visible(case: Case) -> Iterable[Problem]:
    """CUDA sees no device although an NVIDIA GPU is present.

    What it checks: cuInit's error 100, a device count of 0, and error texts that say "no CUDA-capable device is detected".

    Why it matters: a program then falls back to the CPU or stops. The cause is nearly always another finding (hidden by
    CUDA_VISIBLE_DEVICES, a driver fault, a container without access), which is then shown as the root.

    How to fix: mend the root cause named; without one, look at the kernel log.

    When it is wrong: on a machine without a GPU this is expected, and the rule does not speak.

    Sources: cuda.h, CUDA_ERROR_NO_DEVICE (100).
    """
    driver = case.snapshot.driver
    texts = (*cu_init_is(case, CUDA_ERROR_NO_DEVICE), *seen(case, "cuda-error-100", "torch-no-gpu-visible", "smi-no-devices"))
    presence = case.gpu_presence
    if presence is Presence.NO:
        raise NotApplicableError("no NVIDIA GPU")
    if presence is not Presence.YES and case.saw("arch-list-empty-no-gpu"):
        raise NotApplicableError("a build where no GPU is meant to be visible")
    count = driver.visible_device_count
    if isinstance(count, Known) and count.value == 0:
        texts = (*evidence("driver.visible_device_count", count), *texts)
    if not texts:
        if isinstance(count, Missing) and isinstance(driver.cu_init, Missing):
            known(driver.cu_init)
        return
    yield Problem(
        subject="CUDA",
        what=f"CUDA sees no device, although {_seen_gpus(case)}.",
        why="Programs that ask for a GPU stop, or silently use the CPU.",
        evidence=texts,
        confidence=Confidence.CERTAIN if presence is Presence.YES else Confidence.LIKELY,
        remedies=(
            Remedy(
                Fix(
                    title="See what the kernel driver says about the GPU",
                    commands=("sudo dmesg | grep -iE 'nvrm|xid' | tail -20",),
                    needs_root=True,
                )
            ),
        ),
    )


def _seen_gpus(case: Case) -> str:
    listed = gpus(case.snapshot)
    if listed:
        return f"{len(listed)} GPU{'s are' if len(listed) > 1 else ' is'} listed by the driver's tools"
    return "an NVIDIA GPU is in the machine" if case.gpu_presence is Presence.YES else "one was expected"


def nvidia_smi_hangs(case: Case) -> Iterable[Problem]:
    """nvidia-smi does not return.

    What it checks: whether nvidia-smi ended within its time.

    Why it matters: a wedged driver or a failing GPU makes every tool that asks it hang; jobs then hang as well. It can also
    be slow by nature: on a machine without persistence mode the first call initialises all GPUs.

    How to fix: look at the kernel log for Xid and NVRM lines; a GPU that does not answer usually needs a reset or a reboot.

    When it is wrong: on a machine with many GPUs and no persistence mode a healthy first call can take longer; ask again
    with --timeout.

    Sources: nvidia-smi manual, persistence mode.
    """
    fact = case.snapshot.driver.nvidia_smi
    if isinstance(fact, Missing) and fact.reason is MissingReason.TIMEOUT:
        yield Problem(
            subject="nvidia-smi",
            what=f"nvidia-smi did not return: {fact.detail or 'no answer within its time'}.",
            why="A wedged driver or a GPU that does not answer makes it hang, and jobs with it; what depends on it could not be determined.",
            evidence=(Evidence(fact="driver.nvidia_smi", value=fact.detail or "timeout", source=fact.source or "nvidia-smi"),),
            severity=Severity.WARNING,
            confidence=Confidence.CERTAIN,
            remedies=(
                Remedy(
                    Fix(
                        title="See what the kernel says",
                        commands=("sudo dmesg | grep -iE 'nvrm|xid' | tail -20",),
                        needs_root=True,
                    )
                ),
                Remedy(Fix(title="Give a slow first initialisation more time", commands=("cudadoctor check --timeout 60",))),
            ),
        )
    elif isinstance(fact, Missing) and fact.reason not in (MissingReason.NOT_FOUND, MissingReason.FAILED):
        known(fact)


def driver_call_hangs(case: Case) -> Iterable[Problem]:
    """A call into the driver's libraries does not return, or kills the process that makes it.

    What it checks: whether nvmlInit and cuInit, each made in a child process, came back.

    Why it matters: every program that makes the call will hang or die in it: for cuInit all that use CUDA, for nvmlInit NCCL
    and monitors.

    How to fix: look at the kernel log; processes stuck in the driver (state D) and Xid lines say which GPU; a reset or reboot
    clears it.

    When it is wrong: a very slow first initialisation of many GPUs without persistence mode; ask again with --timeout.

    Sources: CUDA driver API, cuInit; NVML API, nvmlInit.
    """
    of_cuda = "Every CUDA program here will meet the same."
    of_nvml = "Every program that asks NVML will meet the same: nvidia-smi, NCCL, monitors. CUDA itself does not call it."
    for name, path, fact, why in (
        ("cuInit", "driver.cu_init", case.snapshot.driver.cu_init, of_cuda),
        ("nvmlInit", "driver.nvml", case.snapshot.driver.nvml, of_nvml),
    ):
        if isinstance(fact, Missing) and fact.reason in (MissingReason.TIMEOUT, MissingReason.CRASHED):
            verb = "does not return" if fact.reason is MissingReason.TIMEOUT else "kills the process that calls it"
            yield Problem(
                subject=name,
                what=f"{name} {verb}: {fact.detail}." if fact.detail else f"{name} {verb}.",
                why=why,
                evidence=(Evidence(fact=path, value=fact.detail or fact.reason.value, source=fact.source or "child process"),),
                severity=Severity.WARNING if fact.reason is MissingReason.TIMEOUT else Severity.ERROR,
                remedies=(
                    Remedy(
                        Fix(
                            title="See what the kernel says",
                            commands=("sudo dmesg | grep -iE 'nvrm|xid' | tail -20",),
                            needs_root=True,
                        )
                    ),
                ),
            )


def cuda_init_fails(case: Case) -> Iterable[Problem]:
    """cuInit fails with an error that no other rule explains.

    What it checks: any code other than 0 that the driver's cuInit returned.

    Why it matters: no CUDA program can start.

    How to fix: `cudadoctor explain CODE` lists the known causes of the code.

    When it is wrong: where another finding names the cause, this one is shown as its consequence.

    Sources: matrices/cuda_errors.toml.
    """
    status = known(case.snapshot.driver.cu_init)
    if status.code in (0, CUDA_ERROR_NO_DEVICE):
        return
    yield Problem(
        subject="CUDA",
        what=f"cuInit fails with error {status_words(status)}.",
        why="No CUDA program can start.",
        evidence=evidence("driver.cu_init", case.snapshot.driver.cu_init, value=status_words(status)),
        remedies=(
            Remedy(
                Fix(title="See the known causes of this error", commands=(f"cudadoctor explain {status.code}",), where=Where.HOST)
            ),
        ),
    )


def driver_sources_disagree(case: Case) -> Iterable[Problem]:
    """Two sources give different releases for the driver.

    What it checks: the releases that procfs (the kernel module), NVML and nvidia-smi report.

    Why it matters: libraries of one release with a kernel module of another do not work together; the next program may fail
    with a version mismatch.

    How to fix: reboot, or install one release of all parts of the driver.

    When it is wrong: in WSL2 nvidia-smi's own version differs from the Windows driver's; only the driver's is compared.

    Sources: NVIDIA driver installation guide.
    """
    release = case.snapshot.driver.driver_release
    value = known(release)
    different = [other for other in (release.others if isinstance(release, Known) else ()) if other.value != value.text]
    if different:
        said = ", ".join(f"{other.source} {other.value}" for other in different)
        source = release.source if isinstance(release, Known) else ""
        yield Problem(
            subject="driver",
            what=f"The sources disagree on the driver's release: {source} {value}, {said}.",
            why="Parts of two releases are installed; they work together only by luck, or not at all.",
            evidence=evidence("driver.driver_release", release),
            remedies=fixes.reload_driver(case),
        )


BREAKS_CUINIT = (
    "nvml-version-mismatch",
    "kernel-module-not-loaded",
    "driver-too-old",
    "stub-libcuda",
    "system-driver-mismatch",
    "forward-compat-unsupported",
    "cuda-compat-in-image",
    "fabric-manager-not-running",
    "uvm-device-missing",
    "uvm-broken-after-suspend",
    "device-permission",
    "nvml-unknown-cgroup",
    "container-gpus-flag-missing",
    "wsl-linux-driver-installed",
    "wsl-libcuda-path",
    "wsl-windows-build-unsupported",
    "xid-bus-error",
    "mig-misconfigured",
    "visible-devices-invalid",
    "visible-devices-hide-all",
    "mps-connection-failed",
    "container-visible-devices-none",
    "container-driver-libs-not-on-path",
    "driver-capabilities-missing",
    "driver-libs-in-image",
    "wsl-adapter-failed",
    "driver-userspace-missing",
    "gpu-init-failed",
    "gsp-failure",
    "gsp-firmware-missing",
    "gpu-bound-to-vfio",
    "gpu-dropped-by-driver",
    "driver-older-than-gpu",
    "open-module-gpu-unsupported",
    "proprietary-module-gpu-unsupported",
    "nvml-unknown-error",
    "wsl-generation-one",
    "wsl-adapter-failed",
)
"""Names of findings each of which makes cuInit fail or show no device."""


RULES = (
    Rule(
        "CD118",
        "nvidia-smi-hangs",
        Severity.WARNING,
        "nvidia-smi does not return",
        nvidia_smi_hangs,
        essential=True,
        needs_gpu=True,
    ),
    Rule(
        "CD119",
        "driver-call-hangs",
        Severity.WARNING,
        "A call into the driver hangs or crashes",
        driver_call_hangs,
        essential=True,
        needs_gpu=True,
    ),
    Rule(
        "CD120",
        "driver-sources-disagree",
        Severity.WARNING,
        "Sources disagree on the driver's release",
        driver_sources_disagree,
        explained_by=("nvml-version-mismatch",),
        needs_gpu=True,
    ),
    Rule(
        "CD124",
        "cuda-init-fails",
        Severity.ERROR,
        "cuInit fails with an error no other rule explains",
        cuda_init_fails,
        explained_by=BREAKS_CUINIT,
        needs_gpu=True,
    ),
    Rule(
        "CD125",
        "no-device-visible",
        Severity.ERROR,
        "CUDA sees no device",
        no_device_visible,
        explained_by=(*BREAKS_CUINIT, "libcuda-missing", "no-nvidia-gpu", "cpu-only-torch", "amd-gpu-no-cuda"),
        needs_gpu=True,
    ),
)
