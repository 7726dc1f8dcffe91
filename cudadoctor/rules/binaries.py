"""Findings from the binaries of installed packages, for the rules that they belong to, and one of their own (CD425)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from itertools import groupby

from cudadoctor.binary.coverage import Verdict
from cudadoctor.compat import Direction, coverage
from cudadoctor.model.binaries import LibraryProblemKind, Wanted
from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.proof import ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import SearchFolder
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget
from cudadoctor.rules import fixes, library_fixes
from cudadoctor.rules.binary_questions import (
    Lack,
    OnGpu,
    binary_packages,
    code_evidence,
    code_held,
    file_name,
    found_elsewhere,
    is_for_torch,
    is_of_other_major,
    lacking,
    library_problems,
    needs_its_code,
    on_gpus,
    version_shown,
)
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import GpuWithCapability, gpus_with_capability, subject, torch, torch_cuda_version
from cudadoctor.rules.toolkit_questions import variable_evidence

PREDICTED = "Predicted from its files, which were not loaded."
PTX_TOO_NEW = 222
OLDEST_GPU = {"flash-attn": ComputeCapability(8, 0), "flash-attn-3": ComputeCapability(9, 0)}
"""GPUs below are not supported by the sources either (README of flash-attention): building does not help."""


NAMES_ITS_CUDA = re.compile(r"(-cu(?:da)?)1\d(x?)$")
"""cupy-cuda12x, faiss-gpu-cu12."""
ON_TORCH_S_INDEX = frozenset({"torchvision", "torchaudio", "xformers", "torchao", "torchcodec"})
"""Packages that PyTorch's own index has for each CUDA (its listing)."""


def judged_names(case: Case) -> frozenset[str]:
    """The packages whose own files tell what they hold, so that a table of wheels need not."""
    return frozenset(answer.package.name for answer in on_gpus(case))


def read_names(case: Case) -> frozenset[str]:
    """The packages whose files were all read."""
    return frozenset(package.name for package in binary_packages(case) if package.complete and package.files)


def packages_without_code(case: Case) -> Iterable[Problem]:
    """extension-arch-missing: packages none of whose modules a GPU of this machine can use."""
    failing = [each for each in on_gpus(case) if each.verdict is Verdict.FAILS and each.errors != (PTX_TOO_NEW,)]
    for name, answers in groupby(failing, key=lambda each: each.package.name):
        yield _without_code(case, name, tuple(answers))


