"""Rules about the C++ compiler and C library under nvcc: gcc, clang, glibc (CD211 to CD214, CD216)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.matrices.compilers import HostFit
from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Evidence, Fix, Severity
from cudadoctor.model.snapshot import HostCompiler, Platform
from cudadoctor.model.versions import CudaVersion, DottedVersion
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.fixes import here
from cudadoctor.rules.questions import environment, platform
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    chosen,
    compiles_here,
    compiling_fault,
    looked_for_toolkits,
    nvccs_compiler,
    title,
    variable_evidence,
    version_evidence,
)

CLASHING = ("cospi", "sinpi", "rsqrt", "tanpi", "acospi", "asinpi", "atanpi")
"""Beginnings of the functions that glibc 2.41 and 2.42 added and CUDA declares itself (matrices/host_compiler.toml)."""


TOOLSET_TO_COMPILER = {14: 19}
"""Major of the MSVC toolset (in its path) to that of its compiler (Microsoft, predefined macros: _MSC_VER)."""


USERS = {"NVCC_CCBIN": "nvcc", "CUDAHOSTCXX": "CMake"}
"""Variables that name a host compiler, and who follows them (documentation of nvcc and CMake)."""


def fit_of(case: Case, compiler: HostCompiler, nvcc: CudaVersion) -> HostFit:
    release = maybe(compiler.compiler_version)
    if release is None:
        return HostFit.UNKNOWN
    if compiler.family == "gcc":
        return case.matrices.compilers.gcc_fit(nvcc, release)
    if compiler.family == "clang":
        return case.matrices.compilers.clang_fit(nvcc, release)
    return case.matrices.compilers.msvc_fit(nvcc, msc_ver(release))


def msc_ver(release: DottedVersion) -> int:
    """`_MSC_VER` of a compiler version (1944 for 19.44.35207) or of a toolset's (1944 for 14.44.35207)."""
    return (TOOLSET_TO_COMPILER.get(release.major, release.major)) * 100 + release.minor


def compiler_evidence(compiler: HostCompiler | None) -> tuple[Evidence, ...]:
    return evidence("host_compilers.compiler_version", compiler.compiler_version) if compiler is not None else ()


def judged(case: Case) -> tuple[HostCompiler, CudaVersion, HostFit]:
    """The compiler that nvcc would take, nvcc's version, and how they fit; ends the rule where one is absent."""
    _, version = chosen(case)
    known(case.snapshot.host_compilers)
    compiler = nvccs_compiler(case.snapshot)
    if compiler is None:
        raise NotApplicableError("nvcc would find no C++ compiler (host-compiler-missing says so)")
    known(compiler.compiler_version)
    return compiler, version, fit_of(case, compiler, version)


def host_compiler_too_new(case: Case) -> Iterable[Problem]:
    """The host compiler is newer than this nvcc accepts.

    What it checks: the version of the gcc or clang that nvcc would use against the bounds in its host_config.h; and error
    texts: "unsupported GNU version", and those of newer C++ headers that an older nvcc cannot read.

    Why it matters: nvcc refuses to compile; forcing it with -allow-unsupported-compiler often fails later, in the headers.

    How to fix: install a compiler that this nvcc accepts beside the present one and name it (NVCC_CCBIN for nvcc, CUDAHOSTCXX
    for CMake), or a toolkit that accepts the compiler.

    When it is wrong: where nothing is compiled on this machine it does not matter; where nvcc has been seen to compile here,
    the rule does not speak.

    Sources: crt/host_config.h of each toolkit; matrices/host_compiler.toml.
    """
    texts = seen(case, "host-compiler-too-new")
    kit = build_toolkit(case.snapshot)
    remedies = (*toolkit_fixes.older_host_compiler(case), *toolkit_fixes.newer_toolkit_for_compiler(case)) if texts else ()
    if texts:
        compiler = nvccs_compiler(case.snapshot)
        named = _named_compiler(case, compiler)
        yield Problem(
            subject="host compiler",
            what=f"{named} is newer than {title(kit) if kit is not None else 'this nvcc'} accepts{_limit(case)}.",
            why="nvcc checks the compiler's version in host_config.h and stops; other messages in the log are consequences.",
            evidence=(*texts, *compiler_evidence(compiler), *version_evidence(kit)),
            remedies=remedies or toolkit_fixes.older_host_compiler(case),
        )
        return
    compiler, version, fit = judged(case)
    if fit is HostFit.TOO_NEW and compiler.family != "msvc" and not compiles_here(case):
        yield Problem(
            subject="host compiler",
            what=f"{compiler.family} {maybe(compiler.compiler_version)} ({compiler.path}) is newer than nvcc {version.release} accepts.",
            why=f"nvcc stops with an unsupported-compiler error. {ONLY_WHEN_COMPILING}",
            evidence=(*compiler_evidence(compiler), *version_evidence(kit)),
            remedies=(*toolkit_fixes.older_host_compiler(case), *toolkit_fixes.newer_toolkit_for_compiler(case)),
            severity=compiling_fault(case),
        )


