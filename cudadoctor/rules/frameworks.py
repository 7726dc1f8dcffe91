"""Rules about the frameworks of the examined Python: is it a CUDA build, how did it get there, does it import (CD4xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.compat import is_tegra
from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.model.fact import Known, Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import Package, Platform, Torch, TorchBuild
from cudadoctor.rules import fixes
from cudadoctor.rules.case import once_a_case
from cudadoctor.rules.circumstances import as_evidence, cpu_is_meant, on_windows
from cudadoctor.rules.driver import BREAKS_CUINIT, seen
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.questions import (
    Presence,
    gpus_with_capability,
    local_tag,
    platform,
    torch,
    torch_build,
    torch_release,
    torch_version_text,
    wheel_platform,
)
from cudadoctor.rules.software_questions import (
    conda_torch,
    is_partial,
    is_wheel_of_an_index,
    named_torch,
    package,
    package_evidence,
    packages,
    reading,
    version_of,
)

NOT_COMPILED = ("torch-not-compiled-with-cuda", "cuda-version-undetected")
"""Texts that only a torch without CUDA prints."""
CPU_CHOSEN = ("conda-cpu-variant", "torch-replaced")
"""Texts of installers that chose a CPU build."""
LAST_TENSORFLOW_FOR_WINDOWS = (2, 10)
"""Native Windows builds have no CUDA from 2.11 on (TensorFlow's installation guide, pip, Windows native)."""
TORCH_INDEX = "https://pytorch.org/get-started/locally/"


def _torch(case: Case) -> Torch:
    """The torch to judge; ends the rule as not applicable or unknown where there is none."""
    fact = case.snapshot.python.torch
    if isinstance(fact, Missing) and fact.reason is MissingReason.NOT_FOUND:
        raise NotApplicableError("torch is not installed in the examined Python")
    return known(fact)


def first_line(text: str) -> str:
    """The first line of a message, without its full stop."""
    return text.strip().partition("\n")[0].rstrip(". ")


# torch: CPU builds and how they came


def _version_evidence(build: Torch | None) -> tuple[Evidence, ...]:
    if build is None:
        return ()
    return (
        *evidence("python.torch.torch_version", build.torch_version),
        *evidence("python.torch.build", build.build, value=known(build.build).value if isinstance(build.build, Known) else None),
    )


def _is_default_cpu_wheel(case: Case, build: Torch) -> bool:
    """Is it a release without a tag whose wheel on this platform's default index is a CPU build, and no GPU is seen by it?"""
    if torch_build(build) is not None or local_tag(build) or maybe(build.is_available) is not False:
        return False
    if maybe(case.snapshot.python.installer) == "conda" or conda_torch(case.snapshot) is not None or _is_jetson(case):
        return False
    place, release = wheel_platform(case.snapshot), torch_release(build)
    if place is None or release is None or (platform(case.snapshot) is None and place is not WheelPlatform.LINUX_AARCH64):
        return False
    default = case.matrices.torch.default_variant(release, place)
    return default is not None and default.cuda is None


@once_a_case
def cpu_build(case: Case) -> bool:
    """Is the torch that runs a CPU build, as it says itself, as a text proves, or as its wheel implies?"""
    build = torch(case.snapshot)
    if build is not None and torch_build(build) in (TorchBuild.ROCM, TorchBuild.XPU):
        return False
    if case.saw(*NOT_COMPILED):
        return True
    if case.saw(*CPU_CHOSEN) and (build is None or torch_build(build) is None):
        return True
    return build is not None and (torch_build(build) is TorchBuild.CPU or _is_default_cpu_wheel(case, build))


@once_a_case
def _no_nvidia_meant(case: Case) -> str | None:
    """Why a CPU build is no fault here: no CUDA on the platform, or no NVIDIA GPU; None where it is one."""
    if platform(case.snapshot) is Platform.MACOS:
        return "macOS has no CUDA builds of torch"
    presence = case.gpu_presence
    if presence is Presence.NO and not case.saw(*NOT_COMPILED):
        return "no NVIDIA GPU, for which a CPU build is right"
    if presence is not Presence.YES and case.saw("shown-amd-gpu"):
        return "an AMD GPU and no NVIDIA one"
    if cpu_is_meant(case):
        return "nothing shows an NVIDIA GPU or asks for one"
    return None


def _wants_cuda(case: Case) -> bool:
    """Does anything show that CUDA is wanted: a GPU, an error, or a text that asks `is_available()`?"""
    if case.gpu_presence is Presence.YES or case.saw(*NOT_COMPILED):
        return True
    build = torch(case.snapshot)
    return is_partial(case.snapshot) and build is not None and maybe(build.is_available) is False


def cpu_only_torch(case: Case) -> Iterable[Problem]:
    """The installed torch is a CPU build on a machine with an NVIDIA GPU.

    What it checks: `torch.version.cuda` and the version's local part (+cpu), conda's build string, which wheel the default
    index has for this platform; error texts such as "Torch not compiled with CUDA enabled".

    Why it matters: everything runs on the CPU, or `.cuda()` fails.

    How to fix: install the CUDA build of the same release from its index. On Linux x86-64 a plain `pip install torch` gives a
    CUDA build; on Windows and macOS it does not, on aarch64 it depends on the release.

    When it is wrong: on a machine without an NVIDIA GPU a CPU build is right, and the rule does not speak.

    Sources: matrices/torch_builds.toml (default build by platform and release).
    """
    build = torch(case.snapshot)
    why_not = _no_nvidia_meant(case)
    if why_not is not None:
        raise NotApplicableError(why_not)
    if not cpu_build(case):
        if build is None:
            _torch(case)
        return
    named = build is not None and torch_build(build) is TorchBuild.CPU and maybe(build.torch_version) is not None
    inferred = build is not None and not named and not case.saw(*NOT_COMPILED) and maybe(build.torch_version) is not None
    yield Problem(
        subject="torch",
        what=f"torch {torch_version_text(build)} is a CPU build: it cannot use the GPU."
        if build is not None and (named or inferred)
        else "The torch that runs here is a CPU build: it cannot use the GPU.",
        why="torch.cuda.is_available() is False and .cuda() fails, whatever driver and toolkit are installed.",
        evidence=(*_version_evidence(build), *seen(case, *NOT_COMPILED)),
        remedies=fixes.install_cuda_torch(case),
        severity=None if _wants_cuda(case) else Severity.WARNING,
        confidence=Confidence.LIKELY if inferred else Confidence.CERTAIN,
    )


def torch_replaced(case: Case) -> Iterable[Problem]:
    """An install step replaced the CUDA build of torch by another one.

    What it checks: logs of pip, uv and conda that remove a torch with a CUDA tag (+cu128) and install another torch.

    Why it matters: a dependency that asks for plain `torch` makes the installer take whatever the default index has: on Windows
    and some aarch64 releases a CPU build, elsewhere a build for another CUDA than the driver or GPU needs.

    How to fix: install the CUDA build again from its index, and the package that replaced it with --no-deps, or with a
    constraints file that pins torch.

    When it is wrong: where the replacement was wanted and works, it is only noted.

    Sources: pip documentation, Constraints Files; matrices/torch_builds.toml.
    """
    texts = seen(case, "torch-replaced")
    log = reading(case.snapshot, "install_log")
    old, new = log.get("removed", {}).get("torch", ""), log.get("installed", {}).get("torch", "")
    replaced = bool(new) and "+cu" in old and "+cu" not in new and old != new
    if not replaced and not texts:
        return
    is_cpu = cpu_build(case) or "+cpu" in new or bool(texts)
    what = f"An install step replaced torch {old} by {new}" if replaced else "An install step replaced the CUDA build of torch"
    yield Problem(
        subject="torch",
        what=what + (", a CPU build." if is_cpu else ", whose CUDA may be another."),
        why="A dependency that asks for plain torch lets the installer take what the default index has for this platform.",
        evidence=(
            *texts,
            *(
                (Evidence(fact="readings.install_log", value=f"removed {old}, installed {new}", source="install log"),)
                if old
                else ()
            ),
        ),
        remedies=(*(fixes.install_torch_build(case, old) or fixes.install_cuda_torch(case)), _keep_torch(case, old)),
        severity=Severity.ERROR if is_cpu else Severity.WARNING,
        confidence=Confidence.CERTAIN if is_cpu else Confidence.LIKELY,
    )


def _keep_torch(case: Case, old: str) -> Remedy:
    python = fixes.interpreter(case.snapshot)
    pin = f"torch=={old}" if old else "torch==VERSION+cuXXX"
    return Remedy(
        Fix(
            title="Then install the package that replaced it with torch pinned, so that it leaves torch alone",
            commands=(f"echo '{pin}' > torch.txt", f"{python} -m pip install -c torch.txt PACKAGE"),
            where=Where.VENV,
        )
    )


def _cpu_conda_packages(case: Case) -> tuple[Package, ...]:
    """The packages that make or show conda's CPU variant of torch."""
    found = []
    for each in packages(case.snapshot):
        by_build = each.name in ("pytorch", "libtorch", "pytorch-mutex") and "cpu" in each.build.lower()
        if by_build or each.name in ("cpuonly", "pytorch-cpu"):
            found.append(each)
    return tuple(found)


def conda_cpu_variant(case: Case) -> Iterable[Problem]:
    """conda's solver chose the CPU variant of torch.

    What it checks: the packages cpuonly and pytorch-cpu, the build of pytorch-mutex, and build strings of pytorch with `cpu`.

    Why it matters: the solver takes the CPU variant silently where no CUDA build fits everything that is asked for, or where it
    sees no driver (`__cuda`); a cudatoolkit in the list says nothing about torch.

    How to fix: ask for the CUDA variant by name, so that the solver fails rather than choosing the other; remove cpuonly.

    When it is wrong: on a machine without an NVIDIA GPU the CPU variant is right.

    Sources: conda-forge documentation, packages with CUDA variants; file lists of the pytorch channel.
    """
    why_not = _no_nvidia_meant(case)
    if why_not is not None:
        raise NotApplicableError(why_not)
    found, texts = _cpu_conda_packages(case), seen(case, "conda-cpu-variant")
    build = torch(case.snapshot)
    if (not found and not texts) or (build is not None and torch_build(build) is TorchBuild.CUDA):
        return
    shown = ", ".join(f"{each.name} {each.package_version} {each.build}".strip() for each in found)
    yield Problem(
        subject="torch",
        what=f"conda's solver chose the CPU variant of torch{f': {shown}' if shown else ''}.",
        why="It does so silently where no CUDA build fits all that is asked for, or where it sees no driver.",
        evidence=(*(item for each in found for item in package_evidence(each)), *texts),
        remedies=_cuda_variant(found),
        severity=None if _wants_cuda(case) else Severity.WARNING,
    )


def _cuda_variant(found: tuple[Package, ...]) -> tuple[Remedy, ...]:
    remove = ("conda remove cpuonly",) if any(each.name == "cpuonly" for each in found) else ()
    return (
        Remedy(
            Fix(
                title="Ask for the CUDA variant by name, so that the solver cannot choose the other",
                commands=(*remove, "conda install -c conda-forge pytorch-gpu"),
                where=Where.VENV,
                verify=('python -c "import torch; print(torch.version.cuda)"',),
            )
        ),
        Remedy(
            Fix(
                title="Where the solver sees no driver (a login node, a Docker build), tell it which CUDA the driver has",
                commands=("CONDA_OVERRIDE_CUDA=12.4 conda install -c conda-forge pytorch-gpu",),
                where=Where.VENV,
            )
        ),
    )


def _is_jetson(case: Case) -> bool:
    """Is this a Jetson or another Tegra board?"""
    if maybe(case.snapshot.host.jetson) is not None:
        return True
    return any(is_tegra(gpu.compute_capability) for gpu in gpus_with_capability(case))


def aarch64_default_index(case: Case) -> Iterable[Problem]:
    """A plain install on aarch64 gave the CPU wheel of torch; the CUDA wheel is on its own index.

    What it checks: a CPU build of torch on an aarch64 machine that is no Jetson, for a release whose wheel on the default index
    is the CPU build.

    Why it matters: on Grace Hopper, Grace Blackwell and DGX Spark `pip install torch` silently gives a torch without CUDA.

    How to fix: install from the index of a CUDA version, which has aarch64 wheels.

    When it is wrong: for releases whose default aarch64 wheel is a CUDA build; there the CPU index was asked for.

    Sources: matrices/torch_builds.toml, default_linux_aarch64.
    """
    why_not = _no_nvidia_meant(case)
    if why_not is not None:
        raise NotApplicableError(why_not)
    if maybe(case.snapshot.host.architecture) not in ("aarch64", "arm64") or _is_jetson(case):
        return
    build = _torch(case)
    release = torch_release(build)
    default = case.matrices.torch.default_variant(release, WheelPlatform.LINUX_AARCH64) if release is not None else None
    if not cpu_build(case) or conda_torch(case.snapshot) is not None or (default is not None and default.cuda is not None):
        return
    yield Problem(
        subject="torch",
        what=f"torch {torch_version_text(build)} is the CPU wheel that the default index has for aarch64.",
        why="The CUDA wheels for aarch64 are on the index of their CUDA version only.",
        evidence=(*_version_evidence(build), *evidence("host.architecture", case.snapshot.host.architecture)),
        remedies=fixes.install_cuda_torch(case),
        severity=None if _wants_cuda(case) else Severity.WARNING,
        confidence=Confidence.CERTAIN if default is not None else Confidence.LIKELY,
    )


NO_CODE = ("no-kernel-image", "torch-gpu-cc-not-listed", "torch-gpu-too-old", "cuda-invalid-device-function")


def jetson_generic_wheel(case: Case) -> Iterable[Problem]:
    """A generic aarch64 build of torch is installed on a Jetson, instead of the one for its JetPack.

    What it checks: on a Jetson, a torch that is no NVIDIA build and is a CPU build, sees no GPU, or fails for want of code.

    Why it matters: before JetPack 7, Jetsons have a driver of their own (L4T); wheels of the default index and conda-forge's
    packages are made for servers (SBSA) and have neither its libraries nor its architectures.

    How to fix: install the wheel that NVIDIA publishes for this JetPack and its Python, or use NVIDIA's L4T container.

    When it is wrong: with JetPack 7 (Thor) the server wheels of CUDA 13 do work; a torch that computes is never named.

    Sources: NVIDIA, Installing PyTorch for Jetson Platform; CUDA for Tegra application note.
    """
    if not _is_jetson(case):
        return
    build = torch(case.snapshot)
    if build is not None and not is_wheel_of_an_index(build):
        return
    blind = build is not None and (cpu_build(case) or maybe(build.is_available) is False)
    failed = case.saw(*NO_CODE)
    if not blind and not failed and not case.saw(*NOT_COMPILED):
        return
    board = maybe(case.snapshot.host.jetson) or "this Jetson"
    name = named_torch(build, "torch")
    yield Problem(
        subject="torch",
        what=f"{name} on {board} is a generic aarch64 build, not NVIDIA's for its JetPack.",
        why="It has no code for the Jetson's GPU." if failed else "It has no CUDA that fits the Jetson's own driver (L4T).",
        evidence=(
            *_version_evidence(build),
            *evidence("host.jetson", case.snapshot.host.jetson),
            *seen(case, *NO_CODE, *NOT_COMPILED),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="Remove it and install the torch wheel that NVIDIA publishes for this JetPack and its Python",
                    commands=(
                        "cat /etc/nv_tegra_release",
                        f"{fixes.interpreter(case.snapshot)} -m pip uninstall torch torchvision",
                    ),
                    where=Where.VENV,
                )
            ),
        ),
        confidence=Confidence.LIKELY,
        references=("https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/index.html",),
    )


