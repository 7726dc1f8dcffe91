"""What pip, uv and conda command lines install: torch with its CUDA build, other packages, and what has to be compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from cudadoctor.dockerfile.state import Image, InstalledTorch
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.platforms import WheelPlatform
from cudadoctor.matrices.torch_builds import TorchWheel
from cudadoctor.model.snapshot import Platform, TorchBuild
from cudadoctor.model.versions import CudaVersion, VersionError

BUILD_TAG = re.compile(r"\b(cu\d{2,3}|cpu|rocm[\d.]+|xpu)/?$")
INDEX_OF_TAG = re.compile(r"/whl/(?:nightly/|test/)?(cu\d{2,3}|cpu|rocm[\d.]+|xpu)\b")
VALUE_OPTIONS = frozenset(
    [
        "-i",
        "--index-url",
        "--extra-index-url",
        "--index",
        "--default-index",
        "-f",
        "--find-links",
        "-r",
        "--requirement",
        "-c",
        "--constraint",
        "-t",
        "--target",
        "--python",
        "-p",
        "--prefix",
        "--root",
        "--torch-backend",
        "--platform",
        "--python-version",
        "--implementation",
        "--abi",
        "--no-binary",
        "--only-binary",
        "--progress-bar",
        "--cache-dir",
        "--timeout",
        "--retries",
        "--trusted-host",
        "--src",
        "--upgrade-strategy",
        "--report",
        "--config-settings",
        "-C",
        "--global-option",
        "--build-option",
        "--extra",
        "--group",
        "--index-strategy",
        "--prerelease",
        "--resolution",
        "--link-mode",
        "--no-binary-package",
        "--user-agent",
        "--keyring-provider",
    ]
)
"""Options of pip and uv that take a value (pip install --help, uv pip install --help)."""
GIT_NAME = re.compile(r"(?:git\+)?(?:https?|ssh|git)[:@+]\S*?/([\w.-]+?)(?:\.git)?/?(?:@[^#]*)?(?:#.*)?$")
USER_OF_ADDRESS = re.compile(r"//[^/@\s]*@")
EGG = re.compile(r"#(?:.*&)?egg=([\w.-]+)")
NEEDS_TORCH = frozenset(
    [
        "torchvision",
        "torchaudio",
        "xformers",
        "vllm",
        "accelerate",
        "deepspeed",
        "pytorch-lightning",
        "lightning",
        "timm",
        "bitsandbytes",
        "peft",
    ]
)
"""Packages whose dependencies bring torch (their metadata)."""
CONDA_NAMES = {"pytorch", "torch", "pytorch-gpu", "libtorch"}


@dataclass
class PipLine:
    """The parts of one pip or uv command line, or of a requirements file."""

    wanted: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    index: str = ""
    extra_indexes: list[str] = field(default_factory=list)
    backend: str = ""
    no_build_isolation: bool = False
    no_binary: list[str] = field(default_factory=list)
    editable: list[str] = field(default_factory=list)


def read_pip(arguments: Sequence[str]) -> PipLine:
    """The parts of the arguments behind `pip install`."""
    line = PipLine()
    pending = list(reversed(arguments))
    while pending:
        word = pending.pop()
        name, equals, value = word.partition("=")
        if word.startswith("--") and equals:
            _option(line, name, value)
        elif word in VALUE_OPTIONS:
            _option(line, word, pending.pop() if pending else "")
        elif word in ("-e", "--editable"):
            line.editable.append(pending.pop() if pending else "")
        elif word == "--no-build-isolation":
            line.no_build_isolation = True
        elif re.match(r"^-r\S", word):
            line.files.append(word[2:])
        elif not word.startswith("-"):
            line.wanted.append(word)
    return line


def _option(line: PipLine, name: str, value: str) -> None:
    if name in ("-i", "--index-url", "--default-index"):
        line.index = value
    elif name in ("--extra-index-url", "--index"):
        line.extra_indexes.append(value.rpartition("=")[2] if name == "--index" else value)
    elif name in ("-f", "--find-links"):
        line.extra_indexes.append(value)
    elif name in ("-r", "--requirement"):
        line.files.append(value)
    elif name == "--torch-backend":
        line.backend = value
    elif name == "--no-binary":
        line.no_binary += value.split(",")


def named(text: str) -> tuple[str, str]:
    """The package and the version specifier of `flash-attn==2.7.4`, `git+https://.../apex`, a wheel's address or path."""
    stripped = text.strip()
    if (egg := EGG.search(stripped)) is not None:
        return canonicalize_name(egg[1]), ""
    if stripped.endswith(".whl"):
        parts = stripped.rpartition("/")[2].split("-")
        version = parts[1].replace("%2B", "+") if len(parts) > 4 else ""
        return canonicalize_name(parts[0]), f"=={version}" if version else ""
    try:
        requirement = Requirement(stripped)
    except InvalidRequirement:
        match = GIT_NAME.match(USER_OF_ADDRESS.sub("//", stripped))
        return (canonicalize_name(match[1]), "") if match is not None else ("", "")
    return canonicalize_name(requirement.name), str(requirement.specifier)


