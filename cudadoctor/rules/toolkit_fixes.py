"""Builds the fixes around compiling: toolkits, host compilers, the variables that name them, arch lists."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence

from msgspec import structs

from cudadoctor.archs import ArchStyle, WantedGpu, build_limits, plan_archs
from cudadoctor.model.fact import NOT_ASKED, Known, maybe
from cudadoctor.model.finding import Fix, Where
from cudadoctor.model.snapshot import EnvironmentKind, HostCompiler, Platform, Snapshot, Toolkit
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion
from cudadoctor.rules.engine import Case, Remedy
from cudadoctor.rules.fixes import BY_FIX, here, package_manager
from cudadoctor.rules.questions import environment, gpus_with_capability, platform, torch, torch_cuda_version
from cudadoctor.rules.toolkit_questions import (
    build_toolkit,
    home_variable,
    looked_for_toolkits,
    nvcc_version,
    nvccs_compiler,
    with_variable,
)

WINDOWS_ONLY = ("msvc-version-unsupported", "msvc-missing", "windows-dll-load-failed")
"""Kinds of errors that only Windows prints."""
CONDA_TOOLS = ("conda", "mamba", "micromamba")


def where_probed(case: Case, effect: Callable[[Snapshot], Snapshot]) -> Callable[[Snapshot], Snapshot] | None:
    """The effect, where a machine was probed; a pasted text has too few facts for a re-check that means something."""
    return effect if looked_for_toolkits(case.snapshot) else None


def on_windows(case: Case) -> bool:
    """Is it Windows: known to be, or by an error text that only Windows prints where the platform is not known?"""
    system = platform(case.snapshot)
    return system is Platform.WINDOWS or (system is None and case.saw(*WINDOWS_ONLY))


def set_variable(case: Case, name: str, value: str, title: str, verify: Sequence[str] = ()) -> tuple[Remedy, ...]:
    """Setting an environment variable of the shell that builds."""
    command = f"$env:{name} = '{value}'" if on_windows(case) else f"export {name}={shlex.quote(value)}"
    fix = Fix(title=title, commands=(command,), where=here(case.snapshot), verify=tuple(verify))
    return (Remedy(fix, where_probed(case, lambda snapshot: with_variable(snapshot, name, value))),)


def unset_variable(case: Case, name: str, title: str) -> tuple[Remedy, ...]:
    """Unsetting an environment variable of the shell that builds."""
    command = f"Remove-Item Env:{name}" if on_windows(case) else f"unset {name}"
    fix = Fix(title=title, commands=(command,), where=here(case.snapshot))
    return (Remedy(fix, where_probed(case, lambda snapshot: with_variable(snapshot, name, None))),)


def use_toolkit(case: Case, kit: Toolkit) -> tuple[Remedy, ...]:
    """Naming an installed toolkit in CUDA_HOME and putting its nvcc first on PATH."""
    root = f'"{kit.root}"' if kit.root.startswith("$") else shlex.quote(kit.root)
    fix = Fix(
        title=f"Name {kit.root} in CUDA_HOME and put its nvcc first",
        commands=(f"export CUDA_HOME={root} PATH={root}/bin:$PATH",),
        where=here(case.snapshot),
        verify=("nvcc --version",),
    )
    return (
        Remedy(fix, where_probed(case, lambda snapshot: _chosen_is(with_variable(snapshot, "CUDA_HOME", kit.root), kit.root))),
    )


def _chosen_is(snapshot: Snapshot, root: str) -> Snapshot:
    """The snapshot with the toolkit of this root chosen for builds, and found before all others."""
    kits = (
        structs.replace(
            kit,
            chosen_for_builds=kit.root == root,
            found_by=("CUDA_HOME", "PATH", *kit.found_by) if kit.root == root else kit.found_by,
        )
        for kit in maybe(snapshot.toolkits) or ()
    )
    first_of_all = sorted(kits, key=lambda kit: not kit.chosen_for_builds)
    return structs.replace(snapshot, toolkits=Known(tuple(first_of_all), BY_FIX))


def fitting_release(case: Case, allowed: Iterable[CudaVersion]) -> CudaVersion | None:
    """Of some toolkit releases the one to install: torch's own, else one that its major and the driver fit; None of none.

    The driver's CUDA version is a reason because it then compiles the toolkit's PTX too; without it the release with most
    targets is taken.
    """
    releases = sorted(set(allowed))
    build = torch(case.snapshot)
    wanted = maybe(torch_cuda_version(build)) if build is not None else None
    if wanted is not None and wanted in releases:
        return CudaVersion.of(wanted.major, wanted.minor)
    if wanted is not None:
        releases = [one for one in releases if one.major == wanted.major] or releases
    driver = maybe(case.snapshot.driver.driver_cuda_version)
    if driver is None:
        return _widest(case, releases)
    reached = [one for one in releases if one <= driver]
    return reached[-1] if reached else next(iter(releases), None)


def _widest(case: Case, releases: Sequence[CudaVersion]) -> CudaVersion | None:
    """The oldest of the releases that compile for the most architectures: the safest where GPU or driver are not known."""
    return max(releases, key=lambda one: (len(case.matrices.toolkits.targets(one) or ()), -one.major, -one.minor), default=None)


def releases_for_gpus(case: Case, extra: Sequence[ComputeCapability] = ()) -> tuple[CudaVersion, ...]:
    """The toolkit releases that compile for all GPUs here (and these capabilities); all releases where none is known."""
    wanted = {*extra, *(gpu.compute_capability for gpu in gpus_with_capability(case))}
    toolkits = case.matrices.toolkits
    lives = [(row.first_cuda, row.last_cuda) for one in wanted if (row := toolkits.target(one)) is not None]
    if len(lives) < len(wanted):
        return ()
    first = max((life[0] for life in lives), default=None)
    last = min((life[1] for life in lives if life[1] is not None), default=None)
    releases = (row.cuda for row in toolkits.toolkits)
    return tuple(one for one in releases if (first is None or one >= first) and (last is None or one <= last))


def install_toolkit(case: Case, wanted: CudaVersion | None) -> tuple[Remedy, ...]:
    """Installing a toolkit of the wanted release beside the present one."""
    if wanted is None:
        return ()
    snapshot = case.snapshot
    conda = maybe(snapshot.python.kind) is EnvironmentKind.CONDA
    title, commands, root = _toolkit_commands(case, wanted, conda=conda)
    fix = Fix(
        title=title,
        commands=commands,
        where=Where.VENV if conda else here(snapshot),
        needs_root=not conda and not on_windows(case),
        verify=("nvcc --version",),
    )
    return (Remedy(fix, _toolkit_becomes(case, wanted, root)),)


def install_fitting_toolkit(case: Case) -> tuple[Remedy, ...]:
    """Installing the toolkit that suits torch, the GPUs and the driver; nothing where no release compiles for all GPUs."""
    return install_toolkit(case, fitting_release(case, releases_for_gpus(case)))


def _toolkit_commands(case: Case, wanted: CudaVersion, *, conda: bool) -> tuple[str, tuple[str, ...], str]:
    snapshot = case.snapshot
    release = wanted.release
    if conda:
        tool = maybe(snapshot.python.installer) or "conda"
        if tool == "pixi":
            commands: tuple[str, ...] = (f"pixi add cuda-toolkit 'cuda-version={release}.*'",)
        else:
            tool = tool if tool in CONDA_TOOLS else "conda"
            commands = (f"{tool} install -c conda-forge cuda-toolkit 'cuda-version={release}'",)
        root = environment(snapshot).get("CONDA_PREFIX", "/opt/conda")
        named = ("export CUDA_HOME=$CONDA_PREFIX",) if home_variable(snapshot) is not None else ()
        return f"Install the CUDA {release} toolkit into the conda environment", (*commands, *named), root
    if on_windows(case):
        root = rf"C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v{release}"
        commands = (f"winget install --id Nvidia.CUDA --version {release}", f"$env:CUDA_PATH = '{root}'")
        return f"Install the CUDA {release} toolkit, and name it in CUDA_PATH", commands, root
    root = f"/usr/local/cuda-{release}"
    package = f"cuda-toolkit-{wanted.major}-{wanted.minor}"
    install = {
        "apt": (f"sudo apt-get install {package}",),
        "dnf": (f"sudo dnf install {package}",),
        "zypper": (f"sudo zypper install {package}",),
    }.get(package_manager(snapshot) or "", ())
    title = (
        f"Install the CUDA {release} toolkit (from NVIDIA's repository: the toolkit only, no driver), and name it in CUDA_HOME"
    )
    return title, (*install, f"export CUDA_HOME={root} PATH={root}/bin:$PATH"), root


def _toolkit_becomes(case: Case, wanted: CudaVersion, root: str) -> Callable[[Snapshot], Snapshot]:
    """The effect of installing this toolkit and naming it."""
    targets = case.matrices.toolkits.targets(wanted)

    def effect(snapshot: Snapshot) -> Snapshot:
        kit = Toolkit(
            root=root,
            nvcc=Known(f"{root}/bin/nvcc", BY_FIX),
            toolkit_version=Known(wanted, BY_FIX),
            targets=Known(targets, BY_FIX) if targets is not None else NOT_ASKED,
            found_by=("CUDA_HOME",),
            chosen_for_builds=True,
        )
        others = tuple(structs.replace(one, chosen_for_builds=False) for one in maybe(snapshot.toolkits) or ())
        named = with_variable(with_variable(snapshot, "CUDA_PATH", None), "CUDA_HOME", root)
        return structs.replace(named, toolkits=Known((kit, *others), BY_FIX))

    return effect


def compile_machine_code(case: Case) -> tuple[Remedy, ...]:
    """Compiling machine code for the exact GPU, which needs no PTX compilation by the driver."""
    nvcc, torch_list = arch_list(case, ArchStyle.NVCC), arch_list(case, ArchStyle.TORCH)
    if nvcc:
        commands: tuple[str, ...] = (f"nvcc {nvcc} ...", f"export TORCH_CUDA_ARCH_LIST={shlex.quote(torch_list)}")
    else:
        commands = ('export TORCH_CUDA_ARCH_LIST="$(cudadoctor archs)"', "nvcc $(cudadoctor archs --style nvcc) ...")
    fix = Fix(title="Compile machine code for the exact GPU instead of PTX", commands=commands, where=here(case.snapshot))
    return (Remedy(fix),)


def arch_list(case: Case, style: ArchStyle) -> str:
    """The arch list for the GPUs here, within what toolkit and torch can build; empty where no GPU is known."""
    wanted = tuple(WantedGpu(gpu.title, gpu.compute_capability) for gpu in gpus_with_capability(case))
    return plan_archs(wanted, build_limits(case.snapshot, case.matrices)).text(style)


def set_arch_list(case: Case, variable: str, style: ArchStyle) -> tuple[Remedy, ...]:
    """Setting an arch list to what fits the GPUs, toolkit and torch here; an example where no GPU is known."""
    value = arch_list(case, style)
    if value:
        return set_variable(case, variable, value, f"Set {variable} to the architectures of the GPUs here that can be built")
    example = "8.6" if style is ArchStyle.TORCH else "86-real"
    fix = Fix(
        title=f"Name the compute capability of the GPU that the program will run on in {variable}",
        commands=(f"export {variable}='{example}'",),
        where=here(case.snapshot),
        verify=("cudadoctor archs --gpu 'NAME OF THE GPU'",),
    )
    return (Remedy(fix),)


def older_host_compiler(case: Case) -> tuple[Remedy, ...]:
    """Installing a gcc that the chosen nvcc accepts beside the present one, and naming it."""
    version = nvcc_version(case.snapshot)
    bounds = case.matrices.compilers.bounds(version) if version is not None else None
    if bounds is None or version is None:
        fix = Fix(
            title="Use the newest gcc that this nvcc accepts (its error text names it)",
            commands=("export NVCC_CCBIN=g++-N CUDAHOSTCXX=g++-N",),
            where=here(case.snapshot),
        )
        return (Remedy(fix),)
    return (host_compiler(case, bounds.gcc_max, f"Use gcc {bounds.gcc_max}, the newest that nvcc {version.release} accepts"),)


def host_compiler(case: Case, major: int, title: str) -> Remedy:
    """Installing a gcc of this major beside the present one, and naming it for nvcc and CMake."""
    install = {
        "apt": (f"sudo apt-get install g++-{major}",),
        "dnf": (f"sudo dnf install gcc-toolset-{major}-gcc-c++",),
        "pacman": (f"sudo pacman -S gcc{major}",),
        "zypper": (f"sudo zypper install gcc{major}-c++",),
    }.get(package_manager(case.snapshot) or "", ())
    path = f"/opt/rh/gcc-toolset-{major}/root/usr/bin/g++" if package_manager(case.snapshot) == "dnf" else f"g++-{major}"
    fix = Fix(
        title=title,
        commands=(*install, f"export NVCC_CCBIN={path} CUDAHOSTCXX={path}"),
        where=here(case.snapshot),
        needs_root=bool(install),
    )
    return Remedy(fix, lambda snapshot: _compiler_becomes(snapshot, path, major))


def _compiler_becomes(snapshot: Snapshot, path: str, major: int) -> Snapshot:
    version = Known(DottedVersion((major,), str(major)), BY_FIX)
    chosen = HostCompiler(family="gcc", path=path, compiler_version=version, chosen_by="NVCC_CCBIN")
    others = tuple(structs.replace(one, chosen_by="") for one in maybe(snapshot.host_compilers) or ())
    named = with_variable(with_variable(snapshot, "NVCC_CCBIN", path), "CUDAHOSTCXX", path)
    return structs.replace(named, host_compilers=Known((chosen, *others), BY_FIX))


def newer_toolkit_for_compiler(case: Case) -> tuple[Remedy, ...]:
    """Installing a toolkit that accepts the compiler that is there and compiles for the GPUs; nothing where none is known."""
    compiler = nvccs_compiler(case.snapshot)
    release = maybe(compiler.compiler_version) if compiler is not None and compiler.family == "gcc" else None
    if release is None:
        return ()
    accepting = set(case.matrices.compilers.toolkits_for_gcc(release))
    return install_toolkit(case, fitting_release(case, accepting & set(releases_for_gpus(case))))


def toolkit_for_torch(case: Case, wanted: CudaVersion | None) -> tuple[Remedy, ...]:
    """Using a toolkit of torch's CUDA major: one that is here, else the release of torch itself."""
    if wanted is None:
        return ()
    current = build_toolkit(case.snapshot)
    here_already = [
        kit
        for kit in maybe(case.snapshot.toolkits) or ()
        if kit is not current and kit.root and _same_major(kit, wanted) and "nvcc" not in kit.missing_parts
    ]
    if here_already:
        best = max(here_already, key=lambda kit: (maybe(kit.toolkit_version) == wanted, kit.root))
        return use_toolkit(case, best)
    return install_toolkit(case, CudaVersion.of(wanted.major, wanted.minor))


