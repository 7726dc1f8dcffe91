"""The parent's side of the torch child: facts as soon as torch is imported, then the proof that it computes."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import Gpu, PythonEnvironment, Torch, TorchBuild, TorchDevice
from cudadoctor.model.versions import ComputeCapability, CudaVersion, DottedVersion, SmTarget, VersionError
from cudadoctor.probes.all_missing import all_missing
from cudadoctor.probes.asking import not_applicable, not_found, parsed, short, unsuccessful
from cudadoctor.probes.nvml import bus_id, parse_line
from cudadoctor.probes.python_env import ChosenPython, parse_environment, with_torch
from cudadoctor.process import GRACE_SECONDS, ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.process import Completed, RunningProgram
    from cudadoctor.system import System

SOURCE = "torch child"
CHILD = Path(__file__).with_name("_torch_child.py")
KERNELS = ("allocation", "matmul", "sdpa", "conv")
NO_GPU_WORDS = re.compile(r"No CUDA GPUs are available|no NVIDIA driver|no CUDA-capable device", re.IGNORECASE)
"""How torch says that there is no GPU to compute on, which proves nothing about torch."""
LONGEST_LIFE_S = 3600.0
"""Longest time for which a child's lines are waited for; whoever asks has a deadline of its own."""
LAST_FACT = frozenset({"torch_cuda", "torch_absent", "torch_import_error", "end"})
"""Lines after which the child has no more facts to tell."""


class TorchChild:
    """A running child; a thread collects its lines, so any thread may ask for what is known."""

    def __init__(self, program: RunningProgram | Missing, chosen: ChosenPython) -> None:
        """A child that could not be started is the reason for that."""
        self._program = program
        self._chosen = chosen
        self._events: list[dict[str, Any]] = []
        self._completed: Completed | None = None
        self._ended_by_us = False
        self._started = time.monotonic()
        self._changed = threading.Condition()
        if not isinstance(program, Missing):
            threading.Thread(target=self._collect, args=(program,), name="torch child", daemon=True).start()

    def package_folders(self, deadline: float) -> tuple[str, ...]:
        """Where the interpreter looks for packages; empty where it did not say by `deadline` (time.monotonic())."""
        events = self._wait_for(frozenset({"python"}), deadline)
        path = events["python"]["path"] if "python" in events else ()
        return tuple(folder for folder in path if folder.rstrip("/\\").endswith("-packages"))

    def facts(self, deadline: float) -> PythonEnvironment:
        """The interpreter and its torch, as far as known at `deadline` (time.monotonic()); the child goes on with the proofs."""
        events = self._wait_for(LAST_FACT, deadline)
        unsaid = self._unsaid()
        return with_torch(parse_environment(events, self._chosen, unsaid), parse_torch(events, unsaid))

    def proofs(self, deadline: float, gpus: Sequence[Gpu] = ()) -> tuple[Proof, ...]:
        """The proofs of layer `torch`; at `deadline` the child is ended, and what it did not prove is unknown."""
        self._wait_for(frozenset({"end"}), deadline)
        self.stop()
        with self._changed:
            events = tuple(self._events)
        return parse_proofs(events, self._unsaid(), gpus)

    def stop(self) -> None:
        """End the child, where it has not ended by itself."""
        if isinstance(self._program, Missing):
            return
        with self._changed:
            finished = self._completed is not None or any(event["event"] == "end" for event in self._events)
            self._ended_by_us = self._ended_by_us or not finished
        if not finished:
            self._program.kill()
        with self._changed:
            self._changed.wait_for(lambda: self._completed is not None, GRACE_SECONDS)

    @property
    def said(self) -> str:
        """Error texts, and what the child wrote to stderr, for the table of known errors."""
        with self._changed:
            words = [text for event in self._events for text in event_words(event)]
            return "\n".join([*words, self._completed.stderr if self._completed is not None else ""])

    def _collect(self, program: RunningProgram) -> None:
        """Take in line after line until the child closes its output, then see how it ended."""
        while (line := program.read_line(self._started + LONGEST_LIFE_S)) is not None:
            with self._changed:
                self._events += parse_line(line)
                self._changed.notify_all()
        completed = program.finish(time.monotonic() + GRACE_SECONDS)
        with self._changed:
            self._completed = completed
            self._changed.notify_all()

    def _wait_for(self, kinds: frozenset[str], deadline: float) -> dict[str, dict[str, Any]]:
        """The lines by kind, once one of `kinds` is there, the child has ended, or it is `deadline`."""

        def settled() -> bool:
            return self._completed is not None or any(event["event"] in kinds for event in self._events)

        with self._changed:
            if not isinstance(self._program, Missing):
                self._changed.wait_for(settled, max(deadline - time.monotonic(), 0))
            return {event["event"]: event for event in self._events}

    def _unsaid(self) -> Missing:
        """Why what was not said was not said."""
        if isinstance(self._program, Missing):
            return self._program
        waited = time.monotonic() - self._started
        with self._changed:
            steps = [event["doing"] for event in self._events if event["event"] == "step"]
            completed = None if self._ended_by_us else self._completed
        doing = steps[-1] if steps else "starting Python"
        if completed is None:
            return Missing(MissingReason.TIMEOUT, f"{doing}: no answer within {waited:.1f} s", SOURCE)
        failure = unsuccessful(completed, waited, SOURCE)
        if failure is not None:
            return Missing(failure.reason, f"{doing}: {failure.detail}", SOURCE)
        return Missing(MissingReason.FAILED, f"{doing}: the child ended without a word about it", SOURCE)


