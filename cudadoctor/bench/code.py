"""Code for the kernels of a run: by the first compiler here that can make it, else the PTX that ships."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cudadoctor.gpu.catalog import PORTABLE, KernelSpec
from cudadoctor.gpu.code_source import CodeSource, NvccSource, NvrtcSource, ShippedPtx
from cudadoctor.gpu.compile_cache import CompileCache, user_cache_folder
from cudadoctor.gpu.compiler import CompileError, CompilerStuckError, CompilerUnavailableError, Workshop
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.resources import kernels_folder

COMPILE_LIMIT_S = 60.0
NO_COMPILER = "no NVRTC library and no nvcc was found"


@dataclass(frozen=True)
class Compilers:
    """The compilers to try, in this order, and the environment of their processes."""

    env: Mapping[str, str]
    nvrtc: tuple[NvrtcChoice, ...] = ()
    nvcc: tuple[NvccChoice, ...] = ()


@dataclass
class Code:
    """Images by the kernel's name, and why there is none for the others."""

    images: dict[str, Path] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def make(self, kernel: KernelSpec, capability: ComputeCapability, sources: Sequence[CodeSource]) -> None:
        """The code of one kernel, by the first source that has it."""
        because = NO_COMPILER
        for source in sources:
            made = _made(kernel, capability, source)
            if isinstance(made, Path):
                self.images[kernel.name] = made
                return
            because = made
        self.refused[kernel.name] = because


def _made(kernel: KernelSpec, capability: ComputeCapability, source: CodeSource) -> Path | str:
    """The image, or why this source has none."""
    try:
        return source.code(kernel, capability, COMPILE_LIMIT_S).path
    except (CompileError, CompilerUnavailableError, CompilerStuckError, OSError) as error:
        return str(error)


def code_for(kernels: Iterable[KernelSpec], capability: ComputeCapability, compilers: Compilers, folder: Path) -> Code:
    """The code of each kernel for this kind of GPU; new files go to `folder`."""
    workshop = Workshop(kernels_folder(), folder, CompileCache(user_cache_folder(compilers.env)))
    sources: list[CodeSource] = [NvrtcSource(each.path, each.label, compilers.env, workshop) for each in compilers.nvrtc]
    sources += [NvccSource(each.path, each.label, each.targets, compilers.env, workshop) for each in compilers.nvcc]
    code = Code()
    try:
        for kernel in kernels:
            code.make(kernel, capability, [*sources, ShippedPtx(workshop.kernels)] if kernel in PORTABLE else sources)
    finally:
        for source in sources:
            source.close()
    return code
