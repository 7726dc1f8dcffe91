"""The proof of layer `nccl`: an all-reduce through torch.distributed, one process a GPU, in the user's interpreter."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.probes.asking import short, unsuccessful
from cudadoctor.probes.nvml import parse_line
from cudadoctor.probes.torch_proofs import api_error
from cudadoctor.process import ProgramNotFoundError

if TYPE_CHECKING:
    from cudadoctor.model.snapshot import Snapshot
    from cudadoctor.process import RunningProgram
    from cudadoctor.system import System

CHILD = Path(__file__).with_name("_nccl_child.py")
KERNEL = "all-reduce"
GROUP_LIMIT_S = 60.0
"""Longest time for the whole group: every rank imports torch, and NCCL looks at the topology."""
LEAST_TIME_S = 3.0
"""Below this nothing is started: torch alone needs it."""
LAST_WORDS_S = 2.0
"""How long the other ranks may still speak once one has failed."""
OUT_OF_MEMORY = "out of memory"
"""Words after which nothing is known of the stack: other programs hold the memory."""
NOT_PROVEN = (ProofOutcome.FAILED, ProofOutcome.UNKNOWN)
OWN_SETTINGS: Mapping[str, str] = {
    "NCCL_NVLS_ENABLE": "0",
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NET": "Socket",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "0",
}
"""NVLink multicast stays off, and nothing leaves the machine."""
TAKEN_AWAY = (
    "NCCL_COMM_ID",
    "NCCL_DEBUG_FILE",
    "NCCL_DEBUG_SUBSYS",
    "NCCL_TOPO_DUMP_FILE",
    "NCCL_GRAPH_DUMP_FILE",
    "NCCL_HOSTID",
)
"""Variables that write files or lead to another group; those that change what NCCL does on this machine stay the user's."""


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended: its lines, and why it said no more (empty where it said its result)."""

    events: tuple[dict[str, Any], ...]
    unsaid: str
    crashed: bool = False
    stderr: str = ""

    def event(self, kind: str) -> dict[str, Any] | None:
        """Its line of that kind."""
        return next((event for event in self.events if event["event"] == kind), None)

    @property
    def passed(self) -> bool:
        result = self.event("result")
        return result is not None and result.get("outcome") == ProofOutcome.PASSED.value

    @property
    def doing(self) -> str:
        """Its last step."""
        steps = [str(event.get("doing")) for event in self.events if event["event"] == "step"]
        return steps[-1] if steps else "starting Python"


def why_no_group(snapshot: Snapshot, gpus: Sequence[int], of_torch: Sequence[Proof]) -> Proof | None:
    """The one proof that says why no all-reduce is tried; None where one can be. `gpus` are those that torch sees."""
    torch = snapshot.python.torch
    if isinstance(torch, Missing):
        reason = "torch is not installed" if torch.reason is MissingReason.NOT_FOUND else f"torch: {torch.detail}"
    elif not isinstance(torch.value.is_available, Known) or not torch.value.is_available.value:
        reason = "torch cannot use CUDA"
    elif len(gpus) < 2:
        reason = f"not applicable: an all-reduce needs two GPUs, and torch sees {len(gpus)}"
    elif isinstance(torch.value.nccl_version, Missing):
        reason = f"this torch has no NCCL: {torch.value.nccl_version.detail}"
    else:
        alone = sorted({proof.gpu for proof in of_torch if proof.gpu is not None and proof.outcome in NOT_PROVEN})
        reason = f"not tried: torch does not compute on GPU {named(alone)} alone" if alone else ""
    return Proof(ProofLayer.NCCL, None, "all", None, ProofOutcome.SKIPPED, because=short(reason)) if reason else None


class NcclGroup:
    """An all-reduce over `gpus`, the report's numbers in the order in which torch counts its devices."""

    def __init__(self, system: System, python: str, gpus: Sequence[int], backend: str = "nccl") -> None:
        self._system = system
        self._python = python
        self._gpus = tuple(gpus)
        self._backend = backend
        self.said = ""
        """The words of ranks that failed, for the table of known errors; empty where none did."""

    def run(self, deadline: float) -> tuple[Proof, ...]:
        """One proof for each GPU by `deadline` (time.monotonic()); nothing is left running."""
        deadline = min(deadline, time.monotonic() + GROUP_LIMIT_S)
        if deadline - time.monotonic() < LEAST_TIME_S:
            return self._all(ProofOutcome.UNKNOWN, "not tried: the time was over")
        try:
            with tempfile.TemporaryDirectory(prefix="cudadoctor-", ignore_cleanup_errors=True) as folder:
                return self._judged(self._ends(Path(folder, "store"), deadline))
        except (OSError, ProgramNotFoundError, RuntimeError) as error:  # no folder, no process, no thread
            return self._all(ProofOutcome.UNKNOWN, f"the group could not be started: {short(str(error))}")

    def _ends(self, store: Path, deadline: float) -> list[RankEnd | None]:
        """How each rank ended; None for one that was ended because another had failed."""
        programs: list[RunningProgram] = []
        seed = secrets.randbelow(1000)
        with ThreadPoolExecutor(len(self._gpus), "NCCL rank") as listeners:
            try:
                programs.extend(self._start(rank, store, seed) for rank in range(len(self._gpus)))
                futures = [listeners.submit(_listen, program, deadline) for program in programs]
                early = _wait_for_all_or_a_failure(futures, deadline)
                over = [future.done() for future in futures]
            finally:
                for program in programs:
                    program.kill()
        return [future.result() if done or not early else None for future, done in zip(futures, over, strict=True)]

    def _start(self, rank: int, store: Path, seed: int) -> RunningProgram:
        arguments = (str(rank), str(len(self._gpus)), str(store), self._backend, str(seed))
        kept = {name: value for name, value in self._system.environ.items() if name not in TAKEN_AWAY}
        return self._system.start((self._python, "-B", str(CHILD), *arguments), {"NCCL_DEBUG": "WARN", **kept, **OWN_SETTINGS})

    def _judged(self, ends: Sequence[RankEnd | None]) -> tuple[Proof, ...]:
        bad = [(gpu, end) for gpu, end in zip(self._gpus, ends, strict=True) if end is not None and not end.passed]
        self.said = "\n".join(text for _, end in bad for text in (_message(end), end.stderr) if text)
        culprits = named(gpu for gpu, _ in bad)
        return tuple(
            self._proof(gpu, ProofOutcome.UNKNOWN, because=f"ended, as the rank on GPU {culprits} failed")
            if end is None
            else self._of_rank(gpu, end)
            for gpu, end in zip(self._gpus, ends, strict=True)
        )

    def _of_rank(self, gpu: int, end: RankEnd) -> Proof:
        result = end.event("result")
        if result is not None and result.get("outcome") in ("passed", "failed"):
            figures = {name: result.get(name) for name in ("max_error", "tolerance", "run_ms", "gb_s")}
            return self._proof(gpu, ProofOutcome(result["outcome"]), because=result.get("because"), **figures)
        refused = end.event("refused")
        if refused is not None:
            words = short(str(refused.get("message")).partition("\n")[0])
            outcome = ProofOutcome.UNKNOWN if OUT_OF_MEMORY in words else ProofOutcome.FAILED
            return self._proof(gpu, outcome, because=f"{end.doing}: {words}", error=api_error(refused))
        outcome = ProofOutcome.FAILED if end.crashed else ProofOutcome.UNKNOWN
        return self._proof(gpu, outcome, because=f"{end.doing}: {end.unsaid}")

    def _all(self, outcome: ProofOutcome, because: str) -> tuple[Proof, ...]:
        return tuple(self._proof(gpu, outcome, because=because) for gpu in self._gpus)

    def _proof(self, gpu: int, outcome: ProofOutcome, **fields: Any) -> Proof:
        return Proof(layer=ProofLayer.NCCL, gpu=gpu, kernel=KERNEL, target=None, outcome=outcome, **fields)


