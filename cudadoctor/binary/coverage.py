"""Predicts how the modules of a file fare on a GPU: each module on its own, then the file as a whole.

How known: the error codes were seen on an H200 (driver 580.159.04, 2026-11-30, benchmarks/scan_predictions.py) with binaries
built for the purpose: an ordinary module without usable code fails with 209 at the first launch of one of its kernels, PTX
newer than the driver with 222. A device-linked module (nvcc -rdc=true) is linked anew by the driver where all its relocatable
inputs have usable code; where none has, it fails with 500, where some have, with 300, where the PTX of all is too new, with
222. The rest is documented (CUDA Programming Guide). A library that compiles at run time or picks its kernels by GPU can work
where no file says so, hence *prediction*.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from cudadoctor.compat import crosses_tegra_border, ptx_serves, sass_serves
from cudadoctor.model.binaries import Place
from cudadoctor.model.versions import CodeKind, ComputeCapability, PtxIsa

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cudadoctor.model.binaries import Code, ModuleGroup


class Gpu(Struct, frozen=True):
    """What is judged against: a GPU, and the newest PTX that its driver compiles (None: not known, taken as new enough)."""

    compute_capability: ComputeCapability
    driver_ptx_isa: PtxIsa | None = None


class ModuleOutcome(Enum):
    """How one module fares."""

    SASS = "sass"
    """Machine code that runs as it is."""
    JIT = "jit"
    """The driver compiles (or links) its PTX at load time."""
    UNCERTAIN = "uncertain"
    """Machine code of another chip of the same major, for a Tegra: not promised, often works."""
    PTX_TOO_NEW = "ptx-too-new"
    NO_IMAGE = "no-image"
    NOT_LINKED = "not-linked"
    """Device-linked, and none of what was linked has code for the GPU."""
    HALF_LINKED = "half-linked"
    """Device-linked, and only some of what was linked has PTX that the driver can compile."""
    RUN_TIME_LINKED = "run-time-linked"
    """Only LTO-IR: the driver does not load it, the library links it itself. Not judged."""
    UNKNOWN = "unknown"
    """Nothing known serves, but it has code of an unknown kind or could not be read to its end."""


ERROR_CODES = {
    ModuleOutcome.PTX_TOO_NEW: 222,
    ModuleOutcome.NO_IMAGE: 209,
    ModuleOutcome.NOT_LINKED: 500,
    ModuleOutcome.HALF_LINKED: 300,
}
"""The CUDA error with which a launch fails."""
USABLE = frozenset({ModuleOutcome.SASS, ModuleOutcome.JIT, ModuleOutcome.UNCERTAIN})


class Verdict(Enum):
    """How a file fares."""

    RUNS = "runs"
    RUNS_BY_JIT = "runs-by-jit"
    """All modules are usable, some only after the driver has compiled their PTX."""
    UNCERTAIN = "uncertain"
    PARTLY = "partly"
    """Some modules are for other GPUs: usual for libraries that pick kernels by GPU."""
    FAILS = "fails"
    """No module is usable: every launch of one of its kernels fails."""
    UNKNOWN = "unknown"
    NO_KERNELS = "no-kernels"
    """No code, or only stubs and code that the library links itself: nothing to judge."""


class Judgement(Struct, frozen=True):
    """The prediction for one file. `modules` counts outcomes; `stubs` are modules too small to hold kernels, not judged."""

    gpu: ComputeCapability
    verdict: Verdict
    errors: tuple[int, ...]
    """CUDA error codes of the modules that cannot be used."""
    modules: dict[str, int]
    stubs: int
    because: str
    prediction: bool = True

    @property
    def judged(self) -> int:
        """The number of modules that count."""
        return sum(count for name, count in self.modules.items() if name != ModuleOutcome.RUN_TIME_LINKED.value)


SMALL_SHARE = 20
"""A file with less than one part in SMALL_SHARE of all modules does not save the whole from *cannot run*."""


def deciding(judgements: Iterable[Judgement]) -> tuple[Judgement, ...]:
    """Those of several files that decide about the whole: small helper files are left out."""
    judged = tuple(judgements)
    total = sum(judgement.judged for judgement in judged)
    return tuple(judgement for judgement in judged if judgement.judged and judgement.judged * SMALL_SHARE >= total)


def judge(groups: Iterable[ModuleGroup], gpu: Gpu) -> Judgement:
    """The prediction for a file with these modules."""
    groups = tuple(groups)
    relocatable = tuple(group for group in groups if group.place is Place.RELOCATABLE)
    loaded = tuple(group for group in groups if group.place is not Place.RELOCATABLE) or relocatable
    relinked = _relinked({judge_module(group, gpu) for group in relocatable})
    outcomes: Counter[ModuleOutcome] = Counter()
    for group in loaded:
        if not group.is_tiny:
            outcomes[_with_linking(judge_module(group, gpu), group, relinked)] += group.count
    stubs = sum(group.count for group in loaded if group.is_tiny)
    verdict = _verdict(outcomes)
    errors = tuple(sorted(ERROR_CODES[outcome] for outcome in outcomes if outcome in ERROR_CODES))
    modules = {outcome.value: outcomes[outcome] for outcome in ModuleOutcome if outcomes[outcome]}
    return Judgement(gpu.compute_capability, verdict, errors, modules, stubs, _because(verdict, outcomes, stubs, gpu))


def judge_module(group: ModuleGroup, gpu: Gpu) -> ModuleOutcome:
    """How one module of a group fares by its own code, linking left aside."""
    cc = gpu.compute_capability
    targets = [code.target for code in group.code if code.target is not None]
    if any(sass_serves(target, cc) for target in targets):
        return ModuleOutcome.SASS
    jit = [code for code in group.code if code.target is not None and ptx_serves(code.target, cc)]
    if any(_driver_knows(code, gpu) for code in jit):
        return ModuleOutcome.JIT
    if any(crosses_tegra_border(target, cc) for target in targets):
        return ModuleOutcome.UNCERTAIN
    if len(targets) < len(group.code) or not group.is_complete:
        return ModuleOutcome.UNKNOWN
    if jit:
        return ModuleOutcome.PTX_TOO_NEW
    only_lto = all(target.kind is CodeKind.LTO for target in targets)
    return ModuleOutcome.RUN_TIME_LINKED if only_lto else ModuleOutcome.NO_IMAGE


def _driver_knows(code: Code, gpu: Gpu) -> bool:
    return code.ptx_isa is None or gpu.driver_ptx_isa is None or code.ptx_isa <= gpu.driver_ptx_isa


def _relinked(inputs: set[ModuleOutcome]) -> ModuleOutcome:
    """What becomes of a device-linked module without code of its own, from how its relocatable inputs fare."""
    if inputs and inputs <= USABLE:
        return ModuleOutcome.JIT
    if inputs == {ModuleOutcome.PTX_TOO_NEW}:
        return ModuleOutcome.PTX_TOO_NEW
    return ModuleOutcome.HALF_LINKED if inputs & USABLE else ModuleOutcome.NOT_LINKED


def _with_linking(outcome: ModuleOutcome, group: ModuleGroup, relinked: ModuleOutcome) -> ModuleOutcome:
    return relinked if outcome is ModuleOutcome.NO_IMAGE and group.is_device_linked else outcome


def _verdict(outcomes: Counter[ModuleOutcome]) -> Verdict:
    judged = sum(outcomes.values()) - outcomes[ModuleOutcome.RUN_TIME_LINKED]
    usable = sum(outcomes[outcome] for outcome in USABLE)
    if judged == 0:
        return Verdict.NO_KERNELS
    if usable == 0:
        return Verdict.UNKNOWN if outcomes[ModuleOutcome.UNKNOWN] else Verdict.FAILS
    if usable < judged:
        return Verdict.PARTLY
    if outcomes[ModuleOutcome.UNCERTAIN]:
        return Verdict.UNCERTAIN
    return Verdict.RUNS_BY_JIT if outcomes[ModuleOutcome.JIT] else Verdict.RUNS


_WORDS = {
    ModuleOutcome.SASS: "run as machine code",
    ModuleOutcome.JIT: "are compiled by the driver from PTX",
    ModuleOutcome.UNCERTAIN: "have code of another chip of the same generation, which NVIDIA does not promise to run",
    ModuleOutcome.PTX_TOO_NEW: "have only PTX that is newer than the driver (error 222)",
    ModuleOutcome.NO_IMAGE: "have no code for it (error 209, no kernel image is available)",
    ModuleOutcome.NOT_LINKED: "are device-linked without code for it (error 500, named symbol not found)",
    ModuleOutcome.HALF_LINKED: "are device-linked, and only some parts have PTX for it (error 300, invalid source)",
    ModuleOutcome.RUN_TIME_LINKED: "are linked by the library itself and were not judged",
    ModuleOutcome.UNKNOWN: "could not be judged",
}


def _because(verdict: Verdict, outcomes: Counter[ModuleOutcome], stubs: int, gpu: Gpu) -> str:
    """One sentence with the counts, in the order of the outcomes."""
    total = sum(outcomes.values())
    if verdict is Verdict.NO_KERNELS and total == 0:
        return f"only {stubs} stubs without kernels" if stubs else "no GPU code"
    parts = (f"{outcomes[outcome]} of {total} modules {words}" for outcome, words in _WORDS.items() if outcomes[outcome])
    return f"compute capability {gpu.compute_capability}: " + ", ".join(parts)
