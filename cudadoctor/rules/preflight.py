"""Rules about what is about to be built or shipped: images, their loader paths, and what a build leaves out (CD850 to CD889)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Missing, MissingReason, known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.preflight_questions import (
    DOCKERFILE,
    is_preflight,
    planned_builds,
    reading,
    search_folders,
)
from cudadoctor.rules.questions import torch


def _in_preflight(case: Case) -> None:
    if not is_preflight(case.snapshot):
        raise NotApplicableError("only preflight judges what is about to be built or shipped")


def stub_on_library_path(case: Case) -> Iterable[Problem]:
    """A folder of link-time stubs is on the loader's path of the image.

    What it checks: LD_LIBRARY_PATH, and what a Dockerfile writes to ld.so.conf.d, for a folder called stubs, where no copy is
    known that is called libcuda.so.1 (stub-libcuda says so then).

    Why it matters: at run time the driver's libcuda is mounted into a default folder, which the loader searches later. Programs
    that open plain libcuda.so get the stub, whose calls all fail with error 34, and so do all programs once ldconfig or a link
    has given the stub the name libcuda.so.1.

    How to fix: name the stubs folder where only the linker looks: LIBRARY_PATH, or -L.

    When it is wrong: programs that open libcuda.so.1 only are not affected.

    Sources: ld.so(8); cuda.h, CUDA_ERROR_STUB_LIBRARY (34); NVIDIA CUDA images, which set LIBRARY_PATH.
    """
    _in_preflight(case)
    copies = maybe(case.snapshot.driver.libcuda_copies) or ()
    if any(copy.wins and copy.origin.value == "stub" for copy in copies):
        raise NotApplicableError("a stub called libcuda.so.1 is found first (stub-libcuda says so)")
    for folder, proof in search_folders(case.snapshot):
        if "stubs" not in folder.split("/"):
            continue
        yield Problem(
            subject="libcuda.so",
            what=f"{folder}, which holds link-time stubs, is on the loader's path.",
            why="It comes before the folder into which the driver's library is mounted: programs that open libcuda.so get the stub (error 34).",
            evidence=proof,
            remedies=(
                Remedy(
                    Fix(
                        title="Name the stubs where only the linker looks, and take them out of LD_LIBRARY_PATH",
                        commands=(f"export LIBRARY_PATH={folder}",),
                        where=Where.CONTAINER,
                    )
                ),
            ),
            tags=("stub-libcuda",),
            confidence=Confidence.LIKELY,
        )
        return
    known(case.snapshot.environment)


def driver_in_image(case: Case) -> Iterable[Problem]:
    """The image installs parts of the NVIDIA driver, which belong to the host.

    What it checks: packages of the driver among what a Dockerfile installs, and full `cuda` packages, which depend on them.

    Why it matters: the container runtime mounts the host's driver libraries. Those of the image are of another release, and where
    they are found first cuInit fails with error 803.

    How to fix: install the toolkit only (cuda-toolkit-X-Y, cuda-nvcc-X-Y), or begin with a CUDA image.

    When it is wrong: images that build driver packages, or that run in virtual machines.

    Sources: CUDA installation guide, meta packages; NVIDIA Container Toolkit, user guide.
    """
    _in_preflight(case)
    values = reading(case.snapshot, DOCKERFILE)
    for each in values.get("driver_packages", ())[:1]:
        name = each["package"]
        yield Problem(
            subject=name,
            what=f"The image installs {name}, which brings NVIDIA driver libraries.",
            why="The container runtime mounts the host's; where those of the image are found first, cuInit fails with error 803.",
            evidence=(Evidence(fact="driver_packages", value=name, source=str(values.get("file", "")), line=each["line"]),),
            remedies=(
                Remedy(
                    Fix(
                        title="Install the toolkit without the driver",
                        commands=(f"apt-get install -y {_toolkit_only(name)}",),
                        where=Where.CONTAINER,
                    )
                ),
            ),
            tags=("system-driver-mismatch",),
            confidence=Confidence.LIKELY,
        )


def _toolkit_only(package: str) -> str:
    return package.replace("cuda-", "cuda-toolkit-", 1) if package[5:6].isdigit() else "cuda-toolkit-12-X"


def extension_built_without_cuda(case: Case) -> Iterable[Problem]:
    """An extension is built without its CUDA part, because no GPU is visible and FORCE_CUDA is not set.

    What it checks: packages whose setup asks torch.cuda.is_available() (detectron2, pytorch3d, torch-scatter and their kin) among
    what a Dockerfile compiles.

    Why it matters: the build succeeds and holds code for the CPU only; the first call on a GPU says "Not compiled with GPU
    support".

    How to fix: set FORCE_CUDA=1 and TORCH_CUDA_ARCH_LIST for the build, or install a ready-made wheel.

    When it is wrong: an image that is meant for the CPU.

    Sources: setup.py of these projects; matrices/images.toml.
    """
    _in_preflight(case)
    for build in planned_builds(case.snapshot):
        if build.without_cuda:
            yield Problem(
                subject=build.title,
                what=f"{build.title} is compiled without its CUDA part: no GPU is visible in a build, and FORCE_CUDA is not set.",
                why="The build succeeds; the first call on a GPU fails with 'not compiled with GPU support'.",
                evidence=build.evidence,
                remedies=(
                    Remedy(
                        Fix(
                            title="Set FORCE_CUDA for the build",
                            commands=("export FORCE_CUDA=1",),
                            where=Where.CONTAINER,
                        )
                    ),
                ),
                confidence=Confidence.LIKELY,
            )


def image_contents_unknown(case: Case) -> Iterable[Problem]:
    """It is not known what the image holds, so that nothing in it could be judged.

    What it checks: a Dockerfile's base image against those whose contents are known; and whether its instructions install a torch
    or a toolkit that can be judged all the same.

    Why it matters: an image of which nothing is known must not look like one that passed.

    How to fix: build it and look into it: `cudadoctor preflight --root` for the unpacked image, or run preflight inside.

    When it is wrong: never; it says only that the answer is open.

    Sources: matrices/images.toml; the tags of nvidia/cuda, pytorch/pytorch, nvcr.io/nvidia/pytorch, python.
    """
    _in_preflight(case)
    values = reading(case.snapshot, DOCKERFILE)
    if not values:
        raise NotApplicableError("no Dockerfile is judged")
    torch_fact = case.snapshot.python.torch
    judged = torch(case.snapshot) is not None or bool(maybe(case.snapshot.toolkits))
    if judged:
        return ()
    if isinstance(torch_fact, Missing) and torch_fact.reason is MissingReason.PARSE_ERROR:
        known(torch_fact)
    known(case.snapshot.toolkits)
    return ()


RULES = (
    Rule(
        "CD850",
        "stub-on-library-path",
        Severity.WARNING,
        "Link-time stubs are on the image's loader path",
        stub_on_library_path,
        explained_by=("stub-libcuda",),
    ),
    Rule("CD851", "driver-in-image", Severity.WARNING, "The image installs parts of the driver", driver_in_image),
    Rule(
        "CD852",
        "extension-built-without-cuda",
        Severity.WARNING,
        "An extension is built without its CUDA part",
        extension_built_without_cuda,
    ),
    Rule(
        "CD853",
        "image-contents-unknown",
        Severity.WARNING,
        "What the image holds is not known",
        image_contents_unknown,
        essential=True,
    ),
)