def _wait_for_all_or_a_failure(futures: Sequence[Future[RankEnd]], deadline: float) -> bool:
    """Wait until every rank has ended, or one has without passing, its neighbours' last words included: then True."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, max(deadline - time.monotonic(), 0) + LAST_WORDS_S, FIRST_COMPLETED)
        if any(not future.result().passed for future in done):
            wait(pending, LAST_WORDS_S)
            return any(not future.done() for future in futures)
        if not done:
            return False
    return False


def _listen(program: RunningProgram, deadline: float) -> RankEnd:
    """All that a rank says, and how it ended."""
    started = time.monotonic()
    events: list[dict[str, Any]] = []
    while (line := program.read_line(deadline)) is not None:
        events += parse_line(line)
    completed = program.finish(deadline)
    failure = unsuccessful(replace(completed, stdout=""), time.monotonic() - started, "NCCL rank")
    words = failure.detail if failure is not None else "the process ended without a word about it"
    return RankEnd(tuple(events), words, bool(completed.signal_name), completed.stderr)


def named(gpus: Iterable[int]) -> str:
    """`0, 3`."""
    return ", ".join(map(str, gpus))


def _message(end: RankEnd) -> str:
    refused = end.event("refused")
    return str(refused.get("message")) if refused is not None else ""
