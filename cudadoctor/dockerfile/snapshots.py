"""From a stage's contents to a snapshot, as the rules want it; every fact names the file and the line that it comes from."""

from __future__ import annotations

from typing import Any, TypeVar

from cudadoctor.dockerfile.state import Image, InstalledTorch, Placed, PlannedBuild
from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.snapshot import (
    Container,
    Driver,
    EnvironmentKind,
    Host,
    HostCompiler,
    LibraryCopy,
    LibraryOrigin,
    Package,
    Platform,
    PythonEnvironment,
    Snapshot,
    TextReading,
    Toolkit,
    Torch,
)
from cudadoctor.model.versions import CudaVersion, DottedVersion
from cudadoctor.probes.environment import select_variables

T = TypeVar("T")
READING = "dockerfile"
DEFAULT_CUDA = "/usr/local/cuda"
NOT_RUN = "the image is not run"


def snapshot_of(image: Image, file: str) -> Snapshot:
    """The stage as a snapshot; what its base image holds and nobody knows is missing, with that reason."""
    writer = _Writer(image, file)
    return Snapshot(
        host=writer.host(),
        driver=writer.driver(),
        toolkits=writer.toolkits(),
        host_compilers=writer.compilers(),
        python=writer.python(),
        container=writer.container(),
        environment=Known(writer.variables(), file, writer.base_line),
        readings=(writer.reading(),),
    )