def torch_rocm_build(case: Case) -> Iterable[Problem]:
    """The installed torch is a ROCm build on a machine with an NVIDIA GPU.

    What it checks: `torch.version.hip` and the version's local part (+rocm); HIP errors.

    Why it matters: a ROCm build runs on AMD GPUs only.

    How to fix: install the CUDA build of the same release.

    When it is wrong: on a machine with an AMD GPU and no NVIDIA one it is the right build, and the rule does not speak.

    Sources: torch documentation, torch.version.
    """
    texts = seen(case, "torch-rocm-build")
    build = torch(case.snapshot)
    is_rocm = build is not None and torch_build(build) is TorchBuild.ROCM
    if not is_rocm and not texts:
        _torch(case)
        return
    presence = case.gpu_presence
    wanted = bool(texts) or case.saw(*NOT_COMPILED) or (build is not None and maybe(build.is_available) is False)
    if presence is not Presence.YES and (presence is Presence.NO or case.saw("shown-amd-gpu") or not wanted):
        raise NotApplicableError("no NVIDIA GPU was seen, for which a ROCm build would be wrong")
    shown = torch_version_text(build) if build is not None and is_rocm else "that runs here"
    yield Problem(
        subject="torch",
        what=f"The torch {shown} is a ROCm build: it runs on AMD GPUs only.",
        why="torch.cuda.is_available() is False on an NVIDIA GPU.",
        evidence=(*_version_evidence(build), *texts),
        remedies=fixes.install_cuda_torch(case),
        confidence=Confidence.CERTAIN if is_rocm else Confidence.LIKELY,
    )


