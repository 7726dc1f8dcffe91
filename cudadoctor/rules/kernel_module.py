"""Rules about the nvidia kernel module: is it built, allowed, and not kept out by another (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.rules import driver_fixes, fixes
from cudadoctor.rules.circumstances import in_wsl, on_windows
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import (
    NVIDIA_VENDOR,
    driver_works,
    gpus,
    in_container,
    pci_gpus,
)

MISSING = "kernel-module-missing-for-kernel"
BUILD_FAILED = ("bad return status", "bad exit status", "building kernel modules", "unable to build", "build of nvidia.ko failed")
"""Parts of texts that tell of a build that failed, rather than of one that was not tried."""
LOAD_FAILED = "unable to load the kernel module"
"""The installer's words where the module was built and the kernel did not take it."""
KEEPS_MODULE_OUT = ("nouveau-loaded", "secure-boot-blocking", "open-module-gpu-unsupported")
"""Errors that say why the kernel did not take the module."""
MODULE_FAILS = ("smi-cannot-communicate", "kernel-module-not-loaded")
"""Errors of programs that find no loaded nvidia module."""


def _no_linux_module(case: Case) -> None:
    """Ends the rule where no Linux kernel module serves the GPU."""
    if in_wsl(case) or on_windows(case):
        raise NotApplicableError("the Windows driver serves the GPU; no Linux kernel module exists")


def _gpu_without_module(case: Case) -> bool:
    """Do the facts of a live machine show a GPU on the bus and no nvidia module loaded?"""
    modules = maybe(case.snapshot.driver.loaded_modules)
    return (
        modules is not None
        and "nvidia" not in modules
        and bool(pci_gpus(case.snapshot, NVIDIA_VENDOR))
        and not in_container(case.snapshot)
    )


def _modules(case: Case) -> tuple[str, ...]:
    return maybe(case.snapshot.driver.loaded_modules) or ()


def _module_fails(case: Case) -> bool:
    return not driver_works(case.snapshot) and (case.saw(*MODULE_FAILS) or _gpu_without_module(case))


def _needs_modules(case: Case) -> None:
    """Ends the rule as unknown where nothing tells whether the module is loaded."""
    driver = case.snapshot.driver
    if not isinstance(driver.kernel_module, Known) and not driver_works(case.snapshot):
        known(driver.loaded_modules)


def _running_kernel(case: Case) -> str | None:
    shown = case.errors("shown-kernel")
    return maybe(case.snapshot.host.kernel_release) or (shown[0].values["kernel"] if shown else None)


def _builds(case: Case) -> tuple[str, ...]:
    """The kernels for which DKMS shows an installed module."""
    return tuple(
        error.values["kernel"]
        for error in case.errors("shown-dkms-status")
        if "kernel" in error.values and error.values["state"].startswith("installed")
    )


def kernel_module_missing_for_kernel(case: Case) -> Iterable[Problem]:
    """No nvidia module is built for the running kernel.

    What it checks: the module files of the running kernel on a machine whose GPU has no driver; the texts of modprobe, dkms
    and the installer; and dkms' list against the running kernel.

    Why it matters: a kernel update (or another kernel chosen at boot) leaves the machine without a module until it is built
    again, which needs that kernel's headers and a driver that compiles against it.

    How to fix: install the headers of the running kernel and build the module; or boot a kernel that has one. Where the build
    itself fails, the driver is too old for this kernel: install a newer release.

    When it is wrong: a module loaded by hand from another place is not seen, but then it is loaded and the rule does not
    speak.

    Sources: modprobe(8), dkms(8); modules.dep(5).
    """
    texts = seen(case, "kernel-module-missing-for-kernel")
    if driver_works(case.snapshot) or (texts and _is_kept_out(case)):
        return
    if not texts and not _module_fails(case):
        _needs_modules(case)
        return
    _no_linux_module(case)
    if any(part in error.text.lower() for error in case.errors(MISSING) for part in BUILD_FAILED):
        yield _build_failed(case, texts)
        return
    kernel, builds = _running_kernel(case), _builds(case)
    unbuilt = kernel is not None and case.saw("shown-dkms-status") and kernel not in builds
    if not texts and not unbuilt and not _not_built(case):
        return
    built = f" DKMS has built it for {', '.join(builds)} only." if unbuilt and builds else ""
    yield Problem(
        subject="driver",
        what=f"No nvidia kernel module is built for the running kernel{f' {kernel}' if kernel is not None else ''}.{built}",
        why="A module fits one kernel only; after a kernel update it has to be built again, which needs that kernel's headers.",
        evidence=(
            *texts,
            *seen(case, "shown-dkms-status", "shown-kernel"),
            *evidence("host.kernel_release", case.snapshot.host.kernel_release),
            *_absence("driver.module_file", case.snapshot.driver.module_file),
        ),
        remedies=driver_fixes.build_module_for_kernel(case),
        confidence=Confidence.CERTAIN if texts or unbuilt else Confidence.LIKELY,
    )