def _same_major(kit: Toolkit, wanted: CudaVersion) -> bool:
    version = maybe(kit.toolkit_version)
    return version is not None and version.major == wanted.major


def system_packages(case: Case, title: str, names: dict[str, str]) -> tuple[Remedy, ...]:
    """Installing a package that each package manager calls differently; nothing where the distribution is unknown."""
    manager = package_manager(case.snapshot)
    if manager not in names:
        return ()
    verb = {"apt": "apt-get install", "dnf": "dnf install", "pacman": "pacman -S", "zypper": "zypper install"}[manager]
    command = f"sudo {verb} {names[manager]}"
    return (Remedy(Fix(title=title, commands=(command,), where=here(case.snapshot), needs_root=True)),)


def drop_compiler_variable(case: Case, name: str) -> tuple[Remedy, ...]:
    """Unsetting a variable that names a compiler: the one on PATH is then taken."""

    def effect(snapshot: Snapshot) -> Snapshot:
        others = tuple(one for one in maybe(snapshot.host_compilers) or () if one.chosen_by != name)
        return structs.replace(with_variable(snapshot, name, None), host_compilers=Known(others, BY_FIX))

    command = f"Remove-Item Env:{name}" if on_windows(case) else f"unset {name}"
    fix = Fix(title=f"Unset {name}: the compiler on PATH is then taken", commands=(command,), where=here(case.snapshot))
    return (Remedy(fix, where_probed(case, effect)),)
