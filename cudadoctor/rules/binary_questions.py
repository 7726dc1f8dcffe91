"""What the binaries of installed packages tell about this machine: derived answers and predictions, never a judgement."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from cudadoctor.binary.coverage import USABLE, Gpu, Judgement, Verdict, deciding, judge
from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.model.binaries import BinaryFile, BinaryPackage, LibraryProblem, LibraryProblemKind, MissingLibrary, Wanted
from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Evidence
from cudadoctor.rules.engine import Case
from cudadoctor.rules.questions import GpuWithCapability, gpus_with_capability, torch, torch_cuda_version

WORKS_WITHOUT = re.compile(
    r"(?:torch(?:vision|audio|codec|text|data)|onnxruntime|tensorflow|jax|faiss|ctranslate2|llama-cpp|xgboost|lightgbm|catboost"
    r"|opencv|spacy|thinc|cupy|numba|triton|warp-lang|flashinfer|deepspeed|tilelang|pycuda|taichi|tensorrt)"
)
"""Packages that work, or do part of their work, without the GPU code in their files: on the CPU, or by compiling at run time."""
ONLY_GPU = frozenset({"bitsandbytes", "flash-attn", "flash-attn-3", "vllm", "sgl-kernel", "sglang-kernel", "exllamav2"})
"""Packages that do nothing without it, where they are not linked against torch."""
FIND_NO_WHEELS = re.compile(r"(?:onnxruntime|ctranslate2|llama-cpp|faiss)")
"""Packages that leave the search for CUDA's libraries to the loader, which does not look into pip's wheels."""
OPENS_BY_NAME = {"ctranslate2": re.compile(r"lib(?:cublas|cudnn)")}
"""Libraries that a package opens itself and cannot do without (names in its text; seen in ctranslate2 4)."""
OF_TORCH = re.compile(r"lib(?:torch|c10)(?:_\w+)?\.so|(?:torch|c10)(?:_\w+)?\.dll")
OF_DRIVER = re.compile(r"lib(?:cuda|nvidia-\w+|nvcuvid)\.so")
FOR_ONE_CUDA = re.compile(r"_cuda(\d{2,3})(?:_nocublaslt)?\.(?:so|dll)$")
"""bitsandbytes and its kin have a library for each CUDA, and load the one of torch's."""


def binary_packages(case: Case) -> tuple[BinaryPackage, ...]:
    """The packages whose files were read; empty where that was not done."""
    return maybe(case.snapshot.binaries) or ()


def known_to_be_read(case: Case) -> None:
    """Ends the rule as unknown where files of packages were to be read and were not, or not all."""
    binaries = case.snapshot.binaries
    if isinstance(binaries, Missing):
        if binaries.reason not in (MissingReason.NOT_ASKED, MissingReason.NOT_APPLICABLE):
            known(binaries)
        return
    unread = [package.name for package in binaries.value if not package.complete]
    if unread:
        detail = f"the binaries of {', '.join(unread)} could not be read, or not in time"
        known(Missing(MissingReason.TIMEOUT, detail, binaries.source))


def is_for_torch(package: BinaryPackage) -> bool:
    """Is it an extension of torch, which is loaded into a process with torch's libraries?"""
    return any(OF_TORCH.match(name) for file in package.files for name in file.needed)


def needs_its_code(package: BinaryPackage) -> bool:
    """Is the package of no use where its own GPU code cannot run?"""
    if WORKS_WITHOUT.match(package.name):
        return False
    return package.name in ONLY_GPU or is_for_torch(package)


def files_in_use(case: Case, package: BinaryPackage) -> tuple[BinaryFile, ...]:
    """The files that would be loaded here: where there is one for each CUDA version, that of torch's."""
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    variants = {file.path: match[1] for file in package.files if (match := FOR_ONE_CUDA.search(file.path))}
    if runtime is None or len(set(variants.values())) < 2:
        return package.files
    return tuple(file for file in package.files if variants.get(file.path, runtime.tag[2:]) == runtime.tag[2:])


