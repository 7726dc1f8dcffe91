"""CUDA run-time libraries: every copy, the one that the loader takes, cuDNN's headers, and what LD_LIBRARY_PATH hides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor.model.fact import Fact, Known, Missing
from cudadoctor.model.snapshot import CudnnHeader, Libraries, LibraryCopy, SearchFolder
from cudadoctor.model.versions import DottedVersion, VersionError
from cudadoctor.probes.asking import Answer, ask_file, folder_names, not_applicable
from cudadoctor.probes.library_files import further_copies, loader_for, reachable_copies

if TYPE_CHECKING:
    from cudadoctor.system import System

STEMS = (
    "cudart",
    "cublas",
    "cublasLt",
    "cudnn",
    "cufft",
    "curand",
    "cusparse",
    "cusolver",
    "nvrtc",
    "nccl",
    "nvJitLink",
    "nvidia-ml",
    "cuda",
)
SONAME = re.compile(rf"^lib(?:{'|'.join(STEMS)})\.so\.\d{{1,2}}(?:\.\d{{1,2}})?\Z")
"""`libcudart.so.12`, `libnvrtc.so.11.2`; longer numbers are file names, not the names that programs ask for."""
SHADOWING = re.compile(rf"^(?:lib(?:{'|'.join(STEMS)}|cudnn_[a-z_]+)\.so\.\d{{1,2}}(?:\.\d{{1,2}})?|libstdc\+\+\.so\.6)\Z")
SYSTEM_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
HEADER_FOLDERS = ("/usr/include", "/usr/include/x86_64-linux-gnu", "/usr/include/aarch64-linux-gnu", "/usr/local/include")
HEADER_NAMES = ("cudnn_version.h", "cudnn_version_v9.h", "cudnn_version_v8.h", "cudnn.h")
LOADER_CONFIGURATION = "/etc/ld.so.conf.d"


def read_libraries(system: System, package_folders: Sequence[str] = ()) -> Libraries:
    """The copies and headers; not applicable where ld.so does not exist."""
    if system.platform != "linux":
        none = not_applicable("the loader of this platform is not modelled")
        return Libraries(copies=none, cudnn_headers=none, ld_library_path=none)
    places = tuple(library_places(system, package_folders))
    copies = _copies(system, places)
    headers = tuple(_headers(system, package_folders))
    return Libraries(
        copies=Known(tuple(_with_header_version(copy, headers) for copy in copies), "loader search, usual folders"),
        cudnn_headers=Known(headers, "usual folders"),
        ld_library_path=_search_folders(system, copies),
    )


def parse_cudnn_header(text: str) -> DottedVersion:
    """The version that a cuDNN header declares; raises VersionError.

    Sample:
        #define CUDNN_MAJOR 9
        #define CUDNN_MINOR 1
        #define CUDNN_PATCHLEVEL 0
    """
    parts = ("MAJOR", "MINOR", "PATCHLEVEL")
    numbers = [re.search(rf"^[ \t]*#[ \t]*define[ \t]+CUDNN_{part}[ \t]+(\d{{1,4}})", text, re.MULTILINE) for part in parts]
    found = [number[1] for number in numbers if number is not None]
    if len(found) != len(parts):
        raise VersionError("no CUDNN_MAJOR, CUDNN_MINOR and CUDNN_PATCHLEVEL")
    return DottedVersion.parse(".".join(found))


def _copies(system: System, places: Sequence[str]) -> tuple[LibraryCopy, ...]:
    """For every name present anywhere: what the loader meets, then the copies out of its reach."""
    conda = system.environ.get("CONDA_PREFIX", "")
    names_at = {place: [name for name in folder_names(system, place) if SONAME.match(name)] for place in places}
    loader = loader_for(system)
    copies: list[LibraryCopy] = []
    for soname in sorted({name for names in names_at.values() for name in names if not name.startswith("libcuda.so")}):
        reachable = reachable_copies(loader, soname, conda)
        elsewhere = [f"{place}/{soname}" for place, names in names_at.items() if soname in names]
        copies += [*reachable, *further_copies(system, soname, elsewhere, reachable, conda)]
    return tuple(copies)


def library_places(system: System, package_folders: Sequence[str]) -> Iterator[str]:
    """Folders in which CUDA libraries are looked for, each once."""
    yield from dict.fromkeys(folder for folder in _raw_places(system, package_folders) if folder)


def _raw_places(system: System, package_folders: Sequence[str]) -> Iterator[str]:
    yield from _split(system.environ.get("LD_LIBRARY_PATH", ""))
    yield from _configured_folders(system)
    yield from SYSTEM_FOLDERS
    roots = [f"/usr/local/{name}" for name in folder_names(system, "/usr/local") if name.startswith("cuda")]
    for variable in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        roots += [system.environ[variable].rstrip("/")] if system.environ.get(variable) else []
    for root in (*roots, "/opt/cuda"):
        yield f"{root}/lib64"
        yield f"{root}/lib"
        yield from (f"{root}/targets/{name}/lib" for name in folder_names(system, f"{root}/targets"))
    yield from (f"{folder}/lib" for folder in _wheel_folders(system, package_folders))
    yield from (f"{folder}/torch/lib" for folder in package_folders)


def _wheel_folders(system: System, package_folders: Sequence[str]) -> Iterator[str]:
    for folder in package_folders:
        yield from (f"{folder}/nvidia/{name}" for name in folder_names(system, f"{folder}/nvidia"))


def _configured_folders(system: System) -> Iterator[str]:
    """The folders that ldconfig was told of."""
    for name in folder_names(system, LOADER_CONFIGURATION):
        answer = ask_file(system, f"{LOADER_CONFIGURATION}/{name}")
        if name.endswith(".conf") and isinstance(answer, Answer):
            yield from (line.strip() for line in answer.text.splitlines() if line.startswith("/"))


def _split(library_path: str) -> Iterable[str]:
    """The entries of an LD_LIBRARY_PATH without slashes at their ends, each once."""
    entries = library_path.replace(";", ":").split(":")
    return dict.fromkeys(entry.rstrip("/") or entry for entry in entries if entry)


def _headers(system: System, package_folders: Sequence[str]) -> Iterator[CudnnHeader]:
    """Every cuDNN header that declares a version, each real file once."""
    folders = [*HEADER_FOLDERS]
    folders += [f"/usr/local/{name}/include" for name in folder_names(system, "/usr/local") if name.startswith("cuda")]
    for variable in ("CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"):
        folders += [f"{system.environ[variable]}/include"] if system.environ.get(variable) else []
    folders += [f"{folder}/nvidia/cudnn/include" for folder in package_folders]
    seen: set[str] = set()
    for path in (f"{folder}/{name}" for folder in folders for name in HEADER_NAMES):
        try:
            real = system.real_path(path)
        except OSError:
            continue
        header = _header(system, path)
        if header is not None and real not in seen:
            seen.add(real)
            yield header


def _header(system: System, path: str) -> CudnnHeader | None:
    answer = ask_file(system, path)
    if isinstance(answer, Missing):
        return None
    try:
        return CudnnHeader(path=path, cudnn_version=parse_cudnn_header(answer.text))
    except VersionError:
        return None  # from cuDNN 8 on, cudnn.h itself declares no version


def _with_header_version(copy: LibraryCopy, headers: Sequence[CudnnHeader]) -> LibraryCopy:
    """A libcudnn whose file name has no version gets that of the header beside it."""
    if not copy.soname.startswith("libcudnn.") or isinstance(copy.library_version, Known):
        return copy
    folder = re.sub(r"/lib(?:64)?/[^/]*$", "/include/", copy.real_path)
    beside = next((header for header in headers if header.path.startswith(folder)), None)
    return copy if beside is None else structs.replace(copy, library_version=Known(beside.cudnn_version, beside.path))


def _search_folders(system: System, copies: Sequence[LibraryCopy]) -> Fact[tuple[SearchFolder, ...]]:
    """The entries of LD_LIBRARY_PATH, with the libraries of each that also exist elsewhere and lose to it."""
    if "LD_LIBRARY_PATH" not in system.environ:
        return not_applicable("LD_LIBRARY_PATH is not set")
    folders = tuple(_search_folder(system, path, copies) for path in _split(system.environ["LD_LIBRARY_PATH"]))
    return Known(folders, "LD_LIBRARY_PATH")


def _search_folder(system: System, path: str, copies: Sequence[LibraryCopy]) -> SearchFolder:
    if not system.is_folder(path):
        return SearchFolder(path=path, exists=False)
    without = loader_for(system, ld_library_path="")
    shadows = []
    for name in folder_names(system, path):
        if SHADOWING.match(name):
            here = _real_or_same(system, f"{path}/{name}")
            others = {copy.real_path for copy in copies if copy.soname == name}
            others |= {copy.real_path for copy in reachable_copies(without, name)}
            others |= set(_beside_cudnn(system, copies, name))
            shadows += [name] if others - {here} else []
    return SearchFolder(path=path, exists=True, shadows=tuple(shadows))


def _beside_cudnn(system: System, copies: Sequence[LibraryCopy], name: str) -> Iterator[str]:
    """The files of that name beside each libcudnn, from where it takes its parts."""
    for copy in copies if name.startswith("libcudnn_") else ():
        path = f"{copy.path.rpartition('/')[0]}/{name}"
        if copy.soname.startswith("libcudnn.") and system.exists(path):
            yield _real_or_same(system, path)


def _real_or_same(system: System, path: str) -> str:
    try:
        return system.real_path(path)
    except OSError:
        return path