def start_torch_child(system: System, chosen: ChosenPython, *options: str) -> TorchChild:
    """Start the child in the user's interpreter and environment; `--no-proofs` leaves out the computations."""
    try:
        return TorchChild(system.start((chosen.executable, str(CHILD), *options)), chosen)
    except ProgramNotFoundError as error:
        return TorchChild(Missing(MissingReason.NOT_FOUND, str(error), SOURCE), chosen)


def event_words(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The error texts in one line of the child."""
    texts = (event.get("message"), event.get("error"), *event.get("warnings", ()))
    return tuple(text for text in texts if text)


def parse_torch(events: Mapping[str, Mapping[str, Any]], unsaid: Missing) -> Fact[Torch]:
    """What is known of torch; missing only where it is not installed or Python itself does not answer.

    Where its import fails, crashes or hangs, `imports` says so, and what its version file says is known all the same.
    Sample: {"event": "torch_imported", "version": "2.5.1+cu124", "cuda": "12.4", "hip": null, "arch_list": ["sm_50", "sm_90"]}
    """
    if "torch_absent" in events:
        return not_found(events["torch_absent"]["message"] or "torch is not installed in this Python", SOURCE)
    if "torch_found" not in events:
        return unsaid
    found = events["torch_found"]
    if "torch_imported" in events:
        return Known(_imported(events["torch_imported"], events.get("torch_cuda"), found["location"], unsaid), SOURCE)
    failure = _import_error(events["torch_import_error"]) if "torch_import_error" in events else unsaid
    return Known(_not_imported(found, failure), SOURCE)


def _import_error(error: Mapping[str, Any]) -> Missing:
    return Missing(MissingReason.FAILED, f"{error['kind']}: {short(error['message'])}", SOURCE)


def _not_imported(found: Mapping[str, Any], failure: Missing) -> Torch:
    """What the files of a torch say that cannot be imported."""
    file = f"{found['location']}/version.py"
    told = found["version"] is not None
    no_cuda = not_applicable("torch was not built for CUDA", file)
    known_cuda = parsed(CudaVersion.parse, found["cuda"], file) if found["cuda"] else no_cuda
    return structs.replace(
        all_missing(Torch)(failure),
        torch_version=Known(found["version"], file) if told else failure,
        build=Known(torch_build(found), file) if told else failure,
        torch_cuda_version=known_cuda if told else failure,
        location=Known(found["location"], SOURCE),
    )


def _imported(imported: Mapping[str, Any], cuda: Mapping[str, Any] | None, location: str, unsaid: Missing) -> Torch:
    build = torch_build(imported)
    no_cuda = not_applicable(f"torch was built for {build.value}", SOURCE)
    for_cuda = build is TorchBuild.CUDA
    return Torch(
        imports=Known(True, SOURCE),
        torch_version=Known(imported["version"], SOURCE),
        build=Known(build, SOURCE),
        torch_cuda_version=parsed(CudaVersion.parse, imported["cuda"], SOURCE) if imported["cuda"] else no_cuda,
        arch_list=_targets(imported["arch_list"]) if for_cuda else no_cuda,
        is_available=_or_missing(cuda, "is_available", unsaid),
        cuda_error=_cuda_error(cuda, unsaid),
        devices=unsaid if cuda is None else Known(tuple(torch_device(device) for device in cuda["devices"]), SOURCE),
        cudnn_version=_cudnn(cuda, unsaid) if for_cuda else no_cuda,
        nccl_version=_nccl(cuda, unsaid) if for_cuda else no_cuda,
        cxx11_abi=_or_missing(imported, "cxx11_abi", unsaid),
        mapped_libraries=() if cuda is None else tuple(cuda["libraries"]),
        location=Known(location, SOURCE),
    )


def torch_build(imported: Mapping[str, Any]) -> TorchBuild:
    """What the binary was built for."""
    for key, build in (("cuda", TorchBuild.CUDA), ("hip", TorchBuild.ROCM), ("xpu", TorchBuild.XPU)):
        if imported.get(key):
            return build
    return TorchBuild.CPU


def torch_device(device: Mapping[str, Any]) -> TorchDevice:
    """A device as torch lists it."""
    return TorchDevice(
        index=device["index"], name=device["name"], compute_capability=ComputeCapability(*device["compute_capability"])
    )


def cudnn_version(number: int) -> DottedVersion:
    """9.1.0 for 90100, 8.9.7 for 8907 (cudnn_version.h: from 9 on the major counts ten thousands)."""
    major, rest = divmod(number, 10_000) if number >= 90_000 else divmod(number, 1000)
    return DottedVersion.parse(f"{major}.{rest // 100}.{rest % 100}")


def parse_proofs(events: Sequence[Mapping[str, Any]], unsaid: Missing, gpus: Sequence[Gpu] = ()) -> tuple[Proof, ...]:
    """The proofs in the child's lines; those of a device that it was at when it died or hung are unknown or failed."""
    cuda = next((event for event in events if event["event"] == "torch_cuda"), None)
    skipped = _why_skipped(events, cuda, unsaid)
    if cuda is None or skipped is not None:
        return (skipped,) if skipped is not None else ()
    proofs = {(event["device"], event["kernel"]): event for event in events if event["event"] == "proof"}
    steps = [event for event in events if event["event"] == "step" and "kernel" in event]
    interrupted = (steps[-1]["device"], steps[-1]["kernel"]) if steps else None
    result = []
    for device in cuda["devices"]:
        for kernel in KERNELS:
            key = (device["index"], kernel)
            event = proofs.get(key) or _not_proven(unsaid, at_this=key == interrupted)
            result.append(_proof(event, kernel, device, gpus))
    return tuple(result)


def _why_skipped(events: Sequence[Mapping[str, Any]], cuda: Mapping[str, Any] | None, unsaid: Missing) -> Proof | None:
    """The one proof that stands for all where none could run; None where they could."""
    kinds = {event["event"]: event for event in events}
    if "torch_absent" in kinds:
        return _all(ProofOutcome.SKIPPED, "torch is not installed in the examined Python")
    if "torch_import_error" in kinds:
        return _all(ProofOutcome.FAILED, f"torch cannot be imported: {short(kinds['torch_import_error']['message'])}")
    if cuda is None:
        crashed = unsaid.reason is MissingReason.CRASHED and "torch_found" in kinds
        return _all(ProofOutcome.FAILED if crashed else ProofOutcome.UNKNOWN, unsaid.detail)
    if not cuda["is_available"]:
        nothing_to_use = torch_build(kinds["torch_imported"]) is not TorchBuild.CUDA or NO_GPU_WORDS.search(cuda["error"])
        outcome = ProofOutcome.SKIPPED if nothing_to_use else ProofOutcome.FAILED
        return _all(outcome, short(f"torch cannot use CUDA: {cuda['error']}".rstrip(": ")))
    return None


def _all(outcome: ProofOutcome, because: str) -> Proof:
    return Proof(ProofLayer.TORCH, None, "all", None, outcome, because=because)


def _not_proven(unsaid: Missing, *, at_this: bool) -> Mapping[str, Any]:
    crashed = at_this and unsaid.reason is MissingReason.CRASHED
    return {"outcome": "failed" if crashed else "unknown", "because": unsaid.detail}


def _proof(event: Mapping[str, Any], kernel: str, device: Mapping[str, Any], gpus: Sequence[Gpu]) -> Proof:
    capability = ComputeCapability(*device["compute_capability"])
    return Proof(
        layer=ProofLayer.TORCH,
        gpu=gpu_index(device, gpus),
        kernel=kernel,
        target=str(capability.sm),
        outcome=ProofOutcome(event["outcome"]),
        error=api_error(event),
        because=short(event["because"]) if event.get("because") else None,
        max_error=event.get("max_error"),
        tolerance=event.get("tolerance"),
        run_ms=event.get("run_ms"),
    )


def gpu_index(device: Mapping[str, Any], gpus: Sequence[Gpu]) -> int:
    """nvidia-smi's index of a device of torch: by PCI address, as CUDA counts in another order; else CUDA's own index."""
    address = bus_id(device["pci_bus_id"]) if device.get("pci_bus_id") else None
    for gpu in gpus:
        if address is not None and isinstance(gpu.pci_bus_id, Known) and gpu.pci_bus_id.value == address:
            return gpu.index
    return int(device["index"])


def api_error(event: Mapping[str, Any]) -> ApiError | None:
    """The CUDA error in the words of a failed proof; None where they are not CUDA's.

    Sample: {"message": "CUDA error: no kernel image is available for execution on the device\\nCUDA kernel errors ..."}
    """
    from cudadoctor.gpu.cu_result import RESULTS

    message = (event.get("message") or "").partition("\n")[0].removeprefix("CUDA error: ").strip()
    if not message:
        return None
    named = next(((code, name) for code, (name, text) in RESULTS.items() if code and text in message), None)
    code = event.get("code") or (named[0] if named else None)
    if code is None:
        return None
    return ApiError(code, RESULTS[code][0] if code in RESULTS else "", message)


def _or_missing(event: Mapping[str, Any] | None, key: str, unsaid: Missing) -> Fact[bool]:
    if event is None:
        return unsaid
    return Known(bool(event[key]), SOURCE) if event[key] is not None else not_found("this torch does not say", SOURCE)


def _cuda_error(cuda: Mapping[str, Any] | None, unsaid: Missing) -> Fact[str]:
    if cuda is None:
        return unsaid
    words = "; ".join(dict.fromkeys(event_words(cuda)))
    return Known(words, SOURCE) if words else not_applicable("CUDA initialised without complaint", SOURCE)


def _targets(names: Sequence[str] | None) -> Fact[tuple[SmTarget, ...]]:
    if names is None:
        return not_found("this torch does not list its targets", SOURCE)
    try:
        return Known(tuple(SmTarget.parse(name) for name in names), SOURCE)
    except VersionError as error:
        return Missing(MissingReason.PARSE_ERROR, str(error), SOURCE)


def _cudnn(cuda: Mapping[str, Any] | None, unsaid: Missing) -> Fact[DottedVersion]:
    if cuda is None:
        return unsaid
    number = cuda["cudnn"]
    return Known(cudnn_version(number), SOURCE) if isinstance(number, int) else not_found("torch finds no cuDNN", SOURCE)


def _nccl(cuda: Mapping[str, Any] | None, unsaid: Missing) -> Fact[DottedVersion]:
    if cuda is None:
        return unsaid
    return parsed(DottedVersion.parse, cuda["nccl"], SOURCE) if cuda["nccl"] else not_found("torch has no NCCL", SOURCE)
