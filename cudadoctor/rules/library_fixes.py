"""Builds the fixes for CUDA's run-time libraries: bringing a missing one, clearing the loader's path, removing mixed wheels."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec import structs

from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.finding import Fix, Where
from cudadoctor.model.snapshot import EnvironmentKind, Package, Platform, SearchFolder, Snapshot
from cudadoctor.rules.engine import Case, Remedy
from cudadoctor.rules.fixes import BY_FIX, here, interpreter
from cudadoctor.rules.questions import environment, platform, torch, torch_cuda_version
from cudadoctor.rules.toolkit_fixes import where_probed

SUFFIXED_ALWAYS = frozenset({"cudnn", "nccl", "cusparselt", "nvshmem"})
"""Wheels whose name ends in -cuNN in every CUDA major; the others have no suffix from CUDA 13 on (wheel names on the index)."""
WHEELS = {
    "libcudart": "cuda-runtime",
    "libcublas": "cublas",
    "libcublaslt": "cublas",
    "libcufft": "cufft",
    "libcurand": "curand",
    "libcusolver": "cusolver",
    "libcusparse": "cusparse",
    "libcusparselt": "cusparselt",
    "libnvrtc": "cuda-nvrtc",
    "libnvrtc-builtins": "cuda-nvrtc",
    "libnvjitlink": "nvjitlink",
    "libcupti": "cuda-cupti",
    "libnccl": "nccl",
    "libnvshmem": "nvshmem",
    "libnvtoolsext": "nvtx",
    "libcufile": "cufile",
}
"""Library to the middle of its wheel's name (contents of the wheels)."""
FOLDERS = {"cuda-runtime": "cuda_runtime", "cuda-nvrtc": "cuda_nvrtc", "cuda-cupti": "cuda_cupti"}
"""Folder under site-packages/nvidia where it differs from the name (CUDA 12; CUDA 13 puts all into cu13)."""
USUAL_DLLS = ("cudnn64_9.dll", "cublas64_12.dll")
"""What onnxruntime's and CTranslate2's builds of today load (NEEDED entries of their wheels)."""
CUDA_LIBRARY = re.compile(r"(?:cudart|cublas|cublaslt|cudnn|cufft|curand|cusolver|cusparse|nvrtc|nvinfer)[\w-]*(?:\.dll)?$")
FIRST_MAJOR_IN_ONE_FOLDER = 13


def cuda_majors(case: Case, library: str) -> tuple[int, ...]:
    """The CUDA majors that a library's file name belongs to; empty where it tells nothing."""
    found = case.matrices.sonames.cuda_majors_of(library)
    if found:
        return found
    match = re.match(r"cudart64_(\d{2})0?(?:\.dll)?$", library.lower())
    return (int(match[1]),) if match else ()


def _stem(library: str) -> str:
    return library.lower().partition(".so")[0]


def wheel_of(library: str, major: int) -> str | None:
    """The wheel that brings a library of a CUDA major; None where none does."""
    middle = "cudnn" if _stem(library).startswith("libcudnn") else WHEELS.get(_stem(library))
    if middle is None:
        return None
    plain = major >= FIRST_MAJOR_IN_ONE_FOLDER and middle not in SUFFIXED_ALWAYS
    return f"nvidia-{middle}" if plain else f"nvidia-{middle}-cu{major}"


def _folder_of(wheel: str, major: int) -> str:
    middle = re.sub(r"^nvidia-|-cu\d+$", "", wheel)
    if major >= FIRST_MAJOR_IN_ONE_FOLDER and middle not in SUFFIXED_ALWAYS:
        return f"cu{major}"
    return FOLDERS.get(middle, middle)


