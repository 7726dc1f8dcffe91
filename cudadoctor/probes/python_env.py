"""The user's Python: which interpreter is examined and why, and what its child says about it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cudadoctor.model.fact import Fact, Known, Missing
from cudadoctor.model.snapshot import EnvironmentKind, Package, PythonEnvironment, Torch
from cudadoctor.model.versions import DottedVersion
from cudadoctor.probes.asking import Answer, ask_file, folder_names, parsed

if TYPE_CHECKING:
    from cudadoctor.system import System

SOURCE = "Python child"


@dataclass(frozen=True)
class ChosenPython:
    """The interpreter to examine; `because` is a clause for people, with what was passed over."""

    executable: str
    because: str
    prefix: str = ""
    """The environment that its path says it belongs to."""


def choose_python(system: System, wanted: str = "") -> ChosenPython:
    """`wanted` (--python), else the active environment's, else the python3 on PATH, else our own."""
    if wanted:
        found = interpreters_at(system, wanted)
        return _chosen(system, found[0] if found else wanted, "given by --python")
    passed_over: list[str] = []
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        folder = system.environ.get(variable, "")
        if folder and (found := _inside(system, folder)):
            return _chosen(system, found[0], f"the active environment, {variable}")
        if folder:
            passed_over.append(f"{variable} is {folder}, which has no Python")
    for name in ("python3", "python"):
        if found := system.which(name):
            return _chosen(system, behind_pyenv(system, found[0]), "; ".join([f"{name} on the PATH", *passed_over]))
    return _chosen(system, sys.executable, "; ".join(["cudadoctor's own, as no other was found", *passed_over]))


def interpreters_at(system: System, wanted: str) -> tuple[str, ...]:
    """The interpreters that a name, a path, or the folder of an environment stands for; empty where none can be started."""
    return tuple(system.which(wanted)) or _inside(system, wanted)


def behind_pyenv(system: System, executable: str) -> str:
    """The interpreter that a shim of pyenv would start, by pyenv's documented rules; the path itself where it is no shim.

    Spares the shim's shell scripts, which take ten times as long as Python's own start.
    """
    folder, _, name = executable.rpartition("/")
    root = folder.removesuffix("/shims")
    if root == folder or not system.is_folder(f"{root}/versions"):
        return executable
    version = _pyenv_version(system, root)
    real = f"{root}/versions/{version}/bin/{name}"
    return real if version and system.which(real) else executable


def _pyenv_version(system: System, root: str) -> str:
    """The first version of PYENV_VERSION, else of the nearest .python-version, else of pyenv's own setting."""
    if chosen := system.environ.get("PYENV_VERSION", ""):
        return chosen.split(":")[0]
    here = system.environ.get("PWD", "")
    parents = [here[:end] for end in range(len(here), 0, -1) if end == len(here) or here[end] == "/"]
    for path in (*(f"{folder}/.python-version" for folder in parents), "/.python-version", f"{root}/version"):
        answer = ask_file(system, path)
        if isinstance(answer, Answer):
            words = answer.text.split()
            return words[0] if words else ""
    return ""


def site_folders(system: System, chosen: ChosenPython) -> tuple[str, ...]:
    """The folders with the installed packages of an interpreter, judged from its path without running it."""
    if system.platform == "win32":
        return (chosen.prefix + r"\Lib\site-packages",) if chosen.prefix else ()
    return tuple(folder for folder in _site_candidates(system, chosen.prefix) if system.is_folder(folder))


def parse_environment(events: Mapping[str, Mapping[str, Any]], chosen: ChosenPython, unsaid: Missing) -> PythonEnvironment:
    """The interpreter from its child's lines by kind; `unsaid` stands for all that the child did not come to say.

    Sample: {"event": "python", "executable": "/venv/bin/python", "version": "3.12.1", "prefix": "/venv", "base_prefix": "/usr"}
    """
    python = events.get("python")
    if python is None:
        return PythonEnvironment(
            executable=Known(chosen.executable, chosen.because),
            chosen_because=chosen.because,
            python_version=unsaid,
            kind=unsaid,
            installer=unsaid,
            torch=unsaid,
            packages=unsaid,
        )
    packages = events.get("packages", {}).get("packages")
    return PythonEnvironment(
        executable=Known(python["executable"] or chosen.executable, SOURCE),
        chosen_because=chosen.because,
        python_version=parsed(DottedVersion.parse, python["version"], SOURCE),
        kind=Known(environment_kind(python), SOURCE),
        installer=Known(installer(python, packages or ()), SOURCE),
        torch=unsaid,
        packages=unsaid if packages is None else Known(tuple(package(entry) for entry in packages), SOURCE),
    )


def environment_kind(python: Mapping[str, Any]) -> EnvironmentKind:
    """venv, conda, the system's, or another way of installing Python (pyenv, an own build)."""
    if python["prefix"] != python["base_prefix"]:
        return EnvironmentKind.VENV
    if python["conda"]:
        return EnvironmentKind.CONDA
    system = python["prefix"] in {"/usr", "/usr/local", "/opt/homebrew"}
    return EnvironmentKind.SYSTEM if system else EnvironmentKind.OTHER


def installer(python: Mapping[str, Any], packages: tuple[Mapping[str, str], ...] | list[Mapping[str, str]]) -> str:
    """What installed torch there, else what the environment was made with, else pip."""
    prefix = python["prefix"].replace("\\", "/")
    if "/.pixi/" in prefix:
        return "pixi"
    by_name = {entry["name"]: entry for entry in packages}
    torch = by_name.get("pytorch") or by_name.get("torch") or {}
    if torch.get("installer"):
        return torch["installer"].lower()
    if python["conda"]:
        return "conda"
    if python["made_by_uv"]:
        return "uv"
    return "poetry" if "/pypoetry/" in prefix else "pip"


def package(entry: Mapping[str, str]) -> Package:
    """One installed package."""
    return Package(
        name=entry["name"],
        package_version=entry["version"],
        build=entry.get("build", ""),
        channel=entry.get("channel", ""),
        location=entry.get("location", ""),
    )


def with_torch(environment: PythonEnvironment, torch: Fact[Torch]) -> PythonEnvironment:
    """The environment with what is known of its torch."""
    from msgspec import structs

    return structs.replace(environment, torch=torch)


def _chosen(system: System, executable: str, because: str) -> ChosenPython:
    folder, _, name = executable.replace("\\", "/").rpartition("/")
    windows = system.platform == "win32"
    if windows:
        prefix = folder.removesuffix("/Scripts").replace("/", "\\")
    else:
        prefix = folder.removesuffix("/bin") if folder.endswith("/bin") else ""
    return ChosenPython(executable, because, prefix if name else "")


def _inside(system: System, folder: str) -> tuple[str, ...]:
    """The interpreters inside an environment's folder."""
    if system.platform == "win32":
        names = (rf"{folder}\Scripts\python.exe", rf"{folder}\python.exe")
    else:
        names = (f"{folder.rstrip('/')}/bin/python", f"{folder.rstrip('/')}/bin/python3")
    return tuple(name for name in names if system.which(name))


def _site_candidates(system: System, prefix: str) -> Iterator[str]:
    if not prefix:
        return
    libraries = [f"{prefix}/lib", *(("/usr/local/lib",) if prefix == "/usr" else ())]
    for library in libraries:
        for name in folder_names(system, library):
            if re.fullmatch(r"python3(?:\.\d+t?)?", name):
                yield f"{library}/{name}/site-packages"
                yield f"{library}/{name}/dist-packages"
