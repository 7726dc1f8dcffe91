"""Runs kernels through the layers driver-jit, nvrtc and nvcc on each GPU, side by side, and says what came of each."""

from __future__ import annotations

import secrets
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from cudadoctor.gpu.catalog import QUICK, KernelSpec, Operands, jit_rung, rungs
from cudadoctor.gpu.child import ChildError, ChildFailure
from cudadoctor.gpu.code_source import CodeSource, NvccSource, NvrtcSource, ShippedPtx
from cudadoctor.gpu.compile_cache import CompileCache, user_cache_folder
from cudadoctor.gpu.compiler import Compiled, CompileError, CompilerStuckError, CompilerUnavailableError, Workshop
from cudadoctor.gpu.description import EXCLUSIVE_PROCESS, DeviceDescription, DriverDescription
from cudadoctor.gpu.driver_session import DriverSession
from cudadoctor.gpu.proof_record import ProofRecord
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.versions import ComputeCapability, CudaVersion, SmTarget
from cudadoctor.resources import kernels_folder

PROOF_LIMIT_S = 20.0
"""Longest time for one kernel in the driver child, context included; a slow first start of a large driver takes some seconds."""
MAX_TRACKS = 8
"""Most driver children at a time: each holds a context of some hundred megabytes."""
MAX_COMPILATIONS = 4

TENSOR_MAPS_SINCE = CudaVersion.of(12, 0)
"""The driver API's first version with cuTensorMapEncodeTiled (CUDA 12.0 release notes)."""

Codes: TypeAlias = dict[tuple[str, ComputeCapability], "Future[tuple[KernelSpec, Compiled]]"]
"""By kernel and compute capability: the kernel or what runs in its place, and its code, being compiled."""


@dataclass(frozen=True, slots=True)
class NvrtcChoice:
    """A libnvrtc to prove and what to call it, e.g. `NVRTC of torch's wheel`."""

    path: str
    label: str


@dataclass(frozen=True, slots=True)
class NvccChoice:
    """An nvcc to prove, what to call it (`nvcc 12.6`), and what it says it can target (None: it was not asked)."""

    path: str
    label: str
    targets: tuple[SmTarget, ...] | None = None


@dataclass(frozen=True, slots=True)
class ProofRequest:
    """What to prove. `env` is the environment of every child; `driver` was described under the same one.

    `gpu_numbers` maps CUDA's index of a device to the one that the report uses (nvidia-smi's), where they differ. The layers
    nvrtc and nvcc are skipped where their tuple is empty. In them a kernel gives way to the first of `ladder` that computes the
    same, runs on the GPU and is within the compiler's reach.
    """

    env: Mapping[str, str]
    driver: DriverDescription
    libcuda: str | None = None
    nvrtc: tuple[NvrtcChoice, ...] = ()
    nvcc: tuple[NvccChoice, ...] = ()
    kernels: tuple[KernelSpec, ...] = QUICK
    ladder: tuple[KernelSpec, ...] = ()
    gpu_numbers: Mapping[int, int] = field(default_factory=dict)


def prove_layers(request: ProofRequest, deadline: float) -> tuple[Proof, ...]:
    """One proof for each layer, compiler, GPU and kernel, in that order; ends at `deadline` (time.monotonic()).

    Never raises for an unhealthy machine: what cannot be told is `unknown`, what is not there `skipped`, each with its reason.
    """
    return ProofRun(request, deadline).run()


def skip_layers(request: ProofRequest, because: str) -> tuple[Proof, ...]:
    """The proofs of `request` as skipped, e.g. for `--no-run`."""
    return tuple(record.ended(ProofOutcome.SKIPPED, because) for record in _records(request))


def _sources(request: ProofRequest, workshop: Workshop) -> tuple[CodeSource, ...]:
    nvrtc = (NvrtcSource(choice.path, choice.label, request.env, workshop) for choice in request.nvrtc)
    nvcc = (NvccSource(choice.path, choice.label, choice.targets, request.env, workshop) for choice in request.nvcc)
    return (ShippedPtx(workshop.kernels), *nvrtc, *nvcc)


