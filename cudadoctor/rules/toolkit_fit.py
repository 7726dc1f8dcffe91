"""Rules about a toolkit against the GPUs and torch (CD207, CD208, CD219 to CD222)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import ToolchainMatch, coverage, nvcc_for_torch
from cudadoctor.model.fact import Known, Missing, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Severity
from cudadoctor.model.snapshot import LibraryOrigin, Toolkit, TorchBuild
from cudadoctor.model.versions import CudaVersion, SmTarget, VersionError
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.architecture_questions import span
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.planned_questions import builds_with_other_major
from cudadoctor.rules.questions import (
    GpuWithCapability,
    gpus_with_capability,
    named_torch,
    subject,
    toolkit_targets,
    torch,
    torch_build,
    torch_cuda_version,
)
from cudadoctor.rules.toolkit_questions import (
    ONLY_WHEN_COMPILING,
    build_toolkit,
    chosen,
    title,
    toolkits_with_nvcc,
    version_evidence,
)


def _untargeted(case: Case, kit: Toolkit) -> Iterable[tuple[GpuWithCapability, Known[tuple[SmTarget, ...]]]]:
    """The GPUs whose exact architecture the toolkit cannot compile for."""
    targets = toolkit_targets(kit, case.matrices)
    if isinstance(targets, Missing):
        known(targets)
        return
    for gpu in gpus_with_capability(case):
        if not any(target.compute_capability == gpu.compute_capability for target in targets.value):
            yield gpu, targets


def toolkit_too_old(case: Case) -> Iterable[Problem]:
    """The toolkit is older than the project requires, or cannot compile for this GPU because it is older than the GPU.

    What it checks: error texts in which a build names the CUDA version that it needs; and the targets that nvcc itself lists
    (or the matrix for its version) against each GPU.

    Why it matters: nothing can be compiled for the exact architecture; a build that names it stops with "Unsupported gpu
    architecture", one that does not can run only through PTX.

    How to fix: install a toolkit at or above the release that is needed.

    When it is wrong: where nothing is compiled on this machine it does not matter; a pip-installed torch needs no toolkit.

    Sources: nvcc --list-gpu-code; matrices/toolkit_arch.toml; texts of setup.py files and CMake.
    """
    said = _said_too_old(case)
    if said is not None:
        yield said
        return
    kit, version = chosen(case)
    for gpu, targets in _untargeted(case, kit):
        first = case.matrices.toolkits.first_toolkit_for(gpu.compute_capability)
        newest = max(target.compute_capability for target in targets.value)
        if first > version if first is not None else gpu.compute_capability > newest:
            yield _older_than_gpu(case, kit, gpu, targets, first)


def _older_than_gpu(
    case: Case, kit: Toolkit, gpu: GpuWithCapability, targets: Known[tuple[SmTarget, ...]], first: CudaVersion | None
) -> Problem:
    sm = gpu.compute_capability.sm
    nearest = coverage(targets.value, gpu.compute_capability).by
    return Problem(
        subject=subject(gpu.gpu),
        what=f"{title(kit)} cannot target {sm} ({span(targets.value)})"
        + (f"; CUDA {first} or newer can." if first is not None else "."),
        why=f"Its {nearest} code runs on this GPU; only builds that name {sm} fail. {ONLY_WHEN_COMPILING}"
        if nearest is not None
        else ONLY_WHEN_COMPILING,
        severity=Severity.NOTE if nearest is not None else None,
        evidence=(*version_evidence(kit), *gpu.evidence),
        remedies=toolkit_fixes.install_fitting_toolkit(case),
        tags=("nvcc-arch-unsupported",) if nearest is None else (),
    )


def _said_too_old(case: Case) -> Problem | None:
    """What a build says of the CUDA version that it needs, unless the toolkit here is as new as that."""
    errors = case.errors("toolkit-too-old")
    kit = build_toolkit(case.snapshot)
    version = maybe(kit.toolkit_version) if kit is not None else None
    wanted = next((one for error in errors if (one := _version(error.values.get("wanted", ""))) is not None), None)
    if not errors or (version is not None and wanted is not None and version >= wanted):
        return None
    allowed = [one for one in toolkit_fixes.releases_for_gpus(case) if wanted is None or one >= wanted]
    have = f"{title(kit)} is" if kit is not None and version is not None else "The toolkit is"
    return Problem(
        subject="toolkit",
        what=f"{have} older than this build requires"
        + (f": it needs CUDA {wanted.release} or newer." if wanted is not None else "."),
        why="The build stops, or its options and headers are not known to this nvcc.",
        evidence=(*seen(case, "toolkit-too-old"), *version_evidence(kit)),
        remedies=toolkit_fixes.install_toolkit(case, toolkit_fixes.fitting_release(case, allowed)),
        severity=Severity.ERROR,
        confidence=Confidence.CERTAIN if wanted is not None else Confidence.LIKELY,
    )


def _version(text: str) -> CudaVersion | None:
    try:
        return CudaVersion.parse(text if "." in text else f"{text}.0")
    except VersionError:
        return None


def toolkit_too_new(case: Case) -> Iterable[Problem]:
    """The toolkit cannot compile for this GPU because support for it was removed.

    What it checks: the targets that nvcc itself lists (or the matrix for its version) against each GPU.

    Why it matters: CUDA 12 removed Kepler, CUDA 13 removed Maxwell, Pascal and Volta: nothing can be compiled for them with a
    newer toolkit.

    How to fix: install a toolkit that still knows the architecture, beside the present one.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: nvcc --list-gpu-code; matrices/toolkit_arch.toml; CUDA release notes.
    """
    kit, version = chosen(case)
    for gpu, targets in _untargeted(case, kit):
        last = case.matrices.toolkits.last_toolkit_for(gpu.compute_capability)
        served = coverage(targets.value, gpu.compute_capability).by
        if last is not None and last < version and served is None:
            allowed = toolkit_fixes.releases_for_gpus(case) or case.matrices.toolkits.toolkits_for(gpu.compute_capability)
            yield Problem(
                subject=subject(gpu.gpu),
                what=f"{title(kit)} can no longer target {gpu.compute_capability.sm} ({span(targets.value)}); CUDA {last} is the last that can.",
                why=ONLY_WHEN_COMPILING,
                evidence=(*version_evidence(kit), *gpu.evidence),
                remedies=toolkit_fixes.install_toolkit(case, toolkit_fixes.fitting_release(case, allowed)),
                tags=("nvcc-arch-removed",),
            )


def benign_smi_vs_nvcc(case: Case) -> Iterable[Problem]:
    """nvidia-smi's CUDA version and the installed toolkit's differ, which is normal.

    What it checks: the newest CUDA version that the driver supports (which nvidia-smi prints) against the toolkit's, or where no
    nvcc was asked, the runtime libraries that toolkits have installed.

    Why it matters: it does not, as long as the toolkit is not newer: the first number is what the driver can serve, the second
    what is installed. A newer driver runs every older toolkit's programs.

    How to fix: nothing.

    When it is wrong: a toolkit newer than the driver has its own finding (ptx-newer-than-driver, driver-too-old).

    Sources: CUDA Compatibility guide, backward compatibility.
    """
    supports = known(case.snapshot.driver.driver_cuda_version)
    installed = tuple(_installed_releases(case))
    if not installed:
        known(case.snapshot.toolkits)
    for release, proof in installed:
        if release != supports:
            yield Problem(
                subject="toolkit",
                what=f"nvidia-smi shows CUDA {supports.release} and the installed toolkit is {release.release}: they are different things and need not agree.",
                why="nvidia-smi shows the newest CUDA version that the driver supports, nvcc and libcudart the installed toolkit's.",
                evidence=(*evidence("driver.driver_cuda_version", case.snapshot.driver.driver_cuda_version), *proof),
            )
            return


def _installed_releases(case: Case) -> Iterable[tuple[CudaVersion, tuple[Evidence, ...]]]:
    """The releases of toolkits: as their compilers say, then as the folders of their libraries say."""
    for kit in toolkits_with_nvcc(case.snapshot):
        version = maybe(kit.toolkit_version)
        if version is not None:
            yield version, version_evidence(kit)
    for copy in maybe(case.snapshot.libraries.copies) or ():
        folder = copy.path.partition("/cuda-")[2].partition("/")[0]
        version = _version(folder) if copy.soname.startswith("libcudart") and folder else None
        if version is not None and copy.origin in (LibraryOrigin.TOOLKIT, LibraryOrigin.OTHER, LibraryOrigin.SYSTEM):
            yield version, (Evidence(fact="libraries.copies", value=copy.path, source="loader"),)


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
    kit, version = chosen(case)
    match = nvcc_for_torch(version, runtime)
    if match is ToolchainMatch.SAME:
        return
    matters = (
        "its major differs, so extensions cannot be compiled with it"
        if match is ToolchainMatch.MAJOR_DIFFERS
        else "extensions compile with a warning"
    )
    yield Problem(
        subject="toolkit",
        what=f"{named_torch(build, 'torch')} uses CUDA {runtime.release} of its own; the installed toolkit is {version.release}. Programs run; {matters}.",
        why="torch brings its own CUDA libraries; the toolkit's version matters only for compiling extensions.",
        evidence=(*evidence("python.torch.torch_cuda_version", torch_cuda_version(build)), *version_evidence(kit)),
        remedies=toolkit_fixes.toolkit_for_torch(case, runtime) if match is ToolchainMatch.MAJOR_DIFFERS else (),
    )


def nvcc_torch_mismatch(case: Case) -> Iterable[Problem]:
    """An extension is compiled by an nvcc whose CUDA major differs from torch's.

    What it checks: error texts of torch's extension builder, apex and DeepSpeed that say so. While nothing is compiled the
    difference is harmless, and benign-torch-vs-toolkit says so.

    Why it matters: the extension would mix two CUDA runtimes; torch refuses to build it.

    How to fix: build with a toolkit of torch's CUDA major (a minor difference is a warning at most), or install the torch build
    of the toolkit's CUDA line.

    When it is wrong: never where torch itself says it; with a minor difference apex stops without need.

    Sources: torch/utils/cpp_extension.py, _check_cuda_version; apex setup.py.
    """
    yield from builds_with_other_major(case)
    errors = case.errors("nvcc-torch-mismatch")
    if not errors:
        return
    values = next((one.values for one in errors if one.values), {})
    build = torch(case.snapshot)
    kit = build_toolkit(case.snapshot)
    wanted = _version(values.get("wanted", "")) or (maybe(torch_cuda_version(build)) if build is not None else None)
    have = _version(values.get("have", "")) or (maybe(kit.toolkit_version) if kit is not None else None)
    used = f"nvcc is of CUDA {have.release}" if have is not None else "nvcc is of another CUDA release"
    yield Problem(
        subject="nvcc",
        what=f"An extension is built for torch with another CUDA: {used}, torch of {wanted.release if wanted is not None else 'another'}.",
        why="torch's extension builder refuses another CUDA major; a difference in the minor only is harmless.",
        evidence=(
            *seen(case, "nvcc-torch-mismatch"),
            *(evidence("python.torch.torch_cuda_version", torch_cuda_version(build)) if build is not None else ()),
            *version_evidence(kit),
        ),
        remedies=toolkit_fixes.toolkit_for_torch(case, wanted),
    )


def nvcc_torch_minor_difference(case: Case) -> Iterable[Problem]:
    """nvcc and torch are of one CUDA major and different minors: extensions compile.

    What it checks: the warning of torch's extension builder that says so.

    Why it matters: it does not: code of one major's minors works together. Only what is new in the newer minor may be missing.

    How to fix: nothing.

    When it is wrong: never seen.

    Sources: torch/utils/cpp_extension.py, CUDA_MISMATCH_WARN.
    """
    texts = seen(case, "nvcc-torch-minor-difference")
    if texts:
        yield Problem(
            "nvcc",
            "nvcc and torch differ in the CUDA minor only, which torch warns of and which is harmless.",
            evidence=texts,
        )


RULES = (
    Rule(
        "CD207",
        "toolkit-too-old",
        Severity.WARNING,
        "The toolkit is too old for this GPU or project",
        toolkit_too_old,
        explained_by=("wrong-nvcc-on-path",),
    ),
    Rule("CD208", "toolkit-too-new", Severity.WARNING, "The toolkit dropped this GPU", toolkit_too_new),
    Rule(
        "CD219",
        "benign-smi-vs-nvcc",
        Severity.NOTE,
        "nvidia-smi's and nvcc's CUDA versions differ",
        benign_smi_vs_nvcc,
        needs_gpu=True,
    ),
    Rule("CD220", "benign-torch-vs-toolkit", Severity.NOTE, "The toolkit differs from torch's CUDA", benign_torch_vs_toolkit),
    Rule(
        "CD221",
        "nvcc-torch-mismatch",
        Severity.ERROR,
        "An extension is compiled by an nvcc of another CUDA major than torch's",
        nvcc_torch_mismatch,
        explained_by=("cuda-home-wrong", "wrong-nvcc-on-path"),
    ),
    Rule(
        "CD222",
        "nvcc-torch-minor-difference",
        Severity.NOTE,
        "nvcc and torch differ in the CUDA minor",
        nvcc_torch_minor_difference,
    ),
)
