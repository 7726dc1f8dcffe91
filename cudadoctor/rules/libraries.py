"""Rules about CUDA's run-time libraries: missing, shadowed, mixed (CD301 to CD309). cuDNN has a module of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.snapshot import ErrorSeen, Package, Platform, SearchFolder, Snapshot
from cudadoctor.rules import binaries, library_fixes, toolkit_fixes
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import Presence, platform, torch
from cudadoctor.rules.toolkit_questions import (
    build_toolkit,
    quoted,
    variable_evidence,
)

TENSORRT = re.compile(r"nvinfer|nvonnxparser", re.IGNORECASE)


WHEEL_OF_MAJOR = re.compile(r"(nvidia-[a-z0-9-]+?)(?:-cu(1[1-9]))")


SAME_FILES = frozenset({"nvidia-cudnn", "nvidia-nccl", "nvidia-cusparselt", "nvidia-nvshmem", "nvidia-curand", "nvidia-cusolver"})
"""Wheels whose files have one name in two CUDA majors and lie in one folder: what is installed last overwrites the other."""


NAMED_BY_IMAGES = ("/usr/local/nvidia/", "/usr/local/cuda/compat", "/.singularity.d/")
"""Folders in the LD_LIBRARY_PATH of official images that exist only where a driver is mounted."""


def named_libraries(errors: Iterable[ErrorSeen]) -> tuple[str, ...]:
    """The libraries that these errors name, without folders, each once."""
    names = (re.split(r"[/\\]", one.values["library"])[-1] for one in errors if one.values.get("library"))
    return tuple(dict.fromkeys(names))


def _is_dll(names: Iterable[str]) -> bool:
    return any(name.lower().endswith(".dll") or re.search(r"64_\d+$", name) for name in names)


def _without_gpu(case: Case) -> bool:
    """Is this known to be a machine without a GPU, on which TensorFlow's searches for libraries mean nothing?"""
    return case.gpu_presence is Presence.NO


def libcudart_missing(case: Case) -> Iterable[Problem]:
    """libcudart, the CUDA runtime library, of the major that a program needs cannot be loaded.

    What it checks: error texts of the loader and of frameworks that name libcudart (cudart64 on Windows); and what the files of
    installed packages need, against the copies that are here.

    Why it matters: what is linked against it cannot be imported. The number in the name is the CUDA major that it was built
    for: a libcudart.so.11.0 beside a torch of CUDA 12 means that the package was built for another torch.

    How to fix: install the build of the package that fits the environment's CUDA major; else bring the library by its wheel or
    toolkit and put its folder on the loader's path.

    When it is wrong: TensorFlow before 2.9 names it on every machine without a GPU, where it is harmless.

    Sources: dlerror texts of glibc; TensorFlow dso_loader; matrices/sonames.toml.
    """
    errors = case.errors("libcudart-missing")
    if not errors:
        yield from binaries.without_cudart(case)
    if not errors or _without_gpu(case):
        return
    names = named_libraries(errors)
    yield Problem(
        subject=names[0] if names else "libcudart",
        what=f"{', '.join(names) or 'libcudart'} cannot be loaded.",
        why=f"It is the runtime library of CUDA {_majors(case, names)}, which the program was built for."
        if _majors(case, names)
        else "The CUDA runtime library that the program was built for is not where the loader looks.",
        evidence=quoted(errors),
        remedies=library_fixes.provide(case, names),
        tags=("cuda-dll-not-on-path",) if _is_dll(names) else (),
    )


def _majors(case: Case, names: Iterable[str]) -> str:
    found = {major for name in names for major in library_fixes.cuda_majors(case, name)}
    return " or ".join(map(str, sorted(found)))


def cuda_lib_missing(case: Case) -> Iterable[Problem]:
    """A CUDA library other than libcudart and cuDNN (cuBLAS, cuSOLVER, NCCL, NVRTC ...) cannot be loaded.

    What it checks: error texts of the loader and of frameworks that name one; and what the files of installed packages need,
    against the copies that are here. TensorRT that TensorFlow does not find is not meant: it is optional there.

    Why it matters: what needs the library cannot be imported, or a framework goes on without the GPU.

    How to fix: install the library's wheel or toolkit of the CUDA major that the program was built for, and put its folder on
    the loader's path.

    When it is wrong: on a machine without a GPU such texts of TensorFlow are harmless.

    Sources: dlerror texts of glibc; TensorFlow dso_loader; onnxruntime; numba; matrices/sonames.toml.
    """
    named = [one for one in case.errors("cuda-lib-missing") if not _is_optional(case, one)]
    others = [one for one in named if "cudnn" not in one.values.get("library", "").lower()]
    summed_up = not any(one.values.get("library") for one in others) and case.saw("libcudnn-missing", "libcudart-missing")
    provider = case.errors("onnxruntime-cuda-provider-failed") if _provider_without_cause(case) else ()
    if (not others or summed_up) and not provider:
        if not named:
            yield from binaries.without_cuda_library(case)
        return
    if _without_gpu(case):
        return
    names = named_libraries(others)
    yield Problem(
        subject=names[0] if names else "CUDA libraries",
        what=f"{', '.join(names) or 'A CUDA library'} cannot be loaded.",
        why="The libraries of the CUDA major that the program was built for are not where the loader looks.",
        evidence=quoted((*others, *provider)),
        remedies=library_fixes.provide(case, names),
        tags=("cuda-dll-not-on-path",) if _is_dll(names) else (),
        confidence=Confidence.CERTAIN if names else Confidence.LIKELY,
    )


