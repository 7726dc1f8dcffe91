"""Rules about installing: what installers refuse, and packages that are not where the program looks (CD430 to CD439)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import Version

from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, Package, Platform
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules import fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.package_fixes import install_companions
from cudadoctor.rules.questions import (
    platform,
)
from cudadoctor.rules.software_questions import (
    package,
    package_evidence,
    reading,
    version_of,
)
from cudadoctor.rules.torch_questions import NOT_COMPILED

TORCH_NAMES = ("torch", "torchvision", "torchaudio")
CUDA_TAG = re.compile(r"\+cu\d{2,3}\b")
ANY_TAG = re.compile(r"\+(?:cu\d{2,3}|cpu|rocm[\d.]+|xpu)\b")
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
    # Imported late: it takes longer to import than all rules of this module, and few texts need it.
    from packaging.requirements import InvalidRequirement, Requirement

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
    texts, absent = seen(case, *NOT_COMPILED), seen(case, "torch-not-importable")
    listed = _listed_torch(case)
    if listed is None or reading(case.snapshot, "install_log"):
        return
    if absent:
        yield f"the list has torch {listed.package_version}, the program finds no torch", (*package_evidence(listed), *absent)
    if not texts:
        return
    if CUDA_TAG.search(listed.package_version) or "cuda" in listed.build:
        shown = f"{listed.package_version} {listed.build}".strip()
        yield f"the list has torch {shown}, the program's torch has no CUDA", (*package_evidence(listed), *texts)


def _folders_differ(case: Case) -> Iterable[tuple[str, tuple[Evidence, ...]]]:
    """Tracebacks run through the packages of another Python than the text names, or of two."""
    frames = {
        error.values["python"]: error for error in case.errors("shown-site-packages") if "." in error.values.get("python", "")
    }
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
            remedies=install_companions(case),
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
)
