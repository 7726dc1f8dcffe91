"""Answers about what is going to be built or shipped, for the rules whose names it concerns; nothing outside of preflights."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.archs import ArchStyle
from cudadoctor.compat import ToolchainMatch, forward_compat, nvcc_for_torch
from cudadoctor.driver_conditions import Machine, requirements_of, satisfied
from cudadoctor.matrices.drivers import ForwardCompat
from cudadoctor.matrices.gpu_names import Segment, segment_of
from cudadoctor.model.fact import Missing, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import Gpu
from cudadoctor.model.versions import CudaVersion, VersionError
from cudadoctor.rules import fixes, toolkit_fixes
from cudadoctor.rules.engine import Case, Problem, Remedy, evidence
from cudadoctor.rules.preflight_questions import (
    PlannedBuild,
    is_preflight,
    planned_builds,
    reading,
    search_folders,
    variable_evidence,
)
from cudadoctor.rules.questions import gpus, gpus_with_capability, torch, torch_cuda_version
from cudadoctor.rules.toolkit_questions import build_toolkit, nvcc_version, toolkits_with_nvcc, version_evidence

REFUSING_VARIABLES = ("TORCH_CUDA_ARCH_LIST", "TCNN_CUDA_ARCHITECTURES")
"""Lists without which a build that sees no GPU stops (torch/utils/cpp_extension.py; setup.py of tiny-cuda-nn)."""


def builds_without_compiler(case: Case) -> Iterable[Problem]:
    """nvcc-missing: what is going to be compiled where no nvcc is installed."""
    builds = [build for build in planned_builds(case.snapshot) if not build.without_cuda]
    if not builds or isinstance(case.snapshot.toolkits, Missing) or toolkits_with_nvcc(case.snapshot):
        return
    build = next((each for each in builds if each.certainly), builds[0])
    yield Problem(
        subject="nvcc",
        what=f"{build.title} is compiled with CUDA, and there is no nvcc.",
        why=_why_no_compiler(build),
        evidence=(*build.evidence, *evidence("toolkits", case.snapshot.toolkits, value="none with nvcc")),
        remedies=(*_devel_image(case), *toolkit_fixes.install_fitting_toolkit(case)),
        severity=None if build.certainly else Severity.WARNING,
        confidence=Confidence.CERTAIN if build.certainly else Confidence.LIKELY,
    )


def _why_no_compiler(build: PlannedBuild) -> str:
    brings = "An image whose tag says runtime or base, and a pip-installed torch, bring no compiler; a devel image does."
    return (
        brings if build.certainly else f"{brings} A ready-made wheel is taken only where one fits torch, CUDA and Python exactly."
    )


def _devel_image(case: Case) -> tuple[Remedy, ...]:
    """Using the devel variant of the base image, where the Dockerfile names another."""
    base = str(reading(case.snapshot, "dockerfile").get("base", ""))
    for other in ("-runtime", "-base"):
        if other in base:
            fix = Fix(
                title="Build in the devel variant of the base image (in a stage of its own, copied from where size matters)",
                commands=(f"FROM {base.replace(other, '-devel', 1)}",),
                where=Where.CONTAINER,
            )
            return (Remedy(fix),)
    return ()


def builds_without_arch_list(case: Case) -> Iterable[Problem]:
    """arch-list-empty-no-gpu: what is going to be compiled for torch where no GPU is visible and no list is set."""
    for build in planned_builds(case.snapshot):
        refuses = build.arch_variable in REFUSING_VARIABLES and not build.arch_list and not build.without_cuda
        if not refuses or build.arch_variable in (maybe(case.snapshot.environment) or {}):
            continue
        yield Problem(
            subject=build.arch_variable,
            what=f"{build.title} is compiled where no GPU is visible, and {build.arch_variable} is not set.",
            why="torch takes the GPUs that it sees where the list is not set; without one it stops, or compiles for none of those meant.",
            evidence=build.evidence,
            remedies=_set_list(case, build.arch_variable),
            severity=None if build.certainly else Severity.WARNING,
            confidence=Confidence.CERTAIN if build.certainly else Confidence.LIKELY,
        )
        return


def _set_list(case: Case, name: str) -> tuple[Remedy, ...]:
    if name == "TORCH_CUDA_ARCH_LIST":
        return toolkit_fixes.set_arch_list(case, name, ArchStyle.TORCH)
    numbers = ";".join(str(gpu.compute_capability.number) for gpu in gpus_with_capability(case)) or "86"
    return (Remedy(Fix(title=f"Name the GPUs in {name}", commands=(f"export {name}='{numbers}'",), where=Where.CONTAINER)),)


def builds_with_other_major(case: Case) -> Iterable[Problem]:
    """nvcc-torch-mismatch: what is going to be compiled for torch by an nvcc of another CUDA major."""
    builds = [build for build in planned_builds(case.snapshot) if build.for_torch and not build.without_cuda]
    installed = torch(case.snapshot)
    nvcc = nvcc_version(case.snapshot)
    runtime = maybe(torch_cuda_version(installed)) if installed is not None else None
    if not builds or installed is None or nvcc is None or runtime is None:
        return
    if nvcc_for_torch(nvcc, runtime) is ToolchainMatch.MAJOR_DIFFERS:
        yield Problem(
            subject="nvcc",
            what=f"{builds[0].title} is compiled for torch of CUDA {runtime.release} by an nvcc of CUDA {nvcc.release}.",
            why="torch's extension builder refuses another CUDA major.",
            evidence=(
                *builds[0].evidence,
                *evidence("python.torch.torch_cuda_version", torch_cuda_version(installed)),
                *version_evidence(build_toolkit(case.snapshot)),
            ),
            remedies=toolkit_fixes.toolkit_for_torch(case, runtime),
        )


def unsatisfied_conditions(case: Case) -> Iterable[Problem]:
    """container-require-unsatisfied: what the image demands of the driver, against the driver and the GPUs meant."""
    if not is_preflight(case.snapshot):
        return
    driver = case.snapshot.driver
    release, supports = maybe(driver.driver_release), maybe(driver.driver_cuda_version)
    if release is None:
        return
    for name, value in requirements_of(maybe(case.snapshot.environment) or {}):
        refused = [gpu for gpu in gpus(case.snapshot) if satisfied(value, _machine(case, gpu)) is False]
        everywhere = satisfied(value, Machine(release, supports)) is False
        if not refused and not everywhere:
            continue
        first = value.split()[0]
        yield Problem(
            subject=name,
            what=f"The image requires {first}; driver {release} supports CUDA up to {supports}"
            + (f", and none of the exceptions for older drivers holds for {_names(refused)}." if refused else "."),
            why=f"The container runtime checks {name} and does not start the container (NVIDIA_DISABLE_REQUIRE=1 skips the check).",
            evidence=(
                *variable_evidence(case.snapshot, name),
                *evidence("driver.driver_release", driver.driver_release),
                *evidence("driver.driver_cuda_version", driver.driver_cuda_version),
            ),
            remedies=(*_older_image(supports), *fixes.update_driver(case, None)),
        )


def _machine(case: Case, gpu: Gpu) -> Machine:
    driver = case.snapshot.driver
    name = maybe(gpu.name)
    return Machine(
        driver=maybe(driver.driver_release),
        cuda=maybe(driver.driver_cuda_version),
        capability=maybe(gpu.compute_capability),
        segment=segment_of(name) if name is not None else Segment.UNKNOWN,
    )


def _names(refused: list[Gpu]) -> str:
    return ", ".join(dict.fromkeys(maybe(gpu.name) or f"GPU {gpu.index}" for gpu in refused))


def _older_image(supports: CudaVersion | None) -> tuple[Remedy, ...]:
    if supports is None:
        return ()
    fix = Fix(
        title=f"Use an image for CUDA {supports.release} or older",
        commands=(f"FROM nvidia/cuda:{supports.release}.0-base-ubuntu22.04",),
        where=Where.CONTAINER,
    )
    return (Remedy(fix),)


def compat_on_library_path(case: Case) -> Iterable[Problem]:
    """cuda-compat-in-image: a compat folder on the image's loader path that does not serve the GPUs and the driver meant."""
    if not is_preflight(case.snapshot):
        return
    winners = [copy for copy in maybe(case.snapshot.driver.libcuda_copies) or () if copy.wins]
    found = [
        (copy.path.rpartition("/")[0], (Evidence(fact="driver.libcuda_copies", value=copy.path, source=copy.via),))
        for copy in winners
    ]
    for folder, proof in (*search_folders(case.snapshot), *found):
        if folder.rpartition("/")[2] not in ("compat", "cuda-compat"):
            continue
        problem = _judged_compat(case, folder)
        if problem is not None:
            why, severity = problem
            yield Problem(
                subject="libcuda.so.1",
                what=f"The cuda-compat libcuda in {folder} is on the loader's path, in front of the host driver's own.",
                why=why,
                evidence=(*proof, *evidence("driver.driver_release", case.snapshot.driver.driver_release)),
                remedies=fixes.drop_from_library_path(case, "compat", None),
                severity=severity,
                confidence=Confidence.CERTAIN if severity is None else Confidence.LIKELY,
            )
            return