def _is_optional(case: Case, error: ErrorSeen) -> bool:
    """Is it TensorRT, which TensorFlow looks for and does without?"""
    if not TENSORRT.search(error.values.get("library", "")):
        return False
    return "dynamic library" in error.text.lower() or case.saw("benign-tf-import-noise")


def _provider_without_cause(case: Case) -> bool:
    """Did onnxruntime's CUDA provider fail on Linux, and nothing say why?"""
    if not case.saw("onnxruntime-cuda-provider-failed") or _on_windows(case):
        return False
    said = " ".join(one.text for one in case.errors("onnxruntime-cuda-provider-failed")).lower()
    return "failed to create cudaexecutionprovider" in said and not case.saw(
        "libcudnn-missing", "libcudart-missing", "cuda-lib-missing", "driver-too-old", "cuda-error-35", "no-device-visible"
    )


def _on_windows(case: Case) -> bool:
    if platform(case.snapshot) is not None:
        return platform(case.snapshot) is Platform.WINDOWS
    return case.saw("windows-dll-load-failed") or any(".dll" in one.text.lower() for one in case.snapshot.errors)


def libdevice_missing(case: Case) -> Iterable[Problem]:
    """A compiler does not find libdevice, the library of device functions that a toolkit brings.

    What it checks: texts of XLA (TensorFlow, jax), numba and clang.

    Why it matters: what is compiled at run time for the GPU fails, although everything else works.

    How to fix: name a toolkit that has nvvm/libdevice in XLA_FLAGS (or CUDA_HOME), or install the wheel that brings it.

    When it is wrong: never seen.

    Sources: XLA, gpu_backend_lib; file list of the nvidia-cuda-nvcc wheels.
    """
    texts = seen(case, "libdevice-missing")
    if not texts:
        return
    kit = build_toolkit(case.snapshot)
    root = kit.root if kit is not None and kit.root else "/usr/local/cuda"
    yield Problem(
        subject="libdevice",
        what="libdevice, which a compiler at run time needs, is not found.",
        why="It lies in nvvm/libdevice of a toolkit; the compiler looks into its own default folders only.",
        evidence=texts,
        remedies=toolkit_fixes.set_variable(case, "XLA_FLAGS", f"--xla_gpu_cuda_data_dir={root}", "Name the toolkit for XLA"),
        tags=("cuda-lib-missing",),
    )


def cuda_lib_too_old(case: Case) -> Iterable[Problem]:
    """A CUDA library that is loaded is older than the one that the program was compiled with.

    What it checks: jax's text "Found cuSPARSE version X, but JAX was built against version Y". cuDNN has a rule of its own.

    Why it matters: the program refuses to use the GPU.

    How to fix: upgrade the library's wheel; where LD_LIBRARY_PATH leads to an older toolkit, start without it.

    When it is wrong: never where the program itself compares.

    Sources: jax_plugins/cuda, _version_check.
    """
    errors = [
        one
        for one in case.errors("jax-cuda-init-failed")
        if "wanted" in one.values and "library" in one.values and "cudnn" not in one.values["library"].lower()
    ]
    if not errors:
        return
    values = errors[0].values
    path = variable_evidence(case.snapshot, "LD_LIBRARY_PATH")
    yield Problem(
        subject=values["library"],
        what=f"{values['library']} {values.get('have', '')} is loaded; the program was built against {values['wanted']}.",
        why="An older copy is found first, by LD_LIBRARY_PATH or because the environment's own is older.",
        evidence=(*quoted(errors), *path),
        remedies=library_fixes.clear_library_path(case, _shadowing(case.snapshot)),
        tags=("ld-library-path-shadow",) if path else (),
    )


