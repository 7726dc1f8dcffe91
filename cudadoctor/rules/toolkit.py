"""Rules about where the toolkit is: found, named rightly, and the one that is meant (CD201 to CD205)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.model.fact import Missing, known, maybe
from cudadoctor.model.finding import Evidence, Severity
from cudadoctor.model.snapshot import ErrorSeen, Platform, Snapshot, Toolkit
from cudadoctor.model.versions import CudaVersion, VersionError
from cudadoctor.rules import toolkit_fixes
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.planned_questions import builds_without_compiler
from cudadoctor.rules.questions import platform, torch, torch_cuda_version
from cudadoctor.rules.toolkit_questions import (
    HOME_VARIABLES,
    ONLY_WHEN_COMPILING,
    build_toolkit,
    home_evidence,
    home_variable,
    looked_for_toolkits,
    nvcc_version,
    quoted,
    title,
    toolkits_with_nvcc,
    version_evidence,
)

MALFORMED_PATH = re.compile(r":/|/bin/bin/|^:|;|[\[\]\"']")
"""What the path of nvcc looks like where CUDA_HOME holds a list, quotes, or a folder too deep."""
DEFAULT_ROOT = "/usr/local/cuda"
DISTRIBUTION_NVCC = "/usr/bin/nvcc"
CAUSES_OF_FAILED_DETECTION = (
    "host-compiler-too-new",
    "glibc-too-new",
    "unsupported-gpu-architecture",
    "msvc-version-unsupported",
    "cmake-arch-invalid",
    "host-compiler-missing",
    "nvcc-torch-mismatch",
    "toolkit-libs-missing-at-link",
)
"""Kinds of errors for which a build's "no CUDA found" is a consequence."""


def _nvcc_paths(case: Case) -> tuple[tuple[ErrorSeen, str], ...]:
    """The errors in which a program looked for nvcc at a path, and the path."""
    errors = case.errors("nvcc-not-found")
    return tuple((one, one.values["path"]) for one in errors if "/" in one.values.get("path", ""))


def _is_malformed(path: str) -> bool:
    return MALFORMED_PATH.search(path) is not None


def _elsewhere(snapshot: Snapshot, path: str) -> Toolkit | None:
    """A toolkit with a compiler that is not the one at this path of nvcc."""
    root = path.rpartition("/bin/")[0] or path
    for kit in toolkits_with_nvcc(snapshot):
        nvcc = maybe(kit.nvcc) or ""
        if nvcc != path and root not in (kit.root, *kit.aliases) and (nvcc or kit.root):
            return kit
    return None


def nvcc_missing(case: Case) -> Iterable[Problem]:
    """No CUDA compiler is installed where one is needed to build.

    What it checks: error texts in which a build looked for nvcc and did not find it, where no toolkit is known to be there. A
    machine on which nothing is being built needs no nvcc, and the rule does not speak.

    Why it matters: what is compiled from source (flash-attn, DeepSpeed, detectron2, llama.cpp) needs nvcc. The driver does not
    bring it, nor does a pip-installed torch, nor an image whose tag says `runtime` or `base`.

    How to fix: install a toolkit of torch's CUDA major, or a wheel that is compiled already.

    When it is wrong: a toolkit that is there and was not found is another finding (cuda-home-unset, cuda-home-wrong).

    Sources: texts of shells, CMake and torch.utils.cpp_extension.
    """
    yield from builds_without_compiler(case)
    errors = [
        one
        for one in (*case.errors("nvcc-not-found"), *case.errors("nvcc-missing"))
        if not _is_malformed(one.values.get("path", ""))
    ]
    if not errors or case.saw(*CAUSES_OF_FAILED_DETECTION):
        return
    if toolkits_with_nvcc(case.snapshot):
        return
    yield Problem(
        subject="nvcc",
        what="No CUDA compiler (nvcc) is installed where this build looks for one.",
        why="The driver and a pip-installed torch bring no nvcc; it comes with the CUDA toolkit (in containers with the devel images).",
        evidence=quoted(errors),
        remedies=toolkit_fixes.install_fitting_toolkit(case),
        tags=("cuda-home-unset",) if case.saw("cuda-home-unset") else (),
    )


