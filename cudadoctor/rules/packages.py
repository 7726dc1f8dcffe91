"""Rules about installing packages and about extensions built for another torch, CUDA or Python (CD430 to CD469)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, Package, Platform, TorchBuild
from cudadoctor.model.versions import CudaVersion, DottedVersion
from cudadoctor.rules import fixes
from cudadoctor.rules.circumstances import as_evidence
from cudadoctor.rules.driver import seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.frameworks import NOT_COMPILED
from cudadoctor.rules.library_fixes import cuda_majors
from cudadoctor.rules.questions import (
    chosen_toolkit,
    local_tag,
    platform,
    torch,
    torch_build,
    torch_cuda_version,
    torch_release,
    torch_version_text,
)
from cudadoctor.rules.software_questions import (
    named_torch,
    package,
    package_evidence,
    packages,
    reading,
    version_of,
)

TORCH_NAMES = ("torch", "torchvision", "torchaudio")
CUDA_TAG = re.compile(r"\+cu\d{2,3}\b")
ANY_TAG = re.compile(r"\+(?:cu\d{2,3}|cpu|rocm[\d.]+|xpu)\b")
CUPY = re.compile(r"cupy-cuda\d+x?")
MOST_VERSIONS = 400
"""Versions of an index's answer that are read."""


# What an installer refuses


@dataclass(frozen=True)
class Refused:
    """A requirement that an installer could not satisfy, and the versions that the index had."""

    error: ErrorSeen
    name: str
    version: Version | None
    """None where no exact version was asked for."""
    offered: tuple[Version, ...] | None
    """None where the text does not list them."""

    @property
    def tag(self) -> str | None:
        """The local part: cu121, cpu."""
        return self.version.local if self.version is not None else None

    @property
    def text(self) -> str:
        return f"{self.name}=={self.version}" if self.version is not None else self.name


def refused(case: Case) -> tuple[Refused, ...]:
    """The requirements that pip or uv could not satisfy, those with the index's answer first."""
    found = [
        _refused(error) for error in case.errors("pip-no-matching-version", "uv-no-solution") if "requirement" in error.values
    ]
    known = [each for each in found if each is not None]
    log = reading(case.snapshot, "uv_failure")
    if not known and log.get("package") and case.saw("uv-no-solution"):
        error = case.errors("uv-no-solution")[0]
        requirement = _requirement(f"{log['package']}{log.get('requested') or ''}")
        if requirement is not None:
            known.append(Refused(error, requirement[0], requirement[1], None))
    return tuple(sorted(known, key=lambda each: each.offered is None))


def _refused(error: ErrorSeen) -> Refused | None:
    requirement = _requirement(error.values["requirement"])
    if requirement is None:
        return None
    listed = error.values.get("versions")
    return Refused(error, *requirement, _versions(listed) if listed is not None else None)


def _requirement(text: str) -> tuple[str, Version | None] | None:
    try:
        parsed = Requirement(text.strip())
    except InvalidRequirement:
        return None
    exact = next((each.version for each in parsed.specifier if each.operator in ("==", "===")), None)
    return re.sub(r"[-_.]+", "-", parsed.name).lower(), version_of(exact) if exact is not None else None


def _versions(text: str) -> tuple[Version, ...]:
    words = text.replace("none", "").split(",")[:MOST_VERSIONS]
    return tuple(version for word in words if (version := version_of(word.strip())) is not None)


def _python(case: Case) -> str | None:
    """The Python that installs, `3.12`."""
    version = maybe(case.snapshot.python.python_version)
    return f"{version.major}.{version.minor}" if version is not None else None


def _python_excluded(case: Case, each: Refused) -> bool | None:
    """Has the requested release no wheel for this Python? None where that is not known."""
    python = _python(case)
    if python is None:
        return None
    if each.name == "torch" and each.version is not None:
        pythons = case.matrices.torch.pythons(DottedVersion.parse(each.version.public))
        return python not in pythons if pythons else None
    if each.name == "torch" and each.offered == ():
        return python not in case.matrices.torch.newest_known.pythons
    if each.name in ("tensorflow", "tensorflow-gpu") and each.version is not None:
        row = case.matrices.ecosystem.tensorflow_release(each.version)
        return not row.python.contains(python) if row is not None and row.python is not None else None
    if each.name in ("vllm", "xformers") and each.version is not None:
        rows = case.matrices.ecosystem.vllm if each.name == "vllm" else case.matrices.ecosystem.xformers
        pinned = next((row for row in rows if row.version.public == each.version.public), None)
        return not pinned.python.contains(python) if pinned is not None else None
    return None


