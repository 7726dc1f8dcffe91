"""Rules about what a loaded kernel driver still needs: device nodes, libraries, firmware, the fabric manager (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.matrices.gpu_names import Segment, segment_of
from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import DeviceNode, LibraryOrigin, Platform
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules import driver_fixes, fixes
from cudadoctor.rules.circumstances import (
    as_evidence,
    container_shown,
    cu_init_code,
    cu_init_evidence,
    in_wsl,
    on_windows,
)
from cudadoctor.rules.driver import (
    CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_UNKNOWN,
    seen,
)
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.questions import driver_works, gpu_name, gpus, in_container, platform

UVM = "/dev/nvidia-uvm"
CONTROL = "/dev/nvidiactl"
NOT_PERMITTED = "operation not permitted"
"""EPERM, which a device control group gives; file permissions give EACCES, "permission denied"."""
FABRIC_CHIPS = ("v100", "a100", "a800", "h100", "h800", "h200", "h20", "b100", "b200", "b300")
"""Products that are also sold on NVSwitch boards (HGX, DGX, NVL72); the cards for PCIe slots say so in their names."""


def _linux_only(case: Case) -> None:
    if in_wsl(case) or on_windows(case) or platform(case.snapshot) is Platform.MACOS:
        raise NotApplicableError("no Linux kernel driver serves the GPU here")


def _nodes(case: Case) -> tuple[DeviceNode, ...]:
    return maybe(case.snapshot.driver.device_nodes) or ()


def _node_evidence(nodes: Iterable[DeviceNode]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            fact="driver.device_nodes",
            value=" ".join(part for part in (node.path, node.mode, node.detail) if part),
            source="/dev",
        )
        for node in nodes
    )


def driver_userspace_missing(case: Case) -> Iterable[Problem]:
    """The kernel module is there, but the driver's user-space libraries are not installed.

    What it checks: on a host with a loaded nvidia module, whether libcuda and NVML exist; and errors in which a program or the
    container runtime misses one of the driver's libraries.

    Why it matters: distributions split the driver into packages. With the kernel module alone no program can reach the GPU.

    How to fix: install the driver's compute libraries of the same release as the module.

    When it is wrong: in a container the host's libraries are mounted by the container runtime; what is missing there is a
    matter of how it was started.

    Sources: NVIDIA driver installation guide, the parts of the driver.
    """
    if driver_works(case.snapshot):
        return
    driver = case.snapshot.driver
    missing = [error for error in case.errors("driver-lib-missing") if not _in_container(case, error.text)]
    no_smi = case.errors("smi-not-installed") if gpus(case.snapshot) and not container_shown(case) else ()
    if missing or no_smi:
        if on_windows(case) or in_wsl(case) or platform(case.snapshot) is Platform.MACOS:
            raise NotApplicableError("the Windows driver brings these libraries")
        yield _userspace_problem(case, as_evidence((*missing, *no_smi)), missing[0].values.get("library", "") if missing else "")
        return
    if in_container(case.snapshot):
        raise NotApplicableError("in a container the host's libraries are mounted")
    if isinstance(driver.kernel_module, Missing):
        known(driver.kernel_module)
    copies = known(driver.libcuda_copies)
    lost = isinstance(driver.cu_init, Missing) and driver.cu_init.reason is MissingReason.NOT_FOUND
    if lost and not any(copy.origin is LibraryOrigin.DRIVER for copy in copies):
        yield _userspace_problem(case, evidence("driver.kernel_module", driver.driver_release), "")


def _in_container(case: Case, text: str) -> bool:
    """Is the message from inside a container? The container runtime's own (`nvidia-container-cli`) is about the host."""
    return container_shown(case) and "nvidia-container-cli" not in text


def _userspace_problem(case: Case, texts: tuple[Evidence, ...], library: str) -> Problem:
    release = maybe(case.snapshot.driver.driver_release)
    named = f" ({library} is missing)" if library else ""
    return Problem(
        subject="driver",
        what=f"The user-space libraries of the NVIDIA driver are not installed{named}.",
        why="With the kernel module alone no program reaches the GPU"
        + (f"; they have to be of the module's release, {release}." if release is not None else "."),
        evidence=texts,
        remedies=fixes.provide_libcuda(case, ()),
        confidence=Confidence.CERTAIN if library else Confidence.LIKELY,
    )