def cuda_home_unset(case: Case) -> Iterable[Problem]:
    """CUDA_HOME (or CUDA_PATH) is not set and builds find no toolkit.

    What it checks: error texts that say so; on a machine, a toolkit that lies where torch's extension builder does not look
    (it takes CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda).

    Why it matters: extensions cannot be compiled.

    How to fix: name the toolkit's folder (the one above bin/nvcc) in CUDA_HOME; install one where there is none.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: torch/utils/cpp_extension.py, _find_cuda_home.
    """
    texts = seen(case, "cuda-home-unset")
    snapshot = case.snapshot
    kits = toolkits_with_nvcc(snapshot)
    if texts:
        yield Problem(
            subject="CUDA_HOME",
            what="CUDA_HOME is not set and the build finds no toolkit"
            + (f", although one lies at {kits[0].root}." if kits and kits[0].root else "."),
            why="torch looks at CUDA_HOME, CUDA_PATH, nvcc on PATH and /usr/local/cuda, and found a compiler in none.",
            evidence=(*texts, *version_evidence(kits[0] if kits else None)),
            remedies=toolkit_fixes.use_toolkit(case, kits[0])
            if kits and kits[0].root
            else toolkit_fixes.install_fitting_toolkit(case),
            tags=() if kits else ("nvcc-missing",),
        )
        return
    if not known(snapshot.toolkits):
        raise NotApplicableError("no toolkit is installed")
    if looked_for_toolkits(snapshot) and build_toolkit(snapshot) is None and kits and home_variable(snapshot) is None:
        yield Problem(
            subject="CUDA_HOME",
            what=f"A toolkit lies at {kits[0].root}, where builds do not look: CUDA_HOME is not set and no nvcc is on PATH.",
            why=ONLY_WHEN_COMPILING,
            evidence=version_evidence(kits[0]),
            remedies=toolkit_fixes.use_toolkit(case, kits[0]),
            severity=Severity.NOTE,
        )


def cuda_home_malformed(case: Case) -> Iterable[Problem]:
    """CUDA_HOME is not the path of one folder: it holds a list, quotes or brackets, or ends in /bin.

    What it checks: the values of CUDA_HOME and CUDA_PATH, and paths of nvcc in error texts that only such a value makes.

    Why it matters: builds append /bin/nvcc to it. `export CUDA_HOME=$CUDA_HOME:/usr/local/cuda` gives ":/usr/local/cuda", and
    the build then looks for ":/usr/local/cuda/bin/nvcc".

    How to fix: set it to the one folder above bin/nvcc; only PATH and LD_LIBRARY_PATH are lists.

    When it is wrong: a folder whose name really holds a colon.

    Sources: torch/utils/cpp_extension.py, which joins CUDA_HOME and bin/nvcc.
    """
    errors = [
        *case.errors("cuda-home-malformed"),
        *(one for one, path in _nvcc_paths(case) if _is_malformed(path)),
    ]
    named = home_variable(case.snapshot)
    fault = _fault_of_home(named[1], platform(case.snapshot)) if named is not None else None
    if not errors and fault is None:
        if isinstance(case.snapshot.environment, Missing):
            known(case.snapshot.environment)
        return
    name, value = named or ("CUDA_HOME", "")
    intended = _intended_home(value or (errors[0].values.get("path", "") if errors else ""))
    yield Problem(
        subject=name,
        what=f"{name}={value!r} {fault}." if fault is not None else f"{name} is not the path of one folder.",
        why=f"Builds append /bin/nvcc to it. {ONLY_WHEN_COMPILING}" if not errors else "The build appended /bin/nvcc to it.",
        evidence=(*quoted(errors), *home_evidence(case.snapshot)),
        remedies=toolkit_fixes.set_variable(
            case, name, intended, f"Set {name} to the one folder above bin/nvcc", ("nvcc --version",)
        ),
        severity=None if errors else Severity.WARNING,
    )


