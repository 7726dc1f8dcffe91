"""Rules about Microsoft's compiler under nvcc (CD215, CD217)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cudadoctor.matrices.compilers import HostFit
from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Fix, Severity
from cudadoctor.model.snapshot import Platform
from cudadoctor.model.versions import CudaVersion, VersionError
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.fixes import here
from cudadoctor.rules.host_compilers import compiler_evidence, fit_of, judged
from cudadoctor.rules.questions import platform
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    compiles_here,
    compiling_fault,
    version_evidence,
)


def msvc_too_new(case: Case) -> Iterable[Problem]:
    """The MSVC toolset is newer than this nvcc accepts.

    What it checks: the error texts "unsupported Microsoft Visual Studio version" and STL1002 ("expected CUDA 12.4 or newer");
    on a Windows machine, the compiler's version against the bounds in nvcc's host_config.h.

    Why it matters: nvcc refuses to compile; Microsoft's own headers refuse older CUDA as well.

    How to fix: install an older MSVC toolset beside the present one and start the build from its command prompt, or install a
    newer toolkit.

    When it is wrong: the same text meets a Visual Studio that is too old for the toolkit; where the version is known, it
    decides.

    Sources: crt/host_config.h; Microsoft STL, yvals_core.h; matrices/host_compiler.toml.
    """
    errors = case.errors("msvc-version-unsupported")
    if errors:
        wanted = next((one.values["wanted"] for one in errors if "wanted" in one.values), None)
        if wanted is None and _seen_msvc(case) is HostFit.TOO_OLD:
            return
        yield Problem(
            subject="host compiler",
            what="The MSVC toolset is newer than this nvcc accepts"
            + (f": its headers ask for CUDA {wanted} or newer." if wanted is not None else "."),
            why="nvcc checks _MSC_VER in host_config.h, and Microsoft's headers check the CUDA version.",
            evidence=(*seen(case, "msvc-version-unsupported"), *version_evidence(build_toolkit(case.snapshot))),
            remedies=(*_older_msvc(case), *_toolkit_from(case, wanted)),
        )
        return
    if platform(case.snapshot) not in (Platform.WINDOWS, None):
        raise NotApplicableError("not Windows")
    compiler, version, fit = judged(case)
    if compiler.family == "msvc" and fit is HostFit.TOO_NEW and not compiles_here(case):
        yield Problem(
            subject="host compiler",
            what=f"MSVC {maybe(compiler.compiler_version)} is newer than nvcc {version.release} accepts.",
            why=f"nvcc stops with an unsupported-compiler error. {ONLY_WHEN_COMPILING}",
            evidence=(*compiler_evidence(compiler), *version_evidence(build_toolkit(case.snapshot))),
            remedies=_older_msvc(case),
            severity=compiling_fault(case),
        )


def _seen_msvc(case: Case) -> HostFit:
    """How the MSVC that the facts show stands to the nvcc that they show."""
    kit = build_toolkit(case.snapshot)
    version = maybe(kit.toolkit_version) if kit is not None else None
    compilers = maybe(case.snapshot.host_compilers) or ()
    compiler = next((one for one in compilers if one.family == "msvc"), None)
    return fit_of(case, compiler, version) if compiler is not None and version is not None else HostFit.UNKNOWN


def _older_msvc(case: Case) -> tuple[Remedy, ...]:
    kit = build_toolkit(case.snapshot)
    version = maybe(kit.toolkit_version) if kit is not None else None
    bounds = case.matrices.compilers.bounds(version) if version is not None else None
    below = f" below 19.{bounds.msc_ver_below % 100}" if bounds is not None and bounds.msc_ver_below // 100 == 19 else ""
    fix = Fix(
        title=f"Install an older MSVC toolset{below} (Visual Studio Installer, Individual components) and build from its prompt",
        commands=(
            r'"C:\Program Files\Microsoft Visual Studio\2022\Community\VC\Auxiliary\Build\vcvars64.bat" -vcvars_ver=14.38',
        ),
        where=here(case.snapshot),
        verify=("cl", "nvcc --version"),
    )
    return (Remedy(fix),)


def _toolkit_from(case: Case, wanted: str | None) -> Sequence[Remedy]:
    try:
        least = CudaVersion.parse(wanted or "")
    except VersionError:
        return ()
    allowed = [one for one in toolkit_fixes.releases_for_gpus(case) if one >= least]
    return toolkit_fixes.install_toolkit(case, toolkit_fixes.fitting_release(case, allowed))


def msvc_missing(case: Case) -> Iterable[Problem]:
    """nvcc or a build finds no Microsoft compiler on Windows.

    What it checks: error texts such as "Cannot find compiler 'cl.exe' in PATH".

    Why it matters: nvcc on Windows works with Microsoft's compiler only.

    How to fix: install the Build Tools for Visual Studio with the C++ workload, and build from the x64 Native Tools prompt.

    When it is wrong: the compiler is installed and the build was not started from its prompt, so that it is not on PATH.

    Sources: nvcc documentation, Supported Host Compilers.
    """
    texts = seen(case, "msvc-missing")
    if texts:
        yield Problem(
            subject="host compiler",
            what="No Microsoft C++ compiler (cl.exe) is found.",
            why="nvcc on Windows works with Microsoft's compiler only, and finds it on PATH.",
            evidence=texts,
            remedies=(
                Remedy(
                    Fix(
                        title="Install the C++ Build Tools and build from the x64 Native Tools Command Prompt",
                        commands=("winget install --id Microsoft.VisualStudio.2022.BuildTools",),
                        where=here(case.snapshot),
                        verify=("where cl",),
                    )
                ),
            ),
        )


RULES = (
    Rule("CD215", "msvc-too-new", Severity.ERROR, "The MSVC toolset is newer than nvcc accepts", msvc_too_new),
    Rule("CD217", "msvc-missing", Severity.ERROR, "No Microsoft C++ compiler is found", msvc_missing),
)
