"""Rules about Windows Subsystem for Linux: its own libcuda, foreign drivers, the Windows build (CD63x)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, LibraryOrigin
from cudadoctor.model.versions import DottedVersion, VersionError
from cudadoctor.rules import driver_fixes
from cudadoctor.rules.circumstances import CUDA_FAILURES, container_shown, cuda_fails, in_wsl, started_without_gpu
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, cu_init_evidence, seen
from cudadoctor.rules.questions import driver_works

WSL_FOLDER = "/usr/lib/wsl/lib"
BRIDGE = "/dev/dxg"
"""The node of dxgkrnl, through which the Windows driver is reached."""
WSL_GUIDE = "https://docs.nvidia.com/cuda/wsl-user-guide/index.html"
FIRST_BUILD = 19044
"""Windows 10 21H2, the first general release whose WSL2 has GPU support (NVIDIA's WSL guide)."""
FIRST_PREVIEW = 20145
"""First Insider build with GPU support in WSL2 (Microsoft's announcement of June 2020)."""
FIRST_WINDOWS_11 = 22000
LIBCUDA_LOST = ("libcuda-load-failed", "libcuda-symbol-missing", "torch-no-nvidia-driver", "driver-lib-missing")
DRIVER_PACKAGES = (
    "nvidia-driver",
    "nvidia-utils",
    "nvidia-dkms",
    "nvidia-headless",
    "cuda-drivers",
    "nvidia-open",
    "libnvidia-compute",
    "nvidia-kernel",
)
"""Beginnings of the names of packages that bring a Linux display driver."""


def _in_wsl(case: Case) -> None:
    """Ends the rule outside of WSL."""
    if not in_wsl(case):
        known(case.snapshot.host.platform)
        raise NotApplicableError("not WSL")


def wsl_libcuda_path(case: Case) -> Iterable[Problem]:
    """Under WSL the driver's libcuda in /usr/lib/wsl/lib is not found by the loader or the linker.

    What it checks: the files of that folder where libcuda cannot be loaded; errors about libcuda or -lcuda in a text from WSL.

    Why it matters: under WSL2 the Windows driver puts its Linux libraries there. The folder is announced to the loader in
    /etc/ld.so.conf.d; conda environments, static search lists of programs and linkers do not look there.

    How to fix: put the folder on LD_LIBRARY_PATH (for a linker on LIBRARY_PATH).

    When it is wrong: where the folder is empty, the Windows driver is missing or WSL is version 1.

    Sources: NVIDIA, CUDA on WSL user guide.
    """
    if driver_works(case.snapshot) or not _libcuda_lost(case):
        if not in_wsl(case):
            _in_wsl(case)
        return
    if not in_wsl(case):
        _in_wsl(case)
    lost = case.errors(*LIBCUDA_LOST, "toolkit-libs-missing-at-link")
    folder = case.snapshot.wsl.library_folder
    if isinstance(folder, Known) and not any(name.startswith("libcuda.so") for name in folder.value):
        return
    if isinstance(folder, Missing) and folder.reason is MissingReason.NOT_FOUND:
        return
    if _linux_driver(case) or started_without_gpu(case):
        return
    linking = case.saw("toolkit-libs-missing-at-link")
    variable = "LIBRARY_PATH" if linking else "LD_LIBRARY_PATH"
    fix = driver_fixes.as_user(
        case,
        f"Put {WSL_FOLDER} on {variable}",
        f"export {variable}={WSL_FOLDER}${{{variable}:+:${variable}}}",
        verify=(f"ls {WSL_FOLDER}/libcuda.so.1", "cudadoctor check"),
    )
    yield Problem(
        subject="libcuda.so.1",
        what=f"Under WSL libcuda lies in {WSL_FOLDER}, and {'the linker' if linking else 'the program'} does not find it there.",
        why="The Windows driver puts its Linux libraries into that folder only; many programs and linkers look in the usual Linux places.",
        evidence=(*as_evidence(lost), *seen(case, "shown-wsl-libcuda"), *evidence("wsl.library_folder", folder)),
        remedies=(fix, *driver_fixes.put_first_on_library_path(case, WSL_FOLDER, Where.WSL)[1:]),
        confidence=Confidence.CERTAIN if case.saw("shown-wsl-libcuda") or isinstance(folder, Known) else Confidence.LIKELY,
        references=(WSL_GUIDE,),
    )


def _libcuda_lost(case: Case) -> bool:
    cu_init = case.snapshot.driver.cu_init
    if case.saw(*LIBCUDA_LOST):
        return True
    if any(error.values.get("library", "") == "-lcuda" for error in case.errors("toolkit-libs-missing-at-link")):
        return True
    return in_wsl(case) and isinstance(cu_init, Missing) and cu_init.reason is MissingReason.NOT_FOUND


def _present(error: ErrorSeen) -> bool:
    """Does the text show the file, rather than its absence?"""
    lowered = error.text.lower()
    return "cannot access" not in lowered and "no such file" not in lowered and "not a symbolic link" not in lowered


def _brings_driver(error: ErrorSeen) -> bool:
    """Does this install command bring a Linux display driver?"""
    packages = error.values.get("packages", "").lower().split()
    if any(package in ("autoinstall", "install", "cuda") or package.endswith(".run") for package in packages):
        return True
    return any(package.startswith((*DRIVER_PACKAGES, "x86_64-")) or _is_meta_package(package) for package in packages)


def _is_meta_package(package: str) -> bool:
    """Is it `cuda-12-4`, the package of toolkit and driver together?"""
    return package.startswith("cuda-") and package.removeprefix("cuda-").replace("-", "").isdigit()


def _linux_driver(case: Case) -> tuple[Evidence, ...]:
    """What shows a Linux display driver inside WSL: packages, libraries, install commands."""
    packages = maybe(case.snapshot.wsl.linux_driver_packages) or ()
    copies = [
        copy
        for copy in maybe(case.snapshot.driver.libcuda_copies) or ()
        if copy.wins and copy.origin in (LibraryOrigin.DRIVER, LibraryOrigin.SYSTEM) and WSL_FOLDER not in copy.real_path
    ]
    shown = (
        *(error for error in case.errors("shown-linux-libcuda") if _present(error)),
        *case.errors("shown-driver-package"),
        *(error for error in case.errors("shown-package-install") if _brings_driver(error)),
    )
    return (
        *(
            Evidence(fact="wsl.linux_driver_packages", value=", ".join(packages[:4]), source="packages, library folders")
            for _ in packages[:1]
        ),
        *(Evidence(fact="driver.libcuda_copies", value=copy.path, source="loader search") for copy in copies[:1]),
        *as_evidence(shown),
    )


def wsl_linux_driver_installed(case: Case) -> Iterable[Problem]:
    """A Linux display driver is installed inside WSL; its libcuda comes before the one that belongs there.

    What it checks: driver packages and libraries inside the distribution; in a text, such files or install commands together
    with an error of CUDA.

    Why it matters: WSL2 has no NVIDIA kernel module: only the libcuda that Windows provides in /usr/lib/wsl/lib reaches the GPU.
    The Linux one answers "no CUDA-capable device", or gives an old driver version.

    How to fix: remove the Linux driver's packages inside WSL; install only the toolkit there (cuda-toolkit-X-Y, never cuda or
    cuda-drivers).

    When it is wrong: where CUDA works, the WSL library wins and the packages are only a hazard: then it is a remark.

    Sources: NVIDIA, CUDA on WSL user guide ("do not install any Linux display driver in WSL").
    """
    if not in_wsl(case):
        _in_wsl(case)
    proof = _linux_driver(case)
    if not proof:
        if not case.saw(*CUDA_FAILURES):
            known(case.snapshot.wsl.linux_driver_packages)
        return
    fails = cuda_fails(case) or (not driver_works(case.snapshot) and _libcuda_lost(case))
    yield Problem(
        subject="driver",
        what="A Linux display driver is installed inside WSL"
        + (
            "; its libcuda comes before the one in /usr/lib/wsl/lib and reaches no GPU."
            if fails
            else "; it does not belong there."
        ),
        why="WSL2 has no NVIDIA kernel module: only the libcuda that the Windows driver provides reaches the GPU."
        if fails
        else "CUDA works with the Windows driver's libcuda now; an update of these packages can put theirs in front.",
        evidence=(*proof, *as_evidence(case.errors(*CUDA_FAILURES)), *cu_init_evidence(case)),
        severity=Severity.ERROR if fails else Severity.NOTE,
        remedies=(
            Remedy(
                Fix(
                    title="Remove the Linux driver's packages inside WSL, then restart it (`wsl --shutdown` in Windows)",
                    commands=(
                        "sudo apt-get purge '^nvidia-.*' '^libnvidia-.*' '^cuda-drivers.*'",
                        "sudo apt-get autoremove",
                        "sudo ldconfig",
                    ),
                    where=Where.WSL,
                    needs_root=True,
                    verify=("ldconfig -p | grep libcuda.so.1", "nvidia-smi"),
                )
            ),
        ),
        references=(WSL_GUIDE,),
    )


def _windows_build(case: Case) -> tuple[int, tuple[Evidence, ...]] | None:
    """The build number of Windows (19045 of 10.0.19045.3693) and what shows it."""
    fact = case.snapshot.wsl.windows_build
    if isinstance(fact, Known):
        build = _build_number(fact.value)
        return (build, evidence("wsl.windows_build", fact)) if build else None
    for error in case.errors("shown-windows-build"):
        try:
            build = _build_number(DottedVersion.parse(error.values["build"]))
        except VersionError:
            continue
        if build:
            return build, as_evidence((error,))
    return None


def _build_number(version: DottedVersion) -> int:
    """The build in `10.0.19045.3693`, `19045.3693` or `19045`; 0 where there is none."""
    return next((part for part in version.parts[:3] if 10000 <= part < 100000), 0)


def wsl_windows_build_unsupported(case: Case) -> Iterable[Problem]:
    """The Windows build under WSL2 is too old, or a preview that is known to break GPU support.

    What it checks: the Windows build where CUDA does not work under WSL: below 19044 (Windows 10 21H2), or an Insider preview
    between 20145 and Windows 11; and NVML's "GPU access blocked by the operating system".

    Why it matters: the GPU reaches WSL2 through Windows (a paravirtual adapter). A build without it, or with a broken one, has
    no GPU in WSL whatever is installed in Linux.

    How to fix: update Windows to 10 21H2 or 11, and WSL with `wsl --update`.

    When it is wrong: on a supported build the same errors come from a Linux driver inside WSL or an old Windows driver.

    Sources: NVIDIA, CUDA on WSL user guide; Microsoft Learn, GPU acceleration in WSL.
    """
    if not in_wsl(case):
        _in_wsl(case)
    if driver_works(case.snapshot):
        return
    told = _windows_build(case)
    if _linux_driver(case) and (told is None or _is_supported(told[0])):
        raise NotApplicableError("a Linux driver in WSL gives the same messages")
    failures = case.errors(*CUDA_FAILURES)
    blocked = case.errors("gpu-access-blocked-by-os", "wsl-adapter-failed")
    hook = tuple(error for error in case.errors("container-cli-failed") if "driver error" in error.text.lower())
    failures = (*failures, *hook)
    if not failures and not cuda_fails(case):
        known(case.snapshot.driver.cu_init)
        return
    shown = _windows_build(case)
    if shown is None and not blocked and not hook and (_bridge_absent(case) or not case.saw("smi-cannot-communicate")):
        return
    build, proof = shown if shown is not None else (0, ())
    if _is_supported(build) and not case.saw("gpu-access-blocked-by-os"):
        return
    old, preview = _is_old(build), _is_preview(build)
    yield Problem(
        subject="Windows",
        what=_about_build(build),
        why="The GPU reaches WSL2 through Windows; without a build that supports it nothing installed in Linux helps.",
        evidence=(*proof, *as_evidence(failures), *cu_init_evidence(case)),
        remedies=(
            driver_fixes.on_windows_side(
                "Update Windows (10 21H2, or 11), WSL and the Windows driver",
                "wsl --update",
                "wsl --shutdown",
                verify=("winver", "wsl nvidia-smi"),
            ),
        ),
        confidence=Confidence.CERTAIN if old else Confidence.LIKELY if preview or blocked else Confidence.POSSIBLE,
        severity=Severity.ERROR if old or preview or blocked else Severity.WARNING,
        references=(WSL_GUIDE,),
    )


def _is_old(build: int) -> bool:
    return 0 < build < FIRST_BUILD


def _is_preview(build: int) -> bool:
    return FIRST_PREVIEW <= build < FIRST_WINDOWS_11


def _is_supported(build: int) -> bool:
    """Does this build let WSL2 use the GPU? 0, an unknown build, is not known to."""
    return build >= FIRST_BUILD and not _is_preview(build)


def _about_build(build: int) -> str:
    if _is_old(build):
        return f"Windows build {build} has no GPU support for WSL2: it begins with {FIRST_BUILD} (Windows 10 21H2)."
    if _is_preview(build):
        return f"Windows build {build} is an Insider preview from before Windows 11; GPU support in WSL2 is broken or expired in such builds."
    return "Windows does not let WSL2 use the GPU: its build or its WSL is too old, or the GPU is blocked."


def wsl_generation_one(case: Case) -> Iterable[Problem]:
    """The distribution runs under WSL 1, which has no GPU.

    What it checks: the generation of WSL, from the kernel's release.

    Why it matters: WSL 1 translates system calls and has no access to GPUs; only WSL 2 has.

    How to fix: convert the distribution to WSL 2.

    When it is wrong: never seen; the kernel of WSL 1 calls itself 4.4.0-...-Microsoft.

    Sources: Microsoft Learn, comparing WSL versions.
    """
    if not in_wsl(case):
        _in_wsl(case)
    fact = case.snapshot.wsl.wsl_version
    told = tuple(error for error in case.errors("shown-wsl") if error.values.get("kernel"))
    if not told and known(fact) != 1:
        return
    yield Problem(
        subject="WSL",
        what="The distribution runs under WSL 1, which has no GPU.",
        why="Only WSL 2 gives Linux programs access to the GPU.",
        evidence=(*evidence("wsl.wsl_version", fact), *as_evidence(told)),
        remedies=(
            driver_fixes.on_windows_side(
                "Convert the distribution to WSL 2", "wsl -l -v", "wsl --set-version DISTRIBUTION 2", verify=("wsl -l -v",)
            ),
        ),
    )


def wsl_adapter_failed(case: Case) -> Iterable[Problem]:
    """WSL's bridge to the GPU (dxgkrnl) does not answer.

    What it checks: the kernel's dxgk lines, an absent /dev/dxg, and the container runtime's "no adapters were found", where
    nothing shows that CUDA works.

    Why it matters: through this bridge the Windows driver serves Linux programs.

    How to fix: update WSL and the Windows driver, restart WSL.

    When it is wrong: dxgk lines also appear on machines where all is well; where CUDA works they are a remark.

    Sources: dxgkrnl in Microsoft's WSL2 kernel; libnvidia-container.
    """
    texts = case.errors("wsl-adapter-failed")
    absent = _bridge_absent(case) and cuda_fails(case) and not _linux_driver(case)
    if not texts and not absent:
        return
    hard = any("dxgkio" not in error.text.lower() for error in texts)
    works = driver_works(case.snapshot) or (
        not hard and not absent and not case.saw(*(kind for kind in CUDA_FAILURES if kind != "wsl-adapter-failed"))
    )
    node = Evidence(fact="driver.device_nodes", value=f"no {BRIDGE}", source="/dev")
    yield Problem(
        subject="WSL",
        what="The kernel's dxgk lines are a remark: nothing here shows that CUDA fails."
        if works
        else f"WSL's bridge to the GPU (dxgkrnl) {f'is missing: there is no {BRIDGE}' if absent else 'does not answer'}.",
        why="They appear on machines where all is well, too."
        if works
        else "Through it the Windows driver serves Linux programs.",
        evidence=(*as_evidence(texts), *((node, *cu_init_evidence(case)) if absent else ())),
        severity=Severity.NOTE if works else Severity.ERROR,
        tags=("benign-wsl-dxg",) if works else (),
        remedies=()
        if works
        else (
            driver_fixes.on_windows_side("Update WSL and the Windows driver, then restart WSL", "wsl --update", "wsl --shutdown"),
        ),
    )


def _bridge_absent(case: Case) -> bool:
    """Is this a distribution under WSL 2, no container in it, whose kernel shows no bridge to the GPU?"""
    nodes = maybe(case.snapshot.driver.device_nodes)
    if nodes is None or maybe(case.snapshot.wsl.wsl_version) != 2 or container_shown(case):
        return False
    return all(node.path != BRIDGE for node in nodes)


def benign_wsl_ldconfig(case: Case) -> Iterable[Problem]:
    """ldconfig remarks that WSL's libcuda.so.1 is not a symbolic link: harmless.

    What it checks: that line.

    Why it matters: it does not: the Windows driver puts a copy there instead of a link.

    How to fix: nothing.

    When it is wrong: never seen.

    Sources: NVIDIA, CUDA on WSL user guide, known limitations.
    """
    texts = seen(case, "benign-wsl-ldconfig")
    if texts:
        yield Problem(
            subject="ldconfig",
            what="ldconfig's line about libcuda.so.1 not being a symbolic link is harmless.",
            why="Under WSL the Windows driver puts copies there instead of links.",
            evidence=texts,
        )


RULES = (
    Rule(
        "CD630",
        "wsl-libcuda-path",
        Severity.ERROR,
        "WSL's libcuda is not found",
        wsl_libcuda_path,
        explained_by=("wsl-windows-build-unsupported", "wsl-generation-one"),
    ),
    Rule(
        "CD631",
        "wsl-linux-driver-installed",
        Severity.ERROR,
        "A Linux driver is installed inside WSL",
        wsl_linux_driver_installed,
        explained_by=("wsl-windows-build-unsupported",),
    ),
    Rule(
        "CD632",
        "wsl-windows-build-unsupported",
        Severity.ERROR,
        "The Windows build does not support the GPU in WSL2",
        wsl_windows_build_unsupported,
    ),
    Rule("CD633", "benign-wsl-ldconfig", Severity.NOTE, "libcuda.so.1 is not a symbolic link under WSL", benign_wsl_ldconfig),
    Rule("CD634", "wsl-generation-one", Severity.ERROR, "WSL 1 has no GPU", wsl_generation_one),
    Rule(
        "CD635",
        "wsl-adapter-failed",
        Severity.ERROR,
        "WSL's bridge to the GPU does not answer",
        wsl_adapter_failed,
        explained_by=("wsl-windows-build-unsupported", "wsl-generation-one"),
    ),
)