def _judged_compat(case: Case, folder: str) -> tuple[str, Severity | None] | None:
    """Why a compat folder is wrong here and how bad that is (None: the rule's own severity); None where it serves, or may."""
    release = maybe(case.snapshot.driver.driver_release)
    package = _cuda_of(case, folder)
    geforce = [gpu for gpu in gpus(case.snapshot) if _machine(case, gpu).segment is Segment.GEFORCE]
    if release is None or package is None:
        if geforce:
            return (
                f"It does not serve {_names(geforce)}: wherever it is in use there, cuInit fails with error 804.",
                Severity.WARNING,
            )
        return None
    answers = {
        forward_compat(package, release, _machine(case, gpu).segment, case.matrices.drivers).support
        for gpu in gpus(case.snapshot)
    } or {case.matrices.drivers.forward_compat(package, release.branch)}
    if ForwardCompat.NOT_NEEDED in answers:
        reason = f"Driver {release} is not older than it: an older libcuda in front of the driver's own fails with error 803, or hides what the driver can do."
        return reason, None
    if ForwardCompat.UNSUPPORTED in answers:
        whom = _names(geforce) if geforce else f"driver {release}"
        return f"It does not serve {whom}: cuInit fails with error {'804' if geforce else '803 or 804'}.", None
    return None


def _cuda_of(case: Case, folder: str) -> CudaVersion | None:
    """The CUDA release of a compat folder: from its path, else that of the toolkit or of the image."""
    part = folder.partition("/cuda-")[2].partition("/")[0]
    values = maybe(case.snapshot.environment) or {}
    for text in (part, str(nvcc_version(case.snapshot) or ""), values.get("CUDA_VERSION", "")):
        try:
            found = CudaVersion.parse(text) if text else None
        except VersionError:
            continue
        if found is not None:
            return CudaVersion.of(found.major, found.minor)
    return None
