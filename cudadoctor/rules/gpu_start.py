"""Rules about what a GPU needs to start: fabric manager, firmware, system processor (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.matrices.gpu_names import Segment, segment_of
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Evidence, Severity
from cudadoctor.model.snapshot import Platform
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules import driver_fixes, fixes
from cudadoctor.rules.circumstances import cu_init_code
from cudadoctor.rules.driver_answers import CUDA_ERROR_SYSTEM_NOT_READY
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, cu_init_evidence, seen
from cudadoctor.rules.questions import driver_works, gpu_name, gpus, in_container, platform

FABRIC_CHIPS = ("v100", "a100", "a800", "h100", "h800", "h200", "h20", "b100", "b200", "b300")
"""Products that are also sold on NVSwitch boards (HGX, DGX, NVL72); the cards for PCIe slots say so in their names."""


def fabric_manager_not_running(case: Case) -> Iterable[Problem]:
    """The NVSwitch fabric is not initialised: the fabric manager does not run, or is of another release than the driver (802).

    What it checks: cuInit's error 802 and its text, the state of the fabric that NVML reports, and the fabric manager's release
    against the driver's.

    Why it matters: on NVSwitch boards (HGX, DGX) CUDA starts only after the fabric manager has set up the switches. It accepts
    only a driver of exactly its own release; an update of one alone breaks all GPUs of the machine.

    How to fix: install the fabric manager of exactly the driver's release, and start and enable its service.

    When it is wrong: right after boot the fabric takes some seconds; with confidential computing 802 also means that the GPUs
    are not set ready (nvidia-smi conf-compute -srs 1).

    Sources: cuda.h, CUDA_ERROR_SYSTEM_NOT_READY (802); NVIDIA Fabric Manager user guide.
    """
    if driver_works(case.snapshot):
        return
    said = seen(case, "fabric-manager-not-running")
    error = seen(case, "cuda-error-802")
    code = cu_init_code(case)
    if not said and not error and code != CUDA_ERROR_SYSTEM_NOT_READY:
        known(case.snapshot.driver.cu_init)
        return
    if not error and code != CUDA_ERROR_SYSTEM_NOT_READY and not _may_have_fabric(case):
        return
    release = case.snapshot.driver.driver_release
    other = _other_release(case)
    mismatch = f" The fabric manager is {other}, the driver {_driver_release(case)}: they have to be equal." if other else ""
    have = _driver_release(case)
    yield Problem(
        subject="fabric manager",
        what="The NVSwitch fabric is not initialised: the fabric manager does not run for this driver." + mismatch,
        why='Until it has set up the switches, CUDA fails on every GPU with error 802, "system not yet initialized".',
        evidence=(
            *error,
            *said,
            *cu_init_evidence(case),
            *evidence("driver.fabric_manager", case.snapshot.driver.fabric_manager),
            *seen(case, "shown-fabric-package"),
            *evidence("driver.driver_release", release),
        ),
        remedies=driver_fixes.start_fabric_manager(case, have.major if have is not None else None),
    )


def _may_have_fabric(case: Case) -> bool:
    """Can this be an NVSwitch machine: no GPU is known, or one that is sold on such boards?"""
    names = [gpu_name(gpu).lower() for gpu in gpus(case.snapshot)]
    return not names or any("pcie" not in name and any(chip in name for chip in FABRIC_CHIPS) for name in names)


def _driver_release(case: Case) -> DottedVersion | None:
    release = maybe(case.snapshot.driver.driver_release)
    if release is not None:
        return release
    return _release(case, "shown-driver-package")


def _release(case: Case, kind: str) -> DottedVersion | None:
    """The first release that a text of this kind names."""
    found = next((error.values["release"] for error in case.errors(kind) if "release" in error.values), None)
    return DottedVersion.parse(found) if found is not None else None


def _other_release(case: Case) -> DottedVersion | None:
    """The fabric manager's release where it is not the driver's."""
    manager, driver = _release(case, "shown-fabric-package"), _driver_release(case)
    if manager is None or driver is None or manager.parts[: len(driver.parts)] == driver.parts:
        return None
    return manager


def persistence_mode_off(case: Case) -> Iterable[Problem]:
    """Persistence mode is off on a data-centre GPU: the first program after an idle time waits for the driver.

    What it checks: the persistence mode of data-centre GPUs under Linux.

    Why it matters: without a client the driver lets the GPU go; the next program initialises it again, which takes seconds on
    machines with several GPUs, and settings such as power limits are lost.

    How to fix: run nvidia-persistenced.

    When it is wrong: it is never a fault; desktops and virtual machines do without.

    Sources: NVIDIA driver persistence documentation.
    """
    if platform(case.snapshot) is not Platform.LINUX or in_container(case.snapshot):
        raise NotApplicableError("a setting of Linux hosts")
    off = [
        gpu
        for gpu in known(case.snapshot.gpus)
        if maybe(gpu.persistence) is False and segment_of(gpu_name(gpu)) is Segment.DATA_CENTER
    ]
    if off:
        first = off[0]
        yield Problem(
            subject=f"GPU {first.index}" if len(off) == 1 else f"{len(off)} GPUs",
            what="Persistence mode is off: the first program after an idle time waits until the driver has initialised the GPU.",
            why="Without a client the driver lets the GPU go, and settings such as power limits with it.",
            evidence=evidence(f"gpus[{first.index}].persistence", first.persistence, value="off"),
            remedies=(
                driver_fixes.as_root(
                    "Keep the GPUs initialised",
                    "sudo systemctl enable --now nvidia-persistenced",
                    verify=("nvidia-smi -q | grep -i persistence",),
                ),
            ),
        )


def gpu_init_failed(case: Case) -> Iterable[Problem]:
    """The kernel driver could not start the GPU (RmInitAdapter failed).

    What it checks: the kernel's lines.

    Why it matters: nvidia-smi then shows "No devices were found". The reasons are many: firmware missing, the wrong module
    flavour, a PCI window that the mainboard did not assign, power or link trouble.

    How to fix: look at the lines before it; reseat the GPU and its power, switch on "Above 4G decoding" in the firmware, update
    driver and mainboard firmware.

    When it is wrong: where another finding names the cause, this is its consequence.

    Sources: NVRM messages; NVIDIA driver README, Known Issues.
    """
    texts = seen(case, "gpu-init-failed")
    if texts:
        yield Problem(
            subject="GPU",
            what="The kernel driver could not start the GPU.",
            why="It is on the bus, but CUDA and nvidia-smi do not see it.",
            evidence=(*texts, *seen(case, "smi-no-devices")),
            remedies=(driver_fixes.read_kernel_log(),),
        )


def gsp_failure(case: Case) -> Iterable[Problem]:
    """The GPU's system processor (GSP) does not answer the driver.

    What it checks: the kernel's lines about RPC timeouts and heartbeats of the GSP (also Xid 119 and 120).

    Why it matters: the GPU is unusable until it is reset; programs on it hang or fail.

    How to fix: reset the GPU or reboot; update the driver. Where it comes back on a branch before 560 with the proprietary
    module, the GSP can be switched off.

    When it is wrong: one line during a reset is normal.

    Sources: NVRM messages; NVIDIA Xid catalogue, 119 and 120.
    """
    texts = (*seen(case, "gsp-failure"), *_xids(case, "119", "120"))
    if texts:
        yield Problem(
            subject="GPU",
            what="The GPU's system processor (GSP) does not answer the driver.",
            why="The GPU is unusable until it is reset; programs on it hang or fail.",
            evidence=texts,
            remedies=(
                driver_fixes.as_root(
                    "Reset the GPU once nothing uses it, or reboot", "sudo nvidia-smi --gpu-reset -i 0", "sudo reboot"
                ),
                *fixes.update_driver(case, None),
            ),
        )


def _xids(case: Case, *numbers: str) -> tuple[Evidence, ...]:
    return as_evidence(tuple(error for error in case.errors("xid") if error.values.get("xid") in numbers))


def gsp_firmware_missing(case: Case) -> Iterable[Problem]:
    """The firmware file of the GPU's system processor (GSP) is not where the driver looks for it.

    What it checks: the kernel's lines about firmware that could not be loaded.

    Why it matters: the open kernel module always needs it; without the file the GPU does not start.

    How to fix: install the firmware package of exactly the driver's release, and rebuild the initial RAM disk if the module is
    loaded from it.

    When it is wrong: the same line from nouveau is harmless once the nvidia module has the GPU.

    Sources: README of the open kernel modules; Linux firmware loader.
    """
    texts = seen(case, "gsp-firmware-missing")
    if not texts or driver_works(case.snapshot):
        return
    release = maybe(case.snapshot.driver.driver_release)
    branch = str(release.branch) if release is not None else "BRANCH"
    commands = {
        "apt": f"sudo apt-get install --reinstall nvidia-firmware-{branch}",
        "dnf": "sudo dnf reinstall 'nvidia-*firmware*'",
        "pacman": "sudo pacman -S nvidia-utils linux-firmware",
        "zypper": "sudo zypper install kernel-firmware-nvidia-gspx-G06",
    }
    command = commands.get(fixes.package_manager(case.snapshot) or "", "ls /lib/firmware/nvidia/")
    yield Problem(
        subject="driver",
        what="The firmware of the GPU's system processor (GSP) could not be loaded.",
        why="The open kernel module needs it; without it the GPU does not start.",
        evidence=texts,
        remedies=(driver_fixes.as_root_with_reboot("Install the firmware of the driver's release", command, "sudo reboot"),),
    )


RULES = (
    Rule(
        "CD117",
        "fabric-manager-not-running",
        Severity.ERROR,
        "The NVSwitch fabric is not initialised (802)",
        fabric_manager_not_running,
        needs_gpu=True,
    ),
    Rule("CD127", "persistence-mode-off", Severity.NOTE, "Persistence mode is off", persistence_mode_off, needs_gpu=True),
    Rule(
        "CD128",
        "gpu-init-failed",
        Severity.ERROR,
        "The kernel driver could not start the GPU",
        gpu_init_failed,
        explained_by=(
            "open-module-gpu-unsupported",
            "proprietary-module-gpu-unsupported",
            "gpu-dropped-by-driver",
            "driver-older-than-gpu",
            "gsp-firmware-missing",
            "gsp-failure",
            "xid-bus-error",
        ),
        needs_gpu=True,
    ),
    Rule("CD129", "gsp-failure", Severity.ERROR, "The GPU's system processor does not answer", gsp_failure, needs_gpu=True),
    Rule(
        "CD130",
        "gsp-firmware-missing",
        Severity.ERROR,
        "The GPU's firmware could not be loaded",
        gsp_firmware_missing,
        needs_gpu=True,
    ),
)