def is_source(text: str) -> bool:
    """Is it a repository, which has to be built?"""
    return text.startswith(("git+", "git@")) or " @ git+" in text or "@git+" in text


def exact_version(specifier: str) -> str:
    """The version of `==2.5.1+cu124`; empty where it is not pinned."""
    match = re.fullmatch(r"={2,3}\s*([\w.+!-]+)", specifier)
    return match[1] if match is not None and not match[1].endswith(".*") else ""


def torch_of_pip(specifier: str, line: PipLine, image: Image, matrices: Matrices) -> InstalledTorch:
    """The torch that pip takes: pinned, or the newest that the table knows for the index, the specifier and this Python."""
    version = exact_version(specifier)
    tag = _tag(line, image)
    if "+" in version:
        return _by_tag(version, version.partition("+")[2])
    platform = WheelPlatform.of(Platform.LINUX, image.architecture) or WheelPlatform.LINUX_X86_64
    python = f"{image.python.value.major}.{image.python.value.minor}" if image.python is not None else None
    if version and tag:
        return _by_tag(f"{version}+{tag}", tag)
    if tag in ("cpu", "xpu") or tag.startswith("rocm"):
        return _by_tag(version or "", tag)
    if not tag:
        return _from_default_index(version, specifier, platform, python, matrices)
    wheels = (
        wheel for wheel in matrices.torch.wheels(platform, python) if _allowed(str(wheel.release.version), version, specifier)
    )
    chosen = next((wheel for wheel in wheels if _from_index(wheel, tag, only=not line.extra_indexes)), None)
    if chosen is None:
        return _by_tag(version, tag)
    suffix = f"+{tag}" if tag == chosen.variant.tag else ""
    return InstalledTorch(f"{chosen.release.version}{suffix}", TorchBuild.CUDA, chosen.variant.cuda)


def _from_default_index(
    version: str, specifier: str, platform: WheelPlatform, python: str | None, matrices: Matrices
) -> InstalledTorch:
    """What the default index has for the platform: a CUDA build on Linux x86-64, on aarch64 a CPU build for older releases."""
    for release in matrices.torch.releases:
        text = str(release.version)
        if not _allowed(text, version, specifier) or (python is not None and python not in release.pythons and not version):
            continue
        default = matrices.torch.default_variant(release.version, platform)
        if default is not None:
            build = TorchBuild.CPU if default.cuda is None else TorchBuild.CUDA
            return InstalledTorch(text, build, default.cuda)
    return InstalledTorch(version, None, None)


def _tag(line: PipLine, image: Image) -> str:
    backend = line.backend or image.variable("UV_TORCH_BACKEND") or ""
    if BUILD_TAG.match(backend):
        return backend
    indexes = (line.index, *line.extra_indexes, image.variable("PIP_INDEX_URL"), image.variable("PIP_EXTRA_INDEX_URL"))
    found = (INDEX_OF_TAG.search(index or "") for index in indexes)
    return next((match[1] for match in found if match is not None), "")


