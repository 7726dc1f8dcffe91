"""The architectures to compile for: one for each GPU, clipped to what the toolkit and torch can build, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from cudadoctor.compat import PtxSupport, is_tegra, ptx_serves, sass_serves, toolkit_ptx_on_driver
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.torch_builds import minor_of
from cudadoctor.model.fact import Missing, maybe
from cudadoctor.model.snapshot import Snapshot, Torch
from cudadoctor.model.versions import CodeKind, ComputeCapability, CudaVersion, DottedVersion, SmTarget
from cudadoctor.rules.questions import chosen_toolkit, toolkit_targets, torch, torch_release


class PtxChoice(Enum):
    """When PTX, which newer GPUs can compile, goes into the list beside machine code."""

    WHERE_NEEDED = "where-needed"
    """Only for a GPU that nothing here can make machine code for."""
    ALWAYS = "always"
    """Also for the highest architecture of the list."""


class ArchStyle(Enum):
    """How the list is written."""

    TORCH = "torch"
    """For TORCH_CUDA_ARCH_LIST: `8.9;9.0+PTX`."""
    CMAKE = "cmake"
    """For CMAKE_CUDA_ARCHITECTURES: `89-real;90` (machine code only, and both)."""
    NVCC = "nvcc"
    """Options of nvcc: `-gencode=arch=compute_89,code=sm_89 ...`."""
    JSON = "json"


@dataclass(frozen=True, slots=True)
class WantedGpu:
    """A GPU to compile for, and how the explanation names it."""

    name: str
    capability: ComputeCapability


@dataclass(frozen=True, slots=True)
class BuildLimit:
    """One builder (nvcc, or torch's extension builder) and all that it can build; `name` is for the explanation."""

    name: str
    capabilities: frozenset[ComputeCapability]


@dataclass(frozen=True, slots=True)
class ArchPlan:
    """The list: machine code for `archs`, PTX for `ptx` (all of which are in `archs`), and what could not be served."""

    archs: tuple[ComputeCapability, ...]
    ptx: tuple[ComputeCapability, ...]
    unserved: tuple[WantedGpu, ...]
    """GPUs for which nothing that runs can be built here."""
    why: tuple[str, ...]
    """One sentence for each GPU whose entry is not simply its own number, and for each choice of PTX."""

    @property
    def ptx_targets(self) -> tuple[SmTarget, ...]:
        return tuple(SmTarget(CodeKind.PTX, capability, "") for capability in self.ptx)

    def text(self, style: ArchStyle) -> str:
        """The value for one use; empty where nothing can be built."""
        return _WRITERS[style](self)


@dataclass(frozen=True, slots=True)
class _Entry:
    capability: ComputeCapability
    ptx: bool
    why: str


def plan_archs(gpus: Sequence[WantedGpu], limits: Sequence[BuildLimit], ptx: PtxChoice = PtxChoice.WHERE_NEEDED) -> ArchPlan:
    """The list for these GPUs, within all limits; without a limit, each GPU's own number."""
    entries: list[_Entry] = []
    unserved: list[WantedGpu] = []
    why: list[str] = []
    for gpu in gpus:
        entry = _entry(gpu, limits)
        if entry is None:
            unserved.append(gpu)
            why.append(_why_unserved(gpu, limits))
            continue
        entries.append(entry)
        why += [entry.why] if entry.why else []
    archs = tuple(sorted({entry.capability for entry in entries}))
    with_ptx = {entry.capability for entry in entries if entry.ptx}
    if ptx is PtxChoice.ALWAYS and archs and archs[-1] not in with_ptx:
        with_ptx.add(archs[-1])
        why.append(f"PTX of {archs[-1]} is added as asked, for newer GPUs.")
    return ArchPlan(archs, tuple(sorted(with_ptx)), tuple(unserved), tuple(dict.fromkeys(why)))


def _entry(gpu: WantedGpu, limits: Sequence[BuildLimit]) -> _Entry | None:
    wanted = gpu.capability
    buildable = _buildable(limits)
    if buildable is None or wanted in buildable:
        return _Entry(wanted, ptx=False, why="")
    blame = _blame(wanted, limits)
    same = max((code for code in buildable if sass_serves(code.sm, wanted)), default=None)
    if same is not None:
        return _Entry(same, ptx=False, why=f"{gpu.name}: {blame}, but {same.sm} code runs on it as it is.")
    lower = max((code for code in buildable if _ptx_helps(code, wanted)), default=None)
    if lower is None:
        return None
    return _Entry(lower, ptx=True, why=f"{gpu.name}: {blame}; PTX of {lower}, the highest below it, is compiled by its driver.")


def _ptx_helps(code: ComputeCapability, wanted: ComputeCapability) -> bool:
    """Whether PTX serves the GPU; that of a Tegra chip is no choice for others, its machine code being of no use to them."""
    return ptx_serves(SmTarget(CodeKind.PTX, code, ""), wanted) and (is_tegra(wanted) or not is_tegra(code))


def _buildable(limits: Sequence[BuildLimit]) -> frozenset[ComputeCapability] | None:
    if not limits:
        return None
    return frozenset.intersection(*(limit.capabilities for limit in limits))


def _blame(wanted: ComputeCapability, limits: Sequence[BuildLimit]) -> str:
    names = [limit.name for limit in limits if wanted not in limit.capabilities]
    return f"{' and '.join(names)} cannot build for {wanted}"


def _why_unserved(gpu: WantedGpu, limits: Sequence[BuildLimit]) -> str:
    lowest = min(_buildable(limits) or (), default=None)
    reach = f" (the lowest is {lowest})" if lowest is not None else ""
    return f"{gpu.name}: {_blame(gpu.capability, limits)}{reach}, and no other code serves it; it is left out."


def _torch_text(plan: ArchPlan) -> str:
    return ";".join(f"{arch}+PTX" if arch in plan.ptx else str(arch) for arch in plan.archs)


def _cmake_text(plan: ArchPlan) -> str:
    return ";".join(str(arch.number) if arch in plan.ptx else f"{arch.number}-real" for arch in plan.archs)


def _nvcc_options(plan: ArchPlan) -> tuple[str, ...]:
    machine = [f"-gencode=arch=compute_{arch.number},code=sm_{arch.number}" for arch in plan.archs]
    virtual = [f"-gencode=arch=compute_{arch.number},code=compute_{arch.number}" for arch in plan.ptx]
    return (*machine, *virtual)


def _nvcc_text(plan: ArchPlan) -> str:
    return " ".join(_nvcc_options(plan))


def _json_text(plan: ArchPlan) -> str:
    document = {
        "archs": [str(arch) for arch in plan.archs],
        "ptx": [str(arch) for arch in plan.ptx],
        "torch": _torch_text(plan),
        "cmake": _cmake_text(plan),
        "nvcc": list(_nvcc_options(plan)),
        "unserved": [{"name": gpu.name, "compute_capability": str(gpu.capability)} for gpu in plan.unserved],
        "why": list(plan.why),
    }
    return json.dumps(document, indent=2)


_WRITERS = {
    ArchStyle.TORCH: _torch_text,
    ArchStyle.CMAKE: _cmake_text,
    ArchStyle.NVCC: _nvcc_text,
    ArchStyle.JSON: _json_text,
}


def build_limits(snapshot: Snapshot, matrices: Matrices) -> tuple[BuildLimit, ...]:
    """What the toolkit that builds would take and the examined torch can build; nothing for what is absent or unknown."""
    limits = []
    kit = chosen_toolkit(snapshot)
    if kit is not None:
        targets = toolkit_targets(kit, matrices)
        version = maybe(kit.toolkit_version)
        if not isinstance(targets, Missing):
            limits.append(toolkit_limit(f"nvcc {version.release}" if version else kit.root, targets.value))
    build = torch(snapshot)
    if build is not None:
        known = torch_capabilities(build, matrices)
        if known:
            limits.append(BuildLimit(f"torch {torch_release(build)}", known))
    return tuple(limits)


def toolkit_limit(name: str, targets: Iterable[SmTarget]) -> BuildLimit:
    """The limit of an nvcc, from its targets."""
    return BuildLimit(name, frozenset(target.compute_capability for target in targets if target.suffix == ""))


def torch_capabilities(build: Torch, matrices: Matrices) -> frozenset[ComputeCapability]:
    """What TORCH_CUDA_ARCH_LIST may name for this torch; empty where the table does not know its release.

    For a release whose own table of numbers was not read, it is what any of its wheels holds, and between those what a
    toolkit of its time could build: its `cpp_extension` has then at least these.
    """
    version = torch_release(build)
    if version is None or not matrices.torch.releases_of(version):
        return frozenset()
    own = {target.compute_capability for target in maybe(build.arch_list) or () if target.suffix == ""}
    exact = next((row.numbers for row in matrices.torch.arch_numbers if minor_of(row.torch) == minor_of(version)), None)
    if exact is not None:
        return frozenset(own) | _plain(exact)
    return frozenset(own) | _capabilities_of_its_time(version, matrices)


def _plain(numbers: Iterable[str]) -> frozenset[ComputeCapability]:
    return frozenset(ComputeCapability.parse(number) for number in numbers if not number.endswith(("a", "f")))


def _capabilities_of_its_time(version: DottedVersion, matrices: Matrices) -> frozenset[ComputeCapability]:
    rows = [row for row in matrices.torch.arch_lists if row.covers_minor(minor_of(version))]
    held = {target.compute_capability for row in rows for target in row.sass}
    newest_cuda = max((row.variant for row in rows), default=CudaVersion.of(0, 0))
    named = frozenset[ComputeCapability]().union(*(_plain(row.numbers) for row in matrices.torch.arch_numbers))
    between = {
        capability
        for capability in named
        if held and capability < max(held) and (matrices.toolkits.first_toolkit_for(capability) or newest_cuda) <= newest_cuda
    }
    return frozenset(held | between)


def ptx_warning(plan: ArchPlan, snapshot: Snapshot, matrices: Matrices) -> str | None:
    """Where the list relies on PTX that this machine's driver cannot compile, what to say about it."""
    kit = chosen_toolkit(snapshot)
    version = maybe(kit.toolkit_version) if kit is not None else None
    driver_cuda = maybe(snapshot.driver.driver_cuda_version)
    if not plan.ptx or version is None or driver_cuda is None:
        return None
    if toolkit_ptx_on_driver(version, driver_cuda, matrices.toolkits) is not PtxSupport.TOO_NEW:
        return None
    reach = f"The driver here supports CUDA {driver_cuda.release}"
    return f"{reach} and cannot compile the PTX that nvcc {version.release} writes (error 222)."
