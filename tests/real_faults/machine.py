"""The machine on which faults are made: its GPU, toolkit, torch and compilers, and the environment that runs start from."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cudadoctor.gpu.description import DriverDescription
from cudadoctor.gpu.driver_session import describe_driver
from cudadoctor.model.versions import ComputeCapability, CudaVersion

USUAL_NVCC = "/usr/local/cuda/bin/nvcc"
PROGRAM_LIMIT_S = 120.0


class NotHereError(Exception):
    """This machine lacks what the fault is made of; the text says what."""


@dataclass(frozen=True)
class Machine:
    """A machine; `python` is the interpreter that is examined."""

    env: Mapping[str, str]
    python: str

    @cached_property
    def driver(self) -> DriverDescription:
        """The driver, which must work; raises NotHereError."""
        found = describe_driver(self.env, timeout_s=30)
        if not found.usable or not found.devices:
            raise NotHereError(f"no CUDA device: {found.refusal or found.failure_text}")
        return found

    @property
    def capability(self) -> ComputeCapability:
        """Of the first GPU."""
        found = self.driver.devices[0].compute_capability
        if found is None:
            raise NotHereError("the driver does not tell the compute capability")
        return found

    @property
    def driver_cuda(self) -> CudaVersion:
        """The newest CUDA that the driver serves."""
        found = self.driver.driver_cuda_version
        if found is None:
            raise NotHereError("the driver does not tell its CUDA version")
        return found

    @cached_property
    def toolkit(self) -> Path:
        """The toolkit's folder."""
        nvcc = shutil.which("nvcc", path=self.env.get("PATH", "")) or USUAL_NVCC
        if not Path(nvcc).is_file():
            raise NotHereError("no nvcc")
        return Path(nvcc).resolve().parent.parent

    def require_torch(self) -> None:
        """Raises NotHereError where the interpreter has no torch."""
        if not self.site_packages.is_dir():
            raise NotHereError(f"torch of {self.python} is in no folder")

    @cached_property
    def site_packages(self) -> Path:
        """The folder in which the interpreter has torch."""
        code = "import importlib.util as u, pathlib; print(pathlib.Path(u.find_spec('torch').origin).parent.parent)"
        done = subprocess.run(
            [self.python, "-c", code], env=dict(self.env), capture_output=True, text=True, timeout=PROGRAM_LIMIT_S
        )
        if done.returncode:
            raise NotHereError(f"no torch in {self.python}")
        return Path(done.stdout.strip())

    def program(self, name: str) -> str:
        """The path of a program on PATH; raises NotHereError."""
        found = shutil.which(name, path=self.env.get("PATH", ""))
        if found is None:
            raise NotHereError(f"no {name}")
        return found

    def in_front(self, variable: str, folder: Path | str) -> dict[str, str | None]:
        """A list of folders in the environment with one more in front."""
        return {variable: os.pathsep.join(part for part in (str(folder), self.env.get(variable, "")) if part)}

    @property
    def path_without_toolkit(self) -> tuple[str, ...]:
        """The folders of PATH that hold no nvcc."""
        return tuple(part for part in self.env.get("PATH", "").split(os.pathsep) if not Path(part, "nvcc").exists())

    def with_toolkit(self, root: Path) -> dict[str, str | None]:
        """The environment in which builds take the toolkit in `root` and find nothing of another."""
        return {"CUDA_HOME": str(root), "PATH": os.pathsep.join((str(root / "bin"), *self.path_without_toolkit))}

    def library(self, soname: str) -> Path:
        """The file of a library beside torch; raises NotHereError."""
        for path in sorted((self.site_packages / "nvidia").glob(f"*/lib/{soname}")):
            return path
        raise NotHereError(f"torch brings no {soname}")