# GPU code


@dataclass(frozen=True)
class OnGpu:
    """How the GPU code of a package would fare on one GPU: a prediction from its files."""

    package: BinaryPackage
    files: tuple[BinaryFile, ...]
    gpu: GpuWithCapability
    verdict: Verdict
    errors: tuple[int, ...]
    judged: int
    """Modules that count."""


def on_gpus(case: Case) -> tuple[OnGpu, ...]:
    """Every package but torch itself on every GPU of known capability; those without kernels are left out."""
    listed = binary_packages(case)
    if not listed:
        return ()
    supports = maybe(case.snapshot.driver.driver_cuda_version)
    isa = case.matrices.toolkits.ptx_isa(supports) if supports is not None else None
    gpus = gpus_with_capability(case)
    capabilities = {gpu.compute_capability for gpu in gpus}
    found: list[OnGpu] = []
    for package in (package for package in listed if package.name != "torch"):
        files = tuple(file for file in files_in_use(case, package) if file.modules)
        answers = {capability: _judged(package, files, Gpu(capability, isa)) for capability in capabilities} if files else {}
        found += [OnGpu(package, files, gpu, *answers[gpu.compute_capability]) for gpu in gpus if files]
    return tuple(answer for answer in found if answer.verdict is not Verdict.NO_KERNELS)


def _judged(package: BinaryPackage, files: tuple[BinaryFile, ...], gpu: Gpu) -> tuple[Verdict, tuple[int, ...], int]:
    """The verdict, the errors of modules that cannot be used, and the number of modules that count."""
    judgements = deciding(judge(file.modules, gpu) for file in files)
    whole = package.complete and not any(file.unread for file in files)
    errors = tuple(sorted({code for judgement in judgements for code in judgement.errors}))
    return _verdict(judgements, whole=whole), errors, sum(judgement.judged for judgement in judgements)


def _verdict(judgements: tuple[Judgement, ...], *, whole: bool) -> Verdict:
    """Of all files together: it fails where every file does, and all were read."""
    verdicts = {judgement.verdict for judgement in judgements}
    if not judgements:
        return Verdict.NO_KERNELS
    if verdicts == {Verdict.FAILS}:
        return Verdict.FAILS if whole else Verdict.UNKNOWN
    if verdicts == {Verdict.RUNS_BY_JIT}:
        outcomes = Counter[str]()
        for judgement in judgements:
            outcomes.update(judgement.modules)
        return Verdict.RUNS if outcomes["sass"] else Verdict.RUNS_BY_JIT
    usable = any(judgement.modules.get(outcome.value) for judgement in judgements for outcome in USABLE)
    if not usable:
        return Verdict.UNKNOWN
    return Verdict.RUNS if verdicts == {Verdict.RUNS} else Verdict.PARTLY


def code_held(files: Iterable[BinaryFile]) -> str:
    """`sm_80 61, compute_90 2`: how many modules have each target, as findings show it."""
    counts: Counter[str] = Counter()
    order: dict[str, tuple[int, str]] = {}
    for group in (group for file in files for group in file.modules if not group.is_tiny):
        for target in {code.target for code in group.code if code.target is not None}:
            counts[str(target)] += group.count
            order[str(target)] = (target.compute_capability.number, str(target))
    return ", ".join(f"{name} {counts[name]}" for name in sorted(counts, key=order.__getitem__))


def code_evidence(answer: OnGpu) -> tuple[Evidence, ...]:
    """The code in the files that would be loaded."""
    return tuple(
        Evidence(fact=f"binaries.{answer.package.name}", value=code_held((file,)) or "no kernels", source=file.path)
        for file in answer.files[:MOST_FILES]
    )


MOST_FILES = 4
"""Files that a finding quotes."""


# Libraries