def _fault_of_home(value: str, system: Platform | None) -> str | None:
    """What is wrong with the form of CUDA_HOME's value; None where it is one path."""
    text = value.strip()
    if text.startswith(("[", "(", "{", '"', "'")):
        return "has the syntax of a list or quotes in it"
    if ";" in text or (":" in text and system is not Platform.WINDOWS and not re.match(r"^[A-Za-z]:[\\/]", text)):
        return "is a list of folders; it must be one"
    plain = text.replace("\\", "/").rstrip("/")
    if plain.endswith(("/bin/nvcc", "/bin")):
        return "ends in /bin; it must be the folder above"
    if plain.endswith(("/lib64", "/include", "/lib")):
        return f"ends in {plain[plain.rindex('/') :]}; it must be the toolkit's own folder"
    if text.startswith(("~", "$")):
        return "begins with a sign that only a shell replaces, unquoted"
    return None


def _intended_home(value: str) -> str:
    """The folder that a malformed value most likely means."""
    parts = [part.strip(" \"'[](){}") for part in re.split(r"[;,]|:(?=/|$)", value)]
    first = next((part for part in reversed(parts) if part.startswith("/")), DEFAULT_ROOT)
    root = re.sub(r"(?:/bin(?:/nvcc)?|/lib64|/lib|/include)+/?$", "", first.rstrip("/"))
    return root.removesuffix("/bin") or DEFAULT_ROOT


def cuda_home_wrong(case: Case) -> Iterable[Problem]:
    """CUDA_HOME (or CUDA_PATH, or a project's default) leads to no toolkit, or to another than the one that is meant.

    What it checks: whether the folder that the variable names holds an nvcc; and error texts: nvcc looked for in a fixed place
    while it lies elsewhere, or an extension built with the toolkit of the variable while one of torch's CUDA major is there.

    Why it matters: torch's extension builder follows the variable before it looks at PATH, so a left-over value decides.

    How to fix: unset it, or set it to the toolkit that is meant.

    When it is wrong: a project with a variable of its own for the toolkit's place is not seen.

    Sources: torch/utils/cpp_extension.py, _find_cuda_home; makefiles of the CUDA samples.
    """
    snapshot = case.snapshot
    said = tuple(_said_wrong(case))
    if said:
        yield from said[:1]
        return
    named = home_variable(snapshot)
    if named is None:
        if isinstance(snapshot.environment, Missing):
            known(snapshot.environment)
        return
    if _fault_of_home(named[1], platform(snapshot)) is not None:
        raise NotApplicableError("its form is wrong (cuda-home-malformed)")
    kits = known(snapshot.toolkits)
    if not looked_for_toolkits(snapshot):
        return
    meant = next((kit for kit in kits if named[0] in kit.found_by), None)
    if meant is not None and "nvcc" not in meant.missing_parts:
        return
    nowhere = meant is None
    what = "leads to no CUDA toolkit" if nowhere else "leads to a folder that has parts of a toolkit but no nvcc"
    severity = Severity.WARNING if nowhere else Severity.NOTE
    yield _home_problem(case, named[0], f"{named[0]}={named[1]!r} {what}.", ONLY_WHEN_COMPILING, severity=severity)


def _said_wrong(case: Case) -> Iterable[Problem]:
    snapshot = case.snapshot
    for error, path in _nvcc_paths(case):
        other = _elsewhere(snapshot, path)
        if not _is_malformed(path) and other is not None:
            where = maybe(other.nvcc) or other.root
            root = path.rpartition("/bin/")[0]
            named = home_variable(snapshot)
            name = named[0] if named is not None else "the project's default"
            why = f"The build was told (by {name}) that the toolkit is in {root}; there is no nvcc."
            yield _home_problem(
                case, "CUDA_HOME", f"The build looks for {path}; nvcc is at {where}.", why, quoted((error,)), other=other
            )
    named = home_variable(snapshot)
    if named is None or not case.saw("nvcc-torch-mismatch", "cudatoolkit-compiler-mismatch"):
        return
    wanted, used = _wanted_and_used(case)
    meant = _kit_of_major(snapshot, wanted, used)
    if meant is not None:
        version = maybe(meant.toolkit_version)
        yield _home_problem(
            case,
            named[0],
            f"{named[0]}={named[1]!r} leads the build to another toolkit than CUDA {version}, which is here and fits torch.",
            "torch's extension builder follows the variable before it looks at PATH.",
            seen(case, "nvcc-torch-mismatch", "cudatoolkit-compiler-mismatch"),
            other=meant,
        )


