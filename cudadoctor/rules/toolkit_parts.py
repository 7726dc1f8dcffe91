"""Rules about what a toolkit holds and how many there are (CD206, CD209, CD210, CD224 to CD226)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import ErrorSeen, Platform, Toolkit
from cudadoctor.model.versions import CudaVersion
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import environment, platform
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    chosen,
    compiles_here,
    compiling_fault,
    looked_for_toolkits,
    nvcc_version,
    title,
    toolkits_with_nvcc,
    variable_evidence,
    version_evidence,
)

ESSENTIAL_PARTS = ("ptxas", "cicc", "cudafe++", "CUDA headers", "nvcc's own headers")
"""Without one of these nvcc compiles nothing."""


def toolkit_incomplete(case: Case) -> Iterable[Problem]:
    """The toolkit that builds would use lacks parts.

    What it checks: the programs that nvcc starts, the headers that torch's own headers include (cuBLAS, cuSPARSE, cuSOLVER) and
    the libraries to link with; and texts in which the shell does not find such a program.

    Why it matters: without its own programs and headers nvcc compiles nothing; without the library headers extensions of torch
    stop with "cusparse.h: No such file or directory".

    How to fix: install the whole toolkit, or the missing packages.

    When it is wrong: where nothing is compiled on this machine it does not matter; a small toolkit may be meant.

    Sources: contents of the toolkit packages; torch/include/ATen/cuda.
    """
    errors = case.errors("toolkit-program-missing")
    if errors:
        yield _without_program(case, errors)
        return
    kit, version = chosen(case)
    lacking = kit.missing_parts
    if not lacking or not looked_for_toolkits(case.snapshot):
        return
    broken = [part for part in lacking if part in ESSENTIAL_PARTS]
    serious = bool(broken) and not compiles_here(case)
    yield Problem(
        subject="toolkit",
        what=f"The toolkit in {kit.root} lacks {', '.join(lacking)}.",
        why=f"nvcc compiles nothing without {', '.join(broken)}. {ONLY_WHEN_COMPILING}" if serious else ONLY_WHEN_COMPILING,
        evidence=(Evidence(fact="toolkits.missing_parts", value=", ".join(lacking), source=kit.root), *version_evidence(kit)),
        remedies=toolkit_fixes.install_toolkit(case, CudaVersion.of(version.major, version.minor)),
        severity=compiling_fault(case) if serious else Severity.NOTE,
    )


def _without_program(case: Case, errors: tuple[ErrorSeen, ...]) -> Problem:
    """nvcc looked for a program of its own and did not find it."""
    program = errors[0].values["program"]
    version = nvcc_version(case.snapshot)
    wanted = CudaVersion.of(version.major, version.minor) if version is not None else None
    return Problem(
        subject="toolkit",
        what=f"nvcc does not find {program.rpartition('/')[2]}, a program of its own toolkit"
        + (f": {program}." if "/" in program else "."),
        why="nvcc starts cudafe++, cicc, ptxas and fatbinary one after the other; without one of them it compiles nothing.",
        evidence=(*seen(case, "toolkit-program-missing"), *version_evidence(build_toolkit(case.snapshot))),
        remedies=toolkit_fixes.install_toolkit(case, wanted) or toolkit_fixes.install_fitting_toolkit(case),
        severity=Severity.ERROR,
    )


def nvcc_fails(case: Case) -> Iterable[Problem]:
    """The nvcc that builds would use does not run.

    What it checks: what nvcc answered to `--version` and `--list-gpu-code`: an error, a signal, or nothing within its time.

    Why it matters: nothing can be compiled with it.

    How to fix: install the toolkit anew; a binary of another architecture, or a wrapper whose target is gone, is the usual cause.

    When it is wrong: a very slow file system; ask again with --timeout.

    Sources: the program's own exit status.
    """
    kit = build_toolkit(case.snapshot)
    if kit is None:
        known(case.snapshot.toolkits)
        raise NotApplicableError("no nvcc would be chosen for builds")
    version = kit.targets if _only_files_tell(kit) else kit.toolkit_version
    if not isinstance(version, Missing):
        return
    if version.reason not in (
        MissingReason.FAILED,
        MissingReason.CRASHED,
        MissingReason.TIMEOUT,
        MissingReason.PERMISSION_DENIED,
    ):
        known(kit.toolkit_version)
        return
    yield Problem(
        subject="nvcc",
        what=f"{maybe(kit.nvcc) or kit.root} does not run: {version.detail or version.reason.value}.",
        why=f"Nothing can be compiled with it. {ONLY_WHEN_COMPILING}",
        evidence=(Evidence(fact="toolkits.nvcc", value=version.detail, source=version.source or "nvcc"),),
        remedies=toolkit_fixes.install_fitting_toolkit(case),
        severity=compiling_fault(case),
    )


def _only_files_tell(kit: Toolkit) -> bool:
    """Is the version known from the toolkit's files alone, although it has an nvcc that could have said it?"""
    version = kit.toolkit_version
    if not isinstance(version, Known) or not isinstance(kit.nvcc, Known):
        return False
    sources = (version.source, *(other.source for other in version.others))
    return not any(source.startswith(kit.nvcc.value) for source in sources)


