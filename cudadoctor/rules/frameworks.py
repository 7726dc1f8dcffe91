"""Rules about TensorFlow and JAX: are they CUDA builds, and which of their messages are harmless (CD409 to CD411)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import Platform
from cudadoctor.rules import fixes
from cudadoctor.rules.circumstances import on_windows
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.questions import (
    Presence,
    platform,
)
from cudadoctor.rules.software_questions import (
    package,
    package_evidence,
    packages,
    reading,
    version_of,
)

LAST_TENSORFLOW_FOR_WINDOWS = (2, 10)
"""Native Windows builds have no CUDA from 2.11 on (TensorFlow's installation guide, pip, Windows native)."""


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


RULES = (
    Rule("CD409", "cpu-only-tensorflow", Severity.ERROR, "TensorFlow is built without CUDA", cpu_only_tensorflow),
    Rule("CD410", "cpu-only-jax", Severity.ERROR, "JAX has no CUDA plugin", cpu_only_jax),
    Rule(
        "CD411", "benign-tf-import-noise", Severity.NOTE, "TensorFlow's messages on import are harmless", benign_tf_import_noise
    ),
)
