"""Examines this machine: probes, the driver's own word, and proofs, side by side within one deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import structs

from cudadoctor.background import in_background
from cudadoctor.gpu.catalog import FULL, LADDER, QUICK
from cudadoctor.gpu.description import DriverDescription
from cudadoctor.gpu.driver_session import VISIBLE_DEVICES, DriverSession, all_devices_environment, describe_driver
from cudadoctor.gpu.prove import NvccChoice, NvrtcChoice, ProofRequest, ProofRun
from cudadoctor.gpu.prove_peers import PeerRun
from cudadoctor.model.fact import maybe
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import LibraryOrigin, Platform, Snapshot
from cudadoctor.probes import Collection, ProbeOptions, recognised, start_collection
from cudadoctor.probes.binaries import BinaryScan
from cudadoctor.probes.merging import device_numbers
from cudadoctor.probes.nccl_group import NcclGroup, why_no_group

if TYPE_CHECKING:
    from cudadoctor.matrices import Matrices
    from cudadoctor.report.progress import Progress
    from cudadoctor.system import System

DESCRIBE_LIMIT_S = 6.0
"""Longest wait for cuInit and the devices' attributes; a healthy driver of eight GPUs without persistence mode needs less."""
LONGEST_PROBE_S = 10.0
PROBES_SHARE = 0.5
"""Of a short deadline, what probes may use: proofs come after them, and must not be lost to a program that hangs."""
REPORT_RESERVE_S = 0.5
"""Kept of the deadline for judging and printing."""


@dataclass(frozen=True)
class DriverWord:
    """What the driver library says in the user's environment, and with all devices visible where the user hides some."""

    as_user: DriverDescription
    all_devices: DriverDescription | None
    environment_of_proofs: Mapping[str, str]

    @property
    def proven(self) -> DriverDescription:
        """The description that belongs to the environment in which kernels are run."""
        shows_none = self.all_devices is not None and VISIBLE_DEVICES not in self.environment_of_proofs
        return self.all_devices if shows_none and self.all_devices is not None else self.as_user


def examine(
    system: System,
    matrices: Matrices,
    say: Progress,
    *,
    python: str | None = None,
    run_kernels: str = "quick",
    timeout: float = 30.0,
) -> tuple[Snapshot, tuple[Proof, ...]]:
    """The machine's snapshot and the proofs of its layers; what did not answer within `timeout` seconds is missing or unknown."""
    deadline = time.monotonic() + timeout - REPORT_RESERVE_S
    options = ProbeOptions(
        python=python or "",
        timeout_s=min(LONGEST_PROBE_S, timeout * PROBES_SHARE),
        torch_child_options=("--no-proofs",) if run_kernels == "nothing" else (),
        variable_names=frozenset(row.name for row in matrices.env.variables),
    )
    collection = start_collection(system, options)
    scan = BinaryScan(system, collection.package_folders, lambda: matrices.sonames, collection.torch.chosen.executable)
    runs: tuple[ProofRun | PeerRun, ...] = ()
    try:
        driver = in_background(lambda: ask_driver(dict(system.environ), deadline), "ask driver")
        with say.waiting_for("driver and toolkits"):
            word = driver.result()
            machine = collection.without("nvidia-smi")
        runs = _proof_runs(machine, word, deadline, run_kernels)
        proofs = in_background(lambda: tuple(proof for run in runs for proof in run.run()), "prove") if runs else None
        snapshot, outcomes = _complete(system, collection, word, proofs, deadline, say, run_kernels)
        return _with_binaries(snapshot, scan, deadline), outcomes
    finally:
        scan.stop()
        collection.stop()
        for run in runs:
            run.abandon()


def ask_driver(environ: Mapping[str, str], deadline: float) -> DriverWord:
    """Ask libcuda in a child; once more with CUDA_VISIBLE_DEVICES cleared where that variable may hide devices."""
    as_user = describe_driver(environ, timeout_s=_describe_limit(deadline))
    if VISIBLE_DEVICES not in environ or as_user.failure is not None or as_user.load_error:
        return DriverWord(as_user, None, environ)
    cleared = all_devices_environment(environ)
    all_devices = describe_driver(cleared, timeout_s=_describe_limit(deadline))
    return DriverWord(as_user, all_devices, environ if as_user.devices else cleared)


