"""Rules about the NVIDIA driver: kernel side, user-space side, and what CUDA versions it serves (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import RuntimeSupport, runtime_on_driver
from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ApiStatus, ErrorSeen, LibraryOrigin, Platform, Torch
from cudadoctor.rules import fixes
from cudadoctor.rules.circumstances import (
    CUDA_FAILURES,
    as_evidence,
    cpu_is_meant,
    cuda_fails,
    in_wsl,
    other_gpu_only,
    remarks_without_gpu,
    started_without_gpu,
)
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import (
    NVIDIA_VENDOR,
    Presence,
    driver_platform,
    driver_works,
    environment,
    gpus,
    in_container,
    pci_gpus,
    platform,
    torch,
    torch_cuda_version,
    torch_version_text,
)

CUDA_ERROR_STUB_LIBRARY = 34
CUDA_ERROR_INSUFFICIENT_DRIVER = 35
CUDA_ERROR_NO_DEVICE = 100
CUDA_ERROR_SYSTEM_NOT_READY = 802
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
CUDA_ERROR_COMPAT_NOT_SUPPORTED = 804
CUDA_ERROR_UNKNOWN = 999
NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18
"""Numbers of the CUDA driver API (cuda.h) and NVML (nvml.h); matrices/cuda_errors.toml has all of them with sources."""

FLOOR_OF_MAJOR = "minor-version compatibility needs the floor of the CUDA major and does not cross majors"
COMPATIBILITY_GUIDE = "https://docs.nvidia.com/deploy/cuda-compatibility/"


def _cu_init_is(case: Case, code: int) -> tuple[Evidence, ...]:
    """The evidence that cuInit answered this code; nothing where it answered another or none."""
    status = case.snapshot.driver.cu_init
    if isinstance(status, Known) and status.value.code == code:
        return evidence("driver.cu_init", status, value=_words(status.value))
    return ()


def _words(status: ApiStatus) -> str:
    return " ".join(part for part in (str(status.code), status.name, status.message) if part)


def seen(case: Case, *kinds: str) -> tuple[Evidence, ...]:
    """The errors of these kinds as evidence, quoted."""
    return tuple(
        Evidence(fact=f"errors.{error.kind}", value=error.text, source=error.source, line=error.line)
        for error in case.errors(*kinds)
    )


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
    texts = (*_cu_init_is(case, CUDA_ERROR_INSUFFICIENT_DRIVER), *seen(case, "cuda-error-35"))
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
        what=f"torch {torch_version_text(build)} is built for CUDA {runtime}; {have}{reach}.",
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
        texts = (*evidence("driver.nvml", nvml, value=_words(status)), *texts)
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


def libcuda_missing(case: Case) -> Iterable[Problem]:
    """The driver's library libcuda.so.1 cannot be loaded.

    What it checks: the loader's search for libcuda.so.1 (nvcuda.dll on Windows) on a machine that has an NVIDIA GPU, whether
    the file that it finds can be loaded, and error texts that name it.

    Why it matters: every CUDA program loads it first. It belongs to the driver, not to the toolkit or to any Python package.

    How to fix: on a host, install the driver's user-space package; in a container, start it with GPU access so that the
    host's library is mounted; in WSL2, put /usr/lib/wsl/lib on the loader's path.

    When it is wrong: a program may load it from a path of its own.

    Sources: matrices/sonames.toml; CUDA Compatibility guide (the parts of the driver).
    """
    driver = case.snapshot.driver
    texts = seen(case, "libcuda-load-failed")
    if driver_works(case.snapshot) or remarks_without_gpu(case):
        return
    copies = driver.libcuda_copies
    if texts:
        yield _libcuda_problem(case, texts, Confidence.CERTAIN)
        return
    presence = case.gpu_presence
    if presence is Presence.NO:
        raise NotApplicableError("no NVIDIA GPU")
    if presence is Presence.UNKNOWN:
        known(driver.nvidia_smi)
        known(driver.nvml)
        known(driver.cu_init)
    if isinstance(driver.cu_init, Missing) and driver.cu_init.reason is MissingReason.NOT_FOUND:
        reason = driver.cu_init.detail or "the loader finds no libcuda.so.1"
        shown = (Evidence(fact="driver.cu_init", value=reason, source=driver.cu_init.source or "loader"),)
        path, colon, fault = reason.partition(": ")
        if path.startswith("/") and colon:  # glibc names a file by its path only once it has found it
            yield _libcuda_damaged(case, path, fault, shown)
        else:
            yield _libcuda_problem(case, shown, Confidence.CERTAIN)
        return
    if isinstance(driver.cu_init, Known) or (isinstance(copies, Known) and any(copy.wins for copy in copies.value)):
        return
    known(copies)


def _libcuda_problem(case: Case, texts: tuple[Evidence, ...], confidence: Confidence) -> Problem:
    elsewhere = [
        copy
        for copy in maybe(case.snapshot.driver.libcuda_copies) or ()
        if copy.origin in (LibraryOrigin.DRIVER, LibraryOrigin.WSL)
    ]
    where = f" A copy lies at {elsewhere[0].path}, where the loader does not look." if elsewhere else ""
    return Problem(
        subject="libcuda.so.1",
        what="The driver library libcuda.so.1 cannot be found by the loader." + where,
        why="It belongs to the driver (no toolkit or Python package brings it), and every CUDA program loads it first.",
        evidence=texts,
        confidence=confidence,
        remedies=fixes.provide_libcuda(case, elsewhere),
    )


def _libcuda_damaged(case: Case, path: str, fault: str, shown: tuple[Evidence, ...]) -> Problem:
    """The file is there and is no library for this machine: cut short, empty, or of another architecture."""
    folder = path.rpartition("/")[0]
    in_front = folder in (entry.rstrip("/") for entry in environment(case.snapshot).get("LD_LIBRARY_PATH", "").split(":"))
    return Problem(
        subject="libcuda.so.1",
        what=f"The libcuda.so.1 that the loader finds cannot be loaded: {path}: {fault}.",
        why="The loader stops at the first file of that name; a copy that was cut short or is for another machine hides the driver's.",
        evidence=shown,
        remedies=fixes.drop_from_library_path(case, folder, path) if in_front else fixes.provide_libcuda(case, ()),
    )


def stub_libcuda(case: Case) -> Iterable[Problem]:
    """The toolkit's link-time stub of libcuda is loaded in place of the driver's library.

    What it checks: error 34 of cuInit ("CUDA driver is a stub library"), and which file the loader picks for libcuda.

    Why it matters: the stub under lib64/stubs exists to satisfy the linker on machines without a driver; at run time each of
    its functions fails.

    How to fix: take the stubs folder out of LD_LIBRARY_PATH (or of ld.so.conf); keep it only in the link command (-L).

    When it is wrong: never seen; error 34 comes from the stub alone.

    Sources: cuda.h, CUDA_ERROR_STUB_LIBRARY (34).
    """
    texts = (*_cu_init_is(case, CUDA_ERROR_STUB_LIBRARY), *seen(case, "stub-libcuda"))
    winner = next((copy for copy in maybe(case.snapshot.driver.libcuda_copies) or () if copy.wins), None)
    stub_wins = winner is not None and winner.origin is LibraryOrigin.STUB
    if not texts and not (stub_wins and not driver_works(case.snapshot)):
        if isinstance(case.snapshot.driver.libcuda_copies, Missing) and isinstance(case.snapshot.driver.cu_init, Missing):
            known(case.snapshot.driver.libcuda_copies)
        return
    place = f": {winner.path}, found through {winner.via}" if winner is not None and stub_wins else ""
    yield Problem(
        subject="libcuda.so.1",
        what="The toolkit's link-time stub of libcuda is loaded instead of the driver's library" + (place or "") + ".",
        why="The stub only satisfies the linker; at run time every call fails with error 34.",
        evidence=texts,
        remedies=fixes.drop_from_library_path(case, "stubs", winner.path if winner is not None and stub_wins else None),
    )


def system_driver_mismatch(case: Case) -> Iterable[Problem]:
    """The loaded libcuda does not belong to the loaded kernel driver (error 803).

    What it checks: cuInit's error 803 and its text, and the versions of the libcuda copies found.

    Why it matters: libcuda and the kernel driver must be of one release, apart from supported cuda-compat packages that are
    newer than the kernel driver. A compat or left-over libcuda that is older than the kernel driver gives this error.

    How to fix: let the loader find the driver's own libcuda first: remove the cuda-compat folder from LD_LIBRARY_PATH or
    ld.so.conf, or remove the left-over package.

    When it is wrong: right after a driver upgrade without a reboot the same error can come from the mismatch that
    nvml-version-mismatch names.

    Sources: cuda.h, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); CUDA Compatibility guide, FAQ.
    """
    texts = (*_cu_init_is(case, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH), *seen(case, "cuda-error-803"))
    if not texts:
        if isinstance(case.snapshot.driver.cu_init, Missing):
            known(case.snapshot.driver.cu_init)
        return
    winner = next((copy for copy in maybe(case.snapshot.driver.libcuda_copies) or () if copy.wins), None)
    release = maybe(case.snapshot.driver.driver_release)
    which = f" The loader picks {winner.path} ({winner.origin.value})." if winner is not None else ""
    yield Problem(
        subject="libcuda.so.1",
        what="The loaded libcuda does not belong to the loaded kernel driver"
        + (f" {release}" if release is not None else "")
        + "."
        + which,
        why="cuInit fails with error 803 where libcuda is older than the kernel driver or of another, unsupported release.",
        evidence=(*texts, *evidence("driver.driver_release", case.snapshot.driver.driver_release)),
        remedies=(*fixes.drop_from_library_path(case, "compat", winner.path if winner is not None else None),),
        references=(COMPATIBILITY_GUIDE,),
    )


def forward_compat_unsupported(case: Case) -> Iterable[Problem]:
    """A cuda-compat libcuda was used on hardware or a driver branch that forward compatibility does not cover (error 804).

    What it checks: cuInit's error 804 and its text.

    Why it matters: cuda-compat packages work on data-centre GPUs (and selected others) with certain driver branches only;
    elsewhere cuInit refuses.

    How to fix: take the compat library out of the way so that the driver's own is used, with a runtime that this driver
    serves; or update the driver.

    When it is wrong: an image that sets the compat folder by itself hides the cause; cuda-compat-in-image then names it.

    Sources: cuda.h, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804); CUDA Compatibility guide, Forward Compatibility.
    """
    texts = (*_cu_init_is(case, CUDA_ERROR_COMPAT_NOT_SUPPORTED), *seen(case, "forward-compat-unsupported"))
    if not texts:
        if isinstance(case.snapshot.driver.cu_init, Missing):
            known(case.snapshot.driver.cu_init)
        return
    yield Problem(
        subject="libcuda.so.1",
        what="A cuda-compat libcuda (forward compatibility) is loaded on a GPU or driver branch that does not support it.",
        why="Forward compatibility covers data-centre GPUs with certain driver branches only; elsewhere cuInit fails with error 804.",
        evidence=(*texts, *evidence("driver.driver_release", case.snapshot.driver.driver_release)),
        remedies=(*fixes.drop_from_library_path(case, "compat", None), *fixes.update_driver(case, None)),
        references=(COMPATIBILITY_GUIDE,),
    )


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
    texts = (*_cu_init_is(case, CUDA_ERROR_NO_DEVICE), *seen(case, "cuda-error-100", "torch-no-gpu-visible", "smi-no-devices"))
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
        what=f"cuInit fails with error {_words(status)}.",
        why="No CUDA program can start.",
        evidence=evidence("driver.cu_init", case.snapshot.driver.cu_init, value=_words(status)),
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
    Rule(
        "CD110",
        "libcuda-missing",
        Severity.ERROR,
        "The driver library libcuda.so.1 cannot be loaded",
        libcuda_missing,
        explained_by=(
            "container-gpus-flag-missing",
            "container-visible-devices-none",
            "container-driver-libs-not-on-path",
            "driver-capabilities-missing",
            "wsl-libcuda-path",
            "driver-userspace-missing",
            "no-nvidia-gpu",
        ),
        essential=True,
        needs_gpu=True,
    ),
    Rule(
        "CD111", "stub-libcuda", Severity.ERROR, "The toolkit's stub libcuda is loaded at run time", stub_libcuda, needs_gpu=True
    ),
    Rule(
        "CD112",
        "system-driver-mismatch",
        Severity.ERROR,
        "libcuda does not belong to the kernel driver (803)",
        system_driver_mismatch,
        explained_by=("cuda-compat-in-image", "driver-libs-in-image", "nvml-version-mismatch"),
        needs_gpu=True,
    ),
    Rule(
        "CD113",
        "forward-compat-unsupported",
        Severity.ERROR,
        "cuda-compat on hardware that does not allow it (804)",
        forward_compat_unsupported,
        explained_by=("nvml-version-mismatch",),
        needs_gpu=True,
    ),
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
