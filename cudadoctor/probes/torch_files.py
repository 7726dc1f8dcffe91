"""What torch was built for, from its binaries, where torch itself could not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.snapshot import PythonEnvironment, Torch, TorchBuild

if TYPE_CHECKING:
    from cudadoctor.system import System


def with_code_from_files(system: System, python: PythonEnvironment) -> PythonEnvironment:
    """The environment whose torch has the arch list of its binaries where it is not known otherwise; torch is not imported."""
    torch = python.torch
    if not isinstance(torch, Known) or isinstance(torch.value.arch_list, Known):
        return python
    read = _with_code(system, torch.value)
    return python if read is torch.value else structs.replace(python, torch=structs.replace(torch, value=read))


def _with_code(system: System, torch: Torch) -> Torch:
    location = maybe(torch.location)
    if location is None or maybe(torch.build) not in (None, TorchBuild.CUDA):
        return torch
    from cudadoctor.binary.rootfs import RootFolder
    from cudadoctor.binary.source import BinaryError
    from cudadoctor.binary.torch_code import torch_code

    root = RootFolder(system.files_root)
    folder = root.real_path(f"{location}/lib")
    if folder is None:
        return torch
    try:
        found = torch_code(root.here(folder))
    except BinaryError:
        return torch  # what torch's child said of it stands
    if found is None:
        return torch
    library = f"{location}/lib/" + found.library.replace("\\", "/").rpartition("/")[2]
    return structs.replace(torch, arch_list=Known(found.targets, library))