def _named_compiler(case: Case, compiler: HostCompiler | None) -> str:
    said = next((one.values["have"] for one in case.errors("host-compiler-too-new") if "have" in one.values), None)
    if said is not None:
        return f"The host compiler (gcc {said})"
    release = maybe(compiler.compiler_version) if compiler is not None else None
    return f"{compiler.family} {release}" if compiler is not None and release is not None else "The host compiler"


def _limit(case: Case) -> str:
    limit = next((one.values["limit"] for one in case.errors("host-compiler-too-new") if "limit" in one.values), None)
    return f" (the newest is {limit})" if limit is not None else ""


def host_compiler_too_old(case: Case) -> Iterable[Problem]:
    """The host compiler is older than nvcc or the project needs.

    What it checks: the version of the gcc or clang that nvcc would use against the minimum of its CUDA major; and error texts,
    among them torch's, that ask for a newer compiler or for C++17.

    Why it matters: torch's headers need C++17 (gcc 9 or newer), those of new toolkits too; the build stops.

    How to fix: install a newer compiler beside the present one and name it.

    When it is wrong: the documented minimum is not tested by nvcc's own header; a project may compile all the same.

    Sources: torch/utils/cpp_extension.py; CUDA installation guide; matrices/host_compiler.toml.
    """
    texts = seen(case, "host-compiler-too-old")
    if texts:
        yield Problem(
            subject="host compiler",
            what="The host compiler is older than this build needs.",
            why="torch's and the toolkit's headers need a newer C++ than it knows.",
            evidence=(*texts, *compiler_evidence(nvccs_compiler(case.snapshot))),
            remedies=toolkit_fixes.older_host_compiler(case) if build_toolkit(case.snapshot) is not None else (),
        )
        return
    compiler, version, fit = judged(case)
    if fit is HostFit.TOO_OLD and compiler.family != "msvc" and not compiles_here(case):
        yield Problem(
            subject="host compiler",
            what=f"{compiler.family} {maybe(compiler.compiler_version)} ({compiler.path}) is older than CUDA {version.major} supports.",
            why=f"Headers of the toolkit may not compile with it. {ONLY_WHEN_COMPILING}",
            evidence=(*compiler_evidence(compiler), *version_evidence(build_toolkit(case.snapshot))),
            remedies=toolkit_fixes.older_host_compiler(case),
            severity=compiling_fault(case),
        )


def host_compiler_missing(case: Case) -> Iterable[Problem]:
    """nvcc or a build finds no C++ compiler.

    What it checks: error texts that say so; on a machine with an nvcc, whether anything would be its host compiler.

    Why it matters: nvcc compiles only the device part itself and starts a C++ compiler for the rest; Triton needs a C compiler
    for its launcher.

    How to fix: install gcc and g++.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: nvcc documentation, Supported Host Compilers; texts of nvcc, gcc, setuptools and triton.
    """
    texts = seen(case, "host-compiler-missing")
    if not texts:
        chosen(case)
        if not looked_for_toolkits(case.snapshot):
            raise NotApplicableError("a text does not list all compilers")
        if any(one.chosen_by for one in known(case.snapshot.host_compilers)) or compiles_here(case):
            return
    yield Problem(
        subject="host compiler",
        what="No C++ compiler is found." if texts else "nvcc is installed and there is no C++ compiler for it to use.",
        why="nvcc compiles the device part only and hands the rest to a C++ compiler."
        + ("" if texts else f" {ONLY_WHEN_COMPILING}"),
        evidence=(*texts, *version_evidence(build_toolkit(case.snapshot))),
        remedies=toolkit_fixes.system_packages(
            case,
            "Install a C++ compiler",
            {"apt": "g++", "dnf": "gcc-c++", "pacman": "gcc", "zypper": "gcc-c++"},
        ),
        severity=None if texts else Severity.NOTE,
    )


