"""Rules about the driver's libraries inside containers: mounted, found, of the host's driver (CD6xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.matrices.platforms import DriverPlatform
from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, LibraryCopy, LibraryOrigin
from cudadoctor.rules import container_fixes, driver_fixes, fixes
from cudadoctor.rules.circumstances import NO_DRIVER_IN_REACH, NO_LIBCUDA, container_shown, cuda_fails, variables
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, cu_init_evidence, seen, variable_evidence
from cudadoctor.rules.planned_questions import compat_on_library_path
from cudadoctor.rules.preflight_questions import is_preflight
from cudadoctor.rules.questions import driver_platform, driver_works, in_container

CAPABILITIES = "NVIDIA_DRIVER_CAPABILITIES"
DEFAULT_CAPABILITIES = frozenset({"compute", "utility"})
"""What the container runtime mounts where the variable is not set (NVIDIA Container Toolkit documentation)."""
NEEDED_CAPABILITY = (
    ("encode", "video"),
    ("nvenc", "video"),
    ("nvcuvid", "video"),
    ("opticalflow", "video"),
    ("nvoptix", "graphics"),
    ("glx", "graphics"),
    ("egl", "graphics"),
    ("glcore", "graphics"),
    ("vulkan", "graphics"),
    ("fbc", "video"),
    ("nvidia-ml", "utility"),
    ("nvml", "utility"),
    ("ptxjit", "compute"),
    ("libcuda", "compute"),
)
"""Part of a library's name or message and the capability that mounts it (NVIDIA Container Toolkit documentation)."""
MOUNT_FOLDERS = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/run/opengl-driver/lib",
    "/opt/nvidia/lib64",
    "/home/kubernetes/bin/nvidia/lib64",
)
"""Where platforms mount the driver's libraries outside the loader's default folders."""


def container_driver_libs_not_on_path(case: Case) -> Iterable[Problem]:
    """The driver's libraries are mounted into the container, but in a folder that the loader does not search.

    What it checks: copies of libcuda that belong to the driver where the loader finds none; in a text, such a folder's listing
    together with an error that says that no driver or platform was found.

    Why it matters: some platforms (Kubernetes engines, old runtimes, NixOS) mount them under /usr/local/nvidia/lib64 or the
    like. Images made for CUDA have it in LD_LIBRARY_PATH; other images do not.

    How to fix: put the folder on the loader's path.

    When it is wrong: where LD_LIBRARY_PATH holds the folder already, the cause is another.

    Sources: GKE documentation, GPU drivers; NVIDIA CUDA images (LD_LIBRARY_PATH).
    """
    if driver_works(case.snapshot):
        return
    listed = case.errors("shown-mounted-driver-libraries")
    errors = case.errors(*NO_DRIVER_IN_REACH, "nvml-init-failed") if listed else ()
    if errors:
        folder = next((each for each in MOUNT_FOLDERS if each in listed[0].text), MOUNT_FOLDERS[0])
        if folder in variables(case).get("LD_LIBRARY_PATH", ""):
            return
        yield _not_on_path(case, folder, (*as_evidence(errors), *as_evidence(listed)))
        return
    driver = case.snapshot.driver
    if not in_container(case.snapshot):
        known(case.snapshot.container.kind)
        return
    copies = known(driver.libcuda_copies)
    unreached = [copy for copy in copies if copy.origin is LibraryOrigin.DRIVER]
    not_found = isinstance(driver.cu_init, Missing) and driver.cu_init.reason is MissingReason.NOT_FOUND
    if unreached and not_found and not any(copy.wins for copy in copies):
        folder = unreached[0].path.rpartition("/")[0]
        proof = Evidence(fact="driver.libcuda_copies", value=unreached[0].path, source="files")
        yield _not_on_path(case, folder, (proof,))


def _not_on_path(case: Case, folder: str, texts: tuple[Evidence, ...]) -> Problem:
    return Problem(
        subject="libcuda.so.1",
        what=f"The driver's libraries are mounted in {folder}, where the loader does not look.",
        why="Neither libcuda nor NVML is found, so programs say that there is no GPU or no platform.",
        evidence=texts,
        remedies=driver_fixes.put_first_on_library_path(case, folder, Where.CONTAINER),
    )


def _winner(case: Case) -> LibraryCopy | None:
    return next((copy for copy in maybe(case.snapshot.driver.libcuda_copies) or () if copy.wins), None)


def _reports_more_than_it_can(case: Case) -> bool:
    """Does a Linux driver report a newer CUDA version than its branch has? Then a cuda-compat libcuda answers."""
    release, reports = maybe(case.snapshot.driver.driver_release), maybe(case.snapshot.driver.driver_cuda_version)
    if release is None or reports is None or driver_platform(case.snapshot) is not DriverPlatform.LINUX:
        return False
    limit = case.matrices.drivers.max_cuda(release)
    return limit is not None and reports > limit


