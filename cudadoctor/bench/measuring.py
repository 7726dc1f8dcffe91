"""The run: kernels compiled, found right and timed in turns with torch's library calls, while NVML watches."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cudadoctor.background import in_background
from cudadoctor.bench import plan
from cudadoctor.bench.code import Code, Compilers, code_for
from cudadoctor.bench.model import BenchGpu, Profile, Reference, Row, Sample, Section, Timing
from cudadoctor.bench.references import TorchReferences
from cudadoctor.bench.sampling import Sampler, samples_of
from cudadoctor.gpu.catalog import CLOCK_U32_WINDOW, KernelSpec, Method
from cudadoctor.gpu.child import ChildError
from cudadoctor.gpu.description import EXCLUSIVE_PROCESS, DeviceDescription
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice
from cudadoctor.occupancy import KernelNeeds, block_occupancy

if TYPE_CHECKING:
    from cudadoctor.matrices import Matrices
    from cudadoctor.model.versions import ComputeCapability
    from cudadoctor.system import System

STEP_LIMIT_S = 30.0
TURNS = {True: 2, False: 4}
"""Bursts of each kernel, in turns with the others of its group."""
BURST_MS = {True: 20.0, False: 60.0}
FEWEST, MOST = 3, 25
"""Launches of a burst."""
WINDOW = "window"
CLOCK_WINDOW_NS = 1_000_000
CLOCK_SECTIONS = (Section.GEMM, Section.ATTENTION)
TRANSFER_REPEATS = {True: 5, False: 15}


@dataclass(frozen=True)
class Request:
    """What to measure, and with what."""

    sections: tuple[Section, ...]
    device: DeviceDescription
    driver_release: str
    env: Mapping[str, str]
    python: str
    """The interpreter whose torch is the reference."""
    nvrtc: tuple[NvrtcChoice, ...] = ()
    nvcc: tuple[NvccChoice, ...] = ()
    quick: bool = False
    libcuda: str | None = None
    ncu: str = ""
    """The Nsight Compute to run over the kernels; empty for none."""


@dataclass(frozen=True)
class Measured:
    """What came of it."""

    gpu: BenchGpu
    rows: tuple[Row, ...]
    samples: tuple[Sample, ...]
    torch: str = ""
    remarks: tuple[str, ...] = ()
    profile: Profile | None = None


class CannotMeasureError(Exception):
    """Nothing can be launched on this GPU; the text says why."""


@dataclass
class _Timed:
    """A job on the device and its times so far."""

    job: plan.Job
    facts: Mapping[str, Any]
    milliseconds: list[float] = field(default_factory=list)
    clock_mhz: float | None = None


class Measurement:
    """One run. `say` is told what is being done."""

    def __init__(self, request: Request, system: System, matrices: Matrices, say: Callable[[str], None]) -> None:
        self._request, self._system, self._matrices, self._say = request, system, matrices, say
        self._device = request.device
        self._capability: ComputeCapability = _capability(request.device)
        self._code = Code()
        self._window_ready = False
        self._own: set[int] = set()
        """Numbers of our processes on the GPU."""
        self._flush_bytes = 0
        self._done = 0

    def run(self) -> Measured:
        """Measure; raises CannotMeasureError."""
        with ExitStack() as stack:
            folder = _folder(stack)
            torch = self._torch()
            stack.callback(torch.close)
            sampler = Sampler(self._system, self._device.pci_bus_id or "")
            stack.callback(sampler.finish)
            compilers = Compilers(self._request.env, self._request.nvrtc, self._request.nvcc)
            compiling = in_background(lambda: code_for(self._kernels(), self._capability, compilers, folder), "compile")
            self._say("watching the GPU before anything runs")
            sampler.watch_idle()
            importing = in_background(torch.load, "import torch")
            session = stack.enter_context(DriverSession(self._request.env, self._request.libcuda))
            self._open(session)
            self._say("compiling kernels")
            self._code = compiling.result()
            self._say("importing torch")
            importing.result()
            self._own |= {torch.pid} if torch.pid is not None else set()
            memory = self._ask(session, step="memory")  # what torch leaves
            if "free" not in memory:
                raise CannotMeasureError(_words(memory))
            self._flush_bytes = memory["flush_bytes"]
            begun = time.monotonic()
            rows = tuple(self._rows(session, torch, memory["free"]))
            samples = samples_of(sampler.finish(), sampler.idle_until, begun, time.monotonic(), self._own)
            torch.close()
            profile = self._profile(folder, session, memory["free"]) if self._request.ncu else None
        gpu = sampler.described(self._found(memory))
        return Measured(gpu, rows, samples, torch.version, tuple(_remarks(sampler, torch)), profile)

    def _torch(self) -> TorchReferences:
        """torch at work beside us, where the GPU takes two processes at a time."""
        alone = self._device.compute_mode == EXCLUSIVE_PROCESS
        return TorchReferences("" if alone else self._request.python, self._request.env, self._device.index)

    def _profile(self, folder: Path, session: DriverSession, free: int) -> Profile:
        """What ncu says about each kernel with its first problem; the oracle would be replayed for too long."""
        from cudadoctor.bench.ncu import profile

        self._say("Nsight Compute")
        session.close()
        chosen: dict[str, plan.Job] = {}
        for job in (*self._jobs(free, quick=True), *(() if self._request.quick else self._jobs(free, quick=False))):
            if job.kernel.method is not Method.NAIVE and job.kernel.name in self._code.images:
                chosen.setdefault(job.kernel.name, job)
        launches = [self._launch(job.kernel, job.shape) for job in chosen.values()]
        return profile(self._system, self._request.ncu, folder, self._device.index, launches, self._matrices)

    def _launch(self, kernel: KernelSpec, shape: Mapping[str, Any]) -> dict[str, Any]:
        """What a child needs to know of a launch, with data of its own."""
        image, seed = str(self._code.images[kernel.name]), secrets.randbits(31)
        return {"image": image, "kernel": kernel.request(), "shape": dict(shape), "seed": seed}

    def _found(self, memory: Mapping[str, Any]) -> BenchGpu:
        device = self._device
        return BenchGpu(
            index=device.index,
            name=device.name or "",
            pci_bus_id=device.pci_bus_id or "",
            compute_capability=self._capability,
            multiprocessors=device.multiprocessor_count,
            memory_total=memory.get("total"),
            memory_free=memory.get("free"),
            driver_release=self._request.driver_release,
            mig=device.is_mig,
        )

    def _open(self, session: DriverSession) -> None:
        try:
            refused = session.open(self._device.index, STEP_LIMIT_S)
        except ChildError as error:
            raise CannotMeasureError(f"the process that uses the driver {error}") from error
        if refused is not None:
            raise CannotMeasureError(str(refused.get("because")))
        self._own |= {session.pid} if session.pid is not None else set()

    def _kernels(self) -> tuple[KernelSpec, ...]:
        """All that may be needed, whatever memory turns out to be free."""
        return (CLOCK_U32_WINDOW, *dict.fromkeys(job.kernel for job in self._jobs(1 << 62, quick=self._request.quick)))

    def _jobs(self, free: int, *, quick: bool) -> tuple[plan.Job, ...]:
        count = self._device.multiprocessor_count or 1
        return plan.jobs(self._request.sections, self._capability, count, free, quick=quick)

    # Timing

    def _rows(self, session: DriverSession, torch: TorchReferences, free: int) -> Iterator[Row]:
        jobs = self._jobs(free, quick=self._request.quick)
        groups: dict[str, list[plan.Job]] = {}
        for job in jobs:
            groups.setdefault(job.group, []).append(job)
        transfers = 4 if Section.MEMORY in self._request.sections else 0
        total = len(jobs) + transfers
        for members in groups.values():
            self._tell(total, members[0].name)
            yield from self._group(session, torch, members)
            self._done += len(members)
        for pinned in (True, False) if transfers else ():
            self._tell(total, "copies between host and GPU")
            yield from self._transfers(session, free, pinned=pinned)
            self._done += 2

    def _tell(self, total: int, what: str) -> None:
        width = 20
        full = width * self._done // total
        self._say(f"[{'#' * full}{'.' * (width - full)}] {self._done}/{total}  {what}")

    def _ask(self, session: DriverSession, **request: Any) -> dict[str, Any]:
        """The child's answer; where it failed, that, and a fresh child next time."""
        try:
            if session.pid is None:
                self._open(session)
            return session.measure(request, self._device.index, STEP_LIMIT_S)
        except (ChildError, CannotMeasureError) as error:
            session.close()
            self._window_ready = False
            return {"error": None, "because": f"the process that ran it {error}"}

    def _prepare(self, session: DriverSession, name: str, kernel: KernelSpec, shape: Mapping[str, Any]) -> dict[str, Any]:
        return self._ask(session, step="prepare", name=name, **self._launch(kernel, shape))

    def _group(self, session: DriverSession, torch: TorchReferences, members: Sequence[plan.Job]) -> Iterator[Row]:
        """The rows of jobs that share a problem, timed in turns."""
        timed: list[_Timed] = []
        rows: dict[str, Row] = {}
        name = members[0].group
        torch.prepare(name, members[0].reference)
        for job in members:
            ready = self._ready(session, job)
            if isinstance(ready, Row):
                rows[job.name] = ready
            else:
                timed.append(ready)
        self._take_turns(session, torch, name, timed)
        reference = torch.finish(name) if members[0].reference else None
        for each in timed:
            rows[each.job.name] = _beside(self._row(each), reference)
            self._ask(session, step="drop", name=each.job.name)
        yield from (rows[job.name] for job in members)

    def _ready(self, session: DriverSession, job: plan.Job) -> _Timed | Row:
        """The job on the device, found right; or the row that says why not."""
        if job.kernel.name in self._code.refused:
            return _empty(job, self._code.refused[job.kernel.name])
        facts = self._prepare(session, job.name, job.kernel, job.shape)
        if "right" not in facts:
            return _empty(job, _words(facts))
        if not facts["right"]:
            return _empty(job, f"its result is wrong at {facts['where']}", wrong=True)
        return _Timed(job, facts)

    def _take_turns(self, session: DriverSession, torch: TorchReferences, name: str, timed: list[_Timed]) -> None:
        quick = self._request.quick
        for turn in range(TURNS[quick] + 1):
            for each in timed[turn % len(timed) :] + timed[: turn % len(timed)] if timed else ():
                launches = self._launches(each)
                answer = self._ask(session, step="burst", name=each.job.name, launches=FEWEST if turn == 0 else launches)
                each.milliseconds = answer.get("ms", []) if turn <= 1 else each.milliseconds + answer.get("ms", [])
            if timed and timed[0].job.reference:
                torch.burst(name, min(self._launches(each) for each in timed), self._flush_bytes)
        for each in timed:
            if each.job.section in CLOCK_SECTIONS and each.milliseconds:
                each.clock_mhz = self._clock(session, each)

    def _launches(self, each: _Timed) -> int:
        milliseconds = min(each.milliseconds) if each.milliseconds else each.facts["first_ms"]
        return max(FEWEST, min(MOST, int(BURST_MS[self._request.quick] / max(milliseconds, 1e-3))))

    def _clock(self, session: DriverSession, each: _Timed) -> float | None:
        """The SM clock in MHz while the kernel runs; None where it could not be read."""
        if CLOCK_U32_WINDOW.name not in self._code.images:
            return None
        if not self._window_ready:
            found = self._prepare(session, WINDOW, CLOCK_U32_WINDOW, {"elems": 2, "first": CLOCK_WINDOW_NS})
            self._window_ready = bool(found.get("right"))
        answer = self._ask(session, step="clock", name=each.job.name, window=WINDOW, ms=min(each.milliseconds))
        return 1e3 * answer["cycles"] / answer["nanoseconds"] if answer.get("nanoseconds") else None

    def _row(self, each: _Timed) -> Row:
        job, facts, kernel = each.job, each.facts, each.job.kernel
        if not each.milliseconds:
            return _empty(job, "it could not be timed")
        return Row(
            section=job.section,
            kernel=kernel.name,
            problem=job.problem,
            timing=Timing.of(each.milliseconds),
            dtype=kernel.dtype.value,
            tensor_cores=kernel.method in (Method.MMA, Method.WGMMA),
            flops=facts["flops"],
            bytes_moved=facts["bytes"],
            clock_mhz=each.clock_mhz,
            **self._occupancy(kernel, facts),
        )

    def _occupancy(self, kernel: KernelSpec, facts: Mapping[str, Any]) -> dict[str, Any]:
        limits = self._matrices.gpus.limits(self._capability)
        if limits is None:
            return {}
        threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
        found = block_occupancy(limits, KernelNeeds(threads, facts["registers"], facts["static_smem"], kernel.dynamic_smem_bytes))
        return {"occupancy": found.fraction, "occupancy_limit": ", ".join(each.value for each in found.limiters)}

    def _transfers(self, session: DriverSession, free: int, *, pinned: bool) -> Iterator[Row]:
        """Copies between host and device, each way."""
        quick = self._request.quick
        size = min(plan.TRANSFER_BYTES[quick], plan.power_of_two(int(plan.MEMORY_SHARE * free)))
        answer = self._ask(
            session, step="transfer", bytes=size, pinned=pinned, repeats=TRANSFER_REPEATS[quick], seed=secrets.randbits(31)
        )
        for way, key in (("to the GPU", "to_device_ms"), ("to the host", "to_host_ms")):
            row = Row(section=Section.MEMORY, kernel=f"copy {way}", problem="pinned memory" if pinned else "pageable memory")
            if "right" not in answer:
                yield _with(row, because=_words(answer))
            elif not answer["right"]:
                yield _with(row, because="what arrived is not what was sent", wrong=True)
            else:
                yield _with(row, timing=Timing.of(answer[key]), bytes_moved=size)