def _is_kept_out(case: Case) -> bool:
    """Does the installer only say that the module, which exists, could not be loaded, and another text why?"""
    loads = (LOAD_FAILED in error.text.lower() for error in case.errors("kernel-module-missing-for-kernel"))
    return case.saw(*KEEPS_MODULE_OUT) and all(loads)


def _build_failed(case: Case, texts: tuple[Evidence, ...]) -> Problem:
    """The module was to be built and does not compile: building again would not help."""
    kernel = _running_kernel(case)
    return Problem(
        subject="driver",
        what="The nvidia kernel module could not be built" + (f" for kernel {kernel}." if kernel is not None else "."),
        why="A driver release compiles against the kernels of its time; a newer (or changed) kernel needs a newer release, and its own headers and compiler.",
        evidence=(*texts, *evidence("host.kernel_release", case.snapshot.host.kernel_release)),
        remedies=(
            driver_fixes.as_root("See why", "sudo tail -40 /var/lib/dkms/nvidia/*/build/make.log", verify=()),
            *fixes.update_driver(case, None),
            driver_fixes.as_root_with_reboot("Or boot a kernel for which the module is built", "dkms status", "sudo reboot"),
        ),
    )


def _not_built(case: Case) -> bool:
    """Do the module files of the running kernel lack nvidia?"""
    module_file = case.snapshot.driver.module_file
    return isinstance(module_file, Missing) and module_file.reason is MissingReason.NOT_FOUND


def _absence(path: str, fact: Fact[str]) -> tuple[Evidence, ...]:
    if isinstance(fact, Missing) and fact.detail:
        return (Evidence(fact=path, value=fact.detail, source=fact.source or "probe"),)
    return ()


def secure_boot_blocking(case: Case) -> Iterable[Problem]:
    """Secure Boot keeps the kernel from loading the nvidia module.

    What it checks: the kernel's refusals ("Key was rejected by service", "Required key not available"), and a module that is
    built but not loaded while Secure Boot is on.

    Why it matters: with Secure Boot the kernel loads only modules signed by a key it trusts. A module built on the machine is
    signed by a key of its own, which has to be enrolled once.

    How to fix: enrol the key (a blue screen asks at the next boot), or turn Secure Boot off in the firmware.

    When it is wrong: the line "module verification failed ... tainting kernel" is only a remark: that module was loaded.

    Sources: Linux module signing (Documentation/admin-guide/module-signing); mokutil(1).
    """
    texts = seen(case, "secure-boot-blocking")
    if driver_works(case.snapshot):
        return
    if not texts and not _module_fails(case):
        _needs_modules(case)
        return
    _no_linux_module(case)
    if not texts:
        if not case.saw("secure-boot-on") and not known(case.snapshot.host.secure_boot):
            return
        if _not_built(case) or case.saw("kernel-module-missing-for-kernel"):
            return
    yield Problem(
        subject="driver",
        what="The kernel refuses the nvidia module: Secure Boot is on and does not trust its signature."
        if texts
        else "Secure Boot is on and the nvidia module is not loaded: its signature is most likely not trusted.",
        why="With Secure Boot the kernel loads only modules that are signed by an enrolled key.",
        evidence=(
            *texts,
            *seen(case, "secure-boot-on"),
            *evidence("host.secure_boot", case.snapshot.host.secure_boot, value="enabled"),
        ),
        remedies=driver_fixes.trust_module_key(case),
        confidence=Confidence.CERTAIN if texts else Confidence.LIKELY,
    )