def toolkit_links_differ(case: Case) -> Iterable[Problem]:
    """/usr/local/cuda, CUDA_HOME and the nvcc on PATH lead to different releases of the toolkit.

    What it checks: which toolkit each of the three ways leads to, symlinks resolved.

    Why it matters: builds follow different ways (makefiles /usr/local/cuda, torch CUDA_HOME, CMake PATH), so that compiler,
    headers and libraries of one build can be of different releases.

    How to fix: let all three lead to one: set CUDA_HOME and PATH, or change the link.

    When it is wrong: it is the usual state of a machine with several toolkits; it matters only while compiling.

    Sources: CUDA installation guide for Linux, post-installation actions.
    """
    ways = {way: kit for kit in known(case.snapshot.toolkits) for way in kit.found_by if way in _WAYS}
    roots = {kit.root for kit in ways.values()}
    if len(roots) < 2:
        return
    shown = ", ".join(f"{way} to {kit.root} ({_release(kit)})" for way, kit in sorted(ways.items()))
    yield Problem(
        subject="toolkit",
        what=f"The usual ways lead to different toolkits: {shown}.",
        why=f"Makefiles follow /usr/local/cuda, torch CUDA_HOME, CMake the PATH. {ONLY_WHEN_COMPILING}",
        evidence=tuple(
            Evidence(fact="toolkits.found_by", value=f"{way}: {kit.root}", source="file system") for way, kit in ways.items()
        ),
    )


_WAYS = frozenset({"PATH", "CUDA_HOME", "CUDA_PATH", "/usr/local/cuda"})


def _release(kit: Toolkit) -> str:
    version = maybe(kit.toolkit_version)
    return f"CUDA {version.release}" if version is not None else "release unknown"


def several_toolkits(case: Case) -> Iterable[Problem]:
    """Several toolkits of different releases are installed.

    What it checks: the toolkits found in the usual places, on PATH, in variables and in the environment.

    Why it matters: it does not by itself: toolkits live side by side. It is said so that one knows which builds take.

    How to fix: nothing.

    When it is wrong: never; it is a remark.

    Sources: CUDA installation guide for Linux.
    """
    known(case.snapshot.toolkits)
    kits = [kit for kit in toolkits_with_nvcc(case.snapshot) if maybe(kit.toolkit_version) is not None]
    if len({_release(kit) for kit in kits}) < 2:
        return
    taken = build_toolkit(case.snapshot)
    shown = ", ".join(f"{_release(kit)} ({kit.root or maybe(kit.nvcc)})" for kit in kits)
    yield Problem(
        subject="toolkit",
        what=f"{len(kits)} toolkits are installed: {shown}."
        + (f" Builds take {title(taken)}." if taken is not None else " None of them is found by builds."),
        why="Toolkits live side by side; nothing is wrong with that.",
        evidence=tuple(item for kit in kits for item in version_evidence(kit)),
    )


