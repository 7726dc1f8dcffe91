"""What one command of a RUN changes in the image; commands that concern neither CUDA nor Python packages change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cudadoctor.dockerfile.python_installs import (
    NEEDS_TORCH,
    PipLine,
    conda_spec,
    exact_version,
    is_source,
    named,
    read_pip,
    requirement_lines,
    torch_of_conda,
    torch_of_pip,
)
from cudadoctor.dockerfile.shell import Command
from cudadoctor.dockerfile.state import Image, InstalledToolkit, Placed, PlannedBuild
from cudadoctor.dockerfile.system_installs import MANAGERS, install_runfile, install_system_packages
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.images import HowBuilt
from cudadoctor.model.versions import CudaVersion, DottedVersion, VersionError

MAX_REQUIREMENTS_BYTES = 256 * 1024
MAX_REQUIREMENT_FILES = 8
"""Requirements files that include each other."""
ARCH_LIST = "TORCH_CUDA_ARCH_LIST"
CUDA_CMAKE = re.compile(
    r"^-D(?:\w*(?:USE_|WITH_|ENABLE_|BUILD_)?CUDA\w*|GGML_CUDA|LLAMA_CUBLAS)(?::\w+)?=(?:ON|1|TRUE|YES|[\d;a-z-]+)$",
    re.IGNORECASE,
)
TRUE_WORDS = frozenset({"1", "true", "on", "yes"})


@dataclass(frozen=True)
class Kitchen:
    """What is at hand while a Dockerfile is followed: the tables, and the folder whose files a build could copy."""

    matrices: Matrices
    context: Path | None = None


def apply(command: Command, image: Image, kitchen: Kitchen) -> None:
    """Change the image as the command would, as far as that matters here."""
    if not command.words:
        image.arguments.update(command.variables)
        return
    program = command.program
    handler = HANDLERS.get(program)
    if handler is not None:
        handler(command, image, kitchen)
    elif program in MANAGERS:
        install_system_packages(command, image)
    elif re.fullmatch(r"pip[\d.]*", program):
        _pip(command, command.words[1:], image, kitchen)
    elif re.fullmatch(r"python[\d.]*", program):
        _python(command, image, kitchen)
    _loader_configuration(command, image)
    install_runfile(command, image)


# Python packages


def _python(command: Command, image: Image, kitchen: Kitchen) -> None:
    arguments = command.words[1:]
    if arguments[:2] == ("-m", "pip"):
        _pip(command, arguments[2:], image, kitchen)
    elif arguments[:2] in (("-m", "venv"), ("-m", "virtualenv")) and len(arguments) > 2:
        image.prefix = arguments[-1]
    elif arguments[:2] == ("-m", "build") or (arguments and arguments[0].endswith("setup.py")):
        verbs = {"install", "develop", "build", "build_ext", "bdist_wheel"} & set(arguments)
        if (verbs or arguments[:2] == ("-m", "build")) and _says_cuda(command, image):
            _build(command, image, "", certainly=True)


def _virtualenv(command: Command, image: Image, kitchen: Kitchen) -> None:
    del kitchen
    places = [word for word in command.words[1:] if not word.startswith("-")]
    if places:
        image.prefix = places[-1]


def _uv(command: Command, image: Image, kitchen: Kitchen) -> None:
    arguments = [word for word in command.words[1:] if word not in ("--quiet", "-q", "--no-cache", "--verbose", "-v")]
    image.installer = "uv"
    if arguments[:2] == ["pip", "install"]:
        _pip(command, arguments[1:], image, kitchen)
    elif arguments[:1] == ["add"]:
        _pip(command, ["install", *arguments[1:]], image, kitchen)
    elif arguments[:1] == ["venv"]:
        places = [word for word in arguments[1:] if word.startswith(("/", "."))]
        image.prefix = places[-1] if places else f"{image.workdir.rstrip('/')}/.venv"
    elif arguments[:1] == ["sync"]:
        image.prefix = f"{image.workdir.rstrip('/')}/.venv"
        _unclear(command, image)


def _poetry(command: Command, image: Image, kitchen: Kitchen) -> None:
    del kitchen
    if {"install", "sync"} & set(command.words[1:3]):
        _unclear(command, image)


def _unclear(command: Command, image: Image) -> None:
    if image.torch is None and image.torch_unclear is None:
        image.torch_unclear = Placed(command.text, command.line, f"RUN {command.text[:80]}")


def _pip(command: Command, arguments: Sequence[str], image: Image, kitchen: Kitchen) -> None:
    """`install`, and what `wheel` compiles for later."""
    verbs = [at for at, word in enumerate(arguments) if word in ("install", "wheel")]
    if not verbs:
        return
    line = read_pip(arguments[verbs[0] + 1 :])
    for path in line.files:
        _requirements(command, path, line, image, kitchen, MAX_REQUIREMENT_FILES)
    for text in line.wanted:
        _package(command, text, line, image, kitchen)
    for text in line.editable:
        _project(command, text, line, image, kitchen)


def _requirements(command: Command, path: str, line: PipLine, image: Image, kitchen: Kitchen, left: int) -> None:
    """The packages of a requirements file, where it lies in the build's context; else torch may be among what is not seen."""
    text = _context_file(path, kitchen.context)
    if text is None or left <= 0:
        _unclear(command, image)
        return
    rows = list(requirement_lines(text))
    inside = read_pip([word for row in rows for word in row if row[0].startswith("-") and row[0] not in ("-e", "--editable")])
    line.index = line.index or inside.index
    line.extra_indexes += inside.extra_indexes
    for other in inside.files:
        _requirements(command, other, line, image, kitchen, left - 1)
    for row in rows:
        if not row[0].startswith("-"):
            _package(command, row[0], line, image, kitchen)