def provide(case: Case, libraries: Sequence[str], major: int | None = None) -> tuple[Remedy, ...]:
    """Bringing libraries to where the loader looks: a copy that is here, an installed wheel, else a new wheel or conda package."""
    snapshot = case.snapshot
    if platform(snapshot) is Platform.WINDOWS or any(name.lower().endswith(".dll") for name in libraries):
        return cuda_on_windows_path(libraries)
    copy = next((one for one in maybe(snapshot.libraries.copies) or () if one.soname in libraries and not one.wins), None)
    if copy is not None:
        return _prepend(
            case, shlex.quote(copy.path.rpartition("/")[0]), "Put the folder of the copy that is here on the loader's path"
        )
    wanted = major or next((found for name in libraries for found in cuda_majors(case, name)), None) or torch_major(case) or 12
    wheels = tuple(dict.fromkeys(wheel for name in libraries if (wheel := wheel_of(name, wanted)) is not None))
    return _from_wheels(case, wheels, wanted) if wheels else ()


def torch_major(case: Case) -> int | None:
    """The CUDA major of the examined torch."""
    build = torch(case.snapshot)
    runtime = maybe(torch_cuda_version(build)) if build is not None else None
    return runtime.major if runtime is not None else None


def _from_wheels(case: Case, wheels: Sequence[str], major: int) -> tuple[Remedy, ...]:
    snapshot = case.snapshot
    installed = {package.name for package in maybe(snapshot.python.packages) or ()}
    folders = ":".join(_wheel_folder(snapshot, _folder_of(wheel, major)) for wheel in wheels)
    export = f'export LD_LIBRARY_PATH="{folders}:$LD_LIBRARY_PATH"'
    missing = [wheel for wheel in wheels if wheel not in installed]
    title = (
        f"Install {' '.join(missing)} and put it on the loader's path"
        if missing
        else "Put the installed wheel's folder on the loader's path"
    )
    commands = (*((install_command(snapshot, missing),) if missing else ()), export)
    return (Remedy(Fix(title=title, commands=commands, where=Where.VENV)),)


def _wheel_folder(snapshot: Snapshot, folder: str) -> str:
    """A shell expression for the library folder of a wheel in the examined environment."""
    code = f"import nvidia; print(list(nvidia.__path__)[0] + '/{folder}/lib')"
    return f'$({interpreter(snapshot)} -c "{code}")'


def install_command(snapshot: Snapshot, packages: Sequence[str]) -> str:
    """The line that installs packages with the installer seen."""
    names = " ".join(shlex.quote(name) for name in packages)
    if maybe(snapshot.python.installer) == "uv":
        return f"uv pip install --python {interpreter(snapshot)} {names}"
    return f"{interpreter(snapshot)} -m pip install {names}"


