"""Rules about toolkits, nvcc and host compilers (CD2xx). What matters only when something is compiled says so."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import coverage
from cudadoctor.matrices.compilers import HostFit
from cudadoctor.model.fact import Known, Missing, known, maybe
from cudadoctor.model.finding import Confidence, Severity
from cudadoctor.model.snapshot import Toolkit, TorchBuild
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget
from cudadoctor.rules import fixes
from cudadoctor.rules.driver import seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.frameworks import span
from cudadoctor.rules.questions import (
    GpuWithCapability,
    chosen_toolkit,
    gpus_with_capability,
    subject,
    toolkit_targets,
    torch,
    torch_build,
    torch_cuda_version,
    torch_version_text,
)

ONLY_WHEN_COMPILING = "Matters only when something is compiled here."


def _chosen(case: Case) -> tuple[Toolkit, CudaVersion]:
    """The toolkit that builds would use, and its version; ends the rule where there is none."""
    toolkits = known(case.snapshot.toolkits)
    toolkit = chosen_toolkit(case.snapshot)
    if toolkit is None:
        raise NotApplicableError("no toolkit is installed" if not toolkits else "no nvcc would be chosen for builds")
    return toolkit, known(toolkit.toolkit_version)


def _name(toolkit: Toolkit) -> str:
    return f"nvcc {maybe(toolkit.toolkit_version) or ''}".strip()


def _untargeted(case: Case, toolkit: Toolkit) -> Iterable[tuple[GpuWithCapability, Known[tuple[SmTarget, ...]]]]:
    """The GPUs that the toolkit cannot compile machine code for, not even code of the same major."""
    targets = toolkit_targets(toolkit, case.matrices)
    if isinstance(targets, Missing):
        known(targets)
        return
    for gpu in gpus_with_capability(case):
        if not any(target.compute_capability == gpu.compute_capability for target in targets.value):
            yield gpu, targets


def _newest(targets: tuple[SmTarget, ...]) -> ComputeCapability:
    return max(target.compute_capability for target in targets)


def toolkit_too_old(case: Case) -> Iterable[Problem]:
    """The toolkit cannot compile for this GPU because it is older than the GPU.

    What it checks: the targets that nvcc itself lists (or the matrix for its version) against each GPU.

    Why it matters: nothing can be compiled for the exact architecture; a build that names it stops with "Unsupported gpu
    architecture", one that does not can run only through PTX.

    How to fix: install a toolkit at or above the first release that knows the architecture.

    When it is wrong: where nothing is compiled on this machine it does not matter; a pip-installed torch needs no toolkit.

    Sources: nvcc --list-gpu-code; matrices/toolkit_arch.toml.
    """
    toolkit, version = _chosen(case)
    for gpu, targets in _untargeted(case, toolkit):
        first = case.matrices.toolkits.first_toolkit_for(gpu.compute_capability)
        newer_gpu = first > version if first is not None else gpu.compute_capability > _newest(targets.value)
        if newer_gpu:
            nearest = coverage(targets.value, gpu.compute_capability).by
            yield Problem(
                subject=subject(gpu.gpu),
                what=f"{_name(toolkit)} cannot target {gpu.compute_capability.sm} ({span(targets.value)})"
                + (f"; CUDA {first} or newer can." if first is not None else "."),
                why=f"Its {nearest} code runs on this GPU; only builds that name {gpu.compute_capability.sm} fail. {ONLY_WHEN_COMPILING}"
                if nearest is not None
                else ONLY_WHEN_COMPILING,
                severity=Severity.NOTE if nearest is not None else None,
                evidence=(*evidence("toolkits.toolkit_version", toolkit.toolkit_version), *gpu.evidence),
                remedies=fixes.install_toolkit(case, first),
                tags=("nvcc-arch-unsupported",),
            )


def toolkit_too_new(case: Case) -> Iterable[Problem]:
    """The toolkit cannot compile for this GPU because support for it was removed.

    What it checks: the targets that nvcc itself lists (or the matrix for its version) against each GPU.

    Why it matters: CUDA 12 removed Kepler, CUDA 13 removed Maxwell, Pascal and Volta: nothing can be compiled for them with a
    newer toolkit.

    How to fix: install the last toolkit that knows the architecture, beside the present one.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: nvcc --list-gpu-code; matrices/toolkit_arch.toml; CUDA release notes.
    """
    toolkit, version = _chosen(case)
    for gpu, targets in _untargeted(case, toolkit):
        last = case.matrices.toolkits.last_toolkit_for(gpu.compute_capability)
        removed = last is not None and last < version
        if removed:
            yield Problem(
                subject=subject(gpu.gpu),
                what=f"{_name(toolkit)} can no longer target {gpu.compute_capability.sm} ({span(targets.value)}); CUDA {last} is the last that can.",
                why=ONLY_WHEN_COMPILING,
                evidence=(*evidence("toolkits.toolkit_version", toolkit.toolkit_version), *gpu.evidence),
                remedies=fixes.install_toolkit(case, last),
                tags=("nvcc-arch-removed",),
            )


def ptx_newer_than_driver(case: Case) -> Iterable[Problem]:
    """PTX generated by a newer toolkit than the driver's compiler understands (error 222).

    What it checks: error 222 and its text; and, as a warning, an installed nvcc whose CUDA version is above the newest that the
    driver supports.

    Why it matters: minor-version compatibility covers machine code, not PTX. A program that carries only PTX from a newer
    toolkit fails with error 222, "the provided PTX was compiled with an unsupported toolchain".

    How to fix: compile machine code for the exact GPU, compile with a toolkit at or below the driver's CUDA version, or update
    the driver.

    When it is wrong: programs that carry machine code for this GPU are not affected.

    Sources: cuda.h, CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222); CUDA Compatibility guide, minor version compatibility.
    """
    texts = seen(case, "ptx-newer-than-driver")
    driver_cuda_version = case.snapshot.driver.driver_cuda_version
    release = case.snapshot.driver.driver_release
    if texts:
        supports = maybe(driver_cuda_version)
        yield Problem(
            subject="driver",
            what="PTX was generated by a newer CUDA toolkit than the driver can compile"
            + (f" (it supports CUDA up to {supports})." if supports is not None else "."),
            why="Minor-version compatibility covers machine code only; PTX has to be of a CUDA version that the driver knows (error 222).",
            evidence=(
                *texts,
                *evidence("driver.driver_cuda_version", driver_cuda_version),
                *evidence("driver.driver_release", release),
            ),
            remedies=(*fixes.compile_machine_code(case), *fixes.update_driver(case, None)),
        )
        return
    toolkit, version = _chosen(case)
    supports = known(driver_cuda_version)
    if version > supports:
        yield Problem(
            subject="driver",
            what=f"{_name(toolkit)} writes PTX that this driver cannot compile: the driver supports CUDA up to {supports}.",
            why="Machine code from this nvcc runs (minor-version compatibility), a program that carries only its PTX fails with error 222."
            if version.major == supports.major
            else f"PTX from CUDA {version.release} needs a driver of that CUDA line. {ONLY_WHEN_COMPILING}",
            evidence=(
                *evidence("toolkits.toolkit_version", toolkit.toolkit_version),
                *evidence("driver.driver_cuda_version", driver_cuda_version),
            ),
            remedies=fixes.compile_machine_code(case),
            severity=Severity.WARNING,
        )


def benign_smi_vs_nvcc(case: Case) -> Iterable[Problem]:
    """nvidia-smi's CUDA version and nvcc's differ, which is normal.

    What it checks: the newest CUDA version that the driver supports (which nvidia-smi prints) against the toolkit's.

    Why it matters: it does not, as long as the toolkit is not newer: the first number is what the driver can serve, the second
    what is installed. A newer driver runs every older toolkit's programs.

    How to fix: nothing.

    When it is wrong: a toolkit newer than the driver has its own finding (ptx-newer-than-driver, driver-too-old).

    Sources: CUDA Compatibility guide, backward compatibility.
    """
    supports = known(case.snapshot.driver.driver_cuda_version)
    for toolkit in known(case.snapshot.toolkits):
        version = maybe(toolkit.toolkit_version)
        if version is not None and version != supports:
            yield Problem(
                subject="toolkit",
                what=f"nvidia-smi shows CUDA {supports.release} and nvcc {version.release}: they are different things and need not agree.",
                why="nvidia-smi shows the newest CUDA version that the driver supports, nvcc the installed toolkit's.",
                evidence=(
                    *evidence("driver.driver_cuda_version", case.snapshot.driver.driver_cuda_version),
                    *evidence("toolkits.toolkit_version", toolkit.toolkit_version),
                ),
            )
            return


def benign_torch_vs_toolkit(case: Case) -> Iterable[Problem]:
    """The system's toolkit differs from torch's CUDA, and nothing is being compiled: harmless.

    What it checks: torch's CUDA version against the toolkit that nvcc belongs to.

    Why it matters: it does not while programs are only run: torch brings its own CUDA libraries. An extension compiled with
    this nvcc must have torch's CUDA major.

    How to fix: nothing; to compile extensions, install a toolkit of torch's CUDA version.

    When it is wrong: where a build fails, nvcc-torch-mismatch speaks instead.

    Sources: torch.utils.cpp_extension (it compares the majors).
    """
    build = torch(case.snapshot)
    if build is None or torch_build(build) is not TorchBuild.CUDA:
        raise NotApplicableError("no CUDA build of torch")
    if case.saw("nvcc-torch-mismatch"):
        raise NotApplicableError("an extension is being compiled")
    runtime = known(torch_cuda_version(build))
    toolkit, version = _chosen(case)
    if version != runtime:
        matters = (
            "its major differs, so extensions cannot be compiled with it"
            if version.major != runtime.major
            else "extensions compile with a warning"
        )
        yield Problem(
            subject="toolkit",
            what=f"torch {torch_version_text(build)} uses CUDA {runtime.release} of its own; the installed toolkit is {version.release}. Programs run; {matters}.",
            why="torch brings its own CUDA libraries; the toolkit's version matters only for compiling extensions.",
            evidence=(
                *evidence("python.torch.torch_cuda_version", torch_cuda_version(build)),
                *evidence("toolkits.toolkit_version", toolkit.toolkit_version),
            ),
        )


def host_compiler_too_new(case: Case) -> Iterable[Problem]:
    """The host compiler is newer than this nvcc accepts.

    What it checks: the version of the gcc or clang that nvcc would use against the bounds in its host_config.h; and the error
    text "unsupported GNU version".

    Why it matters: nvcc refuses to compile; forcing it with -allow-unsupported-compiler often fails later, in the headers.

    How to fix: install a compiler that this nvcc accepts beside the present one and name it (NVCC_CCBIN or CUDAHOSTCXX), or a
    newer toolkit.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: crt/host_config.h of each toolkit; matrices/host_compiler.toml.
    """
    texts = seen(case, "host-compiler-too-new")
    if texts:
        toolkit = chosen_toolkit(case.snapshot)
        yield Problem(
            subject="host compiler",
            what="The host compiler is newer than this nvcc accepts.",
            why="nvcc checks the compiler's version in host_config.h and stops; what follows in the log is a consequence.",
            evidence=(*texts, *(evidence("toolkits.toolkit_version", toolkit.toolkit_version) if toolkit is not None else ())),
            remedies=fixes.older_host_compiler(case),
        )
        return
    toolkit, version = _chosen(case)
    for compiler in known(case.snapshot.host_compilers):
        release = maybe(compiler.compiler_version)
        if not compiler.chosen_by or release is None:
            continue
        fit = case.matrices.compilers.gcc_fit(version, release) if compiler.family == "gcc" else HostFit.UNKNOWN
        if compiler.family == "clang":
            fit = case.matrices.compilers.clang_fit(version, release)
        if fit is HostFit.TOO_NEW:
            yield Problem(
                subject="host compiler",
                what=f"{compiler.family} {release} ({compiler.path}) is newer than nvcc {version} accepts.",
                why=f"nvcc stops with an unsupported-compiler error. {ONLY_WHEN_COMPILING}",
                evidence=(
                    *evidence("host_compilers.compiler_version", compiler.compiler_version),
                    *evidence("toolkits.toolkit_version", toolkit.toolkit_version),
                ),
                remedies=fixes.older_host_compiler(case),
                severity=Severity.WARNING,
                confidence=Confidence.CERTAIN,
            )


RULES = (
    Rule("CD207", "toolkit-too-old", Severity.WARNING, "The toolkit is too old for this GPU", toolkit_too_old),
    Rule("CD208", "toolkit-too-new", Severity.WARNING, "The toolkit dropped this GPU", toolkit_too_new),
    Rule("CD211", "host-compiler-too-new", Severity.ERROR, "The host compiler is newer than nvcc accepts", host_compiler_too_new),
    Rule(
        "CD218", "ptx-newer-than-driver", Severity.ERROR, "PTX from a newer toolkit than the driver knows", ptx_newer_than_driver
    ),
    Rule("CD219", "benign-smi-vs-nvcc", Severity.NOTE, "nvidia-smi's and nvcc's CUDA versions differ", benign_smi_vs_nvcc),
    Rule("CD220", "benign-torch-vs-toolkit", Severity.NOTE, "The toolkit differs from torch's CUDA", benign_torch_vs_toolkit),
)
