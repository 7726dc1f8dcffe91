"""What torch was built for, read from the library that holds its kernels; torch is not imported."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudadoctor.binary.elf import read_header, read_sections
from cudadoctor.binary.elf_code import registered_modules
from cudadoctor.binary.formats import FileKind, open_binary
from cudadoctor.binary.source import BinaryError, FileSource, MeteredSource
from cudadoctor.model.binaries import Place
from cudadoctor.paths import is_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudadoctor.binary.device_code import Module
    from cudadoctor.model.versions import SmTarget

TORCH_LIBRARIES = ("libtorch_cuda.so", "torch_cuda.dll", "libtorch_cuda_cu.so", "libtorch.so")
"""Where a torch build keeps its kernels; libtorch.so up to 1.8, a split library in some builds of 1.9 to 1.13 (recalled)."""


@dataclass(frozen=True, slots=True)
class TorchCode:
    """The library of torch that holds its kernels, and the targets that most of its modules have."""

    library: str
    targets: tuple[SmTarget, ...]


def torch_code(lib_folder: str) -> TorchCode | None:
    """The targets that torch was built for, as `torch.cuda.get_arch_list()` lists them, read from the binaries in `torch/lib`.

    Those are the targets that most modules have; a few modules have more (sm_90a beside sm_90). Takes about 20 ms, torch is
    not imported. None where the folder has no CUDA build of torch; raises BinaryError where it has one that cannot be read.
    """
    for name in TORCH_LIBRARIES:
        path = Path(lib_folder, name)
        if is_file(path):
            found = _usual_targets(path)
            if found:
                return TorchCode(str(path), found)
    return None


def _usual_targets(path: Path) -> tuple[SmTarget, ...]:
    counts: Counter[SmTarget] = Counter()
    total = 0
    with FileSource(path) as file:
        for module in _registered(MeteredSource(file)):
            if not module.is_tiny:
                total += 1
                counts.update({entry.target for entry in module.entries if entry.target is not None})
    return tuple(sorted(target for target, count in counts.items() if 2 * count > total))


def _registered(source: MeteredSource) -> Iterator[Module]:
    opened = open_binary(source)
    if opened is None:
        raise BinaryError("not a library")
    if opened.kind is FileKind.ELF:
        return registered_modules(source, read_sections(source, read_header(source)))
    return (module for module in opened.modules if module.place is Place.REGISTERED)
