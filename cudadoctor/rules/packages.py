"""Rules about extensions built for another torch, CUDA or Python than is here (CD440 to CD449)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, Package, TorchBuild
from cudadoctor.model.versions import CudaVersion, DottedVersion
from cudadoctor.rules import fixes
from cudadoctor.rules.binaries import of_other_cuda_major
from cudadoctor.rules.companion_questions import misfits
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence
from cudadoctor.rules.library_fixes import cuda_majors
from cudadoctor.rules.package_fixes import install_companions
from cudadoctor.rules.questions import (
    chosen_toolkit,
    named_torch,
    torch,
    torch_build,
    torch_cuda_version,
    torch_release,
    torch_version_text,
)
from cudadoctor.rules.software_questions import (
    package,
    package_evidence,
    packages,
    reading,
    version_of,
)

CUPY = re.compile(r"cupy-cuda\d+x?")


def _named_extension(errors: Iterable[ErrorSeen]) -> str | None:
    """The extension that an error names, from its file or module."""
    for error in errors:
        match = re.search(r"([A-Za-z_][\w.-]*?)(?:\.cpython-\d+[\w-]*|\.abi3)?\.(?:so|pyd)\b", error.text)
        if match is not None:
            return match[1]
    return None


WHEEL_TAGS = re.compile(r"torch(?P<torch>\d+\.\d+)(?:\.\d+)?.{0,10}?cxx11abi(?P<abi>true|false)", re.IGNORECASE)


def _wheel_facts(case: Case) -> tuple[str, ...]:
    """What the names of installed wheels say of the torch and ABI that they are for, where that is not the torch that is here."""
    build = torch(case.snapshot)
    release = torch_release(build) if build is not None else None
    found = []
    for wheel in reading(case.snapshot, "install_log").get("wheels") or ():
        match = WHEEL_TAGS.search(wheel["version"])
        if match is None:
            continue
        wanted = DottedVersion.parse(match["torch"])
        if release is not None and (release.major, release.minor) != (wanted.major, wanted.minor):
            found.append(f"the wheel {wheel['name']} is for torch {wanted}, torch {release} is installed")
        found.append(f"its C++ ABI is {'new' if match['abi'].lower() == 'true' else 'old'} (cxx11abi{match['abi']})")
    return tuple(found)


def _symbol_abi(errors: Iterable[ErrorSeen]) -> str | None:
    """Which C++ ABI the missing symbol belongs to, where its string type tells."""
    for error in errors:
        symbol = error.values.get("symbol", error.text)
        if "cxx1112basic_string" in symbol:
            return "new"
        if re.search(r"(?:E|_)RKSs|ESs\w?$|Ss$|RKSs", symbol):
            return "old"
    return None


def extension_abi_mismatch(case: Case) -> Iterable[Problem]:
    """An extension needs a torch or c10 symbol that the installed torch does not have.

    What it checks: "undefined symbol" of torch's and c10's C++ names, the ABI that the symbol's strings show, and what the
    wheel's name says of its torch.

    Why it matters: extensions are bound to the torch release and C++ ABI that they were compiled with; importing them fails.

    How to fix: install the wheel of the extension that is made for this torch (release, CUDA major, ABI and Python), or build
    it here against the installed torch.

    When it is wrong: where two torch installations are on the path, the extension may fit the other one.

    Sources: Itanium C++ ABI, mangling; PyTorch release notes, CXX11 ABI (2.6, 2.7); wheel names of flash-attention.
    """
    errors = case.errors("extension-abi-mismatch")
    if not errors:
        return
    build = torch(case.snapshot)
    name = _named_extension(errors) or "A compiled extension"
    abi = _symbol_abi(errors)
    facts = (*((f"the missing symbol is of the {abi} C++ ABI",) if abi is not None else ()), *_wheel_facts(case))
    yield Problem(
        subject=name,
        what=f"{name} was built for another torch than {named_torch(build, 'the one installed')}: a torch symbol that it needs is absent.",
        why=(f"As its names tell, {'; '.join(facts)}." if facts else "Extensions are bound to one torch release and C++ ABI."),
        evidence=(
            *as_evidence(errors),
            *(evidence("python.torch.torch_version", build.torch_version) if build is not None else ()),
        ),
        remedies=_rebuild(case, name),
    )


def _rebuild(case: Case, name: str) -> tuple[Remedy, ...]:
    package_name = _package_of(name)
    python = fixes.interpreter(case.snapshot)
    return (
        Remedy(
            Fix(
                title="Build it against the installed torch, or install the wheel named for this torch, CUDA major, ABI and Python",
                commands=(
                    f"{python} -m pip uninstall -y {package_name}",
                    f"{python} -m pip install --no-build-isolation --no-cache-dir {package_name}",
                ),
                where=Where.VENV,
                verify=(f'{python} -c "import torch; print(torch.__version__, torch.compiled_with_cxx11_abi())"',),
            )
        ),
    )


PACKAGE_OF_MODULE = {
    "flash_attn_2_cuda": "flash-attn",
    "flash_attn_cuda": "flash-attn",
    "selective_scan_cuda": "mamba-ssm",
    "causal_conv1d_cuda": "causal-conv1d",
    "libbitsandbytes_cpu": "bitsandbytes",
}
"""Module of an extension to the package that brings it (their setup.py)."""


def _package_of(name: str) -> str:
    return PACKAGE_OF_MODULE.get(name, "PACKAGE")


PIP_PIN = "pip-torch-pin"


def extension_torch_mismatch(case: Case) -> Iterable[Problem]:
    """A package on top of torch was built for another torch, CUDA or Python build.

    What it checks: packages' own words (xFormers, torchvision, torchaudio), torchvision's missing operators, pip's remark that
    a package requires another torch; on a machine the versions of torchvision, torchaudio, xformers, vllm and triton against
    the installed torch.

    Why it matters: its compiled part is not loaded or fails at import; some packages silently fall back to slow code.

    How to fix: install the release that belongs to the installed torch, in one command with it and from the same index.

    When it is wrong: packages whose compiled part works with several torch releases are not named; self-built ones may fit.

    Sources: matrices/ecosystem.toml (pins of vllm, xformers, triton); torchvision and torchaudio, tables of compatible versions.
    """
    errors = _mismatches_said(case)
    if errors:
        yield Problem(
            subject=_said_package(errors) or "extension",
            what=f"{_said_package(errors) or 'A package'} says that it was built for another torch or CUDA.",
            why="Its compiled part does not load, or fails when it is used.",
            evidence=as_evidence(errors),
            remedies=install_companions(case),
        )
        return
    for each, why in misfits(case):
        yield Problem(
            subject=each.name,
            what=f"{each.name} {each.package_version} does not belong to torch {_torch_text(case)}: {why}.",
            why="Its compiled part may fail at import or when it is used.",
            evidence=(*package_evidence(each), *_torch_evidence(case)),
            remedies=install_companions(case),
            severity=Severity.WARNING,
        )


def _mismatches_said(case: Case) -> tuple[ErrorSeen, ...]:
    said = tuple(error for error in case.errors("extension-torch-mismatch") if "numpy" not in error.text.lower())
    if torch(case.snapshot) is not None and _torch_is_cpu(case):
        return said
    return (*said, *case.errors("cpu-only-build-of-extension"))


def _torch_is_cpu(case: Case) -> bool:
    build = torch(case.snapshot)
    return build is not None and torch_build(build) is TorchBuild.CPU


def _said_package(errors: tuple[ErrorSeen, ...]) -> str | None:
    words = " ".join(error.text for error in errors).lower()
    return next((name for name in ("xformers", "torchvision", "torchaudio", "detectron2") if name in words), None)


def _torch_text(case: Case) -> str:
    build = torch(case.snapshot)
    return torch_version_text(build) if build is not None else ""


def _torch_evidence(case: Case) -> tuple[Evidence, ...]:
    build = torch(case.snapshot)
    return evidence("python.torch.torch_version", build.torch_version) if build is not None else ()


def extension_cuda_major_mismatch(case: Case) -> Iterable[Problem]:
    """A compiled package is built for another CUDA major version than the environment has.

    What it checks: packages' own words; a CUDA library that a module asks for, or that the files of an installed package need,
    whose major is not that of torch; packages of CuPy for two majors side by side.

    Why it matters: the libraries of a CUDA major have their own names: what is built for CUDA 11 asks for libcudart.so.11.0,
    which an environment of CUDA 12 does not have.

    How to fix: install the build of the package for the CUDA major of the environment, or build it here.

    When it is wrong: a package that brings its own libraries (or finds a toolkit) can live beside a torch of another major.

    Sources: matrices/sonames.toml; wheel names of the packages.
    """
    said = case.errors("extension-cuda-major-mismatch")
    missing = _missing_of_other_major(case)
    cupys = tuple(each for each in packages(case.snapshot) if CUPY.fullmatch(each.name))
    if not said and not missing:
        yield from of_other_cuda_major(case)
    if not said and not missing and len(cupys) < 2:
        return
    runtime = _environment_cuda(case)
    if missing:
        library, major = missing[0][1], missing[0][2]
        what = f"A package asks for {library}, of CUDA {major}; the environment has CUDA {runtime}."
    elif len(cupys) > 1:
        what = f"{', '.join(each.name for each in cupys)} are installed side by side; each is for one CUDA major."
    else:
        what = "A package was built for another CUDA version than the environment has."
    yield Problem(
        subject=missing[0][1] if missing else cupys[0].name if cupys else "extension",
        what=what,
        why="Libraries of another CUDA major have other names and interfaces: what was built for one cannot load the other's.",
        evidence=(
            *as_evidence((*said, *(each[0] for each in missing))),
            *(item for each in cupys if len(cupys) > 1 for item in package_evidence(each)),
            *_torch_evidence(case),
        ),
        remedies=_for_this_major(case, cupys, runtime),
        confidence=Confidence.CERTAIN if said else Confidence.LIKELY,
    )


def _environment_cuda(case: Case) -> CudaVersion | None:
    """The CUDA that an extension has to fit: torch's; for CuPy and onnxruntime, which find a toolkit, the toolkit's."""
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    toolkit = chosen_toolkit(case.snapshot)
    if runtime is not None or toolkit is None:
        return runtime
    finds_toolkit = any(CUPY.fullmatch(each.name) or each.name == "onnxruntime-gpu" for each in packages(case.snapshot))
    return maybe(toolkit.toolkit_version) if finds_toolkit else None


def _missing_of_other_major(case: Case) -> tuple[tuple[ErrorSeen, str, int], ...]:
    """CUDA libraries that could not be loaded and belong to another major than torch's, each with its major."""
    errors = case.errors("libcudart-missing", "cuda-lib-missing")
    runtime = _environment_cuda(case) if errors else None
    if runtime is None or case.saw("tf-gpu-libraries-missing") or package(case.snapshot, "tensorflow") is not None:
        return ()
    found = []
    for error in errors:
        library = re.split(r"[/\\]", error.values.get("library", ""))[-1]
        majors = cuda_majors(case, library) if library else ()
        if len(majors) == 1 and runtime.major not in majors:
            found.append((error, library, majors[0]))
    return tuple(found)