def _release_offered(each: Refused) -> bool:
    """Does the index have the release that was asked for, in whatever build?"""
    return each.version is not None and any(other.base_version == each.version.base_version for other in each.offered or ())


def _older_than_all(each: Refused) -> bool:
    return bool(each.offered) and each.version is not None and all(each.version < other for other in each.offered or ())


def _newer_than_all(each: Refused) -> bool:
    return bool(each.offered) and each.version is not None and all(each.version > other for other in each.offered or ())


def _index_has_tags(each: Refused) -> bool:
    return any(other.local is not None for other in each.offered or ())


def python_version_no_wheel(case: Case) -> Iterable[Problem]:
    """The requested release has no wheel for this Python version.

    What it checks: the versions that pip listed against the one asked for, and the Pythons that the matrix has for it; uv's
    reasons (no wheels with a matching Python ABI tag); pip's "is not a supported wheel on this platform" and "requires a
    different Python".

    Why it matters: binary packages have a wheel for each Python minor; an older release has none for a newer Python.

    How to fix: use a Python that the release was built for, or a release that was built for this Python.

    When it is wrong: an index that lists only some releases (a mirror), or a platform without any wheels, looks the same.

    Sources: matrices/torch_builds.toml and ecosystem.toml, python; pip documentation, compatibility tags.
    """
    if platform(case.snapshot) is Platform.MACOS:
        raise NotApplicableError("macOS has no CUDA wheels of any Python")
    for each in refused(case):
        if _python_is_why(case, each):
            yield _wrong_python(case, each)
            return
    remark_only = not refused(case) or any(_index_is_why(case, each) for each in refused(case))
    texts = tuple(
        text
        for text in seen(case, "python-version-no-wheel")
        if not (remark_only and "ignored the following" in text.value.lower())
    )
    reason = str(reading(case.snapshot, "uv_failure").get("reason") or "")
    if texts or reason in (
        "no_matching_python_abi",
        "no_matching_python_version",
        "no_matching_python_implementation",
        "requires_other_python",
    ):
        python = _python(case)
        yield Problem(
            subject="Python",
            what=f"A wheel that was asked for is not made for this Python{f' {python}' if python is not None else ''}.",
            why="Binary packages have one wheel for each Python minor and platform; no other can be installed.",
            evidence=(*texts, *seen(case, "uv-no-solution")),
            remedies=_other_python(None),
            confidence=Confidence.LIKELY if any("supported wheel" in text.value for text in texts) else Confidence.CERTAIN,
        )


def _python_is_why(case: Case, each: Refused) -> bool:
    """Is the Python the reason? An index that has nothing at all has nothing for this Python, or is the wrong one."""
    excluded = _python_excluded(case, each)
    if each.offered == ():
        return excluded is not False or each.tag is None
    if excluded is not None:
        return excluded and not _release_offered(each)
    if each.tag is not None and not _index_has_tags(each):
        return False
    return _older_than_all(each)


def _wrong_python(case: Case, each: Refused) -> Problem:
    python = _python(case)
    offered = f" The index has {min(each.offered)} to {max(each.offered)} for it." if each.offered else ""
    return Problem(
        subject=each.name,
        what=f"{each.text} has no wheel for Python {python if python is not None else 'as installed'}.{offered}",
        why="Binary packages have one wheel for each Python minor; an older release has none for a newer Python, and the other way round.",
        evidence=(*as_evidence((each.error,)), *evidence("python.python_version", case.snapshot.python.python_version)),
        remedies=_other_python(_pythons_of(case, each)),
        confidence=_SURE_OF_PYTHON[_python_excluded(case, each)],
    )


_SURE_OF_PYTHON = {True: Confidence.CERTAIN, None: Confidence.LIKELY, False: Confidence.POSSIBLE}


def _pythons_of(case: Case, each: Refused) -> str | None:
    if each.name != "torch" or each.version is None:
        return None
    pythons = [
        python for python in case.matrices.torch.pythons(DottedVersion.parse(each.version.public)) if not python.endswith("t")
    ]
    return pythons[-1] if pythons else None


def _other_python(python: str | None) -> tuple[Remedy, ...]:
    wanted = python or "VERSION"
    return (
        Remedy(
            Fix(
                title=f"Make an environment with {f'Python {wanted}' if python else 'a Python that the release has wheels for'}",
                commands=(f"uv venv --python {wanted}", f"conda create -n cuda python={wanted}"),
                where=Where.VENV,
            )
        ),
        Remedy(Fix(title="Take a release that has wheels for this Python", commands=("cudadoctor recommend",), where=Where.VENV)),
    )


