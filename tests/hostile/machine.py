"""The machines that are made hostile: machine A with more things in it, and one without any GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fakes.fakebin import fake_program
from tests.fakes.machines import MACHINES, Machine, build
from tests.hostile.doctor import Place

CUDNN_HEADER = "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 1\n#define CUDNN_PATCHLEVEL 0\n"
RULE = "arch-missing-in-wheel"


@dataclass(frozen=True)
class Prey:
    """A machine, what the doctor is run in, and what may be made hostile in it."""

    machine: Machine
    env: dict[str, str]
    cwd: Path
    shadows: Path
    """An empty folder, for modules that shadow others."""

    @property
    def folder(self) -> Path:
        """Where all of it lies."""
        return self.machine.folder

    @property
    def home(self) -> Path:
        """The user's home."""
        return self.folder / "home"

    @property
    def caches(self) -> tuple[Path, ...]:
        """Where the doctor may write: below XDG_CACHE_HOME as the machine has it, and where it is by default."""
        return (self.home / "cache", self.home / ".cache" / "cudadoctor")

    @property
    def toolkit(self) -> Path:
        """The CUDA toolkit."""
        return self.folder / "cuda-12.8"

    @property
    def site(self) -> Path:
        """site-packages of the examined Python."""
        return next((self.folder / "venv" / "lib").glob("python*/site-packages"))

    def place(self, **more: object) -> Place:
        """To run the doctor there."""
        plain = Place(self.env, self.cwd, (self.folder,), self.caches)
        return replace(plain, **more)  # type: ignore[arg-type]  # fields of Place


def machine_a(folder: Path) -> Prey:
    """Machine A of the contract with a cuDNN header, clang, the container toolkit, docker and a versioned g++ besides."""
    prey = _prey(build(MACHINES["A"], folder))
    programs = folder / "bin"
    fake_program(programs / "clang++", "Ubuntu clang version 14.0.0-1ubuntu1.1\n")
    fake_program(programs / "g++-11", "g++-11 (Ubuntu 11.4.0-1ubuntu1) 11.4.0\n")
    gxx = folder / "system" / "g++"
    gxx.unlink(missing_ok=True)
    fake_program(gxx, "g++ (Debian 12.2.0-14) 12.2.0\n")
    fake_program(programs / "nvidia-ctk", "NVIDIA Container Toolkit CLI version 1.17.4\n")
    fake_program(programs / "docker", "Docker version 27.3.1\n")
    (prey.toolkit / "include" / "cudnn_version.h").write_text(CUDNN_HEADER)
    prey.env["CUDA_HOME"] = str(prey.toolkit)
    (folder / "lib" / "libcudart.so.12").write_bytes((folder / "lib" / "libcuda.so.1").read_bytes())
    return prey


def machine_without_gpu(folder: Path) -> Prey:
    """The same without driver and GPU: no library, no nvidia-smi."""
    prey = machine_a(folder)
    of_driver = (path for path in (folder / "lib").iterdir() if not path.name.startswith("libcudart"))
    for path in (*of_driver, folder / "bin" / "nvidia-smi"):
        path.unlink()
    return prey


MACHINE_KINDS = {"A": machine_a, "no GPU": machine_without_gpu}


def _prey(machine: Machine) -> Prey:
    cwd, shadows, scratch = (machine.folder / name for name in ("work", "shadows", "tmp"))
    for folder in (cwd, shadows, scratch):
        folder.mkdir()
    (cwd / RULE).write_text("a file named like a rule\n")
    return Prey(machine, {**machine.env, "TMPDIR": str(scratch)}, cwd, shadows)


def path_of(env: Mapping[str, str]) -> list[str]:
    """The entries of the PATH."""
    return env["PATH"].split(os.pathsep)