def torch_import_fails(case: Case) -> Iterable[Problem]:
    """`import torch` fails, crashes or hangs in the examined Python.

    What it checks: a child process of that interpreter that imports torch; an exception, a signal and a deadline are told
    apart.

    Why it matters: no program of that environment can use torch.

    How to fix: an exception that names a missing library is explained by the finding for that library; a crash at import is
    nearly always a mix of binaries from different builds, which a clean reinstall into a new environment mends.

    When it is wrong: a module named torch in the current folder that shadows the real one; the examined path is shown.

    Sources: the child's own exit status and error text.
    """
    fact = _torch(case).imports
    if not isinstance(fact, Missing):
        return
    if fact.reason is MissingReason.CRASHED:
        what, why = "`import torch` crashes", "Binaries of different builds are mixed, or a library that torch loads is damaged."
    elif fact.reason is MissingReason.FAILED:
        what, why = "`import torch` fails", "Nothing that needs torch runs in this environment."
    elif fact.reason is MissingReason.TIMEOUT:
        what, why = "`import torch` does not return", "A file system, a library or the driver does not answer."
    else:
        known(fact)
        return
    yield Problem(
        subject="torch",
        what=f"{what} in {maybe(case.snapshot.python.executable) or 'the examined Python'}: {first_line(fact.detail)}.",
        why=why,
        evidence=(
            Evidence(fact="python.torch.imports", value=fact.detail or fact.reason.value, source=fact.source or "torch child"),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="See where it stops",
                    commands=(f"{fixes.interpreter(case.snapshot)} -X faulthandler -c 'import torch'",),
                    where=Where.VENV,
                )
            ),
        ),
    )


