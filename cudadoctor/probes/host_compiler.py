"""The C++ compilers that nvcc uses or could use."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import HostCompiler
from cudadoctor.model.versions import DottedVersion, VersionError
from cudadoctor.probes.asking import folder_names, not_applicable, not_started, short, unsuccessful
from cudadoctor.system import ProgramNotFoundError, RunningProgram

if TYPE_CHECKING:
    from cudadoctor.system import System

FLAG_VARIABLES = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
COMPILER_VARIABLES = ("NVCC_CCBIN", "CUDAHOSTCXX", "CXX")
CCBIN = re.compile(r"(?:^|\s)-{1,2}(?:ccbin|compiler-bindir)[= ]\s*(\S+)")
VERSIONED = re.compile(r"^(?:g\+\+|clang\+\+)-\d{1,2}\Z")
GCC_VERSION = re.compile(r"(?:g\+\+|gcc|c\+\+|cc)\S{0,40}(?: \([^)\n]{0,200}\))? (\d+(?:\.\d+)+)")
CLANG_VERSION = re.compile(r"clang version (\d+(?:\.\d+)+)")
MSVC_VERSION = re.compile(r"Compiler Version (\d+\.\d+(?:\.\d+)*)")


@dataclass(frozen=True)
class Candidate:
    """A compiler to ask: its path and what chooses it, empty where it is only present."""

    path: str
    chosen_by: str


def read_host_compilers(system: System, timeout: float) -> Fact[tuple[HostCompiler, ...]]:
    """The compilers, the one that nvcc would take first; an empty tuple where there is none."""
    if system.platform == "darwin":
        return not_applicable("CUDA does not exist on this platform")
    candidates = tuple(find_compilers(system))
    deadline = time.monotonic() + timeout
    asked = [_ask(system, candidate) for candidate in candidates]
    compilers = (_compiler(candidate, program, deadline, timeout) for candidate, program in zip(candidates, asked, strict=True))
    return Known(tuple(compilers), "environment, PATH")


def find_compilers(system: System) -> Iterator[Candidate]:
    """In nvcc's order: flags, NVCC_CCBIN, then what build tools set, then the PATH; each file once."""
    seen: set[str] = set()
    for candidate in _named(system):
        try:
            real = system.real_path(candidate.path)
        except OSError:
            real = candidate.path
        if real not in seen or candidate.chosen_by not in {"", "PATH"}:
            seen.add(real)
            yield candidate


def parse_compiler(text: str) -> tuple[str, DottedVersion]:
    """Family and version from what `--version` prints; raises VersionError.

    Samples:
        g++ (Ubuntu 13.2.0-23ubuntu4) 13.2.0
        Ubuntu clang version 14.0.0-1ubuntu1.1
        Microsoft (R) C/C++ Optimizing Compiler Version 19.38.33133 for x64
    """
    for family, pattern in (("clang", CLANG_VERSION), ("msvc", MSVC_VERSION), ("gcc", GCC_VERSION)):
        if match := pattern.search(text):
            return family, DottedVersion.parse(match[1])
    raise VersionError(f"no compiler version in {short(text)!r}")


def family_of(path: str) -> str:
    """The family that a compiler's name suggests."""
    name = re.split(r"[/\\]", path)[-1].lower()
    if "clang" in name:
        return "clang"
    return "msvc" if name in {"cl", "cl.exe"} else "gcc"


def _named(system: System) -> Iterator[Candidate]:
    for variable in FLAG_VARIABLES:
        if match := CCBIN.search(system.environ.get(variable, "")):
            yield Candidate(_compiler_in(system, match[1].strip("\"'")), variable)
    for variable in COMPILER_VARIABLES:
        if value := system.environ.get(variable, ""):
            yield Candidate(_compiler_in(system, _last_word(value)), variable)
    if system.platform == "win32":
        yield from (Candidate(path, "PATH") for path in system.which("cl")[:1])
        return
    yield from (Candidate(path, "PATH") for path in (system.which("g++") or system.which("gcc"))[:1])
    yield from (Candidate(path, "") for path in system.which("clang++")[:1])
    for folder in dict.fromkeys(system.environ.get("PATH", "").split(":")):
        for name in folder_names(system, folder) if folder else ():
            if VERSIONED.match(name):
                yield Candidate(f"{folder}/{name}", "")


def _last_word(command: str) -> str:
    """The compiler of a command such as `ccache g++`; its options do not count."""
    try:
        words = [word for word in shlex.split(command) if not word.startswith("-")]
    except ValueError:
        words = command.split()
    return words[-1] if words else command


def _compiler_in(system: System, name: str) -> str:
    """The path of a compiler given by name, path, or (as nvcc allows) the folder that holds it."""
    compilers = (f"{name}/g++", f"{name}/gcc") if system.is_folder(name) else (name,)
    found = [path for compiler in compilers for path in system.which(compiler)]
    return found[0] if found else name


def _ask(system: System, candidate: Candidate) -> RunningProgram | Missing:
    arguments = () if family_of(candidate.path) == "msvc" else ("--version",)
    try:
        return system.start((candidate.path, *arguments))
    except ProgramNotFoundError as error:
        return not_started(error, candidate.chosen_by or candidate.path)


def _compiler(candidate: Candidate, program: RunningProgram | Missing, deadline: float, timeout: float) -> HostCompiler:
    family, version = _identity(candidate, program, deadline, timeout)
    return HostCompiler(family=family, path=candidate.path, compiler_version=version, chosen_by=candidate.chosen_by)


def _identity(
    candidate: Candidate, program: RunningProgram | Missing, deadline: float, timeout: float
) -> tuple[str, Fact[DottedVersion]]:
    guess = family_of(candidate.path)
    if isinstance(program, Missing):
        return guess, program
    completed = program.finish(deadline)
    failure = unsuccessful(completed, timeout, candidate.path)
    if failure is not None and guess != "msvc":
        return guess, failure
    try:
        family, version = parse_compiler(completed.stdout + completed.stderr)
    except VersionError as error:
        return guess, Missing(MissingReason.PARSE_ERROR, str(error), candidate.path)
    return family, Known(version, f"{candidate.path} --version")
