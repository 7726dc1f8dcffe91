"""Rules about the NVIDIA driver: is there a GPU, is the driver new enough, are its parts loaded and of one version (CD101 to CD104)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import RuntimeSupport, runtime_on_driver
from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, Platform, Torch
from cudadoctor.rules import fixes
from cudadoctor.rules.circumstances import (
    CUDA_FAILURES,
    cpu_is_meant,
    cuda_fails,
    in_wsl,
    other_gpu_only,
    remarks_without_gpu,
    started_without_gpu,
)
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, cu_init_is, seen, status_words
from cudadoctor.rules.libcuda import COMPATIBILITY_GUIDE
from cudadoctor.rules.questions import (
    NVIDIA_VENDOR,
    Presence,
    driver_platform,
    driver_works,
    gpus,
    in_container,
    named_torch,
    pci_gpus,
    platform,
    torch,
    torch_cuda_version,
)

CUDA_ERROR_INSUFFICIENT_DRIVER = 35
"""cuda.h."""
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
"""nvml.h."""
FLOOR_OF_MAJOR = "minor-version compatibility needs the floor of the CUDA major and does not cross majors"


def no_nvidia_gpu(case: Case) -> Iterable[Problem]:
    """No NVIDIA GPU can be found on this machine.

    What it checks: the PCI bus, NVML, nvidia-smi, device nodes and the driver API; it speaks only where all of those that
    could be asked show none.

    Why it matters: without an NVIDIA GPU no CUDA program runs here. Compiling for one, and everything that reads files or
    pasted text, still works.

    How to fix: run on a machine with an NVIDIA GPU; in a virtual machine or cloud instance, attach one or choose an
    instance type that has one.

    When it is wrong: a GPU that does not appear on the PCI bus at all (unseated, unpowered, or not passed through to the
    virtual machine) looks the same from inside.

    Sources: PCI vendor id 10de (pci.ids); nvmlInit and cuInit documentation.
    """
    presence = case.gpu_presence
    if presence is Presence.YES:
        return
    shown = other_gpu_only(case)
    if cpu_is_meant(case) or (remarks_without_gpu(case) and not case.saw(*(set(CUDA_FAILURES) - {"libcuda-load-failed"}))):
        raise NotApplicableError("the program is meant for the CPU")
    if shown and cuda_fails(case):
        yield _told_of_no_gpu(case, shown)
        return
    if platform(case.snapshot) is Platform.MACOS:
        raise NotApplicableError("macOS has no CUDA (no-cuda-platform says so)")
    if presence is Presence.UNKNOWN:
        known(case.snapshot.driver.pci_devices)
        known(case.snapshot.driver.nvidia_smi)
        known(case.snapshot.driver.nvml)
        raise NotApplicableError("a driver answered, with errors of its own")
    buses_read = isinstance(case.snapshot.driver.pci_devices, Known) and not in_wsl(case)
    yield Problem(
        subject="machine",
        what="No NVIDIA GPU was found: "
        + ("none on the PCI bus, and " if buses_read else "")
        + "no NVML, no nvidia-smi and no CUDA driver answers.",
        why="CUDA programs cannot run here. What needs no GPU (preflight, archs --gpu, scan, triage, recommend --gpu) works.",
        confidence=Confidence.CERTAIN if buses_read else Confidence.LIKELY,
        evidence=(
            *(
                evidence("driver.pci_devices", case.snapshot.driver.pci_devices, value="no device of vendor 10de")
                if buses_read
                else ()
            ),
            *_missing("driver.nvml", case.snapshot.driver.nvml),
            *_missing("driver.nvidia_smi", case.snapshot.driver.nvidia_smi),
        ),
        remedies=(
            *(_driver_in_windows() if in_wsl(case) else ()),
            Remedy(
                Fix(
                    title="Judge for a GPU that is elsewhere, without one here",
                    commands=('cudadoctor preflight --gpu "RTX 4090"',),
                )
            ),
        ),
    )


def _driver_in_windows() -> tuple[Remedy, ...]:
    """Under WSL a GPU without its Windows driver looks like none."""
    return (
        Remedy(
            Fix(
                title="If Windows has an NVIDIA GPU, install its driver there (nvidia.com/drivers), then restart WSL",
                commands=("wsl --update", "wsl --shutdown"),
                where=Where.WINDOWS,
                verify=("nvidia-smi.exe", "wsl nvidia-smi"),
            )
        ),
    )


def _told_of_no_gpu(case: Case, shown: tuple[ErrorSeen, ...]) -> Problem:
    """What a text says of the GPU: certain only where a program that looked at the bus says so."""
    guessed = shown[0].kind == "shown-other-gpu" or "/dev/nvidia0" in shown[0].text
    return Problem(
        subject="machine",
        what="The text shows no NVIDIA GPU, only a display controller of another vendor."
        if shown[0].kind == "shown-other-gpu"
        else "A program looked for an NVIDIA GPU and found none.",
        why="CUDA programs run on NVIDIA GPUs only.",
        evidence=(*as_evidence(shown), *as_evidence(case.errors(*CUDA_FAILURES))),
        severity=Severity.WARNING if guessed else Severity.ERROR,
        confidence=Confidence.POSSIBLE if guessed else Confidence.LIKELY,
    )


def _missing(path: str, fact: object) -> tuple[Evidence, ...]:
    if isinstance(fact, Missing) and fact.detail:
        return (Evidence(fact=path, value=fact.detail, source=fact.source or "probe"),)
    return ()


def driver_too_old(case: Case) -> Iterable[Problem]:
    """The driver is older than the CUDA runtime in use requires.

    What it checks: the CUDA version that torch was built with against the driver's release and the newest CUDA version the
    driver's API supports; and error texts in which a CUDA runtime says so (error 35).

    Why it matters: within a CUDA major from 11 on, any runtime works from that major's minimum driver on (minor-version
    compatibility); a newer major never works on an older driver. The first CUDA call then fails with error 35, "CUDA driver
    version is insufficient for CUDA runtime version".

    How to fix: install a build for the CUDA line that the driver serves, or update the driver.

    When it is wrong: a cuda-compat package (forward compatibility) can lift data-centre GPUs over the limit; where cuInit
    succeeds with it, the driver's own answer counts.

    Sources: CUDA release notes, table 'CUDA Toolkit and Minimum Required Driver Version'; CUDA Compatibility guide.
    """
    demanded = tuple(error for error in case.errors("container-compat-note") if "wanted" in error.values)
    texts = (*seen(case, "driver-too-old", "torch-driver-too-old"), *as_evidence(demanded)) or _error_35(case)
    build = torch(case.snapshot)
    if build is not None and not isinstance(torch_cuda_version(build), Missing):
        problem = _torch_needs_newer_driver(case, build, texts)
        if problem is not None:
            yield problem
            return
        if not texts:
            return
    if texts:
        yield _said_too_old(case, texts)
        return
    if build is None and isinstance(case.snapshot.python.torch, Missing):
        if case.snapshot.python.torch.reason in (MissingReason.NOT_FOUND, MissingReason.NOT_APPLICABLE):
            raise NotApplicableError("no CUDA runtime of the user's was found to judge the driver against")
        known(case.snapshot.python.torch)


def _error_35(case: Case) -> tuple[Evidence, ...]:
    """Error 35 as evidence, unless the facts say that the driver is new enough or that libcuda is missing altogether."""
    texts = (*cu_init_is(case, CUDA_ERROR_INSUFFICIENT_DRIVER), *seen(case, "cuda-error-35"))
    no_library = any(error.values.get("driver_cuda") == "0" for error in case.errors("cuda-error-35")) or case.saw(
        "libcuda-load-failed"
    )
    return () if no_library or in_wsl(case) or started_without_gpu(case) else texts


def _torch_needs_newer_driver(case: Case, build: Torch, texts: tuple[Evidence, ...]) -> Problem | None:
    runtime = known(torch_cuda_version(build))
    driver = case.snapshot.driver
    release, supports = maybe(driver.driver_release), maybe(driver.driver_cuda_version)
    if release is None and supports is None:
        if texts:
            return None
        known(driver.driver_release)
    answer = runtime_on_driver(runtime, release, supports, case.matrices.drivers, driver_platform(case.snapshot))
    if answer.support is not RuntimeSupport.TOO_OLD or (driver_works(case.snapshot) and maybe(build.is_available)):
        return None
    minimum = answer.minimum
    have = f"driver {release}" if release is not None else "the driver"
    reach = f" supports CUDA up to {supports}" if supports is not None else " is older"
    return Problem(
        subject="driver",
        what=f"{named_torch(build, 'torch')} is built for CUDA {runtime}; {have}{reach}.",
        why=f"CUDA {runtime} needs driver {minimum} or newer: {FLOOR_OF_MAJOR}, so the first CUDA call fails with error 35."
        if minimum is not None
        else f"{FLOOR_OF_MAJOR.capitalize()}.",
        evidence=(
            *evidence("driver.driver_release", driver.driver_release),
            *evidence("driver.driver_cuda_version", driver.driver_cuda_version),
            *evidence("python.torch.torch_cuda_version", torch_cuda_version(build)),
            *texts,
        ),
        remedies=(*fixes.install_other_torch(case), *fixes.update_driver(case, minimum)),
        references=(COMPATIBILITY_GUIDE,),
    )


def _said_too_old(case: Case, texts: tuple[Evidence, ...]) -> Problem:
    driver = case.snapshot.driver
    release, supports = maybe(driver.driver_release), maybe(driver.driver_cuda_version)
    have = f"Driver {release}" if release is not None else "The installed driver"
    reach = f" supports CUDA up to {supports}" if supports is not None else ""
    return Problem(
        subject="driver",
        what=f"{have}{reach} and is too old for the CUDA runtime of the program."
        if reach
        else f"{have} is too old for the CUDA runtime of the program.",
        why=f"The program's CUDA runtime is of a newer line than the driver serves: {FLOOR_OF_MAJOR}.",
        evidence=(
            *texts,
            *evidence("driver.driver_release", driver.driver_release),
            *evidence("driver.driver_cuda_version", driver.driver_cuda_version),
        ),
        remedies=(*fixes.install_other_torch(case), *fixes.update_driver(case, None)),
        references=(COMPATIBILITY_GUIDE,),
    )


def nvml_version_mismatch(case: Case) -> Iterable[Problem]:
    """The loaded kernel module and the installed driver libraries have different versions.

    What it checks: NVML error 18 and the texts "Driver/library version mismatch" and "API mismatch" of nvidia-smi and the
    kernel log.

    Why it matters: the libraries on disk were updated (often by an unattended upgrade) while the old kernel module stayed
    loaded. Nothing that talks to the GPU works until both are the same release again.

    How to fix: reboot, or unload and reload the kernel modules once nothing uses the GPU. Nothing has to be reinstalled.

    When it is wrong: a hand-built kernel module of another release than the packaged libraries stays mismatched after a
    reboot; then install the same release of both.

    Sources: nvml.h, NVML_ERROR_LIB_RM_VERSION_MISMATCH (18).
    """
    texts = seen(case, "nvml-version-mismatch")
    nvml = case.snapshot.driver.nvml
    status = maybe(nvml)
    if status is not None and status.code == NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        texts = (*evidence("driver.nvml", nvml, value=status_words(status)), *texts)
    if not texts:
        if status is None and maybe(case.snapshot.driver.nvidia_smi) is None:
            known(nvml)
        return
    loaded = maybe(case.snapshot.driver.kernel_module)
    module = f" The loaded kernel module is {loaded.driver_release}." if loaded is not None else ""
    yield Problem(
        subject="driver",
        what="The driver's kernel module and its user-space libraries have different versions." + module,
        why="The libraries were replaced (a package upgrade, often unattended) while the old module stayed loaded. "
        "Nothing needs to be reinstalled: the module has to be loaded anew.",
        evidence=(
            *texts,
            *evidence(
                "driver.kernel_module", case.snapshot.driver.kernel_module, value=str(loaded.driver_release) if loaded else None
            ),
        ),
        remedies=fixes.reload_driver(case),
    )


def kernel_module_not_loaded(case: Case) -> Iterable[Problem]:
    """The nvidia kernel module is not loaded.

    What it checks: whether nvidia-smi or NVML say that they cannot communicate with the driver while a GPU is on the bus,
    and whether the module is in the list of loaded ones.

    Why it matters: without the module there are no device nodes and no CUDA. The usual causes are a module that was not built
    for the running kernel, Secure Boot refusing it, nouveau holding the GPU, or no driver installed at all; where one of these
    shows, it is named as the root cause.

    How to fix: load the module; the error that modprobe prints names the cause where it fails.

    When it is wrong: inside a container the host's modules decide, and the list may be hidden; the rule then rests on what
    nvidia-smi says.

    Sources: nvidia-smi's text "couldn't communicate with the NVIDIA driver"; nvml.h, NVML_ERROR_DRIVER_NOT_LOADED (9).
    """
    driver = case.snapshot.driver
    texts = _texts_of_absent_module(case)
    if driver_works(case.snapshot) or (gpus(case.snapshot) and not texts):
        return
    modules = maybe(driver.loaded_modules)
    on_bus = pci_gpus(case.snapshot, NVIDIA_VENDOR)
    unloaded = modules is not None and "nvidia" not in modules and bool(on_bus) and not in_container(case.snapshot)
    if not texts and not unloaded:
        if modules is None and not isinstance(driver.kernel_module, Known):
            known(driver.loaded_modules)
        return
    if in_wsl(case):
        raise NotApplicableError("in WSL2 the Windows driver serves the GPU; no Linux kernel module exists")
    if modules is not None and "nvidia" in modules:
        return
    yield Problem(
        subject="driver",
        what="The nvidia kernel module is not loaded.",
        why="Without it there is no device for any CUDA program to open.",
        evidence=(
            *texts,
            *(
                Evidence(fact="driver.pci_devices", value=f"{d.bus_id} bound to {d.kernel_driver or 'no driver'}", source="sysfs")
                for d in on_bus
            ),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="Load it; where that fails, its message names the cause",
                    commands=("sudo modprobe nvidia", "sudo dmesg | grep -iE 'nvidia|nouveau|signature' | tail -20"),
                    needs_root=True,
                    verify=("nvidia-smi",),
                )
            ),
        ),
    )


def _texts_of_absent_module(case: Case) -> tuple[Evidence, ...]:
    unloaded = tuple(error for error in case.errors("nvml-init-failed") if "not loaded" in error.text.lower())
    return (*seen(case, "kernel-module-not-loaded", "smi-cannot-communicate"), *as_evidence(unloaded))


WHY_NO_MODULE = (
    "secure-boot-blocking",
    "kernel-module-missing-for-kernel",
    "nouveau-loaded",
    "open-module-gpu-unsupported",
    "gpu-bound-to-vfio",
    "nvml-version-mismatch",
)

RULES = (
    Rule(
        "CD101",
        "no-nvidia-gpu",
        Severity.ERROR,
        "No NVIDIA GPU on this machine",
        no_nvidia_gpu,
        explained_by=("amd-gpu-no-cuda", "container-gpus-flag-missing", "jetson-generic-wheel", "wsl-generation-one"),
        essential=True,
    ),
    Rule(
        "CD102",
        "driver-too-old",
        Severity.ERROR,
        "The driver is older than the CUDA runtime requires",
        driver_too_old,
        explained_by=("wsl-windows-build-unsupported", "wsl-linux-driver-installed", "libcuda-missing", "cuda-compat-in-image"),
        needs_gpu=True,
    ),
    Rule(
        "CD103",
        "nvml-version-mismatch",
        Severity.ERROR,
        "Kernel module and driver libraries have different versions",
        nvml_version_mismatch,
        explained_by=("driver-libs-in-image",),
        needs_gpu=True,
    ),
    Rule(
        "CD104",
        "kernel-module-not-loaded",
        Severity.ERROR,
        "The nvidia kernel module is not loaded",
        kernel_module_not_loaded,
        explained_by=WHY_NO_MODULE,
        needs_gpu=True,
    ),
)