def wheel_index_missing(case: Case) -> Iterable[Problem]:
    """A +cuXXX version was requested without the index that carries it.

    What it checks: a requirement such as torch==2.5.1+cu124 that the installer could not satisfy, where the index answered with
    plain versions only, or with none.

    Why it matters: the default index has one build of each release, without a tag; the others are on PyTorch's own index.

    How to fix: add --index-url with the index of the CUDA version.

    When it is wrong: where the index lists tagged versions, it is the right one and something else excludes the release.

    Sources: PyTorch, Get Started; PEP 440, local versions.
    """
    if platform(case.snapshot) is Platform.MACOS:
        raise NotApplicableError("macOS has no CUDA wheels on any index")
    for each in refused(case):
        if not _index_is_why(case, each):
            continue
        yield Problem(
            subject=each.name,
            what=f"{each.text} is not on the index that was asked: it carries no builds with a CUDA tag.",
            why="The default index has one untagged build of each release; tagged ones are on PyTorch's own index.",
            evidence=as_evidence((each.error,)),
            remedies=(_with_index(case, each, each.tag or ""),),
            confidence=Confidence.CERTAIN if each.offered else Confidence.LIKELY,
        )
        return


def _index_is_why(case: Case, each: Refused) -> bool:
    """Was a tagged build asked of an index that has no tagged ones?"""
    if not (each.tag or "").startswith("cu") or _index_has_tags(each):
        return False
    if each.offered == () and _python_excluded(case, each) is not False:
        return False
    listed_elsewhere = any(other.offered is not None for other in refused(case) if other.name == each.name)
    return each.offered is not None or not listed_elsewhere


def _with_index(case: Case, each: Refused, tag: str) -> Remedy:
    url = f"https://download.pytorch.org/whl/{tag}"
    python = fixes.interpreter(case.snapshot)
    tool = f"uv pip install --python {python}" if case.saw("uv-no-solution") else f"{python} -m pip install"
    return Remedy(Fix(title=f"Ask the index of {tag}", commands=(f"{tool} '{each.text}' --index-url {url}",), where=Where.VENV))


def wheel_variant_absent(case: Case) -> Iterable[Problem]:
    """A build of a release for a CUDA version was requested that does not exist.

    What it checks: a requirement with a CUDA tag against the tagged versions that the index listed: the release is there, with
    other tags.

    Why it matters: each release is built for two or three CUDA versions only; no installer finds another one.

    How to fix: take a tag that exists for the release.

    When it is wrong: a mirror can lack builds that PyTorch's own index has.

    Sources: the index's own answer; matrices/torch_builds.toml, variants.
    """
    for each in refused(case):
        if each.tag is None or not _release_offered(each) or not _index_has_tags(each) or each.version is None:
            continue
        tags = sorted(
            {
                other.local
                for other in each.offered or ()
                if other.base_version == each.version.base_version and other.local is not None
            }
        )
        yield Problem(
            subject=each.name,
            what=f"{each.text} does not exist: the index has this release as {', '.join(tags)}.",
            why="Each release is built for a few CUDA versions only.",
            evidence=as_evidence((each.error,)),
            remedies=tuple(
                _with_index(case, Refused(each.error, each.name, version_of(f"{each.version.public}+{tag}"), None), tag)
                for tag in tags
                if tag.startswith("cu")
            )[-1:],
        )
        return