def _for_this_major(case: Case, cupys: tuple[Package, ...], runtime: CudaVersion | None) -> tuple[Remedy, ...]:
    python = fixes.interpreter(case.snapshot)
    if len(cupys) > 1:
        keep = max(each.name for each in cupys)
        commands: tuple[str, ...] = (
            f"{python} -m pip uninstall -y {' '.join(each.name for each in cupys)}",
            f"{python} -m pip install {keep}",
        )
        return (Remedy(Fix(title="Keep one CuPy only, that of the driver's CUDA major", commands=commands, where=Where.VENV)),)
    major = f"CUDA {runtime.major}" if runtime is not None else "the CUDA major of torch"
    return (
        Remedy(
            Fix(
                title=f"Install the package's build for {major}, or build it here against the installed torch",
                commands=(f"{python} -m pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir PACKAGE",),
                where=Where.VENV,
            )
        ),
    )


def extension_binary_missing(case: Case) -> Iterable[Problem]:
    """An extension is installed without its compiled CUDA library.

    What it checks: packages' own words (bitsandbytes cannot find its CUDA binary; a module `_C` or `*_cuda` does not exist);
    on a machine, whether bitsandbytes has a library for torch's CUDA version.

    Why it matters: the Python part imports and the first use on the GPU fails, or a slow path is taken.

    How to fix: install a released wheel that holds the library for this CUDA, and do not run inside an unbuilt source folder;
    or build it.

    When it is wrong: started in the folder of the sources, Python imports those in place of the installed package.

    Sources: bitsandbytes/cextension.py; matrices/ecosystem.toml, libraries of bitsandbytes.
    """
    errors = _binaries_said_missing(case)
    if errors:
        yield Problem(
            subject=_extension_of(errors),
            what=f"{_extension_of(errors)} is installed without its compiled CUDA library.",
            why="The package is an unbuilt source folder, a CPU build, or has no library for the CUDA version of torch.",
            evidence=as_evidence(errors),
            remedies=_released_wheel(case, _extension_of(errors)),
        )
        return
    yield from _bitsandbytes_without_library(case)