def _records(request: ProofRequest) -> list[ProofRecord]:
    """Every proof of a request whose GPUs are unknown or do not matter: one for each layer and kernel."""
    layers = (ProofLayer.DRIVER_JIT, ProofLayer.NVRTC, ProofLayer.NVCC)
    return [ProofRecord(layer, None, kernel.name) for layer in layers for kernel in request.kernels]


def _absent(request: ProofRequest) -> list[Proof]:
    """The layers for which no compiler was found, as skipped."""
    reasons = {}
    if not request.nvrtc:
        reasons[ProofLayer.NVRTC] = "no NVRTC library was found"
    if not request.nvcc:
        reasons[ProofLayer.NVCC] = "no nvcc was found"
    records = [record for record in _records(request) if record.layer in reasons]
    return [record.ended(ProofOutcome.SKIPPED, reasons[record.layer]) for record in records]


def _unusable(request: ProofRequest) -> tuple[Proof, ...]:
    """The proofs of a machine on which no kernel can be launched at all; empty where one can.

    What the driver answered belongs to the lowest layer; those above are skipped, as nothing is wrong with them.
    """
    driver, answer = request.driver, request.driver.refusal
    if driver.failure is not None:
        outcome = ProofOutcome.FAILED if driver.failure is ChildFailure.CRASHED else ProofOutcome.UNKNOWN
        answer = {"outcome": outcome.value, "because": f"asking the driver (step {driver.stopped_at}): {driver.failure_text}"}
    elif answer is None and not driver.devices:
        answer = {"outcome": ProofOutcome.SKIPPED.value, "because": "no CUDA device is visible"}
    if answer is None:
        return ()
    because = f"nothing can be launched: {answer['because']}"
    return tuple(
        record.answered(answer) if record.layer is ProofLayer.DRIVER_JIT else record.ended(ProofOutcome.SKIPPED, because)
        for record in _records(request)
    )


class ProofRun:
    """The proofs of a request under way; `abandon` ends them from another thread."""

    def __init__(self, request: ProofRequest, deadline: float) -> None:
        self._request = request
        self._deadline = deadline
        self._tracks: list[Track] = []
        self._sources: tuple[CodeSource, ...] = ()

    def run(self) -> tuple[Proof, ...]:
        """As `prove_layers`."""
        unusable = _unusable(self._request)
        if unusable:
            return unusable
        with ExitStack() as stack:
            try:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cudadoctor-", ignore_cleanup_errors=True)))
            except OSError as error:
                reason = f"compiled kernels have no place to go: {error}"
                return tuple(record.ended(ProofOutcome.UNKNOWN, reason) for record in _records(self._request))
            workshop = Workshop(kernels_folder(), folder, CompileCache(user_cache_folder(self._request.env)))
            self._sources = _sources(self._request, workshop)
            for source in self._sources:
                stack.callback(source.close)
            try:
                return (*self._run_tracks(), *_absent(self._request))
            except RuntimeError as error:  # a limit of the machine: can't start new thread
                return tuple(record.ended(ProofOutcome.UNKNOWN, str(error)) for record in _records(self._request))

    def abandon(self) -> None:
        """Kill every child and start nothing more; `run` returns soon, its proofs unknown or failed."""
        for track in self._tracks:
            track.abandon()
        for source in self._sources:
            source.close()

    def _run_tracks(self) -> list[Proof]:
        """All tracks at once; a GPU that allows one process at a time gets one track at a time."""
        devices = self._request.driver.devices
        turns = {device.index: threading.Lock() for device in devices if device.compute_mode == EXCLUSIVE_PROCESS}
        compilations = ThreadPoolExecutor(MAX_COMPILATIONS, "compile")
        workers = ThreadPoolExecutor(MAX_TRACKS, "prove")
        try:
            for source in self._sources:
                codes = self._compile_once(source, compilations)
                self._tracks += [Track(self._request, source, device, codes, self._deadline) for device in devices]
            running = [workers.submit(track.run, turns.get(track.device.index, nullcontext())) for track in self._tracks]
            return [proof for future in running for proof in future.result()]
        except BaseException:  # Ctrl-C above all: nobody waits for the GPU any longer
            self.abandon()
            raise
        finally:
            compilations.shutdown(wait=False, cancel_futures=True)
            workers.shutdown(wait=True, cancel_futures=True)

    def _compile_once(self, source: CodeSource, compilations: ThreadPoolExecutor) -> Codes:
        """The code of each kernel for each kind of GPU here, being compiled."""
        capabilities = dict.fromkeys(device.compute_capability for device in self._request.driver.devices)
        return {
            (kernel.name, capability): compilations.submit(self._code, source, kernel, capability)
            for capability in capabilities
            if capability is not None
            for kernel in self._request.kernels
        }

    def _code(self, source: CodeSource, kernel: KernelSpec, capability: ComputeCapability) -> tuple[KernelSpec, Compiled]:
        """The best rung that the compiler can make, with its code; raises as `source.code`."""
        if source.layer is ProofLayer.DRIVER_JIT:
            rung = jit_rung(kernel, self._request.kernels)
            return rung, source.code(rung, capability, self._deadline - monotonic())
        best_first = rungs(kernel, capability, self._request.ladder)
        for rung in best_first[:-1]:
            if rung.operands is Operands.TENSOR_MAPS and not self._driver_knows_tensor_maps():
                continue
            try:
                return rung, source.code(rung, capability, self._deadline - monotonic())
            except CompilerUnavailableError:
                continue  # an older compiler: the next rung
            except CompileError as error:
                raise CompileError(f"{rung.name}: {error}", error.log, error.error) from error
        return kernel, source.code(kernel, capability, self._deadline - monotonic())

    def _driver_knows_tensor_maps(self) -> bool:
        known = self._request.driver.driver_cuda_version
        return known is not None and known >= TENSOR_MAPS_SINCE


