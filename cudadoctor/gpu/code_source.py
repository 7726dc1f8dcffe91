"""Where a layer gets its code from: the PTX that ships, an NVRTC, an nvcc. Each compiles once for all GPUs of one kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from cudadoctor.gpu.catalog import KernelSpec, choose_target
from cudadoctor.gpu.compiler import Compiled, CompilerUnavailableError, NvccCompiler, NvrtcCompiler, Workshop
from cudadoctor.model.proof import ProofLayer
from cudadoctor.model.versions import CodeKind, ComputeCapability, SmTarget


class CodeSource(Protocol):
    """One layer with one compiler."""

    @property
    def layer(self) -> ProofLayer: ...

    @property
    def label(self) -> str: ...

    @property
    def variables(self) -> Mapping[str, str]:
        """What to add to the environment of the driver child."""
        ...

    def code(self, kernel: KernelSpec, device: ComputeCapability, timeout_s: float) -> Compiled:
        """Code of `kernel` that runs on `device`; raises CompilerUnavailableError, CompilerStuckError, CompileError."""
        ...

    def close(self) -> None:
        """End what was started."""
        ...


class ShippedPtx:
    """PTX of the lowest instruction set, made when this package was: the driver alone compiles it."""

    layer = ProofLayer.DRIVER_JIT
    label = "driver"
    variables: Mapping[str, str] = {"CUDA_CACHE_DISABLE": "1"}
    """The driver's own cache would hide a broken compiler, and is the user's to fill."""

    def __init__(self, kernels: Path) -> None:
        self._kernels = kernels

    def code(self, kernel: KernelSpec, device: ComputeCapability, timeout_s: float) -> Compiled:  # noqa: ARG002  # one interface for all
        path = self._kernels / kernel.ptx_file
        if device < kernel.lowest_target:
            raise CompilerUnavailableError(
                f"{kernel.name} needs compute capability {kernel.lowest_target}, this GPU has {device}"
            )
        if not path.is_file():
            raise CompilerUnavailableError(f"the installation of cudadoctor is incomplete: {path} is missing")
        return Compiled(path, SmTarget(CodeKind.PTX, kernel.lowest_target, ""), None)

    def close(self) -> None:
        """Nothing was started."""


class NvrtcSource:
    """Cubins from one libnvrtc."""

    layer = ProofLayer.NVRTC
    variables: Mapping[str, str] = {}

    def __init__(self, library: str, label: str, env: Mapping[str, str], workshop: Workshop) -> None:
        self.label = label
        self._compiler = NvrtcCompiler(library, env, workshop)

    def code(self, kernel: KernelSpec, device: ComputeCapability, timeout_s: float) -> Compiled:
        self._compiler.load(timeout_s)
        target = _target(kernel, device, self._compiler.targets, f"{self.label} ({self._compiler.toolkit_version})")
        return self._compiler.compile(kernel, target, timeout_s)

    def close(self) -> None:
        self._compiler.close()


class NvccSource:
    """Cubins from one nvcc."""

    layer = ProofLayer.NVCC
    variables: Mapping[str, str] = {}

    def __init__(
        self, nvcc: str, label: str, targets: tuple[SmTarget, ...] | None, env: Mapping[str, str], workshop: Workshop
    ) -> None:
        self.label = label
        self._targets = targets
        self._compiler = NvccCompiler(nvcc, label, env, workshop)

    def code(self, kernel: KernelSpec, device: ComputeCapability, timeout_s: float) -> Compiled:
        target = _target(kernel, device, self._targets, self.label)
        return self._compiler.compile(kernel, target, timeout_s)

    def close(self) -> None:
        self._compiler.close()


def _target(kernel: KernelSpec, device: ComputeCapability, offered: tuple[SmTarget, ...] | None, label: str) -> SmTarget:
    """The target for `kernel` on `device`; compilers list no architecture-specific ones (`a`), so those are simply tried."""
    if not kernel.runs_on(device):
        raise CompilerUnavailableError(f"{kernel.name} is not made for {device.sm}")
    target = device.sm if offered is None else choose_target(device, offered)
    if target == device.sm and kernel.target_suffix:
        return SmTarget(target.kind, device, kernel.target_suffix)
    if target is None or not kernel.runs_on(target.compute_capability):
        raise CompilerUnavailableError(f"{label} cannot target {device.sm}")
    return target