def host_compiler_path_broken(case: Case) -> Iterable[Problem]:
    """NVCC_CCBIN or CUDAHOSTCXX names a compiler that does not exist or does not run.

    What it checks: what became of asking the compilers that these variables name for their version.

    Why it matters: nvcc takes NVCC_CCBIN, and CMake CUDAHOSTCXX, before any other compiler: every build with them fails.

    How to fix: unset the variable, or name an existing compiler.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: nvcc documentation, NVCC_CCBIN; CMake documentation, CUDAHOSTCXX.
    """
    compilers = known(case.snapshot.host_compilers)
    values = environment(case.snapshot)
    for name in USERS:
        named = next((one for one in compilers if one.chosen_by == name), None)
        if name not in values or named is None or not isinstance(named.compiler_version, Missing):
            continue
        fact = named.compiler_version
        if fact.reason not in (
            MissingReason.NOT_FOUND,
            MissingReason.FAILED,
            MissingReason.CRASHED,
            MissingReason.PERMISSION_DENIED,
        ):
            continue
        yield Problem(
            subject=name,
            what=f"{name}={values[name]!r}: there is no such compiler."
            if fact.reason is MissingReason.NOT_FOUND
            else f"{name}={values[name]!r}: it does not run: {fact.detail or fact.reason.value}.",
            why=f"{USERS[name]} takes it before any other compiler, and then cannot compile CUDA. {ONLY_WHEN_COMPILING}",
            evidence=(
                *variable_evidence(case.snapshot, name),
                Evidence(
                    fact="host_compilers.compiler_version", value=fact.detail or fact.reason.value, source=fact.source or name
                ),
            ),
            remedies=toolkit_fixes.drop_compiler_variable(case, name),
            severity=compiling_fault(case) if USERS[name] == "nvcc" else None,
        )


def glibc_too_new(case: Case) -> Iterable[Problem]:
    """glibc's math declarations clash with the headers of this toolkit.

    What it checks: the error text "exception specification is incompatible" for cospi, sinpi or rsqrt; on a machine, glibc's
    version against the toolkit's: 2.41 against CUDA before 13.0, 2.42 against CUDA before 13.2.

    Why it matters: no .cu file compiles, whatever the version of gcc.

    How to fix: install a toolkit that is free of it, or compile in a container of an older distribution.

    When it is wrong: where nothing is compiled on this machine it does not matter; a distribution may have patched the header.

    Sources: crt/math_functions.h of the toolkits; matrices/host_compiler.toml.
    """
    errors = case.errors("glibc-too-new")
    if errors:
        functions = tuple(dict.fromkeys(one.values["function"] for one in errors if "function" in one.values))
        if functions and not any(name.startswith(CLASHING) for name in functions):
            return
        yield Problem(
            subject="glibc",
            what=f"glibc's declaration of {', '.join(functions) or 'math functions'} clashes with that of the toolkit's headers.",
            why="glibc 2.41 added cospi and sinpi, 2.42 rsqrt, with another exception specification; no .cu file compiles.",
            evidence=(*seen(case, "glibc-too-new"), *version_evidence(build_toolkit(case.snapshot))),
            remedies=_toolkit_without_clash(case),
        )
        return
    if platform(case.snapshot) in (Platform.WINDOWS, Platform.MACOS):
        raise NotApplicableError("no glibc on this platform")
    kit, version = chosen(case)
    glibc = known(case.snapshot.host.glibc)
    clashes = case.matrices.compilers.glibc_clashes(version, glibc)
    if clashes and not compiles_here(case):
        yield Problem(
            subject="glibc",
            what=f"glibc {glibc} clashes with the headers of {title(kit)}: {', '.join(clashes[-1].functions)}.",
            why=f"nvcc stops in math_functions.h, whatever the gcc; CUDA {clashes[-1].cuda_below} is the first without it. {ONLY_WHEN_COMPILING}",
            evidence=(*evidence("host.glibc", case.snapshot.host.glibc), *version_evidence(kit)),
            remedies=_toolkit_without_clash(case),
            severity=compiling_fault(case),
        )


def _toolkit_without_clash(case: Case) -> tuple[Remedy, ...]:
    glibc = maybe(case.snapshot.host.glibc)
    rows = case.matrices.compilers.clashes
    clashing = [row.cuda_below for row in rows if glibc is None or glibc >= row.glibc_from]
    least = max(clashing, default=None)
    allowed = [one for one in toolkit_fixes.releases_for_gpus(case) if least is None or one >= least]
    in_image = Fix(
        title="Or compile in a container of an older distribution",
        commands=("docker run --rm --gpus all -v $PWD:/src -w /src nvidia/cuda:12.8.1-devel-ubuntu24.04 make",),
        where=here(case.snapshot),
    )
    return (*toolkit_fixes.install_toolkit(case, toolkit_fixes.fitting_release(case, allowed)), Remedy(in_image))


RULES = (
    Rule(
        "CD211",
        "host-compiler-too-new",
        Severity.ERROR,
        "The host compiler is newer than nvcc accepts",
        host_compiler_too_new,
        explained_by=(),
    ),
    Rule("CD212", "host-compiler-too-old", Severity.ERROR, "The host compiler is older than needed", host_compiler_too_old),
    Rule("CD213", "host-compiler-missing", Severity.ERROR, "No C++ compiler is found", host_compiler_missing),
    Rule(
        "CD214",
        "host-compiler-path-broken",
        Severity.WARNING,
        "NVCC_CCBIN or CUDAHOSTCXX names no working compiler",
        host_compiler_path_broken,
    ),
    Rule("CD216", "glibc-too-new", Severity.ERROR, "glibc clashes with the toolkit's headers", glibc_too_new),
)
