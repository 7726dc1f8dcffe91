"""Rules about a GPU's memory that is not enough: it ran out, or it is fragmented (CD531, CD532)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cudadoctor.model.finding import Confidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.evidence import as_evidence

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s?([kmgt]?)i?b?", re.IGNORECASE)


def _bytes(text: str | None) -> float | None:
    """`189.06 GiB` in bytes."""
    match = _SIZE.match(text.strip()) if text else None
    return float(match[1]) * _UNITS[match[2].lower()] if match else None


MUCH_IDLE = 0.1
"""Share of the GPU's memory, held idle by the allocator, from which pieces and not scarcity are the trouble."""


@dataclass(frozen=True)
class Request:
    """An allocation that failed, and the memory around it, in bytes; None where the text does not say."""

    error: ErrorSeen
    wanted: float | None
    total: float | None
    free: float | None
    idle: float | None
    """Reserved by the allocator of torch and not in use."""
    mine: float | None
    """Reserved by this process."""

    @property
    def is_larger_than_gpu(self) -> bool:
        return self.wanted is not None and self.total is not None and self.wanted > self.total

    @property
    def is_fragmented(self) -> bool:
        """Would the request fit into what the allocator holds idle?"""
        if self.wanted is None or self.idle is None or self.is_larger_than_gpu:
            return False
        return self.idle >= self.wanted and self.idle >= MUCH_IDLE * (self.total or 0)

    @property
    def others(self) -> float:
        """What other processes hold; 0 where the numbers do not tell."""
        if self.total is None or self.free is None or self.mine is None:
            return 0
        return max(0.0, self.total - self.free - self.mine)


def requests(case: Case) -> tuple[Request, ...]:
    """The allocations that failed, with their numbers; those that tell most first."""
    found = []
    for error in case.errors("cuda-out-of-memory"):
        values = error.values
        wanted = _bytes(values.get("wanted"))
        allocated, reserved, idle = (_bytes(values.get(name)) for name in ("allocated", "reserved", "unallocated"))
        if idle is None and reserved is not None and allocated is not None:
            idle = reserved - allocated
        mine = reserved if reserved is not None else (allocated + idle if allocated is not None and idle is not None else None)
        found.append(Request(error, wanted, _bytes(values.get("total")), _bytes(values.get("free")), idle, mine))
    return tuple(sorted(found, key=lambda each: (each.total is None, each.wanted is None)))


MOST_IS_OTHERS = 0.5
"""Share of the GPU's memory that other processes hold, above which they are the cause."""


def _held_by_others(request: Request) -> bool:
    return request.total is not None and request.others > MOST_IS_OTHERS * request.total and not request.is_larger_than_gpu


def gpu_oom(case: Case) -> Iterable[Problem]:
    """The request does not fit in the memory of the GPU in use.

    What it checks: the numbers in the "CUDA out of memory" text: the request against the GPU's size, its free memory and what
    the allocator holds idle.

    Why it matters: no setting of the allocator or version of CUDA makes room; a request larger than the GPU never fits.

    How to fix: smaller batches, sequences or models, a lower precision, offloading, gradient checkpointing, more GPUs.

    When it is wrong: where much is reserved and not allocated, the memory is fragmented (memory-fragmentation); where other
    processes hold it, the GPU is busy.

    Sources: PyTorch, CUDA semantics, Memory management.
    """
    found = requests(case)
    if not found or found[0].is_fragmented:
        return
    request = found[0]
    size = f"{request.wanted / 2**30:.2f} GiB" if request.wanted is not None else "The request"
    if request.is_larger_than_gpu and request.total is not None:
        what = f"{size} were asked for at once; the GPU has {request.total / 2**30:.2f} GiB altogether."
        confidence = Confidence.CERTAIN
    elif _held_by_others(request):
        what = f"Other processes hold {request.others / 2**30:.2f} GiB of the GPU's memory; {size} more did not fit."
        confidence = Confidence.LIKELY
    else:
        what = f"{size} did not fit into the GPU's memory" if request.wanted is not None else "The GPU's memory is exhausted"
        what += (
            f": {request.free / 2**30:.2f} GiB of {request.total / 2**30:.2f} GiB were free."
            if request.free is not None and request.total is not None
            else "."
        )
        confidence = Confidence.LIKELY
    yield Problem(
        subject=f"GPU {request.error.values['index']}" if request.error.values.get("index") else "GPU",
        what=what,
        why="The stack works; the program needs more memory than this GPU can give it.",
        evidence=as_evidence((request.error,)),
        remedies=(
            Remedy(Fix(title="See who holds the memory", commands=("nvidia-smi",))),
            Remedy(
                Fix(title="Ask for less: smaller batch or sequence, lower precision, offloading, or more GPUs", where=Where.VENV)
            ),
        ),
        confidence=confidence,
    )


def memory_fragmentation(case: Case) -> Iterable[Problem]:
    """The allocator holds enough memory, but in pieces too small for the request.

    What it checks: the numbers in the "CUDA out of memory" text: memory reserved by torch and not allocated, against the
    request.

    Why it matters: the request would fit if the free pieces were together.

    How to fix: let torch grow its segments (expandable_segments:True), or limit the size of blocks that it splits.

    When it is wrong: where little is reserved and not allocated, the program needs more memory than there is (gpu-oom).

    Sources: PyTorch, CUDA semantics, PYTORCH_CUDA_ALLOC_CONF.
    """
    for request in requests(case):
        if request.is_fragmented and request.idle is not None and request.wanted is not None:
            yield Problem(
                subject="torch",
                what=f"torch holds {request.idle / 2**30:.2f} GiB that it does not use, and could not give {request.wanted / 2**30:.2f} GiB in one piece.",
                why="The free memory is in pieces: fragmentation, not a lack of memory.",
                evidence=as_evidence((request.error,)),
                remedies=(
                    Remedy(
                        Fix(
                            title="Let torch grow its segments",
                            commands=("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",),
                            where=Where.VENV,
                        )
                    ),
                ),
                confidence=Confidence.LIKELY,
            )
            return


RULES = (
    Rule("CD531", "gpu-oom", Severity.ERROR, "The request does not fit in the GPU's memory", gpu_oom),
    Rule("CD532", "memory-fragmentation", Severity.ERROR, "torch's memory is in pieces", memory_fragmentation),
)