def cuda_compat_in_image(case: Case) -> Iterable[Problem]:
    """A cuda-compat libcuda of the container image is used in place of the host driver's own, and CUDA fails.

    What it checks: which libcuda the loader picks; a CUDA version reported that the driver's branch does not have; and errors
    803, 804 and 35 in a container.

    Why it matters: official images bring a compat library for data-centre GPUs with older drivers. On other GPUs it gives error
    804; where the host's driver is newer than it, error 803, or hides what the driver can do.

    How to fix: take the compat folder out of the loader's way.

    When it is wrong: where CUDA works with it, forward compatibility does its job and the rule does not speak.

    Sources: CUDA Compatibility guide, Forward Compatibility; NVIDIA CUDA images.
    """
    if is_preflight(case.snapshot):
        yield from compat_on_library_path(case)
        return
    if driver_works(case.snapshot):
        return
    texts = seen(case, "cuda-compat-in-image")
    winner = _winner(case)
    wins = winner is not None and winner.origin is LibraryOrigin.COMPAT
    failures = case.errors("cuda-error-803", "forward-compat-unsupported", "cuda-error-35", "torch-driver-too-old")
    mismatch = case.errors("cuda-error-803", "forward-compat-unsupported")
    if not failures and not cuda_fails(case) and not (texts and _compat_first(case)):
        if winner is None:
            known(case.snapshot.driver.libcuda_copies)
        return
    sure = bool(texts) or wins or (bool(mismatch) and _reports_more_than_it_can(case))
    likely = bool(mismatch) and container_shown(case) and not case.saw("nvml-version-mismatch")
    if not sure and not likely:
        return
    path = (
        winner.path
        if winner is not None and wins
        else case.errors("cuda-compat-in-image")[0].values.get("path", "")
        if texts
        else ""
    )
    yield Problem(
        subject="libcuda.so.1",
        what="A cuda-compat libcuda of the image is loaded in place of the host driver's own" + (f": {path}." if path else "."),
        why="It serves data-centre GPUs with certain older drivers only; with another GPU cuInit fails with error 804, with a newer driver with 803.",
        evidence=(
            *texts,
            *as_evidence(failures),
            *cu_init_evidence(case),
            *evidence("driver.driver_release", case.snapshot.driver.driver_release),
            *evidence("driver.driver_cuda_version", case.snapshot.driver.driver_cuda_version),
        ),
        remedies=_without_compat(case),
        severity=Severity.ERROR if sure else Severity.WARNING,
        confidence=Confidence.CERTAIN if texts or wins else Confidence.LIKELY,
    )


def _compat_first(case: Case) -> bool:
    """Does a text list the compat libcuda before one of the system?"""
    compat, system = case.errors("cuda-compat-in-image"), case.errors("shown-linux-libcuda")
    return (
        bool(system)
        and (compat[0].line or 0) < (system[0].line or 0)
        and case.saw("framework-no-platform", "torch-no-gpu-visible")
    )


def _without_compat(case: Case) -> tuple[Remedy, ...]:
    on_path = "compat" in variables(case).get("LD_LIBRARY_PATH", "")
    start = Fix(
        title="Start the container with the driver's own folder first",
        commands=("docker run --gpus all -e LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu IMAGE",),
        where=Where.HOST,
    )
    return (
        *(fixes.drop_from_library_path(case, "compat", None) if on_path else (Remedy(start),)),
        Remedy(
            Fix(
                title="Or take the compat library out of the image",
                commands=("rm -f /etc/ld.so.conf.d/*compat*.conf", "apt-get remove -y 'cuda-compat-*'", "ldconfig"),
                where=Where.CONTAINER,
                needs_root=True,
                verify=("ldconfig -p | grep libcuda.so.1",),
            )
        ),
    )


def driver_capabilities_missing(case: Case) -> Iterable[Problem]:
    """NVIDIA_DRIVER_CAPABILITIES lacks the capability (video, graphics, compute ...) that the program needs.

    What it checks: driver libraries that a program in a container misses, against the capabilities that would mount them; in a
    running container the variable against the libraries found.

    Why it matters: the container runtime mounts only the libraries of the capabilities named (compute and utility by default).
    A program that needs another one reports a missing library, or even too old a driver.

    How to fix: start the container with the capability added, or with all.

    When it is wrong: where the variable holds the capability (or all), the host itself lacks the library.

    Sources: NVIDIA Container Toolkit documentation, NVIDIA_DRIVER_CAPABILITIES.
    """
    missing = case.errors("driver-lib-missing")
    if container_shown(case) and (missing or case.saw(*NO_LIBCUDA)):
        yield from _capability_of_texts(case)
        return
    if driver_works(case.snapshot) or missing:
        return
    value = known(case.snapshot.environment).get(CAPABILITIES)
    if value is None or not in_container(case.snapshot):
        return
    given = _capabilities(value)
    if "compute" not in given and "all" not in given and isinstance(case.snapshot.driver.cu_init, Missing):
        yield _lacks_capability(case, "compute", value, variable_evidence(CAPABILITIES, value))