def torch_cannot_use_gpu(case: Case) -> Iterable[Problem]:
    """torch is a CUDA build but cannot use the GPU.

    What it checks: `torch.cuda.is_available()` and the error text of its CUDA initialisation.

    Why it matters: programs fall back to the CPU or fail.

    How to fix: mend the cause that another finding names; this one is its consequence. Alone, it says that the driver works
    and torch does not, with torch's own words.

    When it is wrong: CUDA_VISIBLE_DEVICES hides the GPU on purpose.

    Sources: torch's own error text.
    """
    build = _torch(case)
    if torch_build(build) is not TorchBuild.CUDA:
        raise NotApplicableError("torch is not a CUDA build")
    if case.gpu_presence is Presence.NO:
        raise NotApplicableError("no NVIDIA GPU")
    if known(build.is_available):
        return
    words = maybe(build.cuda_error)
    yield Problem(
        subject="torch",
        what=f"torch {torch_version_text(build)} is a CUDA build but cannot use the GPU" + (f": {words}" if words else "."),
        why="Programs fall back to the CPU or stop.",
        evidence=(
            *evidence("python.torch.is_available", build.is_available),
            *evidence("python.torch.cuda_error", build.cuda_error),
        ),
    )


# TensorFlow and JAX


def _cpu_tensorflow(case: Case) -> tuple[str, tuple[Evidence, ...]] | None:
    """Why the installed TensorFlow has no CUDA, from its packages and platform; None where nothing says so."""
    for name in ("tensorflow-cpu", "tensorflow-intel", "intel-tensorflow"):
        found = package(case.snapshot, name)
        if (
            found is not None
            and package(case.snapshot, "tensorflow-gpu") is None
            and (name != "tensorflow-intel" or on_windows(case))
        ):
            return f"{name} {found.package_version} is a CPU build", package_evidence(found)
    found = package(case.snapshot, "tensorflow", "tensorflow-base")
    version = version_of(found.package_version) if found is not None else None
    if found is None or version is None:
        return None
    if on_windows(case) and version.release[:2] > LAST_TENSORFLOW_FOR_WINDOWS:
        return f"TensorFlow {version} for native Windows is built without CUDA (from 2.11 on)", package_evidence(found)
    if any(word in found.build.lower() for word in ("eigen", "mkl", "cpu")):
        return f"conda's build {found.build} of TensorFlow {version} is a CPU build", package_evidence(found)
    return None


