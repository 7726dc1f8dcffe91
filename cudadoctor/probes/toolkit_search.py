"""Where CUDA toolkits may lie, and which folders there are toolkits: every way that leads to each, symlinks resolved once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.probes.asking import folder_names
from cudadoctor.system import ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.system import System

VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR", "CONDA_PREFIX")
USUAL_FOLDERS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda", "/usr/lib/nvidia-cuda-toolkit")
WINDOWS_FOLDER = r"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA"
HPC_SDK = "/opt/nvidia/hpc_sdk"
MARKS = (
    "bin/nvcc",
    "bin/nvcc.exe",
    "include/cuda_runtime.h",
    "targets/x86_64-linux/include/cuda_runtime.h",
    "targets/sbsa-linux/include/cuda_runtime.h",
    "lib64/libcudart.so",
    "lib/libcudart.so",
    "version.json",
)
"""A folder with one of these is a toolkit or a part of one."""
WRAPPER_TOP = re.compile(r"^#\$ _HERE_=(.+)/bin/?$", re.MULTILINE)
WRAPPER_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Lead:
    """A way that may lead to a toolkit: its name, the folder, and the nvcc where that is what was found."""

    way: str
    folder: str
    nvcc: str = ""


@dataclass(frozen=True)
class FoundToolkit:
    """A toolkit's real folder, its nvcc (empty where it has none), and the ways and paths that lead to it."""

    root: str
    nvcc: str
    ways: tuple[str, ...]
    aliases: tuple[str, ...]


def find_toolkits(system: System) -> tuple[FoundToolkit, ...]:
    """The machine's toolkits, in the order in which the ways are tried."""
    return _at_the_end_of(system, leads(system))


def find_wheel_toolkits(system: System, package_folders: Sequence[str]) -> tuple[FoundToolkit, ...]:
    """The toolkits from pip's wheels in the examined Python's site-packages."""
    return _at_the_end_of(system, _wheels(system, package_folders))


def _at_the_end_of(system: System, found_leads: Iterable[Lead]) -> tuple[FoundToolkit, ...]:
    by_root: dict[str, list[Lead]] = {}
    for lead in found_leads:
        try:
            root = system.real_path(lead.folder)
        except OSError:
            continue
        if lead.nvcc or _is_toolkit(system, root):
            by_root.setdefault(root, []).append(lead)
    return tuple(_found(system, root, found) for root, found in by_root.items())


def leads(system: System) -> Iterator[Lead]:
    """All ways but pip's wheels, those that builds follow first."""
    slash = "\\" if system.platform == "win32" else "/"
    for variable in VARIABLES[:2]:
        if folder := system.environ.get(variable):
            yield Lead(variable, folder.rstrip(slash) or slash)
    for nvcc in system.which("nvcc"):
        yield Lead("PATH", *_root_of(system, nvcc))
    for variable in VARIABLES[2:]:
        if folder := system.environ.get(variable):
            yield Lead("conda" if variable == "CONDA_PREFIX" else variable, folder.rstrip(slash))
    if system.platform == "win32":
        yield from (Lead(WINDOWS_FOLDER, f"{WINDOWS_FOLDER}\\{name}") for name in folder_names(system, WINDOWS_FOLDER))
        return
    yield from (Lead(folder, folder) for folder in USUAL_FOLDERS)
    for name in folder_names(system, "/usr/local"):
        if name.startswith("cuda-"):
            yield Lead(f"/usr/local/{name}", f"/usr/local/{name}")
    yield from _hpc_sdk(system)


def build_choice(system: System, toolkits: Iterable[FoundToolkit]) -> tuple[str, str]:
    """Root and way of the toolkit that torch's extension builder takes: CUDA_HOME, CUDA_PATH, nvcc on PATH, /usr/local/cuda.

    As torch.utils.cpp_extension._find_cuda_home searches; CMake differs in that nvcc on PATH comes first. A variable that leads
    to no toolkit is followed all the same, so nothing is chosen then.
    """
    found = tuple(toolkits)
    for variable in VARIABLES[:2]:
        if system.environ.get(variable):
            return next(((kit.root, variable) for kit in found if variable in kit.ways), ("", variable))
    for way in ("PATH", "/usr/local/cuda"):
        for kit in found:
            if way in kit.ways:
                return kit.root, way
    return "", ""


def _is_toolkit(system: System, root: str) -> bool:
    return any(system.exists(f"{root}/{mark}") for mark in MARKS)


def _found(system: System, root: str, found: Sequence[Lead]) -> FoundToolkit:
    from_path = [lead.nvcc for lead in found if lead.nvcc]
    own = [path for path in (f"{root}/bin/nvcc", f"{root}/bin/nvcc.exe") if system.which(path)]
    return FoundToolkit(
        root=root,
        nvcc=(own or from_path or [""])[0],
        ways=tuple(dict.fromkeys(lead.way for lead in found)),
        aliases=tuple(dict.fromkeys(lead.folder for lead in found if lead.folder != root)),
    )


def _root_of(system: System, nvcc: str) -> tuple[str, str]:
    """The toolkit's folder and nvcc of an nvcc on the PATH, which may be a link or a script that starts the real one."""
    plain = nvcc.replace("\\", "/")
    try:
        real = system.real_path(nvcc).replace("\\", "/")
    except OSError:
        real = plain
    for path in (plain, real):
        root = path.rpartition("/bin/")[0]
        if root and system.exists(f"{root}/bin/nvcc.profile"):
            return root, nvcc
    top = _top_of_wrapper(system, nvcc)
    return (top, nvcc) if top else (real.rpartition("/bin/")[0] or real.rpartition("/")[0] or "/", nvcc)


def _top_of_wrapper(system: System, nvcc: str) -> str:
    """The folder that a wrapped nvcc works from, as its dry run says; empty where it does not say."""
    try:
        completed = system.run((nvcc, "--dryrun", "-E", "-x", "cu", "/dev/null"), WRAPPER_TIMEOUT_S)
    except ProgramNotFoundError:
        return ""
    match = WRAPPER_TOP.search(completed.stderr)
    return match[1] if match else ""


def _wheels(system: System, package_folders: Sequence[str]) -> Iterator[Lead]:
    """Toolkits from pip: nvidia/cuda_nvcc up to CUDA 12, nvidia/cu13 from then on."""
    for folder in package_folders:
        for name in folder_names(system, f"{folder}/nvidia"):
            if name == "cuda_nvcc" or re.fullmatch(r"cu\d+", name):
                yield Lead("nvidia wheels", f"{folder}/nvidia/{name}")


def _hpc_sdk(system: System) -> Iterator[Lead]:
    """The toolkits inside NVIDIA's HPC SDK: Linux_x86_64/24.9/cuda/12.6."""
    for machine in folder_names(system, HPC_SDK):
        for release in folder_names(system, f"{HPC_SDK}/{machine}"):
            for version in folder_names(system, f"{HPC_SDK}/{machine}/{release}/cuda"):
                yield Lead("HPC SDK", f"{HPC_SDK}/{machine}/{release}/cuda/{version}")