@dataclass(frozen=True)
class Lack:
    """Libraries without which a package cannot load the file that lacks least: a prediction."""

    package: BinaryPackage
    file: BinaryFile
    libraries: tuple[MissingLibrary, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(library.name for library in self.libraries)

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        return tuple(
            Evidence(fact=f"binaries.{self.package.name}.missing", value=f"{library.name} is not found", source=library.requester)
            for library in self.libraries
        )


def lacking(case: Case) -> tuple[Lack, ...]:
    """The packages of which no file that needs CUDA's libraries can be loaded here, as no copy of those is in reach."""
    found = (_lack(case, package) for package in binary_packages(case) if package.name != "torch" or _torch_not_tried(case))
    return tuple(lack for lack in found if lack is not None)


def found_elsewhere(case: Case) -> tuple[Lack, ...]:
    """The packages whose libraries are installed where the loader does not look, and that do not look there themselves."""
    found = []
    for package in binary_packages(case):
        if FIND_NO_WHEELS.match(package.name) and package.complete:
            relevant = _relevant(case, package)
            lacks = [tuple(library for library in _wanted(package, file)) for file in relevant]
            if relevant and all(lacks) and all(library.elsewhere for library in min(lacks, key=len)):
                least = min(lacks, key=len)
                found.append(Lack(package, relevant[lacks.index(least)], least))
    return tuple(found)


def _torch_not_tried(case: Case) -> bool:
    """Is this the files of an image, whose torch nobody imports?"""
    build = torch(case.snapshot)
    return build is not None and isinstance(build.imports, Missing) and build.imports.reason is MissingReason.NOT_APPLICABLE


def _relevant(case: Case, package: BinaryPackage) -> tuple[BinaryFile, ...]:
    """The files in use that need more of CUDA than the driver."""
    opens = OPENS_BY_NAME.get(package.name)
    return tuple(
        file
        for file in files_in_use(case, package)
        if any(is_nvidia(name) and not OF_DRIVER.match(name) for name in file.needed)
        or (opens is not None and any(opens.match(library.name) for library in file.missing))
    )


def _wanted(package: BinaryPackage, file: BinaryFile) -> Iterable[MissingLibrary]:
    """The missing libraries without which the file is of no use."""
    opens = OPENS_BY_NAME.get(package.name)
    for library in file.missing:
        if library.wanted is Wanted.NEEDED or (opens is not None and opens.match(library.name)):
            yield library


def _lack(case: Case, package: BinaryPackage) -> Lack | None:
    if not package.complete:
        return None
    relevant = _relevant(case, package)
    lacks = [tuple(library for library in _wanted(package, file) if _out_of_reach(case, package, library)) for file in relevant]
    if not relevant or not all(lacks):
        return None
    least = min(lacks, key=len)
    return Lack(package, relevant[lacks.index(least)], least)


def _out_of_reach(case: Case, package: BinaryPackage, library: MissingLibrary) -> bool:
    """No copy is known, or only one of another CUDA than torch's, which torch does not load for its extension."""
    return not library.elsewhere or (is_for_torch(package) and is_of_other_major(case, library.name))


def is_of_other_major(case: Case, name: str) -> bool:
    """Does a library belong to another CUDA major than torch's?"""
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    major = case.matrices.sonames.cuda_major_of(name) if runtime is not None else None
    return runtime is not None and major is not None and major != runtime.major


def library_problems(case: Case, kind: LibraryProblemKind) -> tuple[tuple[BinaryPackage, BinaryFile, LibraryProblem], ...]:
    """What is wrong with libraries that would be loaded, by package and file."""
    return tuple(
        (package, file, problem)
        for package in binary_packages(case)
        for file in files_in_use(case, package)
        for problem in file.problems
        if problem.kind is kind
    )


def version_shown(package: BinaryPackage) -> str:
    """`flash-attn 2.8.3`, or the name alone where the version is not known."""
    return f"{package.name} {package.package_version}".strip()


def file_name(path: str) -> str:
    """The last part of a path."""
    return posixpath.basename(path.replace("\\", "/"))