def toolkit_headers_missing(case: Case) -> Iterable[Problem]:
    """Headers of the CUDA toolkit or its libraries are missing: the toolkit is incomplete.

    What it checks: error texts of compilers that name a header such as cusparse.h, cublas_v2.h or cuda_runtime.h.

    Why it matters: the build stops. A conda environment with cuda-nvcc alone, a distribution's minimal package or an image with
    `base` in its tag has the compiler and not these headers.

    How to fix: install the development packages of the libraries, or the whole toolkit, and name it in CUDA_HOME.

    When it is wrong: the header may lie in a toolkit that the build does not look into; cuda-home-wrong then says so.

    Sources: gcc, clang, nvcc and MSVC texts; contents of the toolkit packages.
    """
    texts = seen(case, "toolkit-headers-missing")
    if not texts:
        return
    header = next((one.values["header"] for one in case.errors("toolkit-headers-missing") if "header" in one.values), "")
    version = nvcc_version(case.snapshot)
    wanted = CudaVersion.of(version.major, version.minor) if version is not None else None
    yield Problem(
        subject="toolkit",
        what=f"The header {header} of the CUDA toolkit is not where the compiler looks."
        if header
        else "Headers of the CUDA toolkit are not where the compiler looks.",
        why="The toolkit that is in use has not all of its development files, or the build looks into another folder.",
        evidence=(*texts, *version_evidence(build_toolkit(case.snapshot)), *variable_evidence(case.snapshot, "CPATH")),
        remedies=toolkit_fixes.install_toolkit(case, wanted) or toolkit_fixes.install_fitting_toolkit(case),
    )


def toolkit_libs_missing_at_link(case: Case) -> Iterable[Problem]:
    """The linker does not find a library of the CUDA toolkit.

    What it checks: error texts of linkers, make and CMake that name -lcudart, -lcuda, -lcublas and the like.

    Why it matters: the build stops at its last step. Compilers from conda look only into the environment; -lcuda needs the
    driver's library or the toolkit's stub.

    How to fix: put the toolkit's library folder on the link path (LIBRARY_PATH or -L; lib64/stubs for -lcuda), or install the
    development packages of the libraries.

    When it is wrong: in WSL2 -lcuda is found in /usr/lib/wsl/lib; wsl-libcuda-path then says so.

    Sources: GNU ld, lld, MSVC link and CMake texts.
    """
    texts = seen(case, "toolkit-libs-missing-at-link")
    if not texts:
        return
    errors = case.errors("toolkit-libs-missing-at-link")
    libraries = tuple(dict.fromkeys(one.values["library"] for one in errors if "library" in one.values))
    driver_only = bool(libraries) and all(name.lower() in ("-lcuda", "cuda.lib") for name in libraries)
    if driver_only and platform(case.snapshot) is Platform.WSL:
        raise NotApplicableError("in WSL2 -lcuda is the driver's library in /usr/lib/wsl/lib (wsl-libcuda-path says so)")
    kit = build_toolkit(case.snapshot)
    root = kit.root if kit is not None and kit.root else "/usr/local/cuda"
    folders = f"{root}/lib64/stubs" if driver_only else f"{root}/lib64:{root}/lib64/stubs"
    old = environment(case.snapshot).get("LIBRARY_PATH", "")
    yield Problem(
        subject="toolkit",
        what=f"The linker does not find {', '.join(libraries)}."
        if libraries
        else "The linker does not find a library of the toolkit.",
        why="The library is not installed, or not in a folder that this linker searches (a conda compiler searches its environment only).",
        evidence=(*texts, *version_evidence(kit)),
        remedies=(
            *toolkit_fixes.set_variable(
                case, "LIBRARY_PATH", f"{folders}:{old}".rstrip(":"), "Let the linker search the toolkit's library folder"
            ),
            *toolkit_fixes.install_fitting_toolkit(case),
        ),
        confidence=Confidence.CERTAIN,
    )


RULES = (
    Rule("CD206", "toolkit-incomplete", Severity.WARNING, "The toolkit that builds would use lacks parts", toolkit_incomplete),
    Rule(
        "CD209",
        "toolkit-headers-missing",
        Severity.ERROR,
        "Headers of the toolkit are missing",
        toolkit_headers_missing,
        explained_by=("cuda-home-wrong", "cuda-home-malformed"),
    ),
    Rule(
        "CD210",
        "toolkit-libs-missing-at-link",
        Severity.ERROR,
        "The linker does not find toolkit libraries",
        toolkit_libs_missing_at_link,
        explained_by=("wsl-libcuda-path",),
    ),
    Rule(
        "CD224",
        "toolkit-links-differ",
        Severity.NOTE,
        "CUDA_HOME, PATH and /usr/local/cuda lead to different toolkits",
        toolkit_links_differ,
    ),
    Rule("CD225", "several-toolkits", Severity.NOTE, "Several toolkits are installed", several_toolkits),
    Rule("CD226", "nvcc-fails", Severity.WARNING, "The nvcc that builds would use does not run", nvcc_fails),
)
