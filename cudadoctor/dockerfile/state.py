"""What an image holds while its Dockerfile is followed, each fact with the line that brought it."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cudadoctor.matrices.images import Distribution
from cudadoctor.model.snapshot import TorchBuild
from cudadoctor.model.versions import CudaVersion, DottedVersion

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Placed(Generic[T]):
    """A value and the line of the Dockerfile that it comes from."""

    value: T
    line: int
    because: str = ""
    """What that line does, for people: `FROM nvidia/cuda:12.4.1-devel-ubuntu22.04`."""


@dataclass(frozen=True, slots=True)
class InstalledTorch:
    """The torch that an instruction installs; None where it does not tell."""

    version: str
    build: TorchBuild | None
    cuda: CudaVersion | None
    channel: str = ""
    """conda's channel where conda installs it."""


@dataclass(frozen=True, slots=True)
class InstalledToolkit:
    """A toolkit with its compiler."""

    version: CudaVersion
    root: str
    packaging: str = ""
    has_nvcc: bool = True


@dataclass(frozen=True, slots=True)
class PlannedBuild:
    """Something that is compiled with CUDA while the image is built."""

    package: str
    command: str
    line: int
    certainly: bool
    """False where a ready-made wheel may be taken instead."""
    arch_variable: str = ""
    """The list of architectures that it reads; empty where it chooses them itself."""
    arch_list: str | None = None
    """The value of that variable at this point."""
    for_torch: bool = True
    without_cuda: bool = False
    """True where its setup leaves CUDA out, because no GPU is visible and FORCE_CUDA is not set."""


@dataclass
class Image:
    """The contents of one stage, as far as its instructions tell; changed in place while they are followed."""

    name: str = ""
    base: Placed[str] | None = None
    known_contents: bool = True
    """False where the base image is not one of those whose contents are known."""
    architecture: str = "x86_64"
    distribution: Placed[Distribution] | None = None
    os_id: Placed[str] | None = None
    environment: dict[str, Placed[str]] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    toolkits: list[Placed[InstalledToolkit]] = field(default_factory=list)
    runtime: Placed[CudaVersion] | None = None
    """The CUDA release whose run-time libraries the base image has."""
    gcc: Placed[int] | None = None
    python: Placed[DottedVersion] | None = None
    prefix: str = "/usr/local"
    """Where pip installs: a virtual environment, conda's folder, or the system's."""
    installer: str = "pip"
    torch: Placed[InstalledTorch] | None = None
    torch_unclear: Placed[str] | None = None
    """An instruction that may install torch in a way that cannot be read here."""
    packages: dict[str, Placed[str]] = field(default_factory=dict)
    stub_as_soname: Placed[str] | None = None
    """The folder where a stub is also called libcuda.so.1."""
    loader_folders: list[Placed[str]] = field(default_factory=list)
    """What is written to ld.so.conf.d."""
    driver_packages: list[Placed[str]] = field(default_factory=list)
    builds: list[PlannedBuild] = field(default_factory=list)
    workdir: str = "/"
    depends_on: set[str] = field(default_factory=set)
    """The stages from which it takes files."""

    def child(self, name: str, line: int) -> Image:
        """A stage that begins where this one ends: its builds are not those of the new one."""
        image = deepcopy(self)
        image.name, image.arguments, image.builds = name, {}, []
        image.base = Placed(self.name, line, f"FROM {self.name}")
        image.depends_on = {self.name}
        return image

    def variable(self, name: str) -> str | None:
        """What the shell of a RUN sees: ENV before ARG."""
        placed = self.environment.get(name)
        return placed.value if placed is not None else self.arguments.get(name)

    def toolkit(self) -> Placed[InstalledToolkit] | None:
        """The toolkit with a compiler that was installed last: what /usr/local/cuda leads to."""
        return next((kit for kit in reversed(self.toolkits) if kit.value.has_nvcc), None)