def nouveau_loaded(case: Case) -> Iterable[Problem]:
    """The free driver nouveau holds the GPU, so that the nvidia module cannot take it.

    What it checks: which kernel driver is bound to each NVIDIA GPU, and the texts of the kernel, lspci and the installer.

    Why it matters: nouveau has no CUDA. One GPU has one kernel driver; while nouveau has it, nvidia cannot start.

    How to fix: install the NVIDIA driver, keep nouveau from loading, and boot again.

    When it is wrong: where nouveau took over because the nvidia module was missing or refused, that is the cause and is named
    first.

    Sources: NVIDIA driver README, Interaction with the Nouveau Driver.
    """
    texts = seen(case, "nouveau-loaded")
    if driver_works(case.snapshot):
        return
    bound = [device for device in pci_gpus(case.snapshot, NVIDIA_VENDOR) if device.kernel_driver == "nouveau"]
    if not texts and not bound:
        modules = known(case.snapshot.driver.loaded_modules)
        if "nouveau" not in modules or "nvidia" in modules or not _module_fails(case):
            return
    yield Problem(
        subject="driver",
        what=f"nouveau drives the GPU at {bound[0].bus_id}; it has no CUDA."
        if bound
        else "nouveau drives the GPU; it has no CUDA.",
        why="A GPU has one kernel driver: while nouveau holds it, the nvidia module cannot take it.",
        evidence=(
            *texts,
            *(Evidence(fact="driver.pci_devices", value=f"{device.bus_id} bound to nouveau", source="sysfs") for device in bound),
            *evidence("driver.loaded_modules", case.snapshot.driver.loaded_modules, value=" ".join(_modules(case))),
        ),
        remedies=driver_fixes.drop_nouveau(case),
    )


def gpu_bound_to_vfio(case: Case) -> Iterable[Problem]:
    """The GPU is set aside for virtual machines (vfio-pci), so the host's programs cannot use it.

    What it checks: the kernel driver bound to each NVIDIA GPU.

    Why it matters: a GPU that is passed through to a virtual machine does not exist for the host.

    How to fix: nothing where that is intended; else give the GPU back to the nvidia driver.

    When it is wrong: a host that lends one GPU and uses another is in order: then it is a remark.

    Sources: Linux VFIO documentation; lspci -k.
    """
    texts = seen(case, "gpu-bound-to-vfio")
    lent = [device for device in pci_gpus(case.snapshot, NVIDIA_VENDOR) if device.kernel_driver == "vfio-pci"]
    if not texts and not lent:
        known(case.snapshot.driver.pci_devices)
        return
    works = driver_works(case.snapshot) or bool(gpus(case.snapshot))
    yield Problem(
        subject=f"GPU at {lent[0].bus_id}" if lent else "GPU",
        what="The GPU is bound to vfio-pci: it is reserved for virtual machines and does not exist for CUDA on this host.",
        why="One kernel driver has a GPU at a time.",
        evidence=(
            *texts,
            *(Evidence(fact="driver.pci_devices", value=f"{device.bus_id} bound to vfio-pci", source="sysfs") for device in lent),
        ),
        severity=Severity.NOTE if works else Severity.ERROR,
        remedies=(
            driver_fixes.as_root(
                "Give it back to the nvidia driver",
                f"echo {lent[0].bus_id if lent else '0000:XX:00.0'} | sudo tee /sys/bus/pci/drivers/vfio-pci/unbind",
                "sudo modprobe nvidia",
            ),
        ),
    )


def benign_module_taint(case: Case) -> Iterable[Problem]:
    """The kernel remarks that the nvidia module is not signed by a trusted key, and loads it.

    What it checks: the lines "module verification failed: signature and/or required key missing - tainting kernel" and "PKCS#7
    signature not signed with a trusted key".

    Why it matters: it does not: without Secure Boot every module built on the machine gives this line.

    How to fix: nothing.

    When it is wrong: with Secure Boot on the kernel refuses the module instead; that has its own finding.

    Sources: Linux kernel, Documentation/admin-guide/module-signing.
    """
    if case.saw("module-verification-tainted") and not case.saw("secure-boot-blocking"):
        yield Problem(
            subject="driver",
            what="The line about the module's signature is harmless: the kernel loaded the module.",
            why="Every module that is built on the machine itself gives it.",
            evidence=seen(case, "module-verification-tainted"),
        )


RULES = (
    Rule(
        "CD105",
        "kernel-module-missing-for-kernel",
        Severity.ERROR,
        "No nvidia module is built for the running kernel",
        kernel_module_missing_for_kernel,
        needs_gpu=True,
    ),
    Rule(
        "CD106",
        "secure-boot-blocking",
        Severity.ERROR,
        "Secure Boot rejects the nvidia module",
        secure_boot_blocking,
        needs_gpu=True,
    ),
    Rule(
        "CD107",
        "nouveau-loaded",
        Severity.ERROR,
        "nouveau holds the GPU",
        nouveau_loaded,
        explained_by=("secure-boot-blocking", "kernel-module-missing-for-kernel"),
        needs_gpu=True,
    ),
    Rule(
        "CD131",
        "gpu-bound-to-vfio",
        Severity.ERROR,
        "The GPU is reserved for virtual machines",
        gpu_bound_to_vfio,
        needs_gpu=True,
    ),
    Rule("CD136", "benign-module-taint", Severity.NOTE, "An unsigned module was loaded all the same", benign_module_taint),
)