def _prepend(case: Case, folder: str, title: str) -> tuple[Remedy, ...]:
    fix = Fix(title=title, commands=(f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH",), where=here(case.snapshot))
    return (Remedy(fix),)


def cuda_on_windows_path(libraries: Sequence[str] = ()) -> tuple[Remedy, ...]:
    """Putting the folders of DLLs on PATH: of those named, else of the ones that CUDA programs of today look for first."""
    names = tuple(name for name in libraries if CUDA_LIBRARY.match(name.lower())) or USUAL_DLLS
    files = tuple(name if name.lower().endswith(".dll") else f"{name}.dll" for name in names)
    find = "Get-ChildItem 'C:\\Program Files\\NVIDIA*' -Recurse -Filter {name} | Select-Object -First 1"
    fix = Fix(
        title="Put the folders of the CUDA and cuDNN libraries on PATH (cuDNN 9 lies in a subfolder of the CUDA version)",
        commands=tuple(f"$env:PATH = ({find.format(name=name)}).DirectoryName + ';' + $env:PATH" for name in files),
        where=Where.WINDOWS,
        verify=(f"where.exe {' '.join(files)}",),
    )
    return (Remedy(fix),)


def library_path_without(snapshot: Snapshot, entries: Iterable[str]) -> str:
    """LD_LIBRARY_PATH without these entries."""
    gone = {entry.rstrip("/") for entry in entries}
    value = environment(snapshot).get("LD_LIBRARY_PATH", "")
    return ":".join(entry for entry in value.split(":") if entry and entry.rstrip("/") not in gone)


def clear_library_path(case: Case, culprits: Sequence[SearchFolder]) -> tuple[Remedy, ...]:
    """Taking folders out of LD_LIBRARY_PATH: those that shadow, or where that is not known all of it."""
    rest = library_path_without(case.snapshot, [folder.path for folder in culprits]) if culprits else ""
    command = f"export LD_LIBRARY_PATH={shlex.quote(rest)}" if rest else "unset LD_LIBRARY_PATH"
    title = (
        f"Take {', '.join(folder.path for folder in culprits)} out of LD_LIBRARY_PATH"
        if culprits
        else "Start without LD_LIBRARY_PATH"
    )
    verify = f"{interpreter(case.snapshot)} -c 'import torch; print(torch.__version__)'"
    fix = Fix(title=title, commands=(command,), where=here(case.snapshot), verify=(verify,))
    effect = _without_folders(frozenset(folder.path for folder in culprits), rest)
    return (Remedy(fix, where_probed(case, effect)),)


def _without_folders(gone: frozenset[str], rest: str) -> Callable[[Snapshot], Snapshot]:
    def effect(snapshot: Snapshot) -> Snapshot:
        kept = tuple(folder for folder in maybe(snapshot.libraries.ld_library_path) or () if gone and folder.path not in gone)
        values = {**environment(snapshot), "LD_LIBRARY_PATH": rest}
        libraries = structs.replace(snapshot.libraries, ld_library_path=Known(kept, BY_FIX))
        return structs.replace(snapshot, libraries=libraries, environment=Known(values, BY_FIX), errors=())

    return effect


def remove_other_majors(case: Case, mixed: Mapping[str, Mapping[int, Package]]) -> tuple[Remedy, ...]:
    """Removing the wheels of the CUDA majors that torch does not use, and installing torch's own anew."""
    wanted = torch_major(case)
    if wanted is None:
        return ()
    others = sorted(package.name for majors in mixed.values() for major, package in majors.items() if major != wanted)
    own = sorted(f"{majors[wanted].name}=={majors[wanted].package_version}" for majors in mixed.values() if wanted in majors)
    python = interpreter(case.snapshot)
    if maybe(case.snapshot.python.installer) == "uv":
        commands = [f"uv pip uninstall --python {python} {' '.join(others)}"]
        commands += [f"uv pip install --python {python} --reinstall --no-deps {' '.join(own)}"] if own else []
    else:
        commands = [f"{python} -m pip uninstall -y {' '.join(others)}"]
        commands += [f"{python} -m pip install --force-reinstall --no-deps {' '.join(own)}"] if own else []
    fix = Fix(title=f"Keep only the wheels of CUDA {wanted}, which torch uses", commands=tuple(commands), where=Where.VENV)
    return (Remedy(fix, _without_packages(frozenset(others))),)


def _without_packages(names: frozenset[str]) -> Callable[[Snapshot], Snapshot]:
    def effect(snapshot: Snapshot) -> Snapshot:
        kept = tuple(package for package in maybe(snapshot.python.packages) or () if package.name not in names)
        return structs.replace(snapshot, python=structs.replace(snapshot.python, packages=Known(kept, BY_FIX)), errors=())

    return effect


def newer_cxx_library(case: Case, wanted: str) -> tuple[Remedy, ...]:
    """A newer libstdc++ in a conda environment; for glibc nothing but another distribution helps."""
    if wanted.upper().startswith("GLIBC_"):
        fix = Fix(
            title="Run in a container of a newer distribution, or install an older release of the package",
            commands=("docker run --rm -it --gpus all ubuntu:24.04 bash",),
            where=Where.HOST,
        )
        return (Remedy(fix),)
    if maybe(case.snapshot.python.kind) is EnvironmentKind.CONDA:
        fix = Fix(
            title="Install a newer libstdc++ into the conda environment",
            commands=("conda install -c conda-forge libstdcxx-ng",),
            where=Where.VENV,
        )
        return (Remedy(fix),)
    return ()
