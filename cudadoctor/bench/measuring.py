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

from cudadoctor.background import in_background
from cudadoctor.bench import plan
from cudadoctor.bench.model import BenchGpu, Profile, Row, Sample, Section, Timing
from cudadoctor.bench.references import TorchReferences
from cudadoctor.bench.sampling import Sampler, samples_of
from cudadoctor.gpu.catalog import CLOCK_U32_WINDOW, PORTABLE, KernelSpec, Method
from cudadoctor.gpu.child import ChildError
from cudadoctor.gpu.code_source import CodeSource, NvccSource, NvrtcSource, ShippedPtx
from cudadoctor.gpu.compile_cache import CompileCache, user_cache_folder
from cudadoctor.gpu.compiler import CompileError, CompilerStuckError, CompilerUnavailableError, Workshop
from cudadoctor.gpu.description import DeviceDescription
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice
from cudadoctor.occupancy import KernelNeeds, block_occupancy
from cudadoctor.resources import kernels_folder

if TYPE_CHECKING:
    from cudadoctor.matrices import Matrices
    from cudadoctor.model.versions import ComputeCapability
    from cudadoctor.system import System

STEP_LIMIT_S = 30.0
COMPILE_LIMIT_S = 60.0
TURNS = {True: 2, False: 4}
"""Bursts of each kernel, in turns with the others of its group."""
BURST_MS = {True: 20.0, False: 60.0}
FEWEST, MOST = 3, 25
"""Launches of a burst."""
CLOCK_SECTIONS = (Section.GEMM, Section.ATTENTION)
TRANSFER_REPEATS = {True: 5, False: 15}


