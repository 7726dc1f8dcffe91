"""Library files: which one the loader would pick, who put each there, and the version in its name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known
from cudadoctor.model.snapshot import LibraryCopy, LibraryOrigin
from cudadoctor.model.versions import DottedVersion
from cudadoctor.probes.asking import not_found

if TYPE_CHECKING:
    from cudadoctor.binary.loader import LoaderView
    from cudadoctor.system import System

ORIGINS = (
    (re.compile(r"/stubs/"), LibraryOrigin.STUB),
    (re.compile(r"/(?:cuda-)?compat(?:-[\d.-]+)?/"), LibraryOrigin.COMPAT),
    (re.compile(r"^/usr/lib/wsl/"), LibraryOrigin.WSL),
    (re.compile(r"/(?:site|dist)-packages/"), LibraryOrigin.WHEEL),
    (
        re.compile(r"/(?:envs|pkgs)/[^/]+/|/(?:mini|ana|mamba)(?:conda|forge)\d?/|/opt/conda/"),
        LibraryOrigin.CONDA,
    ),
    (re.compile(r"/cuda(?:-[\d.]+)?/|/hpc_sdk/|/nvidia-cuda-toolkit/"), LibraryOrigin.TOOLKIT),
)
"""Path patterns, first match wins; what is left lies in a system folder or elsewhere."""
SYSTEM_FOLDERS = re.compile(r"^/(?:usr/)?lib(?:64|32)?/|^/run/opengl-driver/|^/usr/local/(?:nvidia|lib)/")
DRIVER_LIBRARY = re.compile(r"^lib(?:cuda|nvidia-ml|nvidia-ptxjitcompiler|nvidia-nvvm)\.so")
FILE_VERSION = re.compile(r"\.so\.(\d+(?:\.\d+)+)\Z")


def loader_for(system: System, ld_library_path: str | None = None) -> LoaderView:
    """ld.so as a program of the user would see it, inside the system's root; with another LD_LIBRARY_PATH where given."""
    from cudadoctor.binary.loader import LoaderView, split_library_path

    text = system.environ.get("LD_LIBRARY_PATH", "") if ld_library_path is None else ld_library_path
    return LoaderView(root=system.files_root, ld_library_path=split_library_path(text))


def reachable_copies(loader: LoaderView, soname: str, conda_prefix: str = "") -> tuple[LibraryCopy, ...]:
    """The copies that the loader's search meets, its choice first and marked."""
    from cudadoctor.binary.loader import Resolved

    found = loader.find(soname)
    if not isinstance(found, Resolved):
        return ()
    winner = copy_of(soname, found.path, found.real_path, via=found.via.value, wins=True, conda_prefix=conda_prefix)
    others = (
        copy_of(soname, copy.path, copy.real_path, via=copy.via.value, conda_prefix=conda_prefix) for copy in found.shadowed
    )
    return (winner, *others)


def copy_of(soname: str, path: str, real_path: str, *, via: str = "", wins: bool = False, conda_prefix: str = "") -> LibraryCopy:
    """One file as the snapshot describes it."""
    return LibraryCopy(
        soname=soname,
        path=path,
        real_path=real_path,
        origin=origin_of(real_path, conda_prefix),
        library_version=version_of(real_path),
        via=via,
        wins=wins,
    )


def origin_of(real_path: str, conda_prefix: str = "") -> LibraryOrigin:
    """Who put a library there, judged from its path."""
    for pattern, origin in ORIGINS:
        if pattern.search(real_path):
            return origin
    if conda_prefix.strip("/") and real_path.startswith(conda_prefix.rstrip("/") + "/"):
        return LibraryOrigin.CONDA
    if SYSTEM_FOLDERS.search(real_path):
        return LibraryOrigin.DRIVER if DRIVER_LIBRARY.match(real_path.rsplit("/", 1)[-1]) else LibraryOrigin.SYSTEM
    return LibraryOrigin.OTHER


def version_of(real_path: str) -> Fact[DottedVersion]:
    """The version in a file's name: `libcuda.so.580.65.06`."""
    match = FILE_VERSION.search(real_path)
    return Known(DottedVersion.parse(match[1]), real_path) if match else not_found("the file name has no version", real_path)


def further_copies(
    system: System, soname: str, paths: Iterable[str], known: Iterable[LibraryCopy], conda_prefix: str = ""
) -> Iterator[LibraryCopy]:
    """Copies at other places that exist and are not among the known ones."""
    seen = {copy.real_path for copy in known}
    for path in paths:
        try:
            real = system.real_path(path)
        except OSError:
            continue
        if real not in seen:
            seen.add(real)
            yield copy_of(soname, path, real, conda_prefix=conda_prefix)
