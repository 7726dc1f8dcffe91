"""Rules about the torch that is installed: without CUDA, replaced, or failing to import or to use the GPU (CD401 to CD406)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import Package, TorchBuild
from cudadoctor.rules import fixes
from cudadoctor.rules.driver_answers import BREAKS_CUINIT
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import seen
from cudadoctor.rules.questions import (
    Presence,
    installed_torch,
    named_torch,
    torch,
    torch_build,
)
from cudadoctor.rules.software_questions import (
    package_evidence,
    packages,
    reading,
)
from cudadoctor.rules.torch_questions import (
    NOT_COMPILED,
    cpu_build,
    no_nvidia_meant,
    torch_evidence,
    wants_cuda,
)

TORCH_INDEX = "https://pytorch.org/get-started/locally/"


def first_line(text: str) -> str:
    """The first line of a message, without its full stop."""
    return text.strip().partition("\n")[0].rstrip(". ")


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
    why_not = no_nvidia_meant(case)
    if why_not is not None:
        raise NotApplicableError(why_not)
    if not cpu_build(case):
        if build is None:
            installed_torch(case.snapshot)
        return
    named = build is not None and torch_build(build) is TorchBuild.CPU and maybe(build.torch_version) is not None
    inferred = build is not None and not named and not case.saw(*NOT_COMPILED) and maybe(build.torch_version) is not None
    yield Problem(
        subject="torch",
        what=f"{named_torch(build, 'torch')} is a CPU build: it cannot use the GPU."
        if build is not None and (named or inferred)
        else "The torch that runs here is a CPU build: it cannot use the GPU.",
        why="torch.cuda.is_available() is False and .cuda() fails, whatever driver and toolkit are installed.",
        evidence=(*torch_evidence(build), *seen(case, *NOT_COMPILED)),
        remedies=fixes.install_cuda_torch(case),
        severity=None if wants_cuda(case) else Severity.WARNING,
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
    why_not = no_nvidia_meant(case)
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
        severity=None if wants_cuda(case) else Severity.WARNING,
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
    fact = installed_torch(case.snapshot).imports
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
    build = installed_torch(case.snapshot)
    if torch_build(build) is not TorchBuild.CUDA:
        raise NotApplicableError("torch is not a CUDA build")
    if case.gpu_presence is Presence.NO:
        raise NotApplicableError("no NVIDIA GPU")
    if known(build.is_available):
        return
    words = maybe(build.cuda_error)
    yield Problem(
        subject="torch",
        what=f"{named_torch(build, 'torch')} is a CUDA build but cannot use the GPU" + (f": {words}" if words else "."),
        why="Programs fall back to the CPU or stop.",
        evidence=(
            *evidence("python.torch.is_available", build.is_available),
            *evidence("python.torch.cuda_error", build.cuda_error),
        ),
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
)