def _home_problem(
    case: Case,
    name: str,
    what: str,
    why: str,
    texts: tuple[Evidence, ...] = (),
    *,
    other: Toolkit | None = None,
    severity: Severity | None = None,
) -> Problem:
    snapshot = case.snapshot
    kits = [kit for kit in toolkits_with_nvcc(snapshot) if kit.root]
    better = other if other is not None and other.root else (kits[0] if kits else None)
    use = toolkit_fixes.use_toolkit(case, better) if better is not None else ()
    unset = (
        toolkit_fixes.unset_variable(case, name, f"Unset {name}: the nvcc on PATH is then taken")
        if home_variable(snapshot)
        else ()
    )
    return Problem(
        subject=name,
        what=what,
        why=why,
        evidence=(*texts, *home_evidence(snapshot), *version_evidence(better)),
        remedies=(*use, *unset) or toolkit_fixes.install_fitting_toolkit(case),
        severity=severity,
    )


def _wanted_and_used(case: Case) -> tuple[CudaVersion | None, CudaVersion | None]:
    """Torch's CUDA version and the one of the nvcc in use: as the error says, else as the facts say."""
    values = next((one.values for one in case.errors("nvcc-torch-mismatch") if one.values), {})
    build = torch(case.snapshot)
    wanted = _version(values.get("wanted", "")) or (maybe(torch_cuda_version(build)) if build is not None else None)
    return wanted, _version(values.get("have", "")) or nvcc_version(case.snapshot)


def _version(text: str) -> CudaVersion | None:
    try:
        return CudaVersion.parse(text)
    except VersionError:
        return None


def _kit_of_major(snapshot: Snapshot, wanted: CudaVersion | None, used: CudaVersion | None) -> Toolkit | None:
    """A toolkit here of the wanted CUDA major that is not the one in use."""
    for kit in toolkits_with_nvcc(snapshot):
        version = maybe(kit.toolkit_version)
        if version is not None and wanted is not None and version.major == wanted.major and version != used:
            return kit
    return None


def wrong_nvcc_on_path(case: Case) -> Iterable[Problem]:
    """Another nvcc, usually the distribution's old one, is found before the intended toolkit.

    What it checks: error texts in which compiler and headers are of different CUDA versions, or the distribution's
    /usr/bin/nvcc fails while a newer toolkit is there; on a machine, whether the nvcc on PATH and the toolkit in CUDA_HOME have
    different CUDA majors.

    Why it matters: CMake takes the nvcc on PATH, torch's extension builder the one in CUDA_HOME: one build then uses two
    toolkits.

    How to fix: put the intended toolkit's bin first on PATH (and name it in CUDACXX and CUDA_HOME), or remove the distribution's
    package. Of two majors the one of torch is meant.

    When it is wrong: where nothing is compiled on this machine it does not matter.

    Sources: CMake, FindCUDAToolkit; torch cmake/public/cuda.cmake; Debian and Ubuntu package nvidia-cuda-toolkit.
    """
    snapshot = case.snapshot
    texts = seen(case, "wrong-nvcc-on-path", "cudatoolkit-compiler-mismatch")
    old = _distribution_kit(snapshot)
    better = _better_toolkit(snapshot, old)
    if not texts and old is not None and better is not None:
        texts = seen(case, "unsupported-gpu-architecture", "nvcc-torch-mismatch", "toolkit-too-old")
    if texts:
        yield _failed_with_other_nvcc(case, texts, old, better)
        return
    known(snapshot.toolkits)
    if old is not None and better is not None:
        yield Problem(
            subject="nvcc",
            what=f"Builds take the distribution's {title(old)}; {title(better)} in {better.root} is newer and not found first.",
            why=f"The distribution's package puts its nvcc in /usr/bin. {ONLY_WHEN_COMPILING}",
            evidence=(*version_evidence(old), *version_evidence(better)),
            remedies=toolkit_fixes.use_toolkit(case, better),
            severity=Severity.WARNING,
        )
        return
    yield from _path_and_home_differ(case)