def _binaries_said_missing(case: Case) -> tuple[ErrorSeen, ...]:
    return tuple(
        error
        for error in case.errors("extension-binary-missing")
        if not ("undefined symbol" in error.text.lower() and case.saw("libcudart-missing", "cuda-lib-missing"))
    )


def _extension_of(errors: tuple[ErrorSeen, ...]) -> str:
    words = " ".join((*(error.text for error in errors), *(error.values.get("module", "") for error in errors))).lower()
    for name in ("bitsandbytes", "flash_attn", "exllama", "causal_conv1d", "selective_scan", "vllm", "awq", "deepspeed"):
        if name in words:
            return name
    return next((error.values["module"] for error in errors if error.values.get("module")), "The extension")


def _released_wheel(case: Case, name: str) -> tuple[Remedy, ...]:
    python = fixes.interpreter(case.snapshot)
    wanted = "bitsandbytes" if name == "bitsandbytes" else "PACKAGE"
    return (
        Remedy(
            Fix(
                title="Install a released wheel, from a folder other than the sources",
                commands=("cd ~", f"{python} -m pip install --force-reinstall --no-deps {wanted}"),
                where=Where.VENV,
            )
        ),
    )


def _bitsandbytes_without_library(case: Case) -> Iterable[Problem]:
    each = package(case.snapshot, "bitsandbytes")
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    version = version_of(each.package_version) if each is not None else None
    if each is None or version is None or runtime is None or each.build:
        return
    cudas = case.matrices.ecosystem.bitsandbytes_cudas(version)
    if cudas and runtime not in cudas:
        yield Problem(
            subject="bitsandbytes",
            what=f"bitsandbytes {version} has no library for CUDA {runtime}, which torch is built with; it has {', '.join(map(str, sorted(cudas)))}.",
            why="It picks its library by torch.version.cuda and fails when it is first used.",
            evidence=(*package_evidence(each), *_torch_evidence(case)),
            remedies=(
                Remedy(
                    Fix(
                        title="Install a newer release, or name the nearest library of the same major",
                        commands=(f"{fixes.interpreter(case.snapshot)} -m pip install --upgrade bitsandbytes",),
                        where=Where.VENV,
                    )
                ),
            ),
            severity=Severity.WARNING,
        )


RULES = (
    Rule(
        "CD440",
        "extension-abi-mismatch",
        Severity.ERROR,
        "An extension was built for another torch or C++ ABI",
        extension_abi_mismatch,
        explained_by=("multiple-environments",),
    ),
    Rule(
        "CD441",
        "extension-torch-mismatch",
        Severity.ERROR,
        "A package was built for another torch",
        extension_torch_mismatch,
        explained_by=("cpu-only-torch", "torch-replaced", "multiple-environments"),
    ),
    Rule(
        "CD442",
        "extension-cuda-major-mismatch",
        Severity.ERROR,
        "A package is built for another CUDA major",
        extension_cuda_major_mismatch,
        explained_by=("multiple-environments",),
    ),
    Rule(
        "CD443",
        "extension-binary-missing",
        Severity.ERROR,
        "An extension lacks its compiled CUDA library",
        extension_binary_missing,
        explained_by=("cpu-only-torch", "multiple-environments", "no-nvidia-gpu", "libcudart-missing", "nvcc-missing"),
    ),
)