class Track:
    """The kernels of one source on one device, one after the other in one driver child."""

    def __init__(
        self, request: ProofRequest, source: CodeSource, device: DeviceDescription, codes: Codes, deadline: float
    ) -> None:
        self.device = device
        self._request, self._source, self._codes, self._deadline = request, source, codes, deadline
        self._session = DriverSession({**request.env, **source.variables}, request.libcuda)
        self._given_up: str | None = None

    def abandon(self) -> None:
        """Kill the driver child and start nothing more."""
        self._given_up = "interrupted"
        self._session.kill()

    def run(self, turn: AbstractContextManager[object]) -> list[Proof]:
        """One proof for each kernel, once it is this track's turn on its GPU."""
        with turn, self._session:
            return [self._prove(kernel) for kernel in self._request.kernels]

    def _prove(self, kernel: KernelSpec) -> Proof:
        number = self._request.gpu_numbers.get(self.device.index, self.device.index)
        record = ProofRecord(self._source.layer, number, kernel.name, compiler=self._source.label)
        if self._given_up is not None:
            return record.ended(ProofOutcome.UNKNOWN, f"not tried: {self._given_up}")
        capability = self.device.compute_capability
        if capability is None:
            return record.ended(ProofOutcome.UNKNOWN, "the driver does not tell the compute capability")
        try:
            chosen, compiled = self._codes[kernel.name, capability].result(max(self._left(), 0.0))
        except CompilerUnavailableError as error:
            return record.ended(ProofOutcome.SKIPPED, str(error))
        except CompileError as error:
            return record.ended(ProofOutcome.FAILED, str(error), error.error)
        except FutureTimeoutError:
            return record.ended(ProofOutcome.UNKNOWN, "the time was over before the kernel was compiled")
        except (CompilerStuckError, CancelledError, OSError) as error:
            return record.ended(ProofOutcome.UNKNOWN, str(error) or "interrupted")
        return self._launch(record.compiled(chosen.name, str(compiled.target), compiled.compile_s), chosen, compiled)

    def _launch(self, record: ProofRecord, kernel: KernelSpec, compiled: Compiled) -> Proof:
        limit = min(PROOF_LIMIT_S, self._left())
        if limit <= 0:
            return record.ended(ProofOutcome.UNKNOWN, "the time was over before it could be launched")
        try:
            seed = secrets.randbits(31)
            answer = self._session.prove(compiled.path, kernel.request(), self.device.index, seed, limit)
        except ChildError as error:
            because = f"the process that ran it {error}"
            if error.failure is ChildFailure.CRASHED:
                return record.ended(ProofOutcome.FAILED, because)
            self._given_up = f"{kernel.name}: {because}"
            return record.ended(ProofOutcome.UNKNOWN, because)
        return record.answered(answer)

    def _left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - monotonic()
