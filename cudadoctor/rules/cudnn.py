"""Rules about cuDNN: missing, of another major, or without kernels for this GPU (CD320 to CD326)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import Package
from cudadoctor.model.versions import DottedVersion, VersionError
from cudadoctor.rules import binaries, library_fixes
from cudadoctor.rules.binary_questions import Lack
from cudadoctor.rules.cudnn_versions import version_errors, versions_named
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.fixes import install_other_torch
from cudadoctor.rules.libraries import named_libraries
from cudadoctor.rules.questions import (
    gpus_with_capability,
    subject,
    torch,
    torch_cuda_version,
    torch_release,
    torch_version_text,
)
from cudadoctor.rules.toolkit_questions import (
    quoted,
    variable_evidence,
)

MAJOR_IN_NAME = re.compile(r"\.so\.(\d{1,2})\b|64_(\d{1,2})(?:\.dll)?$")
ONLY_IN_8 = re.compile(r"_(?:infer|train)\b|_(?:infer|train)(?:64|\.)")
ONLY_IN_9 = re.compile(r"_(?:graph|heuristic|engines_\w+|ext)\b|_(?:cnn|ops|adv)(?:\.so|64|$)")
"""Libraries of one cuDNN major only (matrices/cudnn.toml, renamed)."""
CUDNN_WHEEL = re.compile(r"nvidia-cudnn(?:-cu\d+)?|cudnn")


def needed_major(library: str) -> int | None:
    """The cuDNN major that a library's name belongs to; None where the name does not tell."""
    name = library.lower()
    match = MAJOR_IN_NAME.search(name)
    if match is not None:
        return int(match[1] or match[2])
    if ONLY_IN_8.search(name):
        return 8
    return 9 if ONLY_IN_9.search(name) else None


def installed(case: Case) -> tuple[tuple[DottedVersion, Evidence], ...]:
    """The cuDNN versions that are known to be installed, each with where that was seen."""
    found: list[tuple[DottedVersion, Evidence]] = []
    snapshot = case.snapshot
    for package in maybe(snapshot.python.packages) or ():
        if CUDNN_WHEEL.fullmatch(package.name):
            _add(found, package.package_version, "python.packages", f"{package.name} {package.package_version}", "package list")
    for copy in maybe(snapshot.libraries.copies) or ():
        if copy.soname.startswith("libcudnn.so"):
            version = maybe(copy.library_version)
            text = str(version) if version is not None else copy.soname.removeprefix("libcudnn.so").lstrip(".")
            _add(found, text, "libraries.copies", copy.path, copy.via or "file system")
    headers = maybe(snapshot.libraries.cudnn_headers) or ()
    found += [
        (one.cudnn_version, Evidence(fact="libraries.cudnn_headers", value=str(one.cudnn_version), source=one.path))
        for one in headers
    ]
    return (*found, *_of_torch(case))


def _add(found: list[tuple[DottedVersion, Evidence]], text: str, fact: str, value: str, source: str) -> None:
    try:
        version = DottedVersion.parse(text)
    except VersionError:
        return
    found.append((version, Evidence(fact=fact, value=value, source=source)))


def _of_torch(case: Case) -> tuple[tuple[DottedVersion, Evidence], ...]:
    """The cuDNN that torch says it uses, else the one that its release comes with."""
    build = torch(case.snapshot)
    if build is None:
        return ()
    said = maybe(build.cudnn_version)
    if said is not None:
        return ((said, evidence("python.torch.cudnn_version", build.cudnn_version)[0]),)
    release, runtime = torch_release(build), maybe(torch_cuda_version(build))
    brought = case.matrices.torch.cudnn(release, runtime) if release is not None and runtime is not None else None
    if brought is None:
        return ()
    return (
        (brought, Evidence(fact="python.torch.torch_version", value=torch_version_text(build), source="torch builds matrix")),
    )