class _Writer:
    """Writes the parts of one stage."""

    def __init__(self, image: Image, file: str) -> None:
        self.image = image
        self.file = file
        self.base_line = image.base.line if image.base is not None else None
        name = image.base.because if image.base is not None else "the base image"
        self.unknown = Missing(MissingReason.PARSE_ERROR, f"what the image of `{name}` holds is not known", file)

    def fact(self, placed: Placed[T] | None, absent: Missing) -> Fact[T]:
        return absent if placed is None else Known(placed.value, self.file, placed.line)

    def absent(self, what: str) -> Missing:
        """Not there where the base image is known; else unknown."""
        known = self.image.known_contents
        return Missing(MissingReason.NOT_FOUND, f"the Dockerfile installs no {what}", self.file) if known else self.unknown

    def host(self) -> Host:
        row = self.image.distribution
        os_id = self.image.os_id
        name = f"{row.value.id} {row.value.release}" if row is not None else os_id.value if os_id is not None else None
        return Host(
            platform=Known(Platform.LINUX, self.file, self.base_line),
            architecture=Known(self.image.architecture, self.file, self.base_line),
            os_id=self.fact(os_id, self.unknown),
            os_name=Known(name, self.file, self.base_line) if name is not None else self.unknown,
            os_version=Known(DottedVersion.parse(row.value.release), self.file, row.line) if row is not None else self.unknown,
            glibc=Known(row.value.glibc, "images matrix", row.line) if row is not None else self.unknown,
            jetson=Missing(MissingReason.NOT_APPLICABLE, "an image is no board", self.file),
        )

    def driver(self) -> Driver:
        """A stub that programs would load as libcuda.so.1, where the Dockerfile makes one."""
        stub = self.image.stub_as_soname
        search = self.variables().get("LD_LIBRARY_PATH", "").split(":")
        folders = [folder.rstrip("/") for folder in (*search, *(each.value for each in self.image.loader_folders))]
        if stub is None or stub.value.rstrip("/") not in folders:
            return Driver()
        path = f"{stub.value.rstrip('/')}/libcuda.so.1"
        way = "LD_LIBRARY_PATH" if stub.value.rstrip("/") in search else "ld.so.cache"
        copy = LibraryCopy(
            soname="libcuda.so.1",
            path=path,
            real_path=path,
            origin=LibraryOrigin.STUB,
            via=f"{way} (line {stub.line})",
            wins=True,
        )
        return Driver(libcuda_copies=Known((copy,), self.file, stub.line))

    def toolkits(self) -> Fact[tuple[Toolkit, ...]]:
        chosen = self.image.toolkit()
        home = self.variables().get("CUDA_HOME") or self.variables().get("CUDA_PATH") or ""
        named = next((kit for kit in self.image.toolkits if kit.value.root == home.rstrip("/")), None)
        chosen = named or chosen
        kits = tuple(
            self._toolkit(kit.value.version, kit.value.root, kit, is_chosen=kit is chosen) for kit in self.image.toolkits
        )
        return Known(kits, self.file, chosen.line if chosen else self.base_line) if kits else self._no_toolkit()

    def _no_toolkit(self) -> Fact[tuple[Toolkit, ...]]:
        return Known((), self.file, self.base_line) if self.image.known_contents else self.unknown

    def _toolkit(self, version: CudaVersion, root: str, placed: Placed[Any], *, is_chosen: bool) -> Toolkit:
        home = (self.variables().get("CUDA_HOME") or "").rstrip("/")
        ways = ["Dockerfile", *(["CUDA_HOME"] if home == root or (home == DEFAULT_CUDA and is_chosen) else [])]
        return Toolkit(
            root=root,
            nvcc=Known(f"{root}/bin/nvcc", self.file, placed.line),
            toolkit_version=Known(version, self.file, placed.line),
            targets=Missing(MissingReason.NOT_APPLICABLE, NOT_RUN, self.file),
            found_by=(*ways, *((DEFAULT_CUDA, "PATH") if is_chosen else ())),
            aliases=(DEFAULT_CUDA,) if is_chosen else (),
            chosen_for_builds=is_chosen,
            packaging=placed.value.packaging,
        )

    def compilers(self) -> Fact[tuple[HostCompiler, ...]]:
        gcc = self.image.gcc
        if gcc is None:
            return Known((), self.file, self.base_line) if self.image.known_contents else self.unknown
        named = {name: self.variables()[name] for name in ("NVCC_CCBIN", "CUDAHOSTCXX") if name in self.variables()}
        if "NVCC_CCBIN" in named:
            return Missing(MissingReason.PARSE_ERROR, f"NVCC_CCBIN={named['NVCC_CCBIN']} is not looked into", self.file)
        version = Known(DottedVersion((gcc.value,), str(gcc.value)), self.file, gcc.line)
        return Known((HostCompiler(family="gcc", path="g++", compiler_version=version, chosen_by="PATH"),), self.file, gcc.line)

    def python(self) -> PythonEnvironment:
        image = self.image
        found = [Package(name=name, package_version=each.value) for name, each in image.packages.items()]
        if image.torch is not None and image.torch.value.version:
            found.append(Package(name="torch", package_version=image.torch.value.version))
        conda = image.installer in ("conda", "mamba", "micromamba")
        return PythonEnvironment(
            executable=Known("python3", self.file, self.base_line),
            chosen_because="the image's own",
            python_version=self.fact(image.python, self.unknown),
            kind=Known(EnvironmentKind.CONDA if conda else EnvironmentKind.OTHER, self.file, self.base_line),
            installer=Known(image.installer, self.file, self.base_line),
            torch=self._torch(),
            packages=Known(tuple(found), self.file) if found or image.known_contents else self.unknown,
        )

    def _torch(self) -> Fact[Torch]:
        placed, unclear = self.image.torch, self.image.torch_unclear
        if placed is not None:
            return Known(self._installed(placed), self.file, placed.line)
        if unclear is not None:
            return Missing(
                MissingReason.PARSE_ERROR,
                f"which torch `{unclear.value[:80]}` (line {unclear.line}) brings is not known",
                self.file,
            )
        return self.absent("torch")

    def _installed(self, placed: Placed[InstalledTorch]) -> Torch:
        torch, line = placed.value, placed.line
        not_said = Missing(MissingReason.PARSE_ERROR, f"line {line} does not tell it", self.file)
        not_run = Missing(MissingReason.NOT_APPLICABLE, NOT_RUN, self.file)
        return Torch(
            imports=not_run,
            torch_version=Known(torch.version, self.file, line) if torch.version else not_said,
            build=Known(torch.build, self.file, line) if torch.build is not None else not_said,
            torch_cuda_version=Known(torch.cuda, self.file, line) if torch.cuda is not None else not_said,
            arch_list=not_said,
            is_available=not_run,
            cuda_error=not_run,
            devices=not_run,
            cudnn_version=not_run,
            nccl_version=not_run,
            cxx11_abi=not_run,
            location=Known(placed.because, self.file, line),
        )

    def container(self) -> Container:
        elsewhere = Missing(MissingReason.NOT_APPLICABLE, NOT_RUN, self.file)
        kind = Known("docker", self.file, self.base_line)
        return Container(kind=kind, nvidia_toolkit=elsewhere, docker_snap=elsewhere, injected_libraries=elsewhere)

    def variables(self) -> dict[str, str]:
        """ENV, and the arch lists that a build step sets for itself."""
        values = {name: each.value for name, each in self.image.environment.items()}
        for build in self.image.builds:
            if build.arch_variable and build.arch_list is not None:
                values.setdefault(build.arch_variable, build.arch_list)
        return select_variables(values)

    def reading(self) -> TextReading:
        image = self.image
        lines = {f"environment.{name}": each.line for name, each in image.environment.items()}
        lines |= {f"python.packages.{name}": each.line for name, each in image.packages.items()}
        for build in image.builds:
            lines.setdefault(f"environment.{build.arch_variable}", build.line)
        if image.torch is not None:
            lines["python.packages.torch"] = image.torch.line
        values: dict[str, Any] = {
            "file": self.file,
            "stage": image.name,
            "base": image.base.value if image.base is not None else "",
            "base_line": self.base_line,
            "contents_known": image.known_contents,
            "builds": [_build(build) for build in image.builds],
            "driver_packages": [{"package": each.value, "line": each.line} for each in image.driver_packages],
            "loader_folders": [{"folder": each.value, "line": each.line} for each in image.loader_folders],
            "lines": lines,
        }
        return TextReading(kind=READING, values=values)


def _build(build: PlannedBuild) -> dict[str, Any]:
    return {
        "package": build.package,
        "command": build.command,
        "line": build.line,
        "certainly": build.certainly,
        "arch_variable": build.arch_variable,
        "arch_list": build.arch_list,
        "for_torch": build.for_torch,
        "without_cuda": build.without_cuda,
    }