def uvm_device_missing(case: Case) -> Iterable[Problem]:
    """The unified-memory device /dev/nvidia-uvm is absent, so that cuInit fails although nvidia-smi works.

    What it checks: device nodes and loaded modules where cuInit fails or an error says so.

    Why it matters: nvidia-smi uses /dev/nvidiactl only; CUDA also needs /dev/nvidia-uvm, of the module nvidia_uvm. On servers
    without a display nothing loads it before the first program with the right to do so; in containers it has to be passed in.

    How to fix: load nvidia_uvm and make its node; in LXC or a hand-made container pass /dev/nvidia-uvm in as well.

    When it is wrong: where cuInit works, the absence of the node does not matter (a program of root's makes it).

    Sources: NVIDIA driver README, The NVIDIA kernel modules; nvidia-modprobe(1).
    """
    texts = seen(case, "uvm-device-missing")
    if driver_works(case.snapshot):
        return
    if not texts:
        code = cu_init_code(case)
        if code is None and not case.saw("cuda-error-999"):
            known(case.snapshot.driver.cu_init)
            return
        if code == 0 or not (_uvm_absent(case) or _uvm_not_passed_in(case)):
            return
    _linux_only(case)
    guessed = not texts and not _uvm_absent(case)
    yield Problem(
        subject=UVM,
        what=f"{UVM} was most likely not passed into the container, so cuInit fails; nvidia-smi does not need it and works."
        if guessed
        else f"{UVM} is absent, so cuInit fails; nvidia-smi does not need it and works.",
        why="CUDA needs the unified-memory module nvidia_uvm and its device node.",
        evidence=(*texts, *cu_init_evidence(case), *seen(case, "cuda-error-999"), *_node_evidence(_nodes(case))),
        remedies=driver_fixes.load_uvm(),
        severity=Severity.WARNING if guessed else Severity.ERROR,
        confidence=Confidence.POSSIBLE if guessed else Confidence.CERTAIN,
    )


def _uvm_not_passed_in(case: Case) -> bool:
    """Does a text tell of the unknown error in a container, and of no suspend? Then its nodes were passed in by hand."""
    return case.saw("cuda-error-999") and container_shown(case) and not case.saw("shown-suspend", "nvml-unknown-error")


def _uvm_absent(case: Case) -> bool:
    """Is the control node there and the unified-memory node or module not?"""
    nodes = {node.path for node in _nodes(case)}
    modules = maybe(case.snapshot.driver.loaded_modules)
    module_absent = modules is not None and "nvidia" in modules and "nvidia_uvm" not in modules
    return (CONTROL in nodes and UVM not in nodes) or (module_absent and UVM not in nodes)


def uvm_broken_after_suspend(case: Case) -> Iterable[Problem]:
    """CUDA fails with an unknown error (999) after the machine was suspended, while nvidia-smi works.

    What it checks: error 999 of cuInit or in a text, where the device nodes are there and may be opened; a suspend, resume or
    idle time that the text tells of makes it likely.

    Why it matters: the module nvidia_uvm does not survive a suspend in which video memory was not preserved. It stays broken
    until it is loaded anew; nothing has to be reinstalled.

    How to fix: reload nvidia_uvm once no process uses the GPU; let the driver preserve video memory over a suspend.

    When it is wrong: 999 is a catch-all: a driver updated under a running system, or a failing GPU, gives it too; the kernel
    log tells.

    Sources: NVIDIA driver README, Configuring Power Management Support; cuda.h, CUDA_ERROR_UNKNOWN (999).
    """
    texts = seen(case, "cuda-error-999")
    if driver_works(case.snapshot):
        return
    live = cu_init_code(case) == CUDA_ERROR_UNKNOWN
    if not texts and not live:
        known(case.snapshot.driver.cu_init)
        return
    _linux_only(case)
    if (
        _uvm_absent(case)
        or _closed(case)
        or case.saw(
            "uvm-device-missing", "device-permission", "nvml-version-mismatch", "xid-bus-error", "stub-libcuda", "cuda-error-803"
        )
    ):
        return
    told = seen(case, "shown-suspend")
    if container_shown(case) and not told:
        return
    yield Problem(
        subject="nvidia_uvm",
        what="CUDA fails with the unknown error 999 while the driver itself answers: the unified-memory module is most likely broken since a suspend.",
        why="nvidia_uvm does not survive a suspend in which video memory was not preserved; nvidia-smi does not use it and keeps working.",
        evidence=(*texts, *cu_init_evidence(case), *told[:1]),
        remedies=(*driver_fixes.reload_uvm(), driver_fixes.read_kernel_log()),
        confidence=Confidence.LIKELY if told or live else Confidence.POSSIBLE,
    )


def _closed(case: Case) -> tuple[DeviceNode, ...]:
    """The device nodes that this process may not open."""
    return tuple(node for node in _nodes(case) if not node.accessible and node.path.startswith("/dev/nvidia"))


