"""CUDA toolkits: version and targets as each nvcc says them, what is missing, and which one builds take."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import Toolkit
from cudadoctor.model.versions import CudaVersion, SmTarget, VersionError
from cudadoctor.probes.asking import Answer, ask_file, folder_names, not_applicable, not_found, not_started, short, unsuccessful
from cudadoctor.probes.combining import combine
from cudadoctor.probes.toolkit_search import FoundToolkit, build_choice, find_toolkits, find_wheel_toolkits
from cudadoctor.system import Completed, ProgramNotFoundError, RunningProgram

if TYPE_CHECKING:
    from cudadoctor.system import System

VERSION_LINE = re.compile(r"release (\d+\.\d+)(?:, V(\d+\.\d+\.\d+))?")
HEADERS = (
    ("CUDA headers", "cuda_runtime.h"),
    ("nvcc's own headers", "crt/host_config.h"),
    ("cuBLAS headers", "cublas_v2.h"),
    ("cuSPARSE headers", "cusparse.h"),
    ("cuSOLVER headers", "cusolverDn.h"),
)
"""What torch's own headers include, and what nvcc itself does."""
PROGRAMS = (("ptxas", ("bin/ptxas",)), ("cicc", ("nvvm/bin/cicc", "bin/cicc")), ("cudafe++", ("bin/cudafe++",)))
LIBRARIES = (("libcudart.so", "libcudart.so"), ("libnvrtc.so", "libnvrtc.so"), ("libcublas.so", "libcublas.so"))
NVRTC = re.compile(r"^(?:libnvrtc\.so(?:\.[\d.]+)?|nvrtc64_\d+_0\.dll)\Z")
PACKAGE_LISTS = "/var/lib/dpkg/info"


def read_toolkits(
    system: System, timeout: float, package_folders: Callable[[], Sequence[str]] = tuple
) -> Fact[tuple[Toolkit, ...]]:
    """Every toolkit; an empty tuple where there is none.

    All compilers are asked at the same time, those of the machine before `package_folders` (the examined Python's
    site-packages, which that Python has to name) is called.
    """
    if system.platform == "darwin":
        return not_applicable("CUDA does not exist on this platform")
    deadline = time.monotonic() + timeout
    asked = [_asked(system, kit) for kit in find_toolkits(system)]
    roots = {kit.root for kit, _, _ in asked}
    asked += [_asked(system, kit) for kit in find_wheel_toolkits(system, package_folders()) if kit.root not in roots]
    chosen_root, _ = build_choice(system, [kit for kit, _, _ in asked])
    toolkits = tuple(
        _toolkit(system, kit, _answer(version, deadline, timeout), _answer(targets, deadline, timeout), chosen_root == kit.root)
        for kit, version, targets in asked
    )
    return Known(toolkits, "usual places, PATH, CUDA_HOME")


def parse_nvcc_version(text: str) -> CudaVersion:
    """The toolkit's release and build; raises VersionError.

    Sample:
        nvcc: NVIDIA (R) Cuda compiler driver
        Cuda compilation tools, release 12.6, V12.6.85
        Build cuda_12.6.r12.6/compiler.35059454_0
    """
    match = VERSION_LINE.search(text)
    if match is None:
        raise VersionError(f"nvcc printed no release: {short(text)!r}")
    return CudaVersion.parse(match[2] or match[1])


def parse_targets(text: str) -> tuple[SmTarget, ...]:
    """The targets of `nvcc --list-gpu-code`, in its order; raises VersionError.

    Sample: one `sm_90` a line
    """
    return tuple(SmTarget.parse(line) for line in text.split())


def parse_version_json(text: str) -> CudaVersion:
    """The release in a toolkit's version.json; raises VersionError.

    Sample: {"cuda": {"name": "CUDA SDK", "version": "12.6.3"}, "cuda_nvcc": {"name": "CUDA NVCC", "version": "12.6.85"}}
    """
    try:
        document = json.loads(text)
        return CudaVersion.parse(document["cuda"]["version"])
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError) as error:
        raise VersionError(f"no CUDA release in version.json: {type(error).__name__}") from error


def parse_cuda_header(text: str) -> CudaVersion:
    """The version in cuda.h; raises VersionError.

    Sample: #define CUDA_VERSION 12060
    """
    match = re.search(r"^#define CUDA_VERSION (\d{4,6})$", text, re.MULTILINE)
    if match is None:
        raise VersionError("no CUDA_VERSION in cuda.h")
    return CudaVersion.from_int(int(match[1]))


def _asked(system: System, kit: FoundToolkit) -> tuple[FoundToolkit, RunningProgram | Missing, RunningProgram | Missing]:
    return kit, _ask(system, kit, "--version"), _ask(system, kit, "--list-gpu-code")


def _ask(system: System, kit: FoundToolkit, option: str) -> RunningProgram | Missing:
    if not kit.nvcc:
        return not_found(f"no nvcc in {kit.root}", kit.root)
    try:
        return system.start((kit.nvcc, option))
    except ProgramNotFoundError as error:
        return not_started(error, kit.nvcc)


def _answer(program: RunningProgram | Missing, deadline: float, timeout: float) -> Completed | Missing:
    if isinstance(program, Missing):
        return program
    completed = program.finish(deadline)
    return unsuccessful(completed, timeout, " ".join(completed.argv)) or completed