@dataclass(frozen=True)
class Request:
    """What to measure, and with what."""

    sections: tuple[Section, ...]
    device: DeviceDescription
    driver_release: str
    env: Mapping[str, str]
    nvrtc: tuple[NvrtcChoice, ...] = ()
    nvcc: tuple[NvccChoice, ...] = ()
    python: str = ""
    """The interpreter whose torch is the reference; empty for none."""
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
        self._images: dict[str, Path] = {}
        self._refused: dict[str, str] = {}
        self._flush_bytes = 0
        self._done = 0

    def run(self) -> Measured:
        """Measure; raises CannotMeasureError."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cudadoctor-", ignore_cleanup_errors=True)))
            torch = TorchReferences(self._request.python, self._request.env, self._device.index) if self._request.python else None
            if torch is not None:
                stack.callback(torch.close)
            sampler = Sampler(self._system, self._device.pci_bus_id or "")
            stack.callback(sampler.finish)
            compiling = in_background(lambda: self._compile(folder), "compile")
            self._say("watching the GPU before anything runs")
            sampler.watch_idle()
            importing = in_background(torch.load, "import torch") if torch is not None else None
            session = stack.enter_context(DriverSession(self._request.env, self._request.libcuda))
            self._open(session)
            memory = session.measure({"step": "memory"}, self._device.index, STEP_LIMIT_S)
            self._flush_bytes = memory.get("flush_bytes", 0)
            self._say("compiling kernels")
            compiling.result()
            if importing is not None:
                self._say("importing torch")
                importing.result()
            begun = time.monotonic()
            rows = tuple(self._rows(session, torch, int(memory.get("free", 0))))
            ended = time.monotonic()
            own = {pid for pid in (session.pid, torch.pid if torch is not None else None) if pid is not None}
            lines = sampler.finish()
            gpu = sampler.described(self._found(memory))
            samples = samples_of(lines, sampler.idle_until, begun, ended, own)
            remarks = [f"NVML: {sampler.because}"] if sampler.because else []
            remarks += [f"no reference from torch: {torch.because}"] if torch is not None and torch.because else []
            profile = self._profile(folder, session, int(memory.get("free", 0))) if self._request.ncu else None
            return Measured(gpu, rows, samples, torch.version if torch is not None else "", tuple(remarks), profile)

    def _profile(self, folder: Path, session: DriverSession, free: int) -> Profile:
        """What ncu says about each kernel with its first problem; the oracle would be replayed for too long."""
        from cudadoctor.bench.ncu import profile

        self._say("Nsight Compute")
        session.close()
        count = self._device.multiprocessor_count or 1
        jobs = plan.jobs(self._request.sections, self._capability, count, free, quick=True)
        if not self._request.quick:
            jobs += plan.jobs(self._request.sections, self._capability, count, free, quick=False)
        chosen: dict[str, plan.Job] = {}
        for job in jobs:
            if job.kernel.method is not Method.NAIVE and job.kernel.name in self._images:
                chosen.setdefault(job.kernel.name, job)
        launches = [
            {
                "image": str(self._images[job.kernel.name]),
                "kernel": job.kernel.request(),
                "shape": dict(job.shape),
                "seed": secrets.randbits(31),
            }
            for job in chosen.values()
        ]
        return profile(self._system, self._request.ncu, folder, self._device.index, launches, self._matrices)

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

    # Code

    def _compile(self, folder: Path) -> None:
        """Code of every kernel that may be needed; what cannot be compiled is refused with the reason."""
        workshop = Workshop(kernels_folder(), folder, CompileCache(user_cache_folder(self._request.env)))
        sources: list[CodeSource] = [
            NvrtcSource(each.path, each.label, self._request.env, workshop) for each in self._request.nvrtc
        ]
        sources += [NvccSource(each.path, each.label, each.targets, self._request.env, workshop) for each in self._request.nvcc]
        try:
            for kernel in self._kernels():
                self._compile_one(kernel, [*sources, ShippedPtx(workshop.kernels)] if kernel in PORTABLE else sources)
        finally:
            for source in sources:
                source.close()

    def _kernels(self) -> tuple[KernelSpec, ...]:
        count = self._device.multiprocessor_count or 1
        jobs = plan.jobs(self._request.sections, self._capability, count, 1 << 62, quick=self._request.quick)
        return (CLOCK_U32_WINDOW, *dict.fromkeys(job.kernel for job in jobs))

    def _compile_one(self, kernel: KernelSpec, sources: Sequence[CodeSource]) -> None:
        because = "no NVRTC library and no nvcc was found"
        for source in sources:
            try:
                self._images[kernel.name] = source.code(kernel, self._capability, COMPILE_LIMIT_S).path
            except (CompileError, CompilerUnavailableError, CompilerStuckError, OSError) as error:  # noqa: PERF203  # each compiler is tried
                because = str(error)
            else:
                return
        self._refused[kernel.name] = because

    # Timing

    def _rows(self, session: DriverSession, torch: TorchReferences | None, free: int) -> Iterator[Row]:
        count = self._device.multiprocessor_count or 1
        jobs = plan.jobs(self._request.sections, self._capability, count, free, quick=self._request.quick)
        groups: dict[str, list[plan.Job]] = {}
        for job in jobs:
            groups.setdefault(job.group, []).append(job)
        transfers = 4 if Section.MEMORY in self._request.sections else 0
        total = len(jobs) + transfers
        self._prepare_window(session)
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
                self._prepare_window(session)
            return session.measure(request, self._device.index, STEP_LIMIT_S)
        except (ChildError, CannotMeasureError) as error:
            session.close()
            return {"error": None, "because": f"the process that ran it {error}"}

    def _prepare_window(self, session: DriverSession) -> None:
        if CLOCK_U32_WINDOW.name in self._images and session.pid is not None:
            shape = {"elems": 2, "first": 1_000_000}
            self._prepare(session, "window", CLOCK_U32_WINDOW, shape)

    def _prepare(self, session: DriverSession, name: str, kernel: KernelSpec, shape: Mapping[str, Any]) -> dict[str, Any]:
        image, seed = str(self._images[kernel.name]), secrets.randbits(31)
        return self._ask(session, step="prepare", name=name, image=image, kernel=kernel.request(), shape=dict(shape), seed=seed)

    def _group(self, session: DriverSession, torch: TorchReferences | None, members: Sequence[plan.Job]) -> Iterator[Row]:
        """The rows of jobs that share a problem, timed in turns."""
        timed: list[_Timed] = []
        rows: dict[str, Row] = {}
        name = members[0].group
        if torch is not None:
            torch.prepare(name, members[0].reference)
        for job in members:
            ready = self._ready(session, job)
            if isinstance(ready, Row):
                rows[job.name] = ready
            else:
                timed.append(ready)
        self._take_turns(session, torch if members[0].reference else None, name, timed)
        reference = torch.finish(name) if torch is not None and members[0].reference else None
        for each in timed:
            rows[each.job.name] = replace_reference(self._row(each), reference)
            self._ask(session, step="drop", name=each.job.name)
        yield from (rows[job.name] for job in members)

    def _ready(self, session: DriverSession, job: plan.Job) -> _Timed | Row:
        """The job on the device, found right; or the row that says why not."""
        if job.kernel.name in self._refused:
            return _empty(job, self._refused[job.kernel.name])
        facts = self._prepare(session, job.name, job.kernel, job.shape)
        if "right" not in facts:
            return _empty(job, _words(facts))
        if not facts["right"]:
            return _empty(job, f"its result is wrong at {facts['where']}", wrong=True)
        return _Timed(job, facts)

    def _take_turns(self, session: DriverSession, torch: TorchReferences | None, name: str, timed: list[_Timed]) -> None:
        quick = self._request.quick
        for turn in range(TURNS[quick] + 1):
            for each in timed[turn % len(timed) :] + timed[: turn % len(timed)] if timed else ():
                launches = self._launches(each)
                answer = self._ask(session, step="burst", name=each.job.name, launches=FEWEST if turn == 0 else launches)
                each.milliseconds = answer.get("ms", []) if turn <= 1 else each.milliseconds + answer.get("ms", [])
            if torch is not None:
                torch.burst(name, min(self._launches(each) for each in timed) if timed else FEWEST, self._flush_bytes)
        for each in timed:
            if each.job.section in CLOCK_SECTIONS and each.milliseconds:
                each.clock_mhz = self._clock(session, each)

    def _launches(self, each: _Timed) -> int:
        milliseconds = min(each.milliseconds) if each.milliseconds else each.facts["first_ms"]
        return max(FEWEST, min(MOST, int(BURST_MS[self._request.quick] / max(milliseconds, 1e-3))))

    def _clock(self, session: DriverSession, each: _Timed) -> float | None:
        if CLOCK_U32_WINDOW.name not in self._images:
            return None
        answer = self._ask(session, step="clock", name=each.job.name, window="window", ms=min(each.milliseconds))
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


def _capability(device: DeviceDescription) -> ComputeCapability:
    capability = device.compute_capability
    if capability is None:
        raise CannotMeasureError("the driver does not tell the compute capability of this GPU")
    return capability


def _with(row: Row, **changes: Any) -> Row:
    from msgspec import structs

    return structs.replace(row, **changes)


def replace_reference(row: Row, reference: Any) -> Row:
    """The row beside the library's time."""
    return _with(row, reference=reference) if row.timing is not None else row


def _empty(job: plan.Job, because: str, *, wrong: bool = False) -> Row:
    return Row(section=job.section, kernel=job.kernel.name, problem=job.problem, because=because, wrong=wrong)


def _words(answer: Mapping[str, Any]) -> str:
    error = answer.get("error") or {}
    words = str(answer.get("because") or "it gave no result")
    return f"{words}: {error['name']} ({error['code']})" if error else words
