"""All matrices behind one object; each file, and the module that answers for it, is read when it is first asked."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cudadoctor.resources import matrices_folder

if TYPE_CHECKING:
    from cudadoctor.matrices.capabilities import CapabilityMatrix
    from cudadoctor.matrices.compilers import CompilerMatrix
    from cudadoctor.matrices.cudnn import CudnnMatrix
    from cudadoctor.matrices.drivers import DriverMatrix
    from cudadoctor.matrices.ecosystem import EcosystemMatrix
    from cudadoctor.matrices.env import EnvironmentMatrix
    from cudadoctor.matrices.errors import ErrorMatrix
    from cudadoctor.matrices.expected_speed import ExpectedSpeed
    from cudadoctor.matrices.gpus import GpuMatrix
    from cudadoctor.matrices.images import ImageMatrix
    from cudadoctor.matrices.sonames import SonameMatrix
    from cudadoctor.matrices.source import Document
    from cudadoctor.matrices.toolkits import ToolkitMatrix
    from cudadoctor.matrices.torch_builds import TorchMatrix


class Matrices:
    """The matrices of one folder. Properties raise MatrixError where their file is bad, and are read once.

    Imports stand in the properties because a check without a GPU has half a second in all and asks few of them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def load(cls, folder: Path | None = None) -> Matrices:
        """The matrices that ship with the package, or those of another folder."""
        return cls(folder or matrices_folder())

    def _document(self, name: str) -> Document:
        from cudadoctor.matrices.source import Document

        return Document(self.folder / name)

    @cached_property
    def drivers(self) -> DriverMatrix:
        from cudadoctor.matrices import drivers

        return drivers.load(self._document("cuda_driver.toml"))

    @cached_property
    def toolkits(self) -> ToolkitMatrix:
        from cudadoctor.matrices import toolkits

        return toolkits.load(self._document("toolkit_arch.toml"))

    @cached_property
    def compilers(self) -> CompilerMatrix:
        from cudadoctor.matrices import compilers

        return compilers.load(self._document("host_compiler.toml"))

    @cached_property
    def capabilities(self) -> CapabilityMatrix:
        from cudadoctor.matrices import capabilities

        return capabilities.load(self._document("compute_capabilities.toml"))

    @cached_property
    def gpus(self) -> GpuMatrix:
        from cudadoctor.matrices import gpus

        return gpus.load(self._document("gpus.toml"), gpus.read_pci(self.folder / "gpu_pci_ids.json"), self.capabilities)

    @cached_property
    def torch(self) -> TorchMatrix:
        from cudadoctor.matrices import torch_builds

        return torch_builds.load(self._document("torch_builds.toml"))

    @cached_property
    def cudnn(self) -> CudnnMatrix:
        from cudadoctor.matrices import cudnn

        return cudnn.load(self._document("cudnn.toml"))

    @cached_property
    def ecosystem(self) -> EcosystemMatrix:
        from cudadoctor.matrices import ecosystem

        return ecosystem.load(self._document("ecosystem.toml"))

    @cached_property
    def errors(self) -> ErrorMatrix:
        from cudadoctor.matrices import errors

        return errors.load(self._document("cuda_errors.toml"))

    @cached_property
    def env(self) -> EnvironmentMatrix:
        from cudadoctor.matrices import env

        return env.load(self._document("env_vars.toml"))

    @cached_property
    def sonames(self) -> SonameMatrix:
        from cudadoctor.matrices import sonames

        return sonames.load(self._document("sonames.toml"))

    @cached_property
    def images(self) -> ImageMatrix:
        from cudadoctor.matrices import images

        return images.load(self._document("images.toml"))

    @cached_property
    def speeds(self) -> ExpectedSpeed:
        from cudadoctor.matrices import expected_speed

        return expected_speed.load(self._document("expected_speed.toml"))