def _without_code(case: Case, name: str, answers: tuple[OnGpu, ...]) -> Problem:
    first = answers[0]
    titles = dict.fromkeys(answer.gpu.title for answer in answers)
    fails_on_all = len(answers) == len(gpus_with_capability(case))
    certain = needs_its_code(first.package)
    errors = " or ".join(str(code) for code in sorted({code for answer in answers for code in answer.errors}))
    return Problem(
        subject=f"package {name}",
        what=f"{version_shown(first.package)} has no code for {', '.join(titles)}: none of its {first.judged} modules "
        f"can be used ({code_held(first.files)}).",
        why=f"Calls into its GPU code fail with error {errors}; the framework itself is not at fault. {PREDICTED}"
        if certain
        else f"What it does with its own GPU code fails with error {errors}; the rest of it works. {PREDICTED}",
        evidence=(*code_evidence(first), *(item for answer in answers for item in answer.gpu.evidence)),
        remedies=_other_code(case, first),
        tags=_direction(first),
        severity=None if certain and fails_on_all else Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


def _direction(answer: OnGpu) -> tuple[str, ...]:
    targets = {code.target for file in answer.files for group in file.modules for code in group.code if code.target is not None}
    direction = coverage(targets, answer.gpu.compute_capability).direction
    return (direction.value,) if direction in (Direction.GPU_NEWER, Direction.GPU_OLDER) else ()


def _other_code(case: Case, answer: OnGpu) -> tuple[Remedy, ...]:
    """A newer release for a newer GPU, building it here, or doing without it."""
    name, cc = answer.package.name, answer.gpu.compute_capability
    found = []
    if Direction.GPU_OLDER.value not in _direction(answer):
        upgrade = library_fixes.install_command(case.snapshot, [name])
        found.append(
            Fix(title=f"Install a release of {name} with code for this GPU", commands=(f"{upgrade} --upgrade",), where=Where.VENV)
        )
    if is_for_torch(answer.package) and cc >= OLDEST_GPU.get(name, cc):
        found.append(_build_here(case, name, cc))
    if not found:
        python = fixes.interpreter(case.snapshot)
        found.append(
            Fix(
                title=f"Remove {name}, so that programs that can do without it do so",
                commands=(f"{python} -m pip uninstall {name}",),
                where=Where.VENV,
            )
        )
    return tuple(Remedy(fix) for fix in _verified(found, name, cc))


def _build_here(case: Case, name: str, cc: ComputeCapability) -> Fix:
    python = fixes.interpreter(case.snapshot)
    return Fix(
        title="Build it here for this GPU, where its sources support it",
        commands=(
            f"TORCH_CUDA_ARCH_LIST={cc} {python} -m pip install --force-reinstall --no-deps --no-build-isolation "
            f"--no-binary {name} {name}",
        ),
        where=Where.VENV,
    )


def _verified(found: list[Fix], name: str, cc: ComputeCapability) -> Iterable[Fix]:
    for fix in found:
        yield Fix(title=fix.title, commands=fix.commands, where=fix.where, verify=(f"cudadoctor scan {name} --gpu {cc}",))


def ptx_too_new(case: Case) -> Iterable[Problem]:
    """ptx-newer-than-driver: packages that have nothing for a GPU but PTX from a newer toolkit than the driver knows."""
    failing = [each for each in on_gpus(case) if each.verdict is Verdict.FAILS and each.errors == (PTX_TOO_NEW,)]
    for name, answers in groupby(failing, key=lambda each: each.package.name):
        first = next(iter(answers))
        isas = [code.ptx_isa for file in first.files for group in file.modules for code in group.code if code.ptx_isa is not None]
        supports = case.snapshot.driver.driver_cuda_version
        needs = case.matrices.toolkits.toolkit_for_ptx(min(isas)) if isas else None
        yield Problem(
            subject=f"package {name}",
            what=f"{version_shown(first.package)} has only PTX for {first.gpu.title}"
            + (f", of CUDA {needs.release} or newer; the driver compiles PTX up to CUDA {maybe(supports)}." if needs else "."),
            why=f"Calls into its GPU code fail with error {PTX_TOO_NEW}. {PREDICTED}",
            evidence=(*code_evidence(first), *evidence("driver.driver_cuda_version", supports), *first.gpu.evidence),
            remedies=fixes.update_driver(case, None),
            severity=None if needs_its_code(first.package) else Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def benign_extension_jit(case: Case) -> Iterable[Problem]:
    """A package has no machine code for this GPU, and PTX that the driver compiles.

    What it checks: the code in the files of the installed packages, module by module, against each GPU and the newest PTX that
    the driver knows.

    Why it matters: it does not, but for time: the driver compiles at the first use and keeps the result in ~/.nv/ComputeCache.

    How to fix: nothing; a build with machine code for the GPU starts faster.

    When it is wrong: a program whose cache folder cannot be written compiles anew in every process.

    Sources: CUDA C++ Programming Guide, Just-in-Time Compilation; the packages' own files.
    """
    compiled = [each for each in on_gpus(case) if each.verdict is Verdict.RUNS_BY_JIT]
    for name, answers in groupby(compiled, key=lambda each: each.package.name):
        first, *others = answers
        yield Problem(
            subject=f"package {name}",
            what=f"{version_shown(first.package)} has only PTX for {first.gpu.title}, which the driver compiles at the first use.",
            why=f"It works, and starts slowly the first time. {PREDICTED}",
            evidence=(*code_evidence(first), *(item for answer in (first, *others) for item in answer.gpu.evidence)),
        )


def targets_of_triton(case: Case) -> frozenset[SmTarget]:
    """The targets that the ptxas files of the installed triton name; empty where none was read."""
    files = (file for package in binary_packages(case) if package.name == "triton" for file in package.files)
    return frozenset(target for file in files for target in file.assembles)


def triton_assembles_too_little(
    case: Case, gpu: GpuWithCapability, other_ptxas: Callable[[Case, CudaVersion | None], tuple[Remedy, ...]]
) -> Problem:
    """ptxas-too-old: no ptxas that triton brings names the GPU's target."""
    package = next(package for package in binary_packages(case) if package.name == "triton")
    target = gpu.compute_capability.sm
    first = case.matrices.toolkits.first_toolkit_for(gpu.compute_capability)
    evidence = (
        Evidence(fact="binaries.triton", value=f"newest target {max(file.assembles)}", source=file.path)
        for file in package.files
        if file.assembles
    )
    return Problem(
        subject=subject(gpu.gpu),
        what=f"{version_shown(package)} brings a ptxas that does not know {target}"
        + (f"; that of CUDA {first.release} does." if first is not None else "."),
        why=f"torch.compile and Triton kernels fail on this GPU; everything else works. {PREDICTED}",
        evidence=(*evidence, *gpu.evidence),
        remedies=other_ptxas(case, first),
        severity=Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


# Libraries


def of_other_cuda_major(case: Case) -> Iterable[Problem]:
    """extension-cuda-major-mismatch: packages that need libraries of another CUDA major than torch's, which are not in reach."""
    build = torch(case.snapshot)
    if build is None:
        return
    for lack in lacking(case):
        others = tuple(name for name in lack.names if is_of_other_major(case, name))
        if others:
            yield _lacks(
                case,
                lack,
                f"{version_shown(lack.package)} needs {', '.join(others)}; torch here is built with CUDA "
                f"{maybe(torch_cuda_version(build))}.",
                "Libraries of another CUDA major have other names and interfaces: what was built for one cannot load the other's.",
                _other_build(case, lack),
            )


def _other_build(case: Case, lack: Lack) -> tuple[Remedy, ...]:
    """The package's build for torch's CUDA: by its name, by torch's own index, built here; else the libraries that it needs."""
    python, name = fixes.interpreter(case.snapshot), lack.package.name
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    major = f"CUDA {runtime.major}" if runtime is not None else "torch's CUDA"
    title = f"Install the build of {name} for {major}"
    renamed = NAMES_ITS_CUDA.sub(rf"\g<1>{runtime.major}\g<2>", name) if runtime is not None else name
    if renamed != name:
        commands: tuple[str, ...] = (
            f"{python} -m pip uninstall -y {name}",
            library_fixes.install_command(case.snapshot, [renamed]),
        )
    elif name in ON_TORCH_S_INDEX and runtime is not None:
        index = f"https://download.pytorch.org/whl/{runtime.tag}"
        commands = (f"{python} -m pip install --force-reinstall --no-deps {name} --index-url {index}",)
    elif is_for_torch(lack.package):
        title += ", or build it here against the installed torch"
        commands = (f"{python} -m pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir {name}",)
    else:
        return library_fixes.provide(case, lack.names)
    return (Remedy(Fix(title=title, commands=commands, where=Where.VENV)),)


def _lacks(case: Case, lack: Lack, what: str, why: str, remedies: tuple[Remedy, ...]) -> Problem:
    opened = all(library.wanted is Wanted.MAY_DLOPEN for library in lack.libraries)
    then = "It opens them by name at the first use, and stops there." if opened else f"{file_name(lack.file.path)} will not load."
    return Problem(
        subject=f"package {lack.package.name}",
        what=what,
        why=f"{why} {then} {PREDICTED}",
        evidence=(*lack.evidence, *variable_evidence(case.snapshot, "LD_LIBRARY_PATH")),
        remedies=remedies,
        severity=None if needs_its_code(lack.package) or lack.package.name == "torch" else Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


def _of_own_major(case: Case) -> tuple[Lack, ...]:
    """The packages that lack libraries, and none of another CUDA major."""
    if case.has_no_gpu:
        return ()
    return tuple(lack for lack in lacking(case) if not any(is_of_other_major(case, name) for name in lack.names))


def without_cudnn(case: Case) -> tuple[Lack, ...]:
    """The packages that lack cuDNN, perhaps beside others."""
    return tuple(lack for lack in _of_own_major(case) if _lacks_cudnn(lack))


def _lacks_cudnn(lack: Lack) -> bool:
    return any(name.startswith("libcudnn") for name in lack.names)


def _lacks_cudart(lack: Lack) -> bool:
    return any(name.startswith("libcudart.") for name in lack.names)


def library_absent(case: Case, lack: Lack, why: str, remedies: tuple[Remedy, ...] | None = None) -> Problem:
    """The finding of a package whose libraries are nowhere; without remedies, the wheels that bring them."""
    what = (
        f"{version_shown(lack.package)} needs {', '.join(lack.names)}, which {'is' if len(lack.names) == 1 else 'are'} not found."
    )
    return _lacks(case, lack, what, why, remedies if remedies is not None else library_fixes.provide(case, lack.names))


NOWHERE = "The loader finds no such file, and none lies where CUDA's libraries usually are."


def without_cudart(case: Case) -> Iterable[Problem]:
    """libcudart-missing: packages that lack the CUDA runtime, which is nowhere."""
    for lack in _of_own_major(case):
        if _lacks_cudart(lack) and not _lacks_cudnn(lack):
            yield library_absent(case, lack, NOWHERE)


def without_cuda_library(case: Case) -> Iterable[Problem]:
    """cuda-lib-missing: packages that lack other libraries of CUDA; as a note, libraries where only some programs look."""
    for lack in _of_own_major(case):
        if not _lacks_cudart(lack) and not _lacks_cudnn(lack):
            yield library_absent(case, lack, NOWHERE)
    for lack in found_elsewhere(case) if not case.has_no_gpu else ():
        places = dict.fromkeys(library.elsewhere[0].rpartition("/")[0] for library in lack.libraries)
        yield Problem(
            subject=f"package {lack.package.name}",
            what=f"The loader alone does not find {', '.join(lack.names)} for {version_shown(lack.package)}; copies lie in {', '.join(places)}.",
            why="Harmless in programs that load CUDA's libraries first, as import torch does; others do without the GPU or stop. "
            + PREDICTED,
            evidence=lack.evidence,
            remedies=(_on_library_path(case, tuple(places)),),
            severity=Severity.NOTE,
            confidence=Confidence.LIKELY,
        )


def _on_library_path(case: Case, folders: tuple[str, ...]) -> Remedy:
    value = ":".join(shlex.quote(folder) for folder in folders)
    return Remedy(
        Fix(
            title="Put their folders on the loader's path",
            commands=(f"export LD_LIBRARY_PATH={value}:$LD_LIBRARY_PATH",),
            where=fixes.here(case.snapshot),
        )
    )


def shadowed_beyond_use(case: Case) -> Iterable[Problem]:
    """ld-library-path-shadow: packages for which LD_LIBRARY_PATH puts a library in front that lacks what they need."""
    for package, file, problem in library_problems(case, LibraryProblemKind.MISSING_SYMBOL_VERSION):
        uses = [use for use in file.shadowing if use.name in problem.libraries and use.path is not None]
        if not uses or _proven_to_load(case, package.name):
            continue
        folders = tuple(dict.fromkeys(use.path.rpartition("/")[0] for use in uses if use.path is not None))
        culprits = tuple(SearchFolder(path=folder, exists=True, shadows=problem.libraries) for folder in folders)
        yield Problem(
            subject=f"package {package.name}",
            what=f"LD_LIBRARY_PATH puts {', '.join(folders)} in front: {problem.what}.",
            why=f"{file_name(file.path)} will not load; without that folder it finds {uses[0].shadowed[0]}. {PREDICTED}",
            evidence=(
                Evidence(fact=f"binaries.{package.name}.shadowing", value=uses[0].name, source=uses[0].path or ""),
                *variable_evidence(case.snapshot, "LD_LIBRARY_PATH"),
            ),
            remedies=tuple(Remedy(remedy.fix) for remedy in library_fixes.clear_library_path(case, culprits)),
            severity=None if needs_its_code(package) or package.name == "torch" else Severity.WARNING,
            confidence=Confidence.LIKELY,
        )
        return


def _proven_to_load(case: Case, name: str) -> bool:
    """Did the import of torch itself work? Then its libraries do load."""
    build = torch(case.snapshot)
    return name == "torch" and build is not None and isinstance(build.imports, Known)


def needs_newer_system(case: Case) -> Iterable[Problem]:
    """system-library-too-old: packages that need a version of the C or C++ library that the one here does not have."""
    for package, file, problem in library_problems(case, LibraryProblemKind.MISSING_SYMBOL_VERSION):
        system = problem.libraries[0].startswith(("libc.so", "libm.so", "libstdc++.so", "libgcc_s.so"))
        if system and not _proven_to_load(case, package.name):
            yield Problem(
                subject=f"package {package.name}",
                what=f"{problem.what}.",
                why=f"{file_name(file.path)} will not load: the package was built for a newer distribution. {PREDICTED}",
                evidence=(Evidence(fact=f"binaries.{package.name}.problems", value=problem.what, source=file.path),),
                severity=None if needs_its_code(package) or package.name == "torch" else Severity.WARNING,
                confidence=Confidence.LIKELY,
            )
            return


def cudnn_parts_apart(case: Case) -> Iterable[Problem]:
    """cudnn-sublibrary-mix: cuDNN whose parts would come from several folders, unless torch has just convolved with it."""
    outcomes = {proof.kernel: proof.outcome for proof in case.proofs if proof.layer is ProofLayer.TORCH}
    convolved = outcomes.get("conv") is ProofOutcome.PASSED
    only_cudnn_fails = outcomes.get("conv") is ProofOutcome.FAILED and outcomes.get("matmul") is ProofOutcome.PASSED
    for package, file, problem in library_problems(case, LibraryProblemKind.MIXED_CUDNN):
        if package.name == "torch" and convolved:
            continue
        yield Problem(
            subject="cuDNN",
            what=f"For {version_shown(package)}, {problem.what}.",
            why=f"Main library and parts have to be of one version; cuDNN finds its parts by name. {PREDICTED}",
            evidence=(
                Evidence(fact=f"binaries.{package.name}.problems", value=", ".join(problem.libraries), source=file.path),
                *variable_evidence(case.snapshot, "LD_LIBRARY_PATH"),
            ),
            remedies=_off_library_path(case, problem.libraries),
            severity=None if only_cudnn_fails else Severity.WARNING,
            confidence=Confidence.LIKELY if only_cudnn_fails else Confidence.POSSIBLE,
        )
        return


def _off_library_path(case: Case, paths: Iterable[str]) -> tuple[Remedy, ...]:
    """Taking the folders of these files out of LD_LIBRARY_PATH, where any stand there."""
    folders = {path.rpartition("/")[0] for path in paths}
    searched = maybe(case.snapshot.libraries.ld_library_path) or ()
    culprits = tuple(folder for folder in searched if folder.path in folders)
    return library_fixes.clear_library_path(case, culprits) if culprits else ()


RULES = (
    Rule(
        "CD425",
        "benign-extension-jit",
        Severity.NOTE,
        "A package's GPU code is compiled by the driver at first use",
        benign_extension_jit,
        needs_gpu=True,
    ),
)
