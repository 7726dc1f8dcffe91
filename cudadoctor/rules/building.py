"""Rules about what a build asks of CMake and of the system (CD255 to CD260)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.archs import ArchStyle
from cudadoctor.model.fact import known
from cudadoctor.model.finding import Confidence, Fix, Severity
from cudadoctor.model.snapshot import ErrorSeen
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.arch_lists import CMAKE_ENTRY
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.fixes import here, interpreter
from cudadoctor.rules.questions import environment
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    quoted,
    variable_evidence,
)

CMAKE_WORDS = frozenset({"native", "all", "all-major", "OFF"})


CMAKE_NATIVE_FROM = "3.24"
"""`native`: CMake documentation, CUDA_ARCHITECTURES, New in version 3.24."""


def cmake_arch_invalid(case: Case) -> Iterable[Problem]:
    """CMake's list of CUDA architectures is empty or malformed.

    What it checks: texts of CMake and nvcc ("compute_", "compute_native", "must be non-empty if set"); on a machine, the form of
    CUDAARCHS.

    Why it matters: nvcc is given an architecture that is none, and the configuration stops.

    How to fix: set CMAKE_CUDA_ARCHITECTURES to numbers without a dot, such as 86 or 89;90; `native` needs CMake 3.24.

    When it is wrong: "must be valid if set" after a failed test of the compiler is a consequence of that failure.

    Sources: CMake documentation, CUDA_ARCHITECTURES; CMakeDetermineCUDACompiler.
    """
    errors = [one for one in case.errors("cmake-arch-invalid") if not _is_native(one)]
    if not errors and case.saw("cmake-arch-check-failed") and not case.saw(*OTHER_REASONS):
        errors = [one for one in case.errors("cmake-arch-check-failed") if "must be valid" in one.text]
    if not errors and case.saw("cmake-arch-invalid") and not _cmake_lacks_native(case):
        errors = list(case.errors("cmake-arch-invalid"))
    if errors:
        yield Problem(
            subject="CMAKE_CUDA_ARCHITECTURES",
            what="CMake's list of CUDA architectures is empty or malformed.",
            why="It wants numbers without a dot (86, 89;90), or one of the words native, all, all-major.",
            evidence=(*quoted(errors), *variable_evidence(case.snapshot, "CUDAARCHS")),
            remedies=_cmake_list(case),
        )
        return
    value = known(case.snapshot.environment).get("CUDAARCHS")
    bad = next((part for part in (value or "").split(";") if value and not _is_cmake_entry(part.strip())), None)
    if bad is not None:
        yield Problem(
            subject="CUDAARCHS",
            what=f"CUDAARCHS={value!r}: {bad!r} is no architecture for CMake.",
            why=f"It wants numbers without a dot, such as 86 or 90a. {ONLY_WHEN_COMPILING}",
            evidence=variable_evidence(case.snapshot, "CUDAARCHS"),
            remedies=toolkit_fixes.set_arch_list(case, "CUDAARCHS", ArchStyle.CMAKE),
            severity=Severity.WARNING,
        )


OTHER_REASONS = (
    "host-compiler-too-new",
    "glibc-too-new",
    "nvcc-not-found",
    "unsupported-gpu-architecture",
    "msvc-version-unsupported",
    "host-compiler-missing",
    "toolkit-libs-missing-at-link",
    "toolkit-too-old",
    "cmake-too-old",
)
"""Kinds of errors after which CMake says that the architectures are not valid."""


def _is_native(error: ErrorSeen) -> bool:
    return error.values.get("value", "").lower() in ("native", "all", "all-major")


def _is_cmake_entry(entry: str) -> bool:
    return entry in CMAKE_WORDS or CMAKE_ENTRY.fullmatch(entry) is not None


def _cmake_list(case: Case) -> tuple[Remedy, ...]:
    """Naming the architectures of the GPUs here; where none is known, as an example one that every toolkit of today has."""
    value = toolkit_fixes.arch_list(case, ArchStyle.CMAKE)
    title = "Name the architectures for CMake" if value else "Name your GPU's architecture for CMake (86 is the RTX 30 series)"
    command = f"cmake -B build -DCMAKE_CUDA_ARCHITECTURES='{value or '86'}'"
    verify = () if value else ("cudadoctor archs --style cmake --gpu 'NAME OF THE GPU'",)
    return (Remedy(Fix(title=title, commands=(command,), where=here(case.snapshot), verify=verify)),)


def _cmake_lacks_native(case: Case) -> bool:
    """Did CMake hand the word `native` on to nvcc? Only CMake before 3.24 does."""
    return any(_is_native(one) for one in case.errors("cmake-arch-invalid"))


def cmake_too_old(case: Case) -> Iterable[Problem]:
    """This CMake is older than the project or the CUDA feature needs.

    What it checks: CMake's own text, unknown CUDA dialects, and the words native or all handed on to nvcc, which only a CMake
    that does not know them does (native: 3.24, all: 3.23).

    Why it matters: the configuration or the build stops.

    How to fix: install a newer CMake (pip and conda have one), or name the architectures by number.

    When it is wrong: a project that passes the word to nvcc itself shows the same.

    Sources: CMake documentation, CUDA_ARCHITECTURES and CUDA_STANDARD; cmake_minimum_required.
    """
    errors = (*case.errors("cmake-too-old"), *(one for one in case.errors("cmake-arch-invalid") if _is_native(one)))
    if not errors:
        return
    have = next((one.values["have"] for one in errors if "have" in one.values), None)
    wanted = next((one.values["wanted"] for one in errors if "wanted" in one.values), None)
    if wanted is None and any(_is_native(one) for one in errors):
        wanted = CMAKE_NATIVE_FROM
    yield Problem(
        subject="cmake",
        what=f"CMake{f' {have}' if have else ''} is older than this build needs"
        + (f": {wanted} or newer." if wanted is not None else "."),
        why="It does not know a CUDA feature that the project asks for.",
        evidence=quoted(errors),
        remedies=(
            Remedy(
                Fix(
                    title="Install a newer CMake into the environment",
                    commands=(f"python -m pip install --upgrade 'cmake>={wanted or CMAKE_NATIVE_FROM}'",),
                    where=here(case.snapshot),
                    verify=("cmake --version",),
                )
            ),
            *_cmake_list(case),
        ),
        tags=("cmake-arch-invalid",) if any(_is_native(one) for one in errors) else (),
    )


PACKAGE_OF_HEADER = {
    "crypt.h": {"apt": "libcrypt-dev", "dnf": "libxcrypt-devel", "pacman": "libxcrypt", "zypper": "libxcrypt-devel"},
    "python.h": {"apt": "python3-dev", "dnf": "python3-devel", "pacman": "python", "zypper": "python3-devel"},
    "zlib.h": {"apt": "zlib1g-dev", "dnf": "zlib-devel", "pacman": "zlib", "zypper": "zlib-devel"},
    "libaio.h": {"apt": "libaio-dev", "dnf": "libaio-devel", "pacman": "libaio", "zypper": "libaio-devel"},
    "numa.h": {"apt": "libnuma-dev", "dnf": "numactl-devel", "pacman": "numactl", "zypper": "libnuma-devel"},
}
"""Package that brings a header, by package manager (each distribution's package contents)."""


C_LIBRARY = {"apt": "libc6-dev g++", "dnf": "glibc-devel gcc-c++", "pacman": "glibc gcc", "zypper": "glibc-devel gcc-c++"}


def system_header_missing(case: Case) -> Iterable[Problem]:
    """A header of the system, not of CUDA, is missing for the compiler in use.

    What it checks: compilers' texts that name a header of the C or C++ library, Python or another system package.

    Why it matters: the build stops; nothing is wrong with CUDA. A compiler from conda has a system root of its own, which lacks
    what the system's has (crypt.h is the usual one).

    How to fix: install the header's package for this compiler, or compile with the system's gcc.

    When it is wrong: a project's own header of the same name.

    Sources: gcc and MSVC texts; contents of distribution packages.
    """
    errors = case.errors("system-header-missing")
    if not errors:
        return
    header = next((one.values["header"] for one in errors if "header" in one.values), "")
    with_conda = any("conda" in one.text for one in errors) or "CONDA_PREFIX" in environment(case.snapshot)
    packages = PACKAGE_OF_HEADER.get(header.lower(), C_LIBRARY)
    yield Problem(
        subject="host compiler",
        what=f"The system header {header or 'named'} is missing for this compiler; CUDA is not at fault.",
        why="A compiler from conda searches its own system root only."
        if with_conda
        else "The development package that brings it is not installed for this compiler.",
        evidence=quoted(errors),
        remedies=(
            *_conda_header(case, header),
            *toolkit_fixes.system_packages(case, f"Install the package with {header}", packages),
        ),
    )


def _conda_header(case: Case, header: str) -> tuple[Remedy, ...]:
    name = {"crypt.h": "libxcrypt", "zlib.h": "zlib", "libaio.h": "libaio"}.get(header.lower())
    if name is None:
        return ()
    fix = Fix(
        title="For a compiler from conda: install the header into the environment",
        commands=(f"conda install -c conda-forge {name}", 'export CPATH="$CONDA_PREFIX/include"'),
        where=here(case.snapshot),
    )
    return (Remedy(fix),)


def ninja_missing(case: Case) -> Iterable[Problem]:
    """torch's extension builder does not find ninja.

    What it checks: torch's text "Ninja is required to load C++ extensions" and its kin.

    Why it matters: extensions that are built while a program runs need it; setup.py builds without it compile one file at a
    time.

    How to fix: install it into the environment that builds, and let its bin folder be on PATH.

    When it is wrong: an interpreter that is called by its path, without the environment being active, does not see the ninja
    that is installed there.

    Sources: torch/utils/cpp_extension.py, verify_ninja_availability.
    """
    texts = seen(case, "ninja-missing")
    if texts:
        yield Problem(
            subject="ninja",
            what="ninja, which torch's extension builder starts, is not found.",
            why="Nothing is wrong with CUDA: the build tool is missing in this environment, or its folder is not on PATH.",
            evidence=texts,
            remedies=(
                Remedy(
                    Fix(
                        title="Install ninja into the environment",
                        commands=(f"{interpreter(case.snapshot)} -m pip install ninja",),
                        where=here(case.snapshot),
                        verify=("ninja --version",),
                    )
                ),
            ),
        )


def build_out_of_memory(case: Case) -> Iterable[Problem]:
    """The system killed a compiler during a build for want of memory.

    What it checks: texts of gcc and nvcc in which cc1plus, cicc or ptxas died of signal 9.

    Why it matters: builds such as flash-attn start a compiler for each core, each of which takes several GiB of main memory.

    How to fix: let fewer run at once (MAX_JOBS, NVCC_THREADS), or build on a machine with more memory.

    When it is wrong: a job's time limit kills in the same way.

    Sources: gcc and nvcc texts; torch/utils/cpp_extension.py, MAX_JOBS.
    """
    texts = seen(case, "build-out-of-memory")
    if texts:
        yield Problem(
            subject="build",
            what="The system killed a compiler: main memory (not the GPU's) did not suffice.",
            why="The build starts a compiler for each core, and each takes several GiB.",
            evidence=texts,
            remedies=(
                Remedy(
                    Fix(
                        title="Let fewer compilers run at once",
                        commands=("export MAX_JOBS=2 NVCC_THREADS=1 CMAKE_BUILD_PARALLEL_LEVEL=2",),
                        where=here(case.snapshot),
                    )
                ),
            ),
            confidence=Confidence.LIKELY,
        )


RULES = (
    Rule(
        "CD255",
        "cmake-arch-invalid",
        Severity.ERROR,
        "CMake's list of architectures is empty or malformed",
        cmake_arch_invalid,
        explained_by=("cmake-too-old",),
    ),
    Rule("CD256", "cmake-too-old", Severity.ERROR, "CMake is older than the build needs", cmake_too_old),
    Rule("CD257", "system-header-missing", Severity.ERROR, "A system header is missing for the compiler", system_header_missing),
    Rule("CD259", "ninja-missing", Severity.ERROR, "torch's extension builder does not find ninja", ninja_missing),
    Rule("CD260", "build-out-of-memory", Severity.ERROR, "A compiler was killed for want of memory", build_out_of_memory),
)
