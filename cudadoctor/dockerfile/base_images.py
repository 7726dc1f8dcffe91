"""What is known of an image by its name: CUDA images, those with PyTorch, Python's, distributions'."""

from __future__ import annotations

import re
from collections.abc import Callable

from cudadoctor.dockerfile.state import Image, InstalledToolkit, InstalledTorch, Placed
from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import TorchBuild
from cudadoctor.model.versions import CudaVersion, DottedVersion

REFERENCE = re.compile(r"^(?P<name>[^:@\s]+(?::\d+/[^:@\s]+)?)(?::(?P<tag>[\w.-]{1,128}))?(?:@(?P<digest>\S+))?$")
CUDA_TAG = re.compile(
    r"^(?P<cuda>\d+\.\d+)(?:\.\d+)?(?:-cudnn(?P<cudnn>\d*))?-(?P<flavour>base|runtime|devel)(?:-cudnn\d*)?"
    r"(?:-(?P<os>ubuntu|ubi|rockylinux|rocky|centos|debian|opensuse|oraclelinux)(?P<release>[\d.]*))?$"
)
PYTORCH_TAG = re.compile(
    r"^v?(?P<torch>\d+\.\d+(?:\.\d+)?)-cuda(?P<cuda>\d+\.\d+)-cudnn(?P<cudnn>\d+)-(?P<flavour>runtime|devel)$"
)
NGC_TAG = re.compile(r"^(?P<month>\d\d\.\d\d)-py3(?:-\w+)?$")
PYTHON_TAG = re.compile(r"^(?P<python>3\.\d+)(?:\.\d+)?(?:-(?P<slim>slim))?(?:-(?P<codename>[a-z]+))?$")
OS_IDS = {"ubi": "rhel", "rockylinux": "rocky", "rocky": "rocky"}
NVIDIA_LIBRARY_PATH = "/usr/local/nvidia/lib:/usr/local/nvidia/lib64"
"""LD_LIBRARY_PATH of NVIDIA's CUDA images (their Dockerfiles)."""
PYTORCH_UBUNTU = "22.04"
"""Distribution of the PyTorch images from 2.1 on (docker.Makefile of pytorch)."""
PLAIN_IMAGES = frozenset({"alpine", "busybox", "scratch", "node", "golang", "rust", "gcc", "buildpack-deps", "nginx"})
"""Official images without CUDA and without torch, of which no more is known here."""


def read_reference(reference: str) -> tuple[str, str]:
    """The image's name without the default registry, and its tag; both empty where the text is no reference."""
    match = REFERENCE.match(reference)
    if match is None:
        return "", ""
    name = re.sub(r"^(?:index\.)?docker\.io/", "", match["name"]).removeprefix("library/")
    return name, match["tag"] or ("" if match["digest"] else "latest")


def image_of(reference: str, line: int, matrices: Matrices) -> Image:
    """The image of that name; where it is not known, `known_contents` is False and the rest empty."""
    name, tag = read_reference(reference)
    base = Placed(reference, line, f"FROM {reference}")
    image = Image(base=base)
    for suffix, fill in KNOWN.items():
        if (name == suffix or name.endswith(f"/{suffix}")) and fill(image, tag, base, matrices):
            return image
    return Image(base=base, known_contents=name.rpartition("/")[2] in PLAIN_IMAGES)


def set_distribution(image: Image, name: str, release: str, base: Placed[str], matrices: Matrices) -> bool:
    """Fill in the distribution, with its Python; True where the table knows it."""
    row = matrices.images.distribution(name, release)
    image.os_id = Placed(name, base.line, base.because)
    if row is not None:
        image.distribution = Placed(row, base.line, base.because)
    return row is not None


def with_gcc(image: Image, line: int, because: str) -> None:
    """The distribution's own compiler is installed."""
    if image.distribution is not None:
        image.gcc = Placed(image.distribution.value.gcc, line, because)


def require_cuda(release: CudaVersion, matrices: Matrices) -> str:
    """NVIDIA_REQUIRE_CUDA of NVIDIA's image for a CUDA release, as the table of cuda-compat packages has its driver branches."""
    row = matrices.drivers.compat_package(release)
    brands = ["tesla", "unknown", "nvidia", "quadro", "quadrortx", "nvidiartx"]
    brands += ["geforce", "geforcertx", "titan", "titanrtx"] if row is not None and row.geforce_listed else []
    branches = row.accepted_host_branches or () if row is not None else ()
    alternatives = [f"brand={brand},driver>={branch},driver<{branch + 1}" for branch in branches for brand in brands]
    return " ".join([f"cuda>={release.release}", *alternatives])


def _set(image: Image, base: Placed[str], **variables: str) -> None:
    for name, value in variables.items():
        image.environment[name] = Placed(value, base.line, base.because)


