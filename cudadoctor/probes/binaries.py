"""What the installed CUDA packages hold and would load, read from their files beside the other probes; nothing is imported.

Nothing is started where no such package is installed. The reading never delays the report: what was not reached in time is
said to be incomplete.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cudadoctor.model.binaries import BinaryPackage
from cudadoctor.model.fact import Fact, Known
from cudadoctor.model.snapshot import ProbeRun
from cudadoctor.probes._torch_child import normalised
from cudadoctor.probes.asking import folder_names, not_applicable
from cudadoctor.probes.runner import Probe, ProbeContext, RunningProbe

if TYPE_CHECKING:
    from cudadoctor.binary.packages import InstalledPackage
    from cudadoctor.matrices.sonames import SonameMatrix
    from cudadoctor.system import System

SOURCE = "files of the packages"
BUDGET_S = 1.0
"""How long the report waits for this probe at most, counted from its start; torch's import alone takes longer."""
LAST_FILE_S = 0.1
"""For ending the file at hand and saving the cache."""
KNOWN = (
    *("torch", "torchvision", "torchaudio", "flash-attn", "flash-attn-3", "xformers", "bitsandbytes", "vllm", "sglang-kernel"),
    *("sgl-kernel", "onnxruntime-gpu", "apex", "mamba-ssm", "causal-conv1d", "ctranslate2", "llama-cpp-python", "faiss-gpu"),
    *("faiss-gpu-cu11", "faiss-gpu-cu12", "faiss", "cupy", "cupy-cuda11x", "cupy-cuda12x", "cupy-cuda13x", "triton"),
    *("tensorflow", "jaxlib", "deepspeed", "transformer-engine", "exllamav2", "flashinfer-python"),
)
"""Packages that carry GPU code, most used first; any other that does is found after them."""
WITHOUT_METADATA = ("torch", "torchvision", "torchaudio", "xformers", "bitsandbytes", "vllm", "triton", "faiss", "apex", "cupy")
"""Packages that are found by their folder where, as with conda, there is no list of their files."""
LIBRARIES_ONLY = re.compile(r"(?:nvidia|cuda|libcu\w*)-")
"""NVIDIA's own libraries as wheels: others load them."""
DEVICE_NODES = ("/dev/nvidiactl", "/dev/nvgpu", "/dev/dxg")
"""Of a driver on Linux, on a Jetson and in WSL."""
THE_OTHERS = "other packages"
"""Stands for those that were not looked at; no package has a space in its name."""


class BinaryScan:
    """The probe at work, in a thread of its own."""

    def __init__(
        self, system: System, folders: Callable[[], tuple[str, ...]], sonames: Callable[[], SonameMatrix], executable: str
    ) -> None:
        """Start it; `folders` may wait for the examined Python, `executable`, to say where its packages are."""
        self._found: list[BinaryPackage] = []
        self._stop = threading.Event()
        self._started = time.monotonic()

        def read(system: System, context: ProbeContext) -> Fact[tuple[BinaryPackage, ...]]:
            if system.platform == "darwin":
                return not_applicable("no CUDA exists for this platform")
            for package in packages_of(system, context.package_folders(), sonames, executable, self._stop.is_set):
                self._found.append(package)
            return Known(tuple(self._found), SOURCE)

        context = ProbeContext(folders, BUDGET_S, BUDGET_S, frozenset())
        self._running = RunningProbe(Probe("binaries", read, lambda why: why), system, context)

    def result(self, deadline: float) -> tuple[Fact[tuple[BinaryPackage, ...]], ProbeRun]:
        """What was read, and how that went; waits until the probe's budget is used up, and never beyond `deadline`."""
        self._running.result(min(deadline, self._started + BUDGET_S))
        self._stop.set()
        part, run = self._running.result(min(deadline, time.monotonic() + LAST_FILE_S))
        if run.outcome != "timeout":
            return part, run
        return Known((*self._found, BinaryPackage(THE_OTHERS, (), complete=False)), SOURCE), run

    def stop(self) -> None:
        """End it after the file at hand."""
        self._stop.set()


def packages_of(
    system: System,
    folders: Sequence[str],
    sonames: Callable[[], SonameMatrix],
    executable: str,
    is_over: Callable[[], bool],
) -> Iterator[BinaryPackage]:
    """The packages with GPU code or CUDA needs, one by one until `is_over`; the cache is saved behind the last."""
    if not _worth_looking(system, folders):
        return
    from cudadoctor.probes.package_files import PackageReader

    reader = PackageReader(system, folders, sonames, executable)
    for package in _in_order(reader.installed(WITHOUT_METADATA), is_over):
        found = reader.read(package, is_over)
        if found.files or not found.complete:
            yield found
    if is_over():
        yield BinaryPackage(THE_OTHERS, (), complete=False)
    reader.save()


def _worth_looking(system: System, folders: Sequence[str]) -> bool:
    """Is a package with GPU code installed, or a device here for which one could be?"""
    entries = (name for folder in folders for name in folder_names(system, folder))
    names = {normalised(re.split(r"-\d", entry, maxsplit=1)[0]) for entry in entries}
    return not names.isdisjoint(KNOWN) or (bool(names) and any(system.exists(node) for node in DEVICE_NODES))


def _in_order(packages: Sequence[InstalledPackage], is_over: Callable[[], bool]) -> Iterator[InstalledPackage]:
    """The known ones, most used first, then every other that has GPU code."""
    from cudadoctor.binary.packages import has_gpu_code

    by_name = {package.name: package for package in packages}
    yield from (by_name[name] for name in KNOWN if name in by_name)
    for name in sorted(by_name.keys() - set(KNOWN)):
        if not LIBRARIES_ONLY.match(name) and not is_over() and has_gpu_code(by_name[name], is_over):
            yield by_name[name]