def _describe_limit(deadline: float) -> float:
    return max(0.1, min(DESCRIBE_LIMIT_S, deadline - time.monotonic()))


def _proof_runs(machine: Snapshot, word: DriverWord, deadline: float, run_kernels: str) -> tuple[ProofRun | PeerRun, ...]:
    """The proofs to run, one run after the other; none where none are wanted or no CUDA exists."""
    if run_kernels == "nothing" or maybe(machine.host.platform) is Platform.MACOS:
        return ()
    numbers = device_numbers(maybe(machine.gpus) or (), word.proven)
    request = ProofRequest(
        env=word.environment_of_proofs,
        driver=word.proven,
        nvrtc=tuple(nvrtc_choices(machine)),
        nvcc=tuple(nvcc_choices(machine)),
        kernels=FULL if run_kernels == "all" else QUICK,
        ladder=LADDER,
        gpu_numbers=numbers,
    )
    peers = PeerRun(word.proven.devices, numbers, DriverSession(word.environment_of_proofs), deadline)
    return ProofRun(request, deadline), peers


def nvrtc_choices(machine: Snapshot) -> Iterator[NvrtcChoice]:
    """The NVRTC of the toolkit that builds would use, and those of the Python wheels; each file once."""
    seen: set[str] = set()
    for toolkit in maybe(machine.toolkits) or ():
        path = maybe(toolkit.nvrtc)
        if path is not None and toolkit.chosen_for_builds and path not in seen:
            seen.add(path)
            yield NvrtcChoice(path, f"NVRTC of {toolkit.root}")
    for copy in maybe(machine.libraries.copies) or ():
        wheel = copy.soname.startswith("libnvrtc.so") and copy.origin in (LibraryOrigin.WHEEL, LibraryOrigin.CONDA)
        if wheel and copy.real_path not in seen:
            seen.add(copy.real_path)
            yield NvrtcChoice(copy.path, f"NVRTC of the {copy.origin.value}")


def nvcc_choices(machine: Snapshot) -> Iterator[NvccChoice]:
    """The nvcc that builds would use."""
    for toolkit in maybe(machine.toolkits) or ():
        path = maybe(toolkit.nvcc)
        if path is not None and toolkit.chosen_for_builds:
            yield NvccChoice(path, f"nvcc {maybe(toolkit.toolkit_version) or ''}".strip(), maybe(toolkit.targets))


def _complete(
    system: System,
    collection: Collection,
    word: DriverWord,
    proofs: Future[tuple[Proof, ...]] | None,
    deadline: float,
    say: Progress,
    run_kernels: str,
) -> tuple[Snapshot, tuple[Proof, ...]]:
    with say.waiting_for("torch"):
        snapshot = collection.complete(deadline, word.as_user, word.all_devices)
        of_torch = collection.torch.proofs(deadline, maybe(snapshot.gpus) or ()) if run_kernels != "nothing" else ()
    with say.waiting_for("kernels"):
        of_driver = proofs.result() if proofs is not None else ()
    if proofs is None:
        return snapshot, of_torch
    with say.waiting_for("NCCL"):  # alone on the GPUs, so that its time means something
        snapshot, of_nccl = _nccl(system, collection, snapshot, of_torch, deadline)
    return snapshot, (*of_driver, *of_torch, *of_nccl)


def _nccl(
    system: System, collection: Collection, snapshot: Snapshot, of_torch: Sequence[Proof], deadline: float
) -> tuple[Snapshot, tuple[Proof, ...]]:
    """An all-reduce over the GPUs that torch sees, and the snapshot with the known errors among the words of failed ranks."""
    gpus = collection.torch.gpus(maybe(snapshot.gpus) or ())
    skipped = why_no_group(snapshot, gpus, of_torch)
    if skipped is not None:
        return snapshot, (skipped,)
    group = NcclGroup(system, collection.torch.chosen.executable, gpus)
    proofs = group.run(deadline)
    return structs.replace(snapshot, errors=(*snapshot.errors, *recognised([(group.said, "NCCL rank")]))), proofs


def _with_binaries(snapshot: Snapshot, scan: BinaryScan, deadline: float) -> Snapshot:
    binaries, run = scan.result(deadline)
    return structs.replace(snapshot, binaries=binaries, probe_runs=(*snapshot.probe_runs, run))