def cpu_only_tensorflow(case: Case) -> Iterable[Problem]:
    """The installed TensorFlow has no CUDA support on this platform or in this build.

    What it checks: `tf.test.is_built_with_cuda()`, TensorFlow's own words, packages of CPU builds (tensorflow-cpu, conda's mkl
    and eigen builds), and the version on native Windows.

    Why it matters: `tf.config.list_physical_devices('GPU')` is empty whatever driver, toolkit and cuDNN are installed.

    How to fix: on Windows use WSL2 (or TensorFlow 2.10, the last with CUDA there); on Linux install tensorflow[and-cuda].

    When it is wrong: on a machine without an NVIDIA GPU a CPU build is right.

    Sources: TensorFlow, Install with pip; matrices/ecosystem.toml.
    """
    if platform(case.snapshot) is Platform.MACOS:
        raise NotApplicableError("macOS has no CUDA builds of TensorFlow")
    answers = reading(case.snapshot, "python_answers")
    texts = seen(case, "cpu-only-tensorflow")
    cause = _cpu_tensorflow(case)
    says_no = answers.get("tf_built_with_cuda") is False
    if not texts and not says_no and cause is None:
        return
    if case.gpu_presence is Presence.NO and not texts:
        raise NotApplicableError("no NVIDIA GPU, for which a CPU build is right")
    sees_none = answers.get("tf_gpus") == [] or answers.get("tf_gpu_available") is False
    yield Problem(
        subject="TensorFlow",
        what=(cause[0] if cause is not None else "The TensorFlow that runs here is built without CUDA") + ".",
        why="It sees no GPU, whatever driver, toolkit and cuDNN are installed.",
        evidence=(*texts, *(cause[1] if cause is not None else ())),
        remedies=_tensorflow_with_cuda(case),
        severity=None if texts or says_no or sees_none else Severity.WARNING,
    )