def cudnn_major_mismatch(case: Case) -> Iterable[Problem]:
    """cuDNN of another major version is installed than the binary needs.

    What it checks: which major the missing library's name belongs to (libcudnn_ops_infer is 8's, libcudnn_graph 9's) against the
    cuDNN packages and files that are there; texts that name a loaded and a compiled version; and installed packages whose
    release loads a major that is not there.

    Why it matters: majors are not compatible, and their libraries have other names: the needed one is not found however the
    path is set.

    How to fix: install the release of the package that uses the cuDNN that is there (ctranslate2 from 4.5 on and torch from 2.4
    on use 9), or bring the other major beside it.

    When it is wrong: where the needed major is installed as well, its folder is only not on the path (libcudnn-missing).

    Sources: matrices/cudnn.toml, what frameworks expect; file lists of the wheels.
    """
    for error in version_errors(case):
        have, wanted = versions_named(error)
        if have is not None and wanted is not None and have.major != wanted.major:
            yield Problem(
                subject="cuDNN",
                what=f"cuDNN {have} is loaded; the program was compiled with {wanted}, another major version.",
                why="cuDNN majors are not compatible with each other.",
                evidence=quoted((error,)),
                remedies=_other_cudnn(case, wanted.major),
            )
            return
    if case.saw("libcudnn-missing"):
        yield from _library_of_another_major(case)
        return
    for lack in binaries.without_cudnn(case):
        if _only_another_major(case, lack):
            yield _file_of_another_major(case, lack)
    yield from _packages_of_another_major(case)


def _only_another_major(case: Case, lack: Lack) -> bool:
    """Is a cuDNN here, and none of the major that the files need?"""
    needed = {major for name in lack.names if (major := needed_major(name)) is not None}
    there = installed(case)
    return len(needed) == 1 and bool(there) and not any(version.major in needed for version, _ in there)


def _file_of_another_major(case: Case, lack: Lack) -> Problem:
    have = installed(case)[0][0]
    why = f"cuDNN {have} is installed: majors have different names and interfaces, no setting of the path helps."
    wanted = next(major for name in lack.names if (major := needed_major(name)) is not None)
    return binaries.library_absent(case, lack, why, (*_package_for_present(case, have.major), *_other_cudnn(case, wanted)))


def _library_of_another_major(case: Case) -> Iterable[Problem]:
    """A library was not found, and what is installed is of another major than the library's name."""
    errors = case.errors("libcudnn-missing")
    needed = {major for name in named_libraries(errors) if (major := needed_major(name)) is not None}
    there = installed(case)
    if len(needed) != 1 or not there or any(version.major in needed for version, _ in there):
        return
    wanted, have = needed.pop(), there[0][0]
    yield Problem(
        subject="cuDNN",
        what=f"The program needs cuDNN {wanted} ({', '.join(named_libraries(errors))}); cuDNN {have} is installed.",
        why="The libraries of cuDNN majors have different names and interfaces; no setting of the path lets one serve for the other.",
        evidence=(*quoted(errors), *(item for _, item in there)),
        remedies=(*_package_for_present(case, have.major), *_other_cudnn(case, wanted)),
    )


def _packages_of_another_major(case: Case) -> Iterable[Problem]:
    """An installed package loads a cuDNN by name, and only another major is here (torch brings its own and is not meant)."""
    packages = known(case.snapshot.python.packages)
    users = {row.package for row in case.matrices.cudnn.users} - {"torch"}
    read = binaries.read_names(case)
    wanting = [package for package in packages if package.name in users and package.name not in read]
    if not wanting:
        return
    known(case.snapshot.libraries.copies)
    there = installed(case)
    for package in wanting:
        soname = _soname_for(case, package)
        if not there or soname is None or any(f"libcudnn.so.{version.major}" == soname for version, _ in there):
            continue
        have = there[0][0]
        yield Problem(
            subject=package.name,
            what=f"{package.name} {package.package_version} loads {soname}; cuDNN {have} is installed.",
            why="It then fails at its first use of cuDNN, or goes on without the GPU.",
            evidence=tuple(item for _, item in there),
            remedies=(*_package_for_present(case, have.major), *_other_cudnn(case, int(soname.rpartition(".")[2]))),
            severity=Severity.WARNING,
            confidence=Confidence.LIKELY,
        )