def _cuda_environment(image: Image, release: CudaVersion, base: Placed[str], matrices: Matrices) -> None:
    _set(
        image,
        base,
        NVIDIA_VISIBLE_DEVICES="all",
        NVIDIA_DRIVER_CAPABILITIES="compute,utility",
        NVIDIA_REQUIRE_CUDA=require_cuda(release, matrices),
        CUDA_VERSION=release.release,
        LD_LIBRARY_PATH=NVIDIA_LIBRARY_PATH,
        PATH="/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    )


def _add_toolkit(image: Image, release: CudaVersion, base: Placed[str]) -> None:
    kit = InstalledToolkit(release, f"/usr/local/cuda-{release.release}", "NVIDIA package")
    image.toolkits.append(Placed(kit, base.line, base.because))


def _cuda(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
    match = CUDA_TAG.match(tag)
    if match is None:
        return False
    release = CudaVersion.parse(match["cuda"])
    _cuda_environment(image, release, base, matrices)
    image.runtime = Placed(release, base.line, base.because)
    if match["os"]:
        set_distribution(image, OS_IDS.get(match["os"], match["os"]), match["release"], base, matrices)
    if match["flavour"] == "devel":
        _add_toolkit(image, release, base)
        _set(image, base, LIBRARY_PATH="/usr/local/cuda/lib64/stubs")
        with_gcc(image, base.line, base.because)
    return True


def _pytorch(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
    match = PYTORCH_TAG.match(tag)
    if match is None:
        return False
    release = CudaVersion.parse(match["cuda"])
    if match["flavour"] == "devel":
        _cuda_environment(image, release, base, matrices)
        _add_toolkit(image, release, base)
    _set(image, base, NVIDIA_VISIBLE_DEVICES="all", NVIDIA_DRIVER_CAPABILITIES="compute,utility")
    if DottedVersion.parse(match["torch"]) >= DottedVersion.parse("2.1"):
        set_distribution(image, "ubuntu", PYTORCH_UBUNTU, base, matrices)
        if match["flavour"] == "devel":
            with_gcc(image, base.line, base.because)
    image.torch = Placed(InstalledTorch(match["torch"], TorchBuild.CUDA, release), base.line, base.because)
    image.prefix = "/opt/conda"
    return True


def _ngc(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
    match = NGC_TAG.match(tag)
    row = matrices.images.ngc_image(match["month"]) if match is not None else None
    if row is None:
        return False
    _cuda_environment(image, row.cuda, base, matrices)
    _add_toolkit(image, row.cuda, base)
    set_distribution(image, "ubuntu", row.ubuntu, base, matrices)
    with_gcc(image, base.line, base.because)
    image.torch = Placed(InstalledTorch(row.torch, TorchBuild.CUDA, row.cuda), base.line, base.because)
    return True


def _python(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
    match = PYTHON_TAG.match(tag)
    if match is None:
        return tag == "latest"
    image.python = Placed(DottedVersion.parse(match["python"]), base.line, base.because)
    row = matrices.images.by_codename(match["codename"]) if match["codename"] else None
    if row is not None:
        set_distribution(image, row.id, row.release, base, matrices)
        if not match["slim"]:
            with_gcc(image, base.line, base.because)
    else:
        image.os_id = Placed("debian", base.line, base.because)
    return True


def _distribution(name: str) -> Callable[[Image, str, Placed[str], Matrices], bool]:
    def fill(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
        release = re.sub(r"-(?:slim|minimal)$|-\d{8}.*$", "", tag)
        set_distribution(image, name, re.sub(r"^(\d+)\.\d+$", r"\1", release) if name == "rocky" else release, base, matrices)
        return True

    return fill


def _conda(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
    del tag, matrices
    image.prefix, image.installer = "/opt/conda", "conda"
    image.os_id = Placed("debian", base.line, base.because)
    return True


def _uv(image: Image, tag: str, base: Placed[str], matrices: Matrices) -> bool:
    image.installer = "uv"
    match = re.match(r"^(?:[\d.]+-)?python(3\.\d+)-(\w+?)(?:-slim)?$", tag)
    if match is not None:
        image.python = Placed(DottedVersion.parse(match[1]), base.line, base.because)
        row = matrices.images.by_codename(match[2])
        if row is not None:
            set_distribution(image, row.id, row.release, base, matrices)
    return True


KNOWN: dict[str, Callable[[Image, str, Placed[str], Matrices], bool]] = {
    "nvidia/cuda": _cuda,
    "pytorch/pytorch": _pytorch,
    "nvidia/pytorch": _ngc,
    "python": _python,
    "ubuntu": _distribution("ubuntu"),
    "debian": _distribution("debian"),
    "rockylinux": _distribution("rocky"),
    "rockylinux/rockylinux": _distribution("rocky"),
    "continuumio/miniconda3": _conda,
    "continuumio/anaconda3": _conda,
    "condaforge/miniforge3": _conda,
    "condaforge/mambaforge": _conda,
    "mambaorg/micromamba": _conda,
    "astral-sh/uv": _uv,
}
"""Images by the end of their name, so that mirrors are known too, and what fills in their contents."""