def device_permission(case: Case) -> Iterable[Problem]:
    """This user may not open the GPU's device nodes.

    What it checks: access to /dev/nvidiactl, /dev/nvidia0... and /dev/nvidia-uvm where CUDA does not work; and the texts
    "Insufficient Permissions" and "Permission denied".

    Why it matters: every CUDA program opens these nodes. By default everybody may; some distributions and clusters give them to
    a group (video, render) only.

    How to fix: join that group and log in again; or set the nodes' mode back.

    When it is wrong: in a container "operation not permitted" comes from the device control group, which has its own finding.

    Sources: NVIDIA driver README, NVreg_DeviceFileMode; nvidia-modprobe(1).
    """
    texts = seen(case, "device-permission")
    if driver_works(case.snapshot):
        return
    if texts:
        yield _permission_problem(texts, ())
        return
    closed = tuple(node for node in _closed(case) if NOT_PERMITTED not in node.detail.lower())
    if not closed:
        known(case.snapshot.driver.device_nodes)
        return
    yield _permission_problem(cu_init_evidence(case), closed)


def _permission_problem(texts: tuple[Evidence, ...], nodes: tuple[DeviceNode, ...]) -> Problem:
    which = ", ".join(node.path for node in nodes) or "the GPU's device nodes"
    return Problem(
        subject="device nodes",
        what=f"This user may not open {which}.",
        why="Every CUDA program opens them; without access cuInit fails.",
        evidence=(*texts, *_node_evidence(nodes)),
        remedies=driver_fixes.open_device_nodes(nodes),
    )


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


def nvml_fails_on_host(case: Case) -> Iterable[Problem]:
    """NVML fails with an unknown error outside of containers.

    What it checks: NVML's code 999 and its text, where nothing speaks of a container.

    Why it matters: nvidia-smi and everything that lists GPUs through it fails. The driver or a GPU is in a bad state.

    How to fix: look at the kernel log for Xid lines; reload the modules or reboot.

    When it is wrong: in a container it is the device control group, which has its own finding.

    Sources: nvml.h, NVML_ERROR_UNKNOWN (999).
    """
    texts = seen(case, "nvml-unknown-error")
    status = maybe(case.snapshot.driver.nvml)
    if status is not None and status.code == CUDA_ERROR_UNKNOWN:
        texts = (*evidence("driver.nvml", case.snapshot.driver.nvml, value=f"{status.code} {status.message}"), *texts)
    if not texts or container_shown(case) or in_wsl(case):
        if status is None and not texts:
            known(case.snapshot.driver.nvml)
        return
    yield Problem(
        subject="NVML",
        what="NVML fails with an unknown error on the host itself.",
        why="The driver or a GPU is in a bad state; nvidia-smi cannot list GPUs.",
        evidence=texts,
        remedies=(driver_fixes.read_kernel_log(), *fixes.reload_driver(case)),
        severity=Severity.WARNING,
        confidence=Confidence.POSSIBLE,
        tags=("nvml-unknown-cgroup",) if not _host_shown(case) else (),
    )


def _host_shown(case: Case) -> bool:
    """Does the snapshot come from a machine that is known to be no container?"""
    kind = case.snapshot.container.kind
    return isinstance(kind, Missing) and kind.reason is MissingReason.NOT_APPLICABLE


RULES = (
    Rule(
        "CD114",
        "driver-userspace-missing",
        Severity.ERROR,
        "The driver's user-space libraries are not installed",
        driver_userspace_missing,
        explained_by=("nvml-version-mismatch",),
        needs_gpu=True,
    ),
    Rule("CD115", "uvm-device-missing", Severity.ERROR, "/dev/nvidia-uvm is absent", uvm_device_missing, needs_gpu=True),
    Rule(
        "CD116",
        "uvm-broken-after-suspend",
        Severity.ERROR,
        "CUDA fails with 999 after a suspend",
        uvm_broken_after_suspend,
        needs_gpu=True,
    ),
    Rule(
        "CD117",
        "fabric-manager-not-running",
        Severity.ERROR,
        "The NVSwitch fabric is not initialised (802)",
        fabric_manager_not_running,
        needs_gpu=True,
    ),
    Rule(
        "CD126",
        "device-permission",
        Severity.ERROR,
        "This user may not open the GPU's device nodes",
        device_permission,
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
    Rule(
        "CD132",
        "nvml-unknown-error",
        Severity.ERROR,
        "NVML fails with an unknown error",
        nvml_fails_on_host,
        explained_by=("xid-bus-error", "gsp-failure", "gpu-init-failed"),
        needs_gpu=True,
    ),
)
