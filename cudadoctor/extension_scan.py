"""The GPU code in the binaries of installed packages, one judgement for each package and GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudadoctor.binary.cache import ScanCache
from cudadoctor.binary.inputs import Interpreter
from cudadoctor.binary.report import FileReport, cannot_run
from cudadoctor.model.versions import ComputeCapability, CudaVersion
from cudadoctor.scan import ScanOptions, gpu_of, scan
from cudadoctor.system import RealSystem

if TYPE_CHECKING:
    from cudadoctor.matrices import Matrices
    from cudadoctor.rooted_system import RootedSystem

LEFT_OUT = frozenset(
    {"torch", "nvidia", "triton", "cupy_backends", "__pycache__", "numpy", "scipy", "pandas", "pip", "setuptools"}
)
"""Parts of site-packages that have no extensions for the GPU, or whose code is judged in another way."""
MAX_PACKAGES = 2_000


def scanned_packages(
    folders: Sequence[str],
    capabilities: Sequence[ComputeCapability],
    driver_cuda: CudaVersion | None,
    matrices: Matrices,
    root: RootedSystem | None = None,
) -> Iterator[dict[str, Any]]:
    """Package, path, code by target, and the GPUs (`8.9`) for which none of its files has code."""
    system = RealSystem()
    cache = ScanCache.of_environment(os.environ)
    for folder in folders:
        for name in _entries(root, folder):
            here = root.host_path(f"{folder}/{name}") if root is not None else f"{folder}/{name}"
            reports = {
                str(capability): _reports(here, capability, driver_cuda, matrices, system, cache) for capability in capabilities
            }
            some = next(iter(reports.values()), ())
            if any(report.modules for report in some):
                yield {
                    "package": name.partition(".")[0],
                    "path": f"{folder}/{name}",
                    "code": _code(some),
                    "cannot_run": [gpu for gpu, files in reports.items() if cannot_run(files)],
                }


def _entries(root: RootedSystem | None, folder: str) -> tuple[str, ...]:
    """The packages and modules in a folder; links are not followed out of an image."""
    host = root.host_path(folder) if root is not None else folder
    try:
        with os.scandir(host) as listing:
            names = [
                entry.name
                for entry in listing
                if entry.name not in LEFT_OUT
                and not entry.name.endswith((".dist-info", ".egg-info", ".pth", ".py"))
                and (entry.is_dir(follow_symlinks=False) or entry.name.endswith(".so"))
                and not entry.is_symlink()
            ]
    except OSError:
        return ()
    return tuple(sorted(names)[:MAX_PACKAGES])


def _reports(
    path: str,
    capability: ComputeCapability,
    driver_cuda: CudaVersion | None,
    matrices: Matrices,
    system: RealSystem,
    cache: ScanCache,
) -> tuple[FileReport, ...]:
    if not Path(path).exists():
        return ()
    gpu = gpu_of(capability, driver_cuda, matrices.toolkits)
    return tuple(scan(ScanOptions((path,), Interpreter("", system), cache, gpu=gpu)))


def _code(reports: Sequence[FileReport]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for report in reports:
        for target, number in report.code.items():
            counts[target] = counts.get(target, 0) + number
    return counts