def ld_library_path_shadow(case: Case) -> Iterable[Problem]:
    """LD_LIBRARY_PATH (or another loader path) puts an older CUDA library in front of the one that the framework brings.

    What it checks: undefined symbols between CUDA libraries of one family, which only a mix of two versions gives; on a
    machine, which libraries the folders of LD_LIBRARY_PATH put in front of the loader's other choice, and whether those have
    what the files of installed packages need.

    Why it matters: pip's CUDA libraries find each other by RUNPATH, before which LD_LIBRARY_PATH goes: libcusparse of the wheel
    then loads libnvJitLink of the toolkit.

    How to fix: take the folder out of LD_LIBRARY_PATH. A pip-installed torch needs none.

    When it is wrong: where torch works the order is harmless, and it is said as a note.

    Sources: ld.so(8); undefined-symbol texts of glibc.
    """
    errors = case.errors("ld-library-path-shadow")
    snapshot = case.snapshot
    if errors:
        yield Problem(
            subject="LD_LIBRARY_PATH",
            what="A CUDA library loads its sibling from another CUDA version: a loader path puts a foreign copy in front.",
            why="LD_LIBRARY_PATH goes before the folders that the wheel's libraries name themselves.",
            evidence=(*quoted(errors), *variable_evidence(snapshot, "LD_LIBRARY_PATH")),
            remedies=library_fixes.clear_library_path(case, _shadowing(snapshot)),
        )
        return
    unfit = tuple(binaries.shadowed_beyond_use(case))
    if unfit:
        yield from unfit
        return
    known(snapshot.libraries.ld_library_path)
    culprits = _shadowing(snapshot)
    build = torch(snapshot)
    if not culprits or build is None:
        return
    broken = isinstance(build.imports, Missing) and build.imports.reason in (MissingReason.FAILED, MissingReason.CRASHED)
    names = sorted({name for folder in culprits for name in folder.shadows})
    yield Problem(
        subject="LD_LIBRARY_PATH",
        what=f"LD_LIBRARY_PATH puts {', '.join(folder.path for folder in culprits)} in front: {', '.join(names)} come from there.",
        why="torch does not import here, and a mix of CUDA versions is a usual reason."
        if broken
        else "Harmless while everything works; a newer torch whose libraries find an older sibling there fails with an undefined symbol.",
        evidence=variable_evidence(snapshot, "LD_LIBRARY_PATH"),
        remedies=library_fixes.clear_library_path(case, culprits),
        severity=Severity.WARNING if broken else Severity.NOTE,
        confidence=Confidence.POSSIBLE if broken else Confidence.CERTAIN,
    )


def _shadowing(snapshot: Snapshot) -> tuple[SearchFolder, ...]:
    return tuple(folder for folder in maybe(snapshot.libraries.ld_library_path) or () if folder.shadows)


def ld_library_path_dangling(case: Case) -> Iterable[Problem]:
    """LD_LIBRARY_PATH names folders that do not exist.

    What it checks: whether each of its entries is a folder.

    Why it matters: it does no harm; it usually is a left-over of a removed toolkit, and what was meant to be found is not.

    How to fix: take them out.

    When it is wrong: a folder that is mounted later. Those that NVIDIA's images name for drivers that may be mounted there do not
    count.

    Sources: ld.so(8).
    """
    folders = known(case.snapshot.libraries.ld_library_path)
    gone = [folder.path for folder in folders if not folder.exists and not folder.path.startswith(NAMED_BY_IMAGES)]
    if gone:
        rest = library_fixes.library_path_without(case.snapshot, gone)
        yield Problem(
            subject="LD_LIBRARY_PATH",
            what=f"LD_LIBRARY_PATH names {'a folder that does' if len(gone) == 1 else 'folders that do'} not exist: {', '.join(gone)}.",
            why="Harmless, and a sign of a toolkit that was moved or removed.",
            evidence=variable_evidence(case.snapshot, "LD_LIBRARY_PATH"),
            remedies=(Remedy(Fix(title="Take them out", commands=(f"export LD_LIBRARY_PATH={shlex.quote(rest)}",))),),
        )


