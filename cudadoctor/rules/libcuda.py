"""Rules about libcuda, the driver library of programs: missing, a stub, not the kernel driver's own (CD110 to CD113)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import LibraryOrigin
from cudadoctor.rules import fixes
from cudadoctor.rules.circumstances import (
    remarks_without_gpu,
)
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.evidence import cu_init_is, seen
from cudadoctor.rules.questions import (
    Presence,
    driver_works,
    environment,
)

CUDA_ERROR_STUB_LIBRARY = 34
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803
CUDA_ERROR_COMPAT_NOT_SUPPORTED = 804
"""cuda.h."""
COMPATIBILITY_GUIDE = "https://docs.nvidia.com/deploy/cuda-compatibility/"


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
    texts = (*cu_init_is(case, CUDA_ERROR_STUB_LIBRARY), *seen(case, "stub-libcuda"))
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
    texts = (*cu_init_is(case, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH), *seen(case, "cuda-error-803"))
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
    texts = (*cu_init_is(case, CUDA_ERROR_COMPAT_NOT_SUPPORTED), *seen(case, "forward-compat-unsupported"))
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


RULES = (
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
)