def _capability_of_texts(case: Case) -> Iterable[Problem]:
    value = _capabilities_text(case)
    given = _capabilities(value) if value is not None else DEFAULT_CAPABILITIES
    for error in case.errors("driver-lib-missing", *NO_LIBCUDA):
        if "nvidia-container-cli" in error.text:
            continue
        needed = _needed_capability(error)
        if needed is None or needed in given or "all" in given:
            continue
        if needed == "utility" and value is None:
            continue
        shown = variable_evidence(CAPABILITIES, value) if value is not None else ()
        yield _lacks_capability(case, needed, value, (*as_evidence((error,)), *shown))
        return


def _needed_capability(error: ErrorSeen) -> str | None:
    """The capability that would mount what this error misses."""
    if error.kind in NO_LIBCUDA:
        return "compute"
    named = f"{error.values.get('library', '')} {error.text}".lower()
    return next((capability for part, capability in NEEDED_CAPABILITY if part in named), None)


def _capabilities(value: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in value.split(",") if part.strip())


def _capabilities_text(case: Case) -> str | None:
    """The variable's value in the environment or a text."""
    value = variables(case).get(CAPABILITIES)
    if value is not None:
        return value
    shown = case.errors("shown-driver-capabilities")
    return shown[-1].values["value"].split(" ")[0] if shown else None


def _lacks_capability(case: Case, needed: str, value: str | None, texts: tuple[Evidence, ...]) -> Problem:
    wanted = ",".join(sorted({*(_capabilities(value) if value is not None else DEFAULT_CAPABILITIES), needed}))
    have = f"{CAPABILITIES}={value}" if value is not None else f"{CAPABILITIES} is not set (compute,utility) and"
    return Problem(
        subject=CAPABILITIES,
        what=f"{have} lacks {needed!r}, so the container runtime does not mount the libraries that the program needs.",
        why="Only the libraries of the capabilities named are mounted; the driver itself may be new enough.",
        evidence=texts,
        remedies=container_fixes.give_capabilities(case, wanted),
        confidence=Confidence.CERTAIN if value is not None else Confidence.LIKELY,
    )


def driver_libs_in_image(case: Case) -> Iterable[Problem]:
    """The image holds copies of the driver's libraries, so the container runtime cannot mount the host's.

    What it checks: the runtime's "file creation failed ... file exists"; in a container where CUDA fails, whether the libcuda
    that is loaded is no mount and of another release than the kernel module.

    Why it matters: an image that was built (or committed) with a driver inside has libcuda or libnvidia-ml files of another
    release; the container does not start, or CUDA fails with a version mismatch.

    How to fix: remove the driver's libraries from the image; never install a driver in one.

    When it is wrong: where the libraries were copied into the container on purpose and the host's driver was updated since; the
    cure is the same.

    Sources: libnvidia-container; NVIDIA, CUDA on WSL user guide.
    """
    texts = (*seen(case, "driver-libs-in-image"), *_of_another_driver(case))
    if texts:
        yield Problem(
            subject="image",
            what="The image holds copies of the driver's libraries, where the container runtime wants to mount the host's.",
            why="A driver belongs to the host only; an image with the libraries of another release does not start, or CUDA fails in it.",
            evidence=texts,
            remedies=(
                Remedy(
                    Fix(
                        title="Remove the driver's libraries in the image's Dockerfile",
                        commands=("RUN rm -f /usr/lib/x86_64-linux-gnu/libcuda.so* /usr/lib/x86_64-linux-gnu/libnvidia-*.so*",),
                        where=Where.CONTAINER,
                        needs_root=True,
                    )
                ),
            ),
        )


def _of_another_driver(case: Case) -> tuple[Evidence, ...]:
    """The libcuda that is loaded in a container, where it was not mounted and is of another release than the kernel module."""
    winner, mounted = _winner(case), maybe(case.snapshot.container.injected_libraries)
    module = maybe(case.snapshot.driver.kernel_module)
    if driver_works(case.snapshot) or winner is None or mounted is None or module is None:
        return ()
    version = maybe(winner.library_version)
    if winner.origin is not LibraryOrigin.DRIVER or version is None or winner.real_path in mounted:
        return ()
    if str(version) == str(module.driver_release):
        return ()
    return (
        Evidence(fact="driver.libcuda_copies", value=f"{winner.real_path}, not a mount", source="loader search, mountinfo"),
        *evidence("driver.kernel_module", case.snapshot.driver.kernel_module, value=str(module.driver_release)),
    )


RULES = (
    Rule(
        "CD605",
        "container-driver-libs-not-on-path",
        Severity.ERROR,
        "The mounted driver libraries are not on the loader's path",
        container_driver_libs_not_on_path,
    ),
    Rule(
        "CD608",
        "cuda-compat-in-image",
        Severity.ERROR,
        "A cuda-compat libcuda of the image is loaded",
        cuda_compat_in_image,
        explained_by=("forward-compat-unsupported",),
    ),
    Rule(
        "CD609",
        "driver-capabilities-missing",
        Severity.ERROR,
        "The container lacks a driver capability",
        driver_capabilities_missing,
    ),
    Rule("CD616", "driver-libs-in-image", Severity.ERROR, "The image holds the driver's libraries", driver_libs_in_image),
)