def _soname_for(case: Case, package: Package) -> str | None:
    try:
        version = DottedVersion.parse(package.package_version)
    except VersionError:
        return None
    return case.matrices.cudnn.expected_soname(package.name, version)


def _other_cudnn(case: Case, major: int) -> tuple[Remedy, ...]:
    """Installing a cuDNN of this major, for torch's CUDA major."""
    cuda = library_fixes.torch_major(case) or 12
    wheel = f"nvidia-cudnn-cu{cuda}=={major}.*"
    fix = Fix(
        title=f"Install cuDNN {major} into the environment (a framework that brings its own may object)",
        commands=(library_fixes.install_command(case.snapshot, [wheel]),),
        where=Where.VENV,
    )
    return (Remedy(fix),)


def _package_for_present(case: Case, major: int) -> tuple[Remedy, ...]:
    """Installing the release of the program's package that uses the cuDNN that is there."""
    names = {package.name for package in maybe(case.snapshot.python.packages) or ()}
    rows = [row for row in case.matrices.cudnn.users if row.package in names and row.soname == f"libcudnn.so.{major}"]
    return tuple(
        Remedy(
            Fix(
                title=f"Install a {row.package} that uses cuDNN {major}",
                commands=(library_fixes.install_command(case.snapshot, [_requirement(row.package, row.first, row.last)]),),
                where=Where.VENV,
            )
        )
        for row in rows
        if row.package != "torch"
    )


def _requirement(package: str, first: DottedVersion, last: DottedVersion | None) -> str:
    upper = f",<{last.major}.{last.minor + 1}" if last is not None else ""
    return f"{package}>={first}{upper}"


def libcudnn_missing(case: Case) -> Iterable[Problem]:
    """A needed cuDNN library cannot be loaded.

    What it checks: error texts of the loader, cuDNN itself and frameworks that name a cuDNN library.

    Why it matters: convolutions and more need it; torch does not import without it, TensorFlow goes on without the GPU.

    How to fix: put the folder of the cuDNN that is installed on the loader's path (pip's lies in site-packages/nvidia/cudnn/lib,
    where only torch looks by itself), or install it.

    When it is wrong: cuDNN of another major may be installed; cudnn-major-mismatch then is the cause.

    Sources: dlerror texts of glibc; cuDNN's own loader; TensorFlow dso_loader; ctranslate2.
    """
    errors = case.errors("libcudnn-missing")
    if not errors:
        for lack in binaries.without_cudnn(case):
            if not _only_another_major(case, lack):
                yield binaries.library_absent(case, lack, binaries.NOWHERE)
        return
    names = named_libraries(errors)
    needed = next((major for name in names if (major := needed_major(name)) is not None), None)
    dll = any(name.lower().endswith(".dll") or "64_" in name for name in names)
    yield Problem(
        subject="cuDNN",
        what=f"{', '.join(names) or 'A cuDNN library'} cannot be loaded.",
        why=f"The loader finds no cuDNN {needed} in the folders that it searches."
        if needed is not None
        else "The loader finds no cuDNN in the folders that it searches.",
        evidence=(
            *quoted(errors),
            *(item for version, item in installed(case) if version.major == needed),
            *variable_evidence(case.snapshot, "LD_LIBRARY_PATH"),
        ),
        remedies=library_fixes.provide(case, names),
        tags=("cuda-dll-not-on-path",) if dll else (),
    )


