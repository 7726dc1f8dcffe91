"""What apt, dnf and the like install: toolkits, compilers, cuda-compat, and drivers, which have no place in an image."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from cudadoctor.dockerfile.base_images import with_gcc
from cudadoctor.dockerfile.shell import Command
from cudadoctor.dockerfile.state import Image, InstalledToolkit, Placed
from cudadoctor.model.versions import CudaVersion, DottedVersion, VersionError

MANAGERS = frozenset({"apt", "apt-get", "aptitude", "dnf", "yum", "microdnf", "zypper", "apk"})
FULL_TOOLKIT = re.compile(r"^cuda(?:-toolkit|-nvcc|-compiler|-minimal-build)?-(\d{1,2})-(\d{1,2})$")
DRIVER = re.compile(
    r"^(?:nvidia-(?:driver|dkms|utils|open|headless)(?:-.*)?|cuda-drivers(?:-.*)?|libnvidia-.*|libcuda1.*|cuda-\d+-\d+|cuda)$"
)
GCC = re.compile(r"^(?:g\+\+|gcc)(?:-(\d{1,2}))?$|^gcc-c\+\+$|^build-essential$")
GCC_TOOLSET = re.compile(r"^gcc-toolset-(\d{1,2})")
PYTHON = re.compile(r"^python(3\.\d{1,2})$")


@dataclass(frozen=True)
class _Install:
    """One package of one command."""

    image: Image
    line: int
    because: str

    def toolkit(self, match: re.Match[str]) -> None:
        release = CudaVersion.of(int(match[1]), int(match[2]))
        kit = InstalledToolkit(release, f"/usr/local/cuda-{release.release}", "NVIDIA package")
        self.image.toolkits.append(Placed(kit, self.line, self.because))
        self.compiler_of_toolkit()

    def compiler_of_toolkit(self) -> None:
        """NVIDIA's and the distributions' packages of nvcc depend on the distribution's compiler."""
        if self.image.gcc is None:
            with_gcc(self.image, self.line, self.because)

    def distribution_toolkit(self, match: re.Match[str]) -> None:
        del match
        row = self.image.distribution.value if self.image.distribution is not None else None
        if row is not None and row.nvcc is not None:
            kit = InstalledToolkit(row.nvcc, "/usr/lib/nvidia-cuda-toolkit", "distribution package")
            self.image.toolkits.append(Placed(kit, self.line, self.because))
            self.compiler_of_toolkit()

    def driver(self, match: re.Match[str]) -> None:
        self.image.driver_packages.append(Placed(match[0], self.line, self.because))

    def compiler(self, match: re.Match[str]) -> None:
        number = match.group(1) if match.re.groups and match.group(1) else None
        if number is not None and self.image.gcc is None:
            self.image.gcc = Placed(int(number), self.line, self.because)
        elif number is None:
            with_gcc(self.image, self.line, self.because)

    def toolset(self, match: re.Match[str]) -> None:
        self.image.gcc = Placed(int(match[1]), self.line, self.because)

    def python(self, match: re.Match[str]) -> None:
        self.image.python = Placed(DottedVersion.parse(match[1]), self.line, self.because)

    def default_python(self, match: re.Match[str]) -> None:
        del match
        row = self.image.distribution
        if row is not None and self.image.python is None:
            self.image.python = Placed(row.value.python, self.line, self.because)


PACKAGES: tuple[tuple[re.Pattern[str], Callable[[_Install, re.Match[str]], None]], ...] = (
    (FULL_TOOLKIT, _Install.toolkit),
    (re.compile(r"^nvidia-cuda-(?:toolkit|dev)$"), _Install.distribution_toolkit),
    (DRIVER, _Install.driver),
    (GCC_TOOLSET, _Install.toolset),
    (GCC, _Install.compiler),
    (PYTHON, _Install.python),
    (re.compile(r"^python3(?:-pip|-venv|-dev)?$"), _Install.default_python),
)
"""Names of packages and what each brings; one package may match several."""


def install_system_packages(command: Command, image: Image) -> None:
    """Note what the packages of an `apt-get install` (or its like) bring."""
    names = tuple(_names(command.words))
    for name in names:
        step = _Install(image, command.line, f"RUN {command.program} install {name}")
        for pattern, note in PACKAGES:
            match = pattern.match(name)
            if match is not None:
                note(step, match)


def _names(words: Sequence[str]) -> Iterator[str]:
    verbs = [at for at, word in enumerate(words) if word in ("install", "add", "in")]
    if not verbs:
        return
    for word in words[verbs[0] + 1 :]:
        if not word.startswith("-"):
            yield re.split(r"[=/:]", word, maxsplit=1)[0] if not word.startswith("/") else ""


def install_runfile(command: Command, image: Image) -> None:
    """Note the toolkit of `cuda_12.1.1_530.30.02_linux.run --toolkit`."""
    match = next(
        (found for word in command.words if (found := re.search(r"cuda_(\d+\.\d+)(?:\.\d+)?_\S*linux\S*\.run", word))), None
    )
    if match is None or command.program in ("wget", "curl", "chmod", "rm"):
        return
    try:
        release = CudaVersion.parse(match[1])
    except VersionError:
        return
    kit = InstalledToolkit(release, f"/usr/local/cuda-{release.release}", "runfile")
    image.toolkits.append(Placed(kit, command.line, "RUN the toolkit's installer"))
