"""Machines with toolkits, compilers and libraries, and small changes to them; the machines themselves are of builders.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, Missing, MissingReason, maybe
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import (
    ErrorSeen,
    HostCompiler,
    LibraryCopy,
    LibraryOrigin,
    Package,
    SearchFolder,
    Snapshot,
    Toolkit,
    Torch,
)
from cudadoctor.model.versions import CudaVersion, DottedVersion, SmTarget
from cudadoctor.rules.engine import Case, Results, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules import builders

SOURCE = "test"
Change = Callable[[Snapshot], Snapshot]


def sm(text: str) -> tuple[SmTarget, ...]:
    return tuple(SmTarget.parse(word) for word in text.split())


def kit(
    release: str,
    root: str = "/usr/local/cuda-X",
    *,
    found_by: Iterable[str] = ("PATH", "/usr/local/cuda"),
    chosen: bool = True,
    missing: Iterable[str] = (),
) -> Toolkit:
    """A toolkit as the probe finds it; X in the root stands for its release."""
    root = root.replace("X", release)
    return Toolkit(
        root=root,
        nvcc=Known(f"{root}/bin/nvcc", SOURCE),
        toolkit_version=Known(CudaVersion.parse(release), SOURCE),
        found_by=tuple(found_by),
        chosen_for_builds=chosen,
        missing_parts=tuple(missing),
    )


def printed_kit(release: str, nvcc: str = "") -> Toolkit:
    """A toolkit as a pasted `nvcc --version` tells of it."""
    return Toolkit(
        root=nvcc.removesuffix("/bin/nvcc"),
        nvcc=Known(nvcc, SOURCE) if nvcc else Missing(MissingReason.NOT_ASKED),
        toolkit_version=Known(CudaVersion.parse(release), SOURCE) if release else Missing(MissingReason.NOT_ASKED),
    )


def compiler(release: str, chosen_by: str = "PATH", family: str = "gcc", path: str = "/usr/bin/g++") -> HostCompiler:
    version = Known(DottedVersion.parse(release), SOURCE) if release else Missing(MissingReason.NOT_FOUND, "no such file", SOURCE)
    return HostCompiler(family=family, path=path, compiler_version=version, chosen_by=chosen_by)


def toolkits(*kits: Toolkit) -> Change:
    return lambda snapshot: structs.replace(snapshot, toolkits=Known(kits, SOURCE))


def compilers(*found: HostCompiler) -> Change:
    return lambda snapshot: structs.replace(snapshot, host_compilers=Known(found, SOURCE))


def variables(**values: str) -> Change:
    return lambda snapshot: structs.replace(snapshot, environment=Known(values, SOURCE))


def errors(*seen: ErrorSeen) -> Change:
    return lambda snapshot: structs.replace(snapshot, errors=seen)


def packages(**versions: str) -> Change:
    """Installed packages, underscores in the names standing for hyphens."""
    listed = tuple(Package(name=name.replace("_", "-"), package_version=version) for name, version in versions.items())
    return lambda snapshot: structs.replace(snapshot, python=structs.replace(snapshot.python, packages=Known(listed, SOURCE)))


def torch(**facts: Any) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        build = structs.replace(maybe(snapshot.python.torch) or Torch(), **facts)
        return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=Known(build, SOURCE)))

    return change


def copies(*paths: str) -> Change:
    """Library files, the first of each soname being the loader's choice; the version stands at the end of the path."""
    found: list[LibraryCopy] = []
    for path in paths:
        stem, _, version = path.rpartition("/")[2].partition(".so.")
        soname = f"{stem}.so.{version.partition('.')[0]}"
        number = Known(DottedVersion.parse(version), SOURCE)
        wins = all(copy.soname != soname for copy in found)
        found.append(
            LibraryCopy(soname=soname, path=path, real_path=path, origin=LibraryOrigin.OTHER, library_version=number, wins=wins)
        )
    return lambda snapshot: structs.replace(
        snapshot, libraries=structs.replace(snapshot.libraries, copies=Known(tuple(found), SOURCE))
    )


def library_path(*folders: SearchFolder) -> Change:
    def change(snapshot: Snapshot) -> Snapshot:
        value = ":".join(folder.path for folder in folders)
        libraries = structs.replace(snapshot.libraries, ld_library_path=Known(folders, SOURCE))
        return structs.replace(snapshot, libraries=libraries, environment=Known({"LD_LIBRARY_PATH": value}, SOURCE))

    return change


def glibc(version: str) -> Change:
    return lambda snapshot: builders.with_host(snapshot, glibc=Known(DottedVersion.parse(version), SOURCE))


def unasked(field: str) -> Change:
    """A part of the snapshot is missing because its probe had no time."""
    return lambda snapshot: structs.replace(snapshot, **{field: Missing(MissingReason.TIMEOUT, "no answer", "probe")})


def changed(snapshot: Snapshot, *changes: Change) -> Snapshot:
    for change in changes:
        snapshot = change(snapshot)
    return snapshot


def machine(*changes: Change, gpu: str = "NVIDIA GeForce RTX 4090", cc: str = "8.9", cuda: str = "13.0") -> Snapshot:
    """A healthy machine with CUDA 12.8 and gcc 13, changed."""
    base = builders.healthy(gpu, cc, cuda=cuda)
    return changed(base, toolkits(kit("12.8")), compilers(compiler("13.3.0")), *changes)


def told(*seen: ErrorSeen) -> Snapshot:
    """What is known of a machine of which only error texts were pasted."""
    return Snapshot(errors=seen)


def nvcc_proof() -> Proof:
    return Proof(layer=ProofLayer.NVCC, gpu=0, kernel="gemm", target="sm_89", outcome=ProofOutcome.PASSED)


def judge(snapshot: Snapshot, matrices: Matrices, *proofs: Proof) -> Results:
    return evaluate(Case(snapshot, matrices, proofs), RULES)


def findings(results: Results, name: str) -> tuple[Finding, ...]:
    return tuple(one for one in results.findings if one.name == name)


def outcome(results: Results, name: str) -> str:
    """`pass`, `unknown`, `not_applicable`, or the severity of the worst finding of the rule."""
    found = sorted((one.severity for one in findings(results, name)), key=lambda severity: severity.rank)
    return found[0].value if found else results.outcome_of(name).value


def errors_of(results: Results) -> set[str]:
    """Names and tags of all findings that are errors."""
    return {tag for one in results.findings if one.severity is Severity.ERROR for tag in (one.name, *one.tags)}