def _context_file(path: str, context: Path | None) -> str | None:
    """The text of a file of the build's context by the end of its path, never one outside of it; None where it is not there."""
    if context is None:
        return None
    found = (_text_within(context, candidate) for candidate in (path.lstrip("/"), path.rpartition("/")[2]))
    return next((text for text in found if text is not None), None)


def _text_within(context: Path, name: str) -> str | None:
    try:
        root = context.resolve()
        file = (root / name).resolve()
        if not file.is_relative_to(root) or not file.is_file() or file.stat().st_size > MAX_REQUIREMENTS_BYTES:
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError, RuntimeError):  # a NUL byte in the name; a loop of links before Python 3.13
        return None


def _package(command: Command, text: str, line: PipLine, image: Image, kitchen: Kitchen) -> None:
    if text.startswith((".", "/")) and not text.endswith(".whl"):
        _project(command, text, line, image, kitchen)
        return
    name, specifier = named(text)
    if text.endswith(".whl") and "://" not in text and name != "torch":
        _unclear(command, image)  # what a wheel of the context depends on is not known
    if not name:
        return
    place = Placed(exact_version(specifier), command.line, f"RUN pip install {text}")
    if name == "torch":
        satisfied = (
            image.torch is not None and (not specifier or specifier == f"=={image.torch.value.version}") and not line.index
        )
        if not satisfied:
            image.torch = Placed(torch_of_pip(specifier, line, image, kitchen.matrices), command.line, place.because)
        image.torch_unclear = None
        return
    if exact_version(specifier):
        image.packages[name] = place
    if name in NEEDS_TORCH and image.torch is None:
        image.torch_unclear = image.torch_unclear or Placed(text, command.line, f"{name}, which brings torch with it")
    _compiled(command, name, text, line, image, kitchen)


def _compiled(command: Command, name: str, text: str, line: PipLine, image: Image, kitchen: Kitchen) -> None:
    """Note a package that is compiled with CUDA on installation."""
    row = kitchen.matrices.images.source_build(name)
    if text.endswith(".whl"):
        return
    if row is not None:
        forced = (_variable(command, image, "FORCE_CUDA") or "").lower() in TRUE_WORDS
        if row.how is HowBuilt.COMPILED_ON_USE and not is_source(text):
            return
        if row.how is HowBuilt.NEEDS_FORCE_CUDA and line.extra_indexes:
            return  # ready-made wheels lie there
        if name == "sageattention" and not is_source(text):
            return
        certainly, without = row.how is not HowBuilt.PREBUILT_OR_COMPILED, row.how is HowBuilt.NEEDS_FORCE_CUDA and not forced
        build = _planned(command, image, name, certainly=certainly, arch_variable=row.arch_variable or "")
        image.builds.append(replace(build, without_cuda=without))
    elif line.no_build_isolation and (is_source(text) or name in line.no_binary):
        _build(command, image, name, certainly=False)
    elif name == "llama-cpp-python" and CUDA_CMAKE_ARGUMENTS.search(_variable(command, image, "CMAKE_ARGS") or ""):
        _build_of_its_own(command, image, name)


CUDA_CMAKE_ARGUMENTS = re.compile(r"-D\w*(?:CUDA|CUBLAS)\w*=(?:on|1|true)", re.IGNORECASE)


def _project(command: Command, text: str, line: PipLine, image: Image, kitchen: Kitchen) -> None:
    """A project of the user's: compiled with CUDA where something says so; what it depends on is not known."""
    name, _ = named(text)
    if is_source(text) and name:
        _compiled(command, name, text, line, image, kitchen)
    elif _says_cuda(command, image):
        _build(command, image, "", certainly=True)
    _unclear(command, image)


def _says_cuda(command: Command, image: Image) -> bool:
    """Does a variable say that an extension is to be compiled for CUDA?"""
    forced = any(
        ((_variable(command, image, name)) or "").lower() in TRUE_WORDS
        for name in ("FORCE_CUDA", "BUILD_CUDA_EXT", "DS_BUILD_OPS")
    )
    return forced or any(name == ARCH_LIST for name, _ in command.variables)


def _variable(command: Command, image: Image, name: str) -> str | None:
    return dict(command.variables).get(name) or image.variable(name)


