"""Rules about what programs need of a loaded driver: device nodes and user-space libraries (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import DeviceNode, LibraryOrigin, Platform
from cudadoctor.rules import driver_fixes, fixes
from cudadoctor.rules.circumstances import container_shown, cu_init_code, in_wsl, on_windows
from cudadoctor.rules.driver_answers import CUDA_ERROR_UNKNOWN
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, cu_init_evidence, seen
from cudadoctor.rules.questions import driver_works, gpus, in_container, platform

UVM = "/dev/nvidia-uvm"
CONTROL = "/dev/nvidiactl"
NOT_PERMITTED = "operation not permitted"
"""EPERM, which a device control group gives; file permissions give EACCES, "permission denied"."""


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
    driver_shown = bool(gpus(case.snapshot)) or isinstance(driver.kernel_module, Known)
    no_smi = case.errors("smi-not-installed") if driver_shown and not container_shown(case) else ()
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
        remedies=driver_fixes.load_uvm(case),
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
        severity=Severity.ERROR if told or live else Severity.WARNING,
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
        "CD126",
        "device-permission",
        Severity.ERROR,
        "This user may not open the GPU's device nodes",
        device_permission,
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