def _failed_with_other_nvcc(case: Case, texts: tuple[Evidence, ...], old: Toolkit | None, better: Toolkit | None) -> Problem:
    values = next((one.values for one in case.errors("wrong-nvcc-on-path") if one.values), {})
    have, wanted = values.get("have"), values.get("wanted")
    use = toolkit_fixes.use_toolkit(case, better) if better is not None else toolkit_fixes.install_fitting_toolkit(case)
    return Problem(
        subject="nvcc",
        what=f"The build takes an nvcc of CUDA {have}, and headers of CUDA {wanted}."
        if have and wanted
        else "Another nvcc than that of the intended toolkit is found first.",
        why="CMake takes the first nvcc on PATH; the distribution's package puts an old one in /usr/bin.",
        evidence=(*texts, *version_evidence(old)),
        remedies=use,
    )


def _path_and_home_differ(case: Case) -> Iterable[Problem]:
    """The nvcc on PATH and the toolkit in CUDA_HOME are of different CUDA majors."""
    kits = maybe(case.snapshot.toolkits) or ()
    on_path = next((kit for kit in kits if "PATH" in kit.found_by), None)
    in_home = next((kit for kit in kits if any(name in kit.found_by for name in HOME_VARIABLES)), None)
    if on_path is None or in_home is None or on_path is in_home:
        return
    first, second = known(on_path.toolkit_version), known(in_home.toolkit_version)
    build = torch(case.snapshot)
    wanted = maybe(torch_cuda_version(build)) if build is not None else None
    meant = on_path if wanted is not None and first.major == wanted.major else in_home
    if first.major != second.major:
        yield Problem(
            subject="nvcc",
            what=f"The nvcc on PATH is of CUDA {first.release} ({on_path.root}), CUDA_HOME leads to {second.release} ({in_home.root}).",
            why=f"CMake takes the first, torch's extension builder the second. {ONLY_WHEN_COMPILING}",
            evidence=(*version_evidence(on_path), *version_evidence(in_home), *home_evidence(case.snapshot)),
            remedies=toolkit_fixes.use_toolkit(case, meant),
            severity=Severity.WARNING,
        )


def _distribution_kit(snapshot: Snapshot) -> Toolkit | None:
    """The distribution's toolkit, where builds take it."""
    used = build_toolkit(snapshot)
    if used is None and not looked_for_toolkits(snapshot):
        used = next((kit for kit in maybe(snapshot.toolkits) or () if maybe(kit.nvcc) == DISTRIBUTION_NVCC), None)
    if used is None or not (maybe(used.nvcc) == DISTRIBUTION_NVCC or used.packaging == "distribution package"):
        return None
    return used


def _better_toolkit(snapshot: Snapshot, than: Toolkit | None) -> Toolkit | None:
    """The newest toolkit here that is newer than this one."""
    least = maybe(than.toolkit_version) if than is not None else None
    newer = [
        (version, kit)
        for kit in toolkits_with_nvcc(snapshot)
        if kit is not than
        and kit.root
        and (version := maybe(kit.toolkit_version)) is not None
        and (least is None or version > least)
    ]
    return max(newer, key=lambda pair: pair[0])[1] if newer else None


RULES = (
    Rule(
        "CD201",
        "nvcc-missing",
        Severity.ERROR,
        "No CUDA compiler is installed where one is needed",
        nvcc_missing,
        explained_by=("cuda-home-malformed", "cuda-home-wrong"),
    ),
    Rule(
        "CD202",
        "cuda-home-unset",
        Severity.ERROR,
        "CUDA_HOME is not set and builds find no toolkit",
        cuda_home_unset,
        explained_by=("nvcc-missing",),
    ),
    Rule("CD203", "cuda-home-malformed", Severity.ERROR, "CUDA_HOME is not the path of one folder", cuda_home_malformed),
    Rule("CD204", "cuda-home-wrong", Severity.ERROR, "CUDA_HOME leads to another toolkit than intended", cuda_home_wrong),
    Rule("CD205", "wrong-nvcc-on-path", Severity.ERROR, "Another nvcc is found before the intended toolkit", wrong_nvcc_on_path),
)