def _build(command: Command, image: Image, package: str, *, certainly: bool) -> None:
    """Something for torch is compiled."""
    image.builds.append(_planned(command, image, package, certainly=certainly))


def _build_of_its_own(command: Command, image: Image, package: str) -> None:
    """Something that is not for torch is compiled."""
    image.builds.append(replace(_planned(command, image, package, certainly=True, arch_variable=""), for_torch=False))


def _planned(command: Command, image: Image, package: str, *, certainly: bool, arch_variable: str = ARCH_LIST) -> PlannedBuild:
    arch_list = _variable(command, image, arch_variable) if arch_variable else None
    return PlannedBuild(package, command.text, command.line, certainly, arch_variable, arch_list)


# conda


def _conda(command: Command, image: Image, kitchen: Kitchen) -> None:
    words = command.words[1:]
    if not words or words[0] not in ("install", "create", "update"):
        if words[:1] == ("env",):
            _unclear(command, image)
        return
    image.installer = command.program
    specs, channels, files = _conda_arguments(words[1:])
    if files:
        _unclear(command, image)
    torch = torch_of_conda(specs, channels, kitchen.matrices)
    if torch is not None:
        image.torch, image.torch_unclear = Placed(torch, command.line, f"RUN {command.text[:80]}"), None
    for spec in specs:
        _conda_package(conda_spec(spec), command, image)


def _conda_arguments(words: Sequence[str]) -> tuple[list[str], list[str], list[str]]:
    specs: list[str] = []
    channels: list[str] = []
    files: list[str] = []
    pending = list(reversed(words))
    while pending:
        word = pending.pop()
        if word in ("-c", "--channel"):
            channels.append(pending.pop() if pending else "")
        elif word in ("-f", "--file"):
            files.append(pending.pop() if pending else "")
        elif word in ("-n", "--name", "-p", "--prefix"):
            pending = pending[:-1]
        elif not word.startswith("-"):
            specs.append(word)
    return specs, channels, files


def _conda_package(spec: tuple[str, str, str], command: Command, image: Image) -> None:
    name, version, _ = spec
    try:
        if name in ("cuda-toolkit", "cuda-nvcc", "cuda", "cudatoolkit-dev", "cuda-compiler") and version:
            kit = InstalledToolkit(
                CudaVersion.parse(version), image.prefix if image.prefix != "/usr/local" else "/opt/conda", "conda"
            )
            image.toolkits.append(Placed(kit, command.line, f"RUN {command.program} install {name}={version}"))
        elif name == "python" and version:
            image.python = Placed(DottedVersion.parse(version), command.line, f"RUN {command.program} install python={version}")
    except VersionError:
        return


# What is compiled otherwise, and the loader


def _nvcc(command: Command, image: Image, kitchen: Kitchen) -> None:
    del kitchen
    if any(word.endswith((".cu", ".cpp", ".cc")) for word in command.words):
        _build_of_its_own(command, image, "")


def _cmake(command: Command, image: Image, kitchen: Kitchen) -> None:
    del kitchen
    if any(CUDA_CMAKE.match(word) for word in command.words):
        _build_of_its_own(command, image, "")


def _ln(command: Command, image: Image, kitchen: Kitchen) -> None:
    """A link called libcuda.so.1 to a stub, which programs then load."""
    del kitchen
    places = [word for word in command.words[1:] if not word.startswith("-")]
    if len(places) == 2 and "stubs" in places[0] and places[1].endswith("libcuda.so.1"):
        image.stub_as_soname = Placed(places[1].rpartition("/")[0], command.line, f"RUN {command.text}")


def _ldconfig(command: Command, image: Image, kitchen: Kitchen) -> None:
    """ldconfig makes the link libcuda.so.1 in every folder that it is given.

    What it writes to the loader's cache does not last: the NVIDIA container runtime makes the cache anew at start.
    """
    del kitchen
    folders = [word for word in command.words[1:] if word.startswith("/")]
    folders += [folder.value for folder in image.loader_folders]
    stubs = next((folder for folder in folders if "/stubs" in folder), None)
    if stubs is not None:
        image.stub_as_soname = Placed(stubs, command.line, f"RUN {command.text}")


def _loader_configuration(command: Command, image: Image) -> None:
    """What is written below ld.so.conf.d."""
    target = command.redirected_to or (command.words[-1] if command.program in ("tee", "echo") else "")
    if "ld.so.conf" in target:
        folders = [word.strip() for word in " ".join(command.words[1:]).split() if word.startswith("/") and word != target]
        image.loader_folders += [Placed(folder, command.line, f"RUN {command.text[:80]}") for folder in folders]


Handler = Callable[[Command, Image, Kitchen], None]
HANDLERS: dict[str, Handler] = {
    "uv": _uv,
    "virtualenv": _virtualenv,
    "poetry": _poetry,
    "conda": _conda,
    "mamba": _conda,
    "micromamba": _conda,
    "nvcc": _nvcc,
    "cmake": _cmake,
    "ln": _ln,
    "ldconfig": _ldconfig,
}
"""Programs with a meaning of their own."""
