"""The Python of an unpacked image, from its files alone: packages, and what torch's version file says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known
from cudadoctor.model.snapshot import EnvironmentKind, Package, PythonEnvironment, Torch
from cudadoctor.model.versions import DottedVersion
from cudadoctor.probes._torch_child import GPU_PACKAGES, normalised, parse_version_file
from cudadoctor.probes.asking import Answer, ask_file, folder_names, not_applicable, not_found, parsed
from cudadoctor.probes.python_env import ChosenPython, choose_python, package, site_folders
from cudadoctor.probes.torch_facts import torch_from_files

if TYPE_CHECKING:
    from cudadoctor.system import System

SOURCE = "files"
USUAL_PREFIXES = ("/opt/venv", "/venv", "/app/.venv", "/workspace/.venv", "/opt/conda", "/usr/local", "/usr")
"""Where images keep the Python of their programs, an environment before the system's."""
METADATA = re.compile(r"^(?P<name>[\w.]+?)-(?P<version>[^-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info\Z")


def installed_prefix(system: System, wanted: str = "") -> ChosenPython:
    """The interpreter to look at: the one named or active, else that of the first usual place with torch, or with packages."""
    if wanted or any(system.environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")):
        return choose_python(system, wanted)
    places = [ChosenPython(f"{prefix}/bin/python3", "a usual place", prefix) for prefix in USUAL_PREFIXES]
    with_torch = (place for place in places if _torch_folder(system, site_folders(system, place)))
    with_packages = (place for place in places if site_folders(system, place))
    return next(with_torch, None) or next(with_packages, None) or ChosenPython("", "no Python was found in these files")


def describe_installed(system: System, chosen: ChosenPython) -> PythonEnvironment:
    """The environment as its files describe it; whether torch can be imported is not known."""
    folders = site_folders(system, chosen)
    conda = system.is_folder(f"{chosen.prefix}/conda-meta")
    return PythonEnvironment(
        executable=Known(chosen.executable, SOURCE) if chosen.executable else not_found(chosen.because, SOURCE),
        chosen_because=chosen.because,
        python_version=_python_version(folders),
        kind=Known(_kind(system, chosen.prefix, conda=conda), SOURCE),
        installer=Known("conda" if conda else "pip", SOURCE),
        torch=_torch(system, folders),
        packages=Known(tuple(_packages(system, folders)), SOURCE),
    )


def _python_version(folders: tuple[str, ...]) -> Fact[DottedVersion]:
    """From the name of the folder, `lib/python3.12/site-packages`: no patch number."""
    found = [match[1] for folder in folders if (match := re.search(r"/python(3\.\d+)", folder))]
    return parsed(DottedVersion.parse, found[0], folders[0]) if found else not_found("no folder names its version", SOURCE)


def _kind(system: System, prefix: str, *, conda: bool) -> EnvironmentKind:
    if conda:
        return EnvironmentKind.CONDA
    if system.exists(f"{prefix}/pyvenv.cfg"):
        return EnvironmentKind.VENV
    return EnvironmentKind.SYSTEM if prefix in {"/usr", "/usr/local"} else EnvironmentKind.OTHER


def _packages(system: System, folders: tuple[str, ...]) -> Iterator[Package]:
    """GPU-related packages by the names of their metadata folders, each name once."""
    seen: set[str] = set()
    for folder in folders:
        for entry in folder_names(system, folder):
            match = METADATA.match(entry)
            name = normalised(match["name"]) if match else ""
            if match and name not in seen and GPU_PACKAGES.match(name):
                seen.add(name)
                yield package({"name": name, "version": match["version"], "location": folder})


def _torch_folder(system: System, folders: tuple[str, ...]) -> str:
    return next((f"{folder}/torch" for folder in folders if system.exists(f"{folder}/torch/__init__.py")), "")


def _torch(system: System, folders: tuple[str, ...]) -> Fact[Torch]:
    location = _torch_folder(system, folders)
    if not location:
        return not_found("torch is not installed in this Python", SOURCE)
    answer = ask_file(system, f"{location}/version.py")
    told = parse_version_file(answer.text if isinstance(answer, Answer) else "")
    unasked = not_applicable("the Python of an unpacked image is not run", SOURCE)
    return Known(torch_from_files({"location": location, **told}, unasked), SOURCE)