def _from_index(wheel: TorchWheel, tag: str, *, only: bool) -> bool:
    return wheel.variant.tag == tag or (not only and wheel.on_default_index)


def _allowed(text: str, version: str, specifier: str) -> bool:
    if version:
        return text == version or text == f"{version}.0"
    try:
        return Version(text) in SpecifierSet(specifier)
    except ValueError:  # InvalidSpecifier, InvalidVersion, or a number longer than Python reads
        return True


def _by_tag(version: str, tag: str) -> InstalledTorch:
    for prefix, build in (("cpu", TorchBuild.CPU), ("rocm", TorchBuild.ROCM), ("xpu", TorchBuild.XPU)):
        if tag.startswith(prefix):
            return InstalledTorch(version, build, None)
    try:
        return InstalledTorch(version, TorchBuild.CUDA, CudaVersion.from_tag(tag))
    except VersionError:
        return InstalledTorch(version, None, None)


def torch_of_conda(specs: Sequence[str], channels: Sequence[str], matrices: Matrices) -> InstalledTorch | None:
    """The torch among conda's specs (`pytorch=2.1`, `pytorch-cuda=12.1`); None where it is not among them."""
    parts = {name: (version, build) for name, version, build in map(conda_spec, specs)}
    if not CONDA_NAMES & set(parts):
        return None
    name = next(each for each in ("pytorch", "pytorch-gpu", "torch", "libtorch") if each in parts)
    version, build = parts[name]
    if "cpuonly" in parts or "cpu" in build or "pytorch-cpu" in parts:
        return InstalledTorch(version, TorchBuild.CPU, None)
    named_cuda = (
        parts.get("pytorch-cuda", ("", ""))[0] or parts.get("cuda-version", ("", ""))[0] or parts.get("cudatoolkit", ("", ""))[0]
    )
    match = re.search(r"cuda_?(\d{2,3})", build)
    try:
        cuda = CudaVersion.parse(named_cuda) if named_cuda else CudaVersion.from_tag(f"cu{match[1]}") if match else None
    except VersionError:
        cuda = None
    newest = next((str(row.version) for row in matrices.torch.releases if str(row.version).startswith(f"{version}.")), version)
    channel = next((each for each in channels if each in ("pytorch", "conda-forge")), "")
    kind = TorchBuild.CUDA if cuda is not None or name == "pytorch-gpu" else None
    return InstalledTorch(newest if re.fullmatch(r"\d+\.\d+", version) else version, kind, cuda, channel)


def conda_spec(text: str) -> tuple[str, str, str]:
    """Name, version and build of `channel::name=version=build`, `name>=version`; the parts that are not given are empty."""
    plain = text.rpartition("::")[2]
    match = re.match(r"^([\w.-]+)\s*(?:\[.*\])?\s*(?:[=<>!~]+\s*([\w.*+]+))?(?:=([\w.*]+))?", plain)
    if match is None:
        return "", "", ""
    return match[1].lower(), (match[2] or "").removesuffix(".*").removesuffix("*"), match[3] or ""


def requirement_lines(text: str) -> Iterator[tuple[str, ...]]:
    """The lines of a requirements file as arguments of pip; comments and markers taken off."""
    joined = text.replace("\\\n", " ")
    for raw in joined.splitlines():
        plain = re.sub(r"(?:^|\s)#.*$", "", raw).strip()
        if not plain:
            continue
        if plain.startswith("-"):
            name, _, value = plain.replace("=", " ", 1).partition(" ") if plain.startswith("--") else plain.partition(" ")
            yield (name, value.strip()) if value.strip() else (name,)
        else:
            yield (re.sub(r"\s+--hash=\S+", "", plain.partition(";")[0]).strip(),)