def wheels_mix_cuda_majors(case: Case) -> Iterable[Problem]:
    """One environment holds NVIDIA wheels of one library for two CUDA majors.

    What it checks: the installed packages nvidia-*-cu11, -cu12, -cu13 by library.

    Why it matters: wheels of cuDNN, NCCL and others have files of the same name in the same folder for every CUDA major: what is
    installed last overwrites the other, and removing one breaks both.

    How to fix: remove the wheels of the major that torch does not use, and install the other ones anew.

    When it is wrong: two frameworks of different CUDA majors in one environment need both; libraries whose file names differ
    (cuBLAS) then live side by side.

    Sources: file lists of the wheels; matrices/sonames.toml.
    """
    packages = known(case.snapshot.python.packages)
    by_library: dict[str, dict[int, Package]] = {}
    for package in packages:
        match = WHEEL_OF_MAJOR.fullmatch(package.name)
        if match is not None:
            by_library.setdefault(match[1], {})[int(match[2])] = package
    mixed = {library: majors for library, majors in by_library.items() if len(majors) > 1}
    if not mixed:
        return
    clash = sorted(library for library in mixed if library in SAME_FILES and not _names_differ(mixed[library]))
    shown = sorted(f"{package.name} {package.package_version}" for majors in mixed.values() for package in majors.values())
    yield Problem(
        subject="nvidia wheels",
        what=f"Wheels for several CUDA majors are installed together: {', '.join(shown)}.",
        why=f"The files of {', '.join(clash)} have the same names in each: the one installed last has overwritten the other."
        if clash
        else "Their files have different names, so they live side by side; one set is probably left over.",
        evidence=tuple(Evidence(fact="python.packages", value=text, source="package list") for text in shown),
        remedies=library_fixes.remove_other_majors(case, mixed),
        severity=None if clash else Severity.NOTE,
    )


def _names_differ(majors: dict[int, Package]) -> bool:
    """Do cuDNN wheels of different cuDNN majors lie side by side? Their file names then differ."""
    firsts = {package.package_version.partition(".")[0] for package in majors.values()}
    return len(firsts) > 1 and all("cudnn" in package.name for package in majors.values())


def system_library_too_old(case: Case) -> Iterable[Problem]:
    """The system's C or C++ library is older than a binary needs.

    What it checks: the loader's text "version `GLIBC_2.32' not found" and its kin.

    Why it matters: the binary cannot be loaded on this distribution, whatever the driver.

    How to fix: use a newer distribution (a container does), an older release of the package, or for GLIBCXX a newer libstdc++
    such as conda's.

    When it is wrong: an LD_LIBRARY_PATH that leads to another environment's libstdc++ shows the same for GLIBCXX.

    Sources: dlerror texts of glibc; manylinux tags of wheels.
    """
    errors = case.errors("glibc-symbol-version-missing")
    if not errors:
        yield from binaries.needs_newer_system(case)
        return
    wanted = next((one.values["wanted"] for one in errors if "wanted" in one.values), "")
    glibc = case.snapshot.host.glibc
    have = f"; glibc here is {glibc.value}" if isinstance(glibc, Known) and wanted.upper().startswith("GLIBC_") else ""
    yield Problem(
        subject="glibc" if wanted.upper().startswith("GLIBC_") else "libstdc++",
        what=f"A binary needs {wanted.upper() or 'a newer system library'}, which the system's library does not have{have}.",
        why="The package was built for a newer distribution than this one.",
        evidence=seen(case, "glibc-symbol-version-missing"),
        remedies=library_fixes.newer_cxx_library(case, wanted),
    )


RULES = (
    Rule(
        "CD301",
        "libcudart-missing",
        Severity.ERROR,
        "libcudart of the needed major cannot be loaded",
        libcudart_missing,
        explained_by=("extension-cuda-major-mismatch", "cuda-dll-not-on-path"),
    ),
    Rule(
        "CD302",
        "cuda-lib-missing",
        Severity.ERROR,
        "A CUDA library cannot be loaded",
        cuda_lib_missing,
        explained_by=(
            "cuda-dll-not-on-path",
            "extension-cuda-major-mismatch",
        ),
    ),
    Rule(
        "CD304",
        "ld-library-path-shadow",
        Severity.ERROR,
        "A loader path puts an older CUDA library in front",
        ld_library_path_shadow,
    ),
    Rule(
        "CD305",
        "ld-library-path-dangling",
        Severity.NOTE,
        "LD_LIBRARY_PATH names folders that do not exist",
        ld_library_path_dangling,
    ),
    Rule(
        "CD306",
        "wheels-mix-cuda-majors",
        Severity.WARNING,
        "NVIDIA wheels of several CUDA majors in one environment",
        wheels_mix_cuda_majors,
    ),
    Rule(
        "CD309",
        "system-library-too-old",
        Severity.ERROR,
        "The system's C or C++ library is too old for a binary",
        system_library_too_old,
    ),
    Rule("CD307", "libdevice-missing", Severity.ERROR, "libdevice is not found", libdevice_missing),
    Rule("CD308", "cuda-lib-too-old", Severity.ERROR, "A loaded CUDA library is older than the program needs", cuda_lib_too_old),
)