def _tensorflow_with_cuda(case: Case) -> tuple[Remedy, ...]:
    python = fixes.interpreter(case.snapshot)
    if on_windows(case):
        return (
            Remedy(
                Fix(
                    title="Use WSL2, where TensorFlow has CUDA builds",
                    commands=("wsl --install", 'python3 -m pip install "tensorflow[and-cuda]"'),
                    where=Where.WINDOWS,
                )
            ),
            Remedy(
                Fix(
                    title="Install the last release with CUDA on native Windows (Python 3.7 to 3.10, CUDA 11.2, cuDNN 8.1)",
                    commands=('python -m pip install "tensorflow<2.11"',),
                    where=Where.VENV,
                )
            ),
        )
    return (
        Remedy(
            Fix(
                title="Install TensorFlow with its CUDA libraries",
                commands=(f"{python} -m pip install 'tensorflow[and-cuda]'",),
                where=Where.VENV,
                verify=(f"{python} -c \"import tensorflow as tf; print(tf.config.list_physical_devices('GPU'))\"",),
            )
        ),
    )


def cpu_only_jax(case: Case) -> Iterable[Problem]:
    """The installed JAX has no CUDA plugin.

    What it checks: JAX's own words ("a CUDA-enabled jaxlib is not installed"); on a machine with a GPU, a jaxlib without a CUDA
    plugin or tag.

    Why it matters: JAX falls back to the CPU and says so only once.

    How to fix: install jax[cuda12] or jax[cuda13], as the driver allows.

    When it is wrong: JAX may be meant for the CPU; without an error text it is only noted.

    Sources: JAX documentation, Installation.
    """
    texts = seen(case, "cpu-only-jax")
    if case.gpu_presence is Presence.YES:
        texts += as_evidence(tuple(error for error in case.errors("no-gpu-remark") if "TPU" in error.text))
    jaxlib = package(case.snapshot, "jaxlib")
    names = {each.name for each in packages(case.snapshot)}
    bare = jaxlib is not None and "cuda" not in f"{jaxlib.package_version} {jaxlib.build}"
    plugin = any(name.startswith("jax-cuda") for name in names)
    if not texts and (not bare or plugin):
        return
    if platform(case.snapshot) is Platform.MACOS or case.gpu_presence is Presence.NO:
        raise NotApplicableError("no NVIDIA GPU for JAX")
    if not texts and case.gpu_presence is not Presence.YES:
        return
    cuda = maybe(case.snapshot.driver.driver_cuda_version)
    extra = "cuda13" if cuda is not None and cuda.major >= 13 else "cuda12"
    yield Problem(
        subject="JAX",
        what="JAX has no CUDA plugin: it runs on the CPU.",
        why="jax.devices() shows no GPU, whatever driver and toolkit are installed.",
        evidence=(*texts, *(package_evidence(jaxlib) if jaxlib is not None else ())),
        remedies=(
            Remedy(
                Fix(
                    title="Install JAX with its CUDA plugin and libraries",
                    commands=(f"{fixes.interpreter(case.snapshot)} -m pip install --upgrade 'jax[{extra}]'",),
                    where=Where.VENV,
                    verify=(f'{fixes.interpreter(case.snapshot)} -c "import jax; print(jax.devices())"',),
                )
            ),
        ),
        severity=None if texts else Severity.NOTE,
    )