def _folder(stack: ExitStack) -> Path:
    """A place for compiled kernels, gone with the stack; raises CannotMeasureError."""
    try:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cudadoctor-", ignore_cleanup_errors=True)))
    except OSError as error:
        raise CannotMeasureError(f"compiled kernels have no place to go: {error}") from error


def _remarks(sampler: Sampler, torch: TorchReferences) -> Iterator[str]:
    """What could not be had, and why."""
    if sampler.because:
        yield f"NVML: {sampler.because}"
    if torch.because:
        yield f"no reference from torch: {torch.because}"


def _capability(device: DeviceDescription) -> ComputeCapability:
    capability = device.compute_capability
    if capability is None:
        raise CannotMeasureError("the driver does not tell the compute capability of this GPU")
    return capability


def _with(row: Row, **changes: Any) -> Row:
    return structs.replace(row, **changes)


def _beside(row: Row, reference: Reference | None) -> Row:
    """The row beside the library's time."""
    return _with(row, reference=reference) if row.timing is not None else row


def _empty(job: plan.Job, because: str, *, wrong: bool = False) -> Row:
    return Row(section=job.section, kernel=job.kernel.name, problem=job.problem, because=because, wrong=wrong)


def _words(answer: Mapping[str, Any]) -> str:
    error = answer.get("error") or {}
    words = str(answer.get("because") or "it gave no result")
    return f"{words}: {error['name']} ({error['code']})" if error else words
