"""All matrices behind one object; each file is read when it is first asked."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from cudadoctor.matrices import capabilities, compilers, cudnn, drivers, env, errors, gpus, sonames, toolkits, torch_builds
from cudadoctor.matrices.gpus import PciTable, read_pci
from cudadoctor.matrices.source import Document, MatrixError
from cudadoctor.resources import matrices_folder

if TYPE_CHECKING:
    from cudadoctor.matrices.ecosystem import EcosystemMatrix


class Matrices:
    """The matrices of one folder. Properties raise MatrixError where their file is bad, and are read once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def load(cls, folder: Path | None = None) -> Matrices:
        """The matrices that ship with the package, or those of another folder."""
        return cls(folder or matrices_folder())

    def _document(self, name: str) -> Document:
        return Document(self.folder / name)

    @cached_property
    def drivers(self) -> drivers.DriverMatrix:
        return drivers.load(self._document("cuda_driver.toml"))

    @cached_property
    def toolkits(self) -> toolkits.ToolkitMatrix:
        return toolkits.load(self._document("toolkit_arch.toml"))

    @cached_property
    def compilers(self) -> compilers.CompilerMatrix:
        return compilers.load(self._document("host_compiler.toml"))

    @cached_property
    def capabilities(self) -> capabilities.CapabilityMatrix:
        return capabilities.load(self._document("compute_capabilities.toml"))

    @cached_property
    def gpus(self) -> gpus.GpuMatrix:
        return gpus.load(self._document("gpus.toml"), self._pci(), self.capabilities)

    def _pci(self) -> PciTable:
        path = self.folder / "gpu_pci_ids.json"
        try:
            return read_pci(path.name, path.read_bytes())
        except OSError as error:
            raise MatrixError(f"{path.name}: cannot be read: {error}") from error

    @cached_property
    def torch(self) -> torch_builds.TorchMatrix:
        return torch_builds.load(self._document("torch_builds.toml"))

    @cached_property
    def cudnn(self) -> cudnn.CudnnMatrix:
        return cudnn.load(self._document("cudnn.toml"))

    @cached_property
    def ecosystem(self) -> EcosystemMatrix:
        # `packaging` takes longer to import than the file to read, and most checks do without it.
        from cudadoctor.matrices import ecosystem

        return ecosystem.load(self._document("ecosystem.toml"))

    @cached_property
    def errors(self) -> errors.ErrorMatrix:
        return errors.load(self._document("cuda_errors.toml"))

    @cached_property
    def env(self) -> env.EnvironmentMatrix:
        return env.load(self._document("env_vars.toml"))

    @cached_property
    def sonames(self) -> sonames.SonameMatrix:
        return sonames.load(self._document("sonames.toml"))