# Extensions


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
            remedies=_companions(case),
        )
        return
    for each, why in _misfits(case):
        yield Problem(
            subject=each.name,
            what=f"{each.name} {each.package_version} does not belong to torch {_torch_text(case)}: {why}.",
            why="Its compiled part may fail at import or when it is used.",
            evidence=(*package_evidence(each), *_torch_evidence(case)),
            remedies=_companions(case),
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


def _companions(case: Case) -> tuple[Remedy, ...]:
    """Installing torchvision and torchaudio anew beside the torch that is here, from its index."""
    build = torch(case.snapshot)
    release, tag = (torch_release(build), local_tag(build)) if build is not None else (None, "")
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    where = tag or (runtime.tag if runtime is not None else "")
    if release is None or not where:
        return ()
    pin = f"torch=={release}+{where}"
    names = [name for name in ("torchvision", "torchaudio", "xformers") if package(case.snapshot, name) is not None] or [
        "torchvision"
    ]
    python = fixes.interpreter(case.snapshot)
    return (
        Remedy(
            Fix(
                title="Install them together with the torch that is here, from its index, so that the installer picks matching releases",
                commands=(
                    f"{python} -m pip install --force-reinstall --no-cache-dir {pin} {' '.join(names)} "
                    f"--index-url https://download.pytorch.org/whl/{where}",
                ),
                where=Where.VENV,
            )
        ),
    )


TORCHVISION_BEHIND_2 = 15
"""torchvision 0.(n + 15) belongs to torch 2.n, 0.(n + 1) to torch 1.n (README of torchvision, table of versions)."""


def _misfits(case: Case) -> Iterable[tuple[Package, str]]:
    """The installed packages that do not belong to the installed torch, and which torch they want."""
    listed = packages(case.snapshot)
    build = torch(case.snapshot)
    release = torch_release(build) if build is not None else None
    if not listed or build is None or release is None or len(release.parts) < 2 or "a0" in _torch_text(case):
        return
    installed = version_of(_torch_text(case).partition("+")[0])
    for each in listed:
        version = version_of(each.package_version)
        if version is None or installed is None or each.build:
            continue
        why = _misfit(case, each.name, version, installed)
        if why is not None:
            yield each, why


def _misfit(case: Case, name: str, version: Version, installed: Version) -> str | None:
    minor = installed.release[:2]
    if name == "torchvision":
        offset = TORCHVISION_BEHIND_2 if minor[0] == 2 else 1
        wanted = version.release[1] - offset if len(version.release) > 1 else minor[1]
        return (
            None
            if wanted == minor[1] or version.major != 0 or minor[0] > 2
            else f"it is for torch {minor[0]}.{wanted}"
            if wanted >= 0
            else "it is for another torch"
        )
    if name == "torchaudio" and version.major == minor[0] == 2:
        return (
            None
            if version.release[:2] == minor or minor >= (2, 9)
            else f"it is for torch {version.release[0]}.{version.release[1]}"
        )
    if name in ("vllm", "xformers"):
        pin = case.matrices.ecosystem.torch_for(name, version)
        return None if pin is None or pin.contains(installed.public, prereleases=True) else f"it wants torch{pin}"
    if name == "triton":
        rows = [row for row in case.matrices.ecosystem.triton if any(pin.release == installed.release for pin in row.torch)]
        fits = not rows or any(row.version.release[:2] == version.release[:2] for row in rows)
        return None if fits else f"this torch wants triton {rows[0].version}"
    return None


def extension_cuda_major_mismatch(case: Case) -> Iterable[Problem]:
    """A compiled package is built for another CUDA major version than the environment has.

    What it checks: packages' own words; a CUDA library that a module asks for whose major is not that of torch; packages of
    CuPy for two majors side by side.

    Why it matters: the libraries of a CUDA major have their own names: what is built for CUDA 11 asks for libcudart.so.11.0,
    which an environment of CUDA 12 does not have.

    How to fix: install the build of the package for the CUDA major of the environment, or build it here.

    When it is wrong: a package that brings its own libraries (or finds a toolkit) can live beside a torch of another major.

    Sources: matrices/sonames.toml; wheel names of the packages.
    """
    said = case.errors("extension-cuda-major-mismatch")
    missing = _missing_of_other_major(case)
    cupys = tuple(each for each in packages(case.snapshot) if CUPY.fullmatch(each.name))
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


# Environments


def multiple_environments(case: Case) -> Iterable[Problem]:
    """What is installed, as the text lists it, is not what the program runs with.

    What it checks: torch versions that the package list and the program itself tell; a package list with a CUDA build beside a
    program whose torch has no CUDA; the Python of tracebacks against the Python that lists.

    Why it matters: `pip` and `python` can belong to different environments; then what is installed is not where the program
    looks, and every reinstallation goes to the wrong place.

    How to fix: call pip through the interpreter that runs the program: `python -m pip`.

    When it is wrong: a list from before and an error from after an installation, in one text, look the same.

    Sources: Python documentation, python -m pip; sys.path.
    """
    sure = (*_torch_disagrees(case), *_list_is_cuda(case))
    found = (*sure, *_folders_differ(case))
    if not found:
        return
    yield Problem(
        subject="Python",
        what="The packages listed are not those of the environment that runs the program: "
        + "; ".join(each[0] for each in found)
        + ".",
        why="pip and python belong to different environments: what one installs, the other does not see.",
        evidence=tuple(item for each in found for item in each[1]),
        remedies=(
            Remedy(
                Fix(
                    title="Ask the interpreter that runs the program, and install through it",
                    commands=(
                        'python -c "import sys, torch; print(sys.executable, torch.__file__, torch.__version__)"',
                        "python -m pip list",
                    ),
                    where=Where.VENV,
                )
            ),
        ),
        severity=None if sure else Severity.WARNING,
        confidence=Confidence.LIKELY,
    )


def _listed_torch(case: Case) -> Package | None:
    return package(case.snapshot, "torch", "pytorch")


def _torch_at_work(case: Case) -> str | None:
    """The torch version that the program itself names: at a prompt, in an environment report, in xFormers' warning."""
    for kind in ("python_answers", "collect_env"):
        said = reading(case.snapshot, kind).get("torch_version")
        if said:
            return str(said)
    return next((error.values["have"] for error in case.errors("extension-torch-mismatch") if "you have" in error.text), None)


def _torch_disagrees(case: Case) -> Iterable[tuple[str, tuple[Evidence, ...]]]:
    """The package list has another release of torch, or another build of it, than the program names."""
    said, listed = _torch_at_work(case), _listed_torch(case)
    if not said or listed is None or reading(case.snapshot, "install_log"):
        return
    mine, theirs = version_of(said), version_of(listed.package_version)
    if mine is None or theirs is None:
        return
    both_tagged = mine.local is not None and theirs.local is not None
    if mine.release != theirs.release or (both_tagged and mine.local != theirs.local):
        yield f"the list has torch {theirs}, the program runs torch {mine}", package_evidence(listed)


def _list_is_cuda(case: Case) -> Iterable[tuple[str, tuple[Evidence, ...]]]:
    """The package list has a CUDA build of torch, and the program's torch has no CUDA."""
    texts = seen(case, *NOT_COMPILED)
    listed = _listed_torch(case)
    if not texts or listed is None or reading(case.snapshot, "install_log"):
        return
    if CUDA_TAG.search(listed.package_version) or "cuda" in listed.build:
        shown = f"{listed.package_version} {listed.build}".strip()
        yield f"the list has torch {shown}, the program's torch has no CUDA", (*package_evidence(listed), *texts)


def _folders_differ(case: Case) -> Iterable[tuple[str, tuple[Evidence, ...]]]:
    """Tracebacks run through the packages of another Python than the text names, or of two."""
    frames = {error.values["python"]: error for error in case.errors("shown-site-packages") if error.values.get("python")}
    if len(frames) > 1:
        yield f"tracebacks run through Python {' and '.join(sorted(frames))}", as_evidence(tuple(frames.values()))
        return
    fact = case.snapshot.python.python_version
    for shown, error in frames.items():
        version = DottedVersion.parse(shown)
        if isinstance(fact, Known) and (version.major, version.minor) != (fact.value.major, fact.value.minor):
            found = (*as_evidence((error,)), *evidence("python.python_version", fact))
            yield f"the program runs Python {shown}, the text names Python {fact.value}", found


def pip_reports_conflict(case: Case) -> Iterable[Problem]:
    """pip says that an installed package requires another torch than it has just installed.

    What it checks: pip's line "PACKAGE requires torch==X, but you have torch Y which is incompatible".

    Why it matters: the package was built for the other torch; its compiled part may fail.

    How to fix: install the releases that belong together in one command, from one index.

    When it is wrong: pure Python packages with a narrow pin often work all the same.

    Sources: pip documentation, dependency resolution.
    """
    errors = tuple(
        error for error in case.errors("pip-dependency-conflict") if error.values.get("package", "").lower() in TORCH_NAMES
    )
    if errors:
        yield Problem(
            subject="torch",
            what=f"pip reports that an installed package requires another {errors[0].values['package']} than {errors[0].values.get('have', 'the one installed')}.",
            why="Its compiled part belongs to the other release and may fail.",
            evidence=as_evidence(errors),
            remedies=_companions(case),
        )


RULES = (
    Rule("CD430", "python-version-no-wheel", Severity.ERROR, "The release has no wheel for this Python", python_version_no_wheel),
    Rule("CD431", "wheel-index-missing", Severity.ERROR, "The index with CUDA builds was not asked", wheel_index_missing),
    Rule("CD432", "wheel-variant-absent", Severity.ERROR, "The release is not built for this CUDA version", wheel_variant_absent),
    Rule(
        "CD433",
        "multiple-environments",
        Severity.ERROR,
        "The packages listed are not those that the program uses",
        multiple_environments,
    ),
    Rule(
        "CD434",
        "pip-reports-conflict",
        Severity.WARNING,
        "pip reports a package that requires another torch",
        pip_reports_conflict,
    ),
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