def benign_tf_import_noise(case: Case) -> Iterable[Problem]:
    """Messages that TensorFlow prints on import and that mean nothing.

    What it checks: "Unable to register cuDNN factory", "TF-TRT Warning: Could not find TensorRT", "This TensorFlow binary is
    optimized", the NUMA node of -1.

    Why it matters: it does not; TensorRT is optional, the factories are registered already. They are often printed only because
    TensorBoard imports TensorFlow.

    How to fix: nothing; TF_CPP_MIN_LOG_LEVEL=2 silences most of them.

    When it is wrong: other lines beside them may be errors; those have findings of their own.

    Sources: TensorFlow issues on "Unable to register cuDNN factory"; tf2tensorrt/utils/py_utils.cc.
    """
    texts = seen(case, "benign-tf-import-noise")
    if texts:
        yield Problem(
            subject="TensorFlow",
            what="TensorFlow's messages about factories, TensorRT or CPU instructions are harmless.",
            why="They are printed on import and do not mean that cuDNN, cuBLAS or the GPU is missing.",
            evidence=texts[:3],
        )


CAUSES = (
    *BREAKS_CUINIT, "libcuda-missing", "no-nvidia-gpu", "no-device-visible", "cuda-init-fails", "jetson-generic-wheel",
)  # fmt: skip
WHY_CPU = ("torch-replaced", "conda-cpu-variant", "aarch64-default-index", "jetson-generic-wheel", "multiple-environments")

RULES = (
    Rule(
        "CD401",
        "cpu-only-torch",
        Severity.ERROR,
        "The imported torch is a CPU build",
        cpu_only_torch,
        explained_by=WHY_CPU,
    ),
    Rule("CD402", "torch-rocm-build", Severity.ERROR, "The imported torch is a ROCm build", torch_rocm_build),
    Rule(
        "CD403",
        "torch-import-fails",
        Severity.ERROR,
        "import torch fails, crashes or hangs",
        torch_import_fails,
        explained_by=(
            "libcudart-missing",
            "cuda-lib-missing",
            "libcudnn-missing",
            "ld-library-path-shadow",
            "libcuda-missing",
            "cuda-dll-not-on-path",
            "system-library-too-old",
            "msvc-runtime-missing",
            "jetson-generic-wheel",
            "alloc-conf-malformed",
        ),
        essential=True,
    ),
    Rule(
        "CD404",
        "torch-cannot-use-gpu",
        Severity.ERROR,
        "torch is a CUDA build but cannot use the GPU",
        torch_cannot_use_gpu,
        explained_by=CAUSES,
    ),
    Rule("CD405", "torch-replaced", Severity.ERROR, "An install step replaced the CUDA torch", torch_replaced),
    Rule("CD406", "conda-cpu-variant", Severity.ERROR, "conda chose the CPU variant of torch", conda_cpu_variant),
    Rule(
        "CD407", "aarch64-default-index", Severity.ERROR, "The default index has a CPU wheel for aarch64", aarch64_default_index
    ),
    Rule("CD408", "jetson-generic-wheel", Severity.ERROR, "A generic torch on a Jetson", jetson_generic_wheel),
    Rule("CD409", "cpu-only-tensorflow", Severity.ERROR, "TensorFlow is built without CUDA", cpu_only_tensorflow),
    Rule("CD410", "cpu-only-jax", Severity.ERROR, "JAX has no CUDA plugin", cpu_only_jax),
    Rule(
        "CD411", "benign-tf-import-noise", Severity.NOTE, "TensorFlow's messages on import are harmless", benign_tf_import_noise
    ),
)