def _toolkit(
    system: System, kit: FoundToolkit, version: Completed | Missing, targets: Completed | Missing, is_chosen: bool
) -> Toolkit:
    libraries = tuple(library_folders(system, kit.root))
    return Toolkit(
        root=kit.root,
        nvcc=Known(kit.nvcc, kit.ways[0]) if kit.nvcc else not_found(f"no nvcc in {kit.root}", kit.root),
        toolkit_version=combine(_version(version), *_written_versions(system, kit)),
        targets=_targets(targets),
        found_by=kit.ways,
        aliases=kit.aliases,
        chosen_for_builds=is_chosen,
        nvrtc=_nvrtc(system, libraries),
        missing_parts=tuple(_missing_parts(system, kit.root, libraries)),
        packaging=packaging(system, kit.root),
    )


def _version(answer: Completed | Missing) -> Fact[CudaVersion]:
    if isinstance(answer, Missing):
        return answer
    try:
        return Known(parse_nvcc_version(answer.stdout), f"{answer.argv[0]} --version")
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), answer.argv[0])


def _targets(answer: Completed | Missing) -> Fact[tuple[SmTarget, ...]]:
    if isinstance(answer, Missing):
        return answer
    try:
        targets = parse_targets(answer.stdout)
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), answer.argv[0])
    return Known(targets, f"{answer.argv[0]} --list-gpu-code") if targets else not_found("nvcc listed no target", answer.argv[0])


def _written_versions(system: System, kit: FoundToolkit) -> Iterator[Fact[CudaVersion]]:
    """What version.json says, and where that is absent what cuda.h says."""
    answer = ask_file(system, f"{kit.root}/version.json")
    if isinstance(answer, Answer):
        try:
            yield Known(parse_version_json(answer.text), answer.source)
        except VersionError as error:
            yield Missing(MissingReason.PARSE_ERROR, str(error), answer.source)
        return
    for folder in include_folders(system, kit.root):
        header = ask_file(system, f"{folder}/cuda.h")
        if isinstance(header, Answer):
            try:
                yield Known(parse_cuda_header(header.text), header.source)
            except VersionError as error:
                yield Missing(MissingReason.PARSE_ERROR, str(error), header.source)
            return


def include_folders(system: System, root: str) -> Iterator[str]:
    """Where a toolkit's headers may lie; a distribution's package puts them among the system's."""
    yield f"{root}/include"
    yield from (f"{root}/targets/{name}/include" for name in folder_names(system, f"{root}/targets"))
    if root.startswith("/usr/lib/"):
        yield "/usr/include"
    yield from (f"{folder}/include" for folder in _sibling_wheels(system, root))


def library_folders(system: System, root: str) -> Iterator[str]:
    """Where a toolkit's libraries may lie."""
    yield from (f"{root}/{name}" for name in ("lib64", "lib", "lib/x64", "bin"))
    yield from (f"{root}/targets/{name}/lib" for name in folder_names(system, f"{root}/targets"))
    if root.startswith("/usr/lib/"):
        yield from ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
    yield from (f"{folder}/lib" for folder in _sibling_wheels(system, root))


def _sibling_wheels(system: System, root: str) -> Iterator[str]:
    """The other nvidia wheels of the same environment, which together are a toolkit."""
    if root.endswith("/nvidia/cuda_nvcc"):
        parent = root.rpartition("/")[0]
        yield from (f"{parent}/{name}" for name in folder_names(system, parent) if name != "cuda_nvcc")


def _nvrtc(system: System, folders: Sequence[str]) -> Fact[str]:
    """The libnvrtc with the shortest name in the first folder that has one: the link, where there is one."""
    for folder in folders:
        names = [name for name in folder_names(system, folder) if NVRTC.match(name)]
        if names:
            return Known(f"{folder}/{min(names, key=len)}", folder)
    return not_found("no libnvrtc in its library folders")


def _missing_parts(system: System, root: str, libraries: Sequence[str]) -> Iterator[str]:
    if system.platform == "win32":
        return
    if not system.exists(f"{root}/bin/nvcc"):
        yield "nvcc"
    for label, places in PROGRAMS:
        if not any(system.exists(f"{root}/{place}") for place in places):
            yield label
    includes = tuple(include_folders(system, root))
    for label, header in HEADERS:
        if not any(system.exists(f"{folder}/{header}") for folder in includes):
            yield label
    for label, library in LIBRARIES:
        if not any(name.startswith(library) for folder in libraries for name in folder_names(system, folder)):
            yield label


def packaging(system: System, root: str) -> str:
    """Who installed a toolkit, judged from its path and Debian's package lists."""
    plain = root.replace("\\", "/")
    if "-packages/" in plain:
        return "wheel"
    if system.is_folder(f"{root}/conda-meta") or re.search(r"/(?:envs|pkgs)/|conda|mamba", plain):
        return "conda"
    if plain.startswith("/opt/nvidia/hpc_sdk/"):
        return "HPC SDK"
    if plain.startswith(("/usr/lib/", "/opt/cuda")) or plain == "/usr":
        return "distribution package"
    tail = re.search(r"/usr/local/cuda-(\d+)\.(\d+)$", plain)
    if tail and system.exists(f"{PACKAGE_LISTS}/cuda-nvcc-{tail[1]}-{tail[2]}.list"):
        return "NVIDIA package"
    return "runfile" if tail else ""