def cudnn_dropped_gpu(case: Case) -> Iterable[Problem]:
    """The cuDNN that torch uses has no kernels for this GPU any more.

    What it checks: cuDNN's version, by the matrix, against each GPU: 9.11 removed everything below 7.5 (Maxwell, Pascal, Volta).

    Why it matters: convolutions and other operations that cuDNN computes fail on that GPU; matrix products work.

    How to fix: install a torch whose cuDNN still serves the GPU, or an older cuDNN of the same major (9.10).

    When it is wrong: a build for which the matrix holds another minimum; operations that cuDNN does not compute are not
    affected.

    Sources: cuDNN support matrices; code in the cuDNN wheels (matrices/cudnn.toml).
    """
    build = torch(case.snapshot)
    if build is None:
        raise NotApplicableError("no torch whose cuDNN could be judged")
    version, runtime = known(build.cudnn_version), known(torch_cuda_version(build))
    failed = seen(case, "cudnn-not-initialized")
    for gpu in gpus_with_capability(case):
        if case.matrices.cudnn.serves(version, runtime.major, gpu.compute_capability) is not False:
            continue
        newest = case.matrices.cudnn.newest_for(gpu.compute_capability, runtime.major)
        last = newest.last if newest is not None else None
        yield Problem(
            subject=subject(gpu.gpu),
            what=f"cuDNN {version} no longer serves {gpu.title}"
            + (f"; {last.major}.{last.minor} was the last that did." if last is not None else "."),
            why="Convolutions fail on this GPU; what cuDNN does not compute works.",
            evidence=(*evidence("python.torch.cudnn_version", build.cudnn_version), *gpu.evidence, *failed),
            remedies=(*_older_cudnn(case, last), *install_other_torch(case)),
            severity=Severity.ERROR if failed else None,
            confidence=Confidence.CERTAIN if failed else Confidence.LIKELY,
        )


def _older_cudnn(case: Case, last: DottedVersion | None) -> tuple[Remedy, ...]:
    cuda = library_fixes.torch_major(case)
    if last is None or cuda is None:
        return ()
    wheel = f"nvidia-cudnn-cu{cuda}=={last.major}.{last.minor}.*"
    fix = Fix(
        title=f"Install cuDNN {last.major}.{last.minor}, the last that serves this GPU",
        commands=(library_fixes.install_command(case.snapshot, [wheel]),),
        where=Where.VENV,
    )
    return (Remedy(fix),)


def cudnn_fails(case: Case) -> Iterable[Problem]:
    """cuDNN fails to start or to run, and no other text says why.

    What it checks: cuDNN's status texts such as CUDNN_STATUS_NOT_INITIALIZED and CUDNN_STATUS_EXECUTION_FAILED.

    Why it matters: the usual causes are a GPU whose memory is full, an earlier fault of the program, two cuDNN versions in one
    process, and a GPU that this cuDNN does not serve.

    How to fix: look at the GPU's free memory first, then at the versions that are loaded.

    When it is wrong: it is a consequence wherever another finding names a cause.

    Sources: cudnn.h, cudnnStatus_t.
    """
    texts = seen(case, "cudnn-not-initialized")
    if not texts or case.saw("cudnn-version-mismatch", "libcudnn-missing", "cuda-out-of-memory", "app-device-assert"):
        return
    if all("NOT_SUPPORTED" in text.value.upper() for text in texts):
        # torch tries several plans and warns of each that cuDNN does not have; the next one works.
        return
    yield Problem(
        subject="cuDNN",
        what="cuDNN fails to start or to run.",
        why="The usual causes: no free GPU memory, an earlier fault of the same program, a mix of cuDNN versions, a GPU that it does not serve.",
        evidence=texts,
        remedies=(
            Remedy(
                Fix(
                    title="See the GPU's free memory, and which cuDNN is loaded",
                    commands=(
                        "nvidia-smi --query-gpu=memory.used,memory.total --format=csv",
                        "CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stderr python your_program.py",
                    ),
                )
            ),
        ),
        confidence=Confidence.POSSIBLE,
    )


RULES = (
    Rule(
        "CD320",
        "libcudnn-missing",
        Severity.ERROR,
        "A needed cuDNN library cannot be loaded",
        libcudnn_missing,
        explained_by=("cudnn-major-mismatch", "ld-library-path-shadow"),
    ),
    Rule(
        "CD321", "cudnn-major-mismatch", Severity.ERROR, "cuDNN of another major is installed than needed", cudnn_major_mismatch
    ),
    Rule("CD325", "cudnn-dropped-gpu", Severity.WARNING, "cuDNN no longer serves this GPU", cudnn_dropped_gpu),
    Rule(
        "CD326",
        "cudnn-fails",
        Severity.WARNING,
        "cuDNN fails to start or to run",
        cudnn_fails,
        explained_by=("cudnn-dropped-gpu", "cudnn-sublibrary-mix"),
    ),
)
