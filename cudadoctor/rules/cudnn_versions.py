"""Rules about cuDNN's versions among each other: mixed, several, or not what the program was built with (CD322 to CD324)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from cudadoctor.matrices.cudnn import version_of
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen, LibraryCopy
from cudadoctor.model.versions import DottedVersion, VersionError
from cudadoctor.rules import binaries, library_fixes
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.questions import (
    installed_torch,
    torch,
)
from cudadoctor.rules.toolkit_questions import (
    quoted,
    variable_evidence,
)


def version_errors(case: Case) -> tuple[ErrorSeen, ...]:
    """The errors that compare a loaded with a compiled cuDNN."""
    jax = tuple(one for one in case.errors("jax-cuda-init-failed") if "cudnn" in one.text.lower() and "wanted" in one.values)
    return (*case.errors("cudnn-version-mismatch"), *jax)


def versions_named(error: ErrorSeen) -> tuple[DottedVersion | None, DottedVersion | None]:
    """The loaded version and the one compiled with, as far as the text has them."""
    values = error.values
    return (
        _parsed(values.get("have") or values.get("have_tuple", "")),
        _parsed(values.get("wanted") or values.get("wanted_tuple", "")),
    )


def _parsed(text: str) -> DottedVersion | None:
    """A version from `9.10.1`, `(8, 7, 0)` or the number 91001."""
    plain = re.sub(r"[\s()]", "", text).replace(",", ".").strip(".")
    try:
        return version_of(int(plain)) if plain.isdigit() and len(plain) > 3 else DottedVersion.parse(plain)
    except (VersionError, ValueError):
        return None


def cudnn_version_mismatch(case: Case) -> Iterable[Problem]:
    """The loaded cuDNN is of the same major as the binary was compiled with, and older.

    What it checks: texts of XLA, torch and cuDNN that compare the loaded with the compiled version.

    Why it matters: a program needs at least the minor it was compiled with; it stops, or fails at the first convolution.

    How to fix: upgrade cuDNN to that minor; where the right one is installed too, let it be found first.

    When it is wrong: another major is cudnn-major-mismatch.

    Sources: XLA cuda_dnn.cc; torch/backends/cudnn/__init__.py; cuDNN documentation, API compatibility.
    """
    for error in version_errors(case):
        have, wanted = versions_named(error)
        if have is not None and wanted is not None and have.major != wanted.major:
            continue
        if "sublibrary" in error.text.lower():
            continue
        shown = (
            f"cuDNN {have} is loaded; the program was compiled with {wanted}"
            if have and wanted
            else "The loaded cuDNN is older than the program needs"
        )
        yield Problem(
            subject="cuDNN",
            what=f"{shown}.",
            why="Within a major a program needs at least the minor version that it was compiled with.",
            evidence=(*quoted((error,)), *variable_evidence(case.snapshot, "LD_LIBRARY_PATH")),
            remedies=_upgrade(case, wanted),
        )
        return


def _upgrade(case: Case, wanted: DottedVersion | None) -> tuple[Remedy, ...]:
    cuda = library_fixes.torch_major(case) or _cudnn_wheel_major(case) or 12
    bound = f">={wanted.major}.{wanted.minor},<{wanted.major + 1}" if wanted is not None else ""
    fix = Fix(
        title="Upgrade cuDNN" + (f" to {wanted.major}.{wanted.minor} or newer" if wanted is not None else ""),
        commands=(library_fixes.install_command(case.snapshot, [f"nvidia-cudnn-cu{cuda}{bound}"]) + " --upgrade",),
        where=Where.VENV,
    )
    return (Remedy(fix),)


def _cudnn_wheel_major(case: Case) -> int | None:
    for package in maybe(case.snapshot.python.packages) or ():
        match = re.fullmatch(r"nvidia-cudnn-cu(\d+)", package.name)
        if match is not None:
            return int(match[1])
    return None


def cudnn_sublibrary_mix(case: Case) -> Iterable[Problem]:
    """Parts of cuDNN are loaded from different installations.

    What it checks: cuDNN's own status SUBLIBRARY_VERSION_MISMATCH; and the folders of the cuDNN files that torch's process has
    mapped.

    Why it matters: cuDNN loads its parts by name at first use; where LD_LIBRARY_PATH leads to another cuDNN, main library and
    parts are of different versions and fail at the first convolution.

    How to fix: take the other cuDNN's folder out of LD_LIBRARY_PATH.

    When it is wrong: a link farm (conda) whose folders hold the same files.

    Sources: cudnn_graph.h, CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH; ld.so(8).
    """
    errors = [one for one in case.errors("cudnn-version-mismatch") if "sublibrary" in one.text.lower()]
    build = torch(case.snapshot)
    mapped = build.mapped_libraries if build is not None else ()
    folders = sorted({path.rpartition("/")[0] for path in mapped if "/libcudnn" in path})
    if not errors and len(folders) < 2:
        yield from binaries.cudnn_parts_apart(case)
        if build is None:
            installed_torch(case.snapshot)
        return
    yield Problem(
        subject="cuDNN",
        what="Parts of cuDNN are loaded from different installations" + (f": {', '.join(folders)}." if len(folders) > 1 else "."),
        why="Main library and parts have to be of one version; cuDNN finds its parts by name, and LD_LIBRARY_PATH goes first.",
        evidence=(*quoted(errors), *variable_evidence(case.snapshot, "LD_LIBRARY_PATH")),
        remedies=library_fixes.clear_library_path(case, ()) if variable_evidence(case.snapshot, "LD_LIBRARY_PATH") else (),
        tags=("cudnn-version-mismatch",) if errors else (),
        severity=None if errors else Severity.WARNING,
    )


def several_cudnns(case: Case) -> Iterable[Problem]:
    """Several cuDNNs of different versions are within the loader's reach.

    What it checks: the versions of all copies of libcudnn that were found.

    Why it matters: it does not while each program finds its own; a program that takes the first one may get the older.

    How to fix: nothing, while everything works.

    When it is wrong: never; it is a remark.

    Sources: ld.so(8).
    """
    copies = [copy for copy in known(case.snapshot.libraries.copies) if copy.soname.startswith("libcudnn.so")]
    versions = {str(version) for copy in copies if (version := maybe(copy.library_version)) is not None}
    if len(versions) < 2:
        return
    yield Problem(
        subject="cuDNN",
        what=f"{len(copies)} copies of cuDNN are here: {', '.join(map(_shown, copies))}.",
        why="Each program takes the one that its loader path leads to first.",
        evidence=tuple(
            Evidence(fact="libraries.copies", value=_shown(copy), source=copy.via or "file system") for copy in copies
        ),
    )


def _shown(copy: LibraryCopy) -> str:
    version = maybe(copy.library_version)
    return f"{version or 'version unknown'} ({copy.path}{', first' if copy.wins else ''})"


RULES = (
    Rule(
        "CD322",
        "cudnn-version-mismatch",
        Severity.ERROR,
        "The loaded cuDNN is older than the binary needs",
        cudnn_version_mismatch,
        explained_by=("ld-library-path-shadow",),
    ),
    Rule("CD323", "several-cudnns", Severity.NOTE, "Several cuDNNs of different versions are here", several_cudnns),
    Rule(
        "CD324",
        "cudnn-sublibrary-mix",
        Severity.ERROR,
        "Parts of cuDNN come from different installations",
        cudnn_sublibrary_mix,
        explained_by=("ld-library-path-shadow",),
    ),
)
