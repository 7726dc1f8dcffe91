"""One rank of an all-reduce over the GPUs of this machine, checked and timed; prints JSON lines as it goes.

Runs in the user's interpreter, so: Python 3.7 or newer, standard library and torch only. The ranks meet through a file.
`python _nccl_child.py RANK WORLD STORE BACKEND SEED`; the backend is `nccl`, or `gloo`, which needs no GPU.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable, Dict

Emit = Callable[..., None]

LIMIT = timedelta(minutes=10)
"""Of torch for each of its own waits; whoever started this process has a shorter one and ends it."""
CHECKED_NUMBERS = 1_000_003
"""Of float32; no multiple of any block size, so that tails are checked too."""
TIMED_BYTES = 64 << 20
LONGEST_PARTING_S = 5.0
WARM_UPS, TIMED_RUNS = 2, 5


def open_protocol() -> Emit:
    """Keep stdout for the protocol and send what anybody else prints there to stderr."""
    descriptor = os.dup(1)
    os.dup2(2, 1)

    def emit(event: str, **fields: Any) -> None:
        os.write(descriptor, (json.dumps(dict(fields, event=event)) + "\n").encode("ascii"))

    return emit


def contribution(torch: Any, rank: int, seed: int) -> Any:
    """What a rank adds: whole numbers below 1021, so that float32 holds the sum of thousands of ranks exactly."""
    return (torch.arange(CHECKED_NUMBERS, dtype=torch.int64) * (rank * 2 + 1) + seed + rank * 37) % 1021


def check(torch: Any, distributed: Any, device: str, rank: int, world: int, seed: int) -> Dict[str, Any]:
    """Sum all contributions and compare every number with the sum computed here."""
    numbers = contribution(torch, rank, seed).float().to(device)
    distributed.all_reduce(numbers)
    expected = sum(contribution(torch, each, seed) for each in range(world))
    difference = (numbers.cpu().double() - expected.double()).abs()
    wrong = int((~(difference == 0)).sum())  # counts NaN too
    if not wrong:
        return {"outcome": "passed", "max_error": 0.0, "tolerance": 0.0}
    because = "%d of %d sums are wrong (seed %d)" % (wrong, CHECKED_NUMBERS, seed)
    return {"outcome": "failed", "because": because, "tolerance": 0.0}


def median_ms(torch: Any, distributed: Any, device: str) -> float:
    """Median time of an all-reduce of TIMED_BYTES in float32, after some to warm up."""
    numbers = torch.zeros(TIMED_BYTES // 4, device=device)
    wait = torch.cuda.synchronize if device.startswith("cuda") else (lambda: None)
    times = []
    for _ in range(WARM_UPS + TIMED_RUNS):
        wait()
        started = time.perf_counter()
        distributed.all_reduce(numbers)
        wait()
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times[WARM_UPS:])[TIMED_RUNS // 2]


def bus_gb_s(milliseconds: float, world: int) -> float:
    """What each link carries at least: 2 (n - 1) / n of the data go out of and into every rank (NCCL tests, PERFORMANCE.md)."""
    return 2 * (world - 1) / world * TIMED_BYTES / max(milliseconds, 1e-6) * 1e-6


def reduce(emit: Emit, rank: int, world: int, store: str, backend: str, seed: int) -> None:
    emit("step", doing="importing torch")
    import torch
    from torch import distributed

    device = "cpu"
    if backend == "nccl":
        emit("step", doing="making a context")
        torch.cuda.set_device(rank)
        device = "cuda:%d" % rank
        torch.zeros(1, device=device)
    emit("step", doing="joining the group")
    meeting_place = distributed.FileStore(store, world)
    distributed.init_process_group(backend, store=meeting_place, rank=rank, world_size=world, timeout=LIMIT)
    emit("step", doing="the first all-reduce")
    result = check(torch, distributed, device, rank, world, seed)
    if result["outcome"] == "passed":
        emit("step", doing="timing")
        milliseconds = median_ms(torch, distributed, device)
        result.update(run_ms=milliseconds, gb_s=bus_gb_s(milliseconds, world))
    emit("result", **result)
    part(meeting_place, world)


def part(meeting_place: Any, world: int) -> None:
    """Stay until every rank is done, as others may still read this one's memory; not for ever, as one may have died."""
    gone = meeting_place.add("done", 1)
    deadline = time.monotonic() + LONGEST_PARTING_S
    while gone < world and time.monotonic() < deadline:
        time.sleep(0.01)
        gone = meeting_place.add("done", 0)


def main(emit: Emit) -> None:
    rank, world, store, backend, seed = sys.argv[1:6]
    try:
        reduce(emit, int(rank), int(world), store, backend, int(seed))
    except Exception as error:  # noqa: BLE001  # foreign code; whatever it raises is the result of the proof
        emit("refused", message=str(error) or type(error).__name__)


if __name__ == "__main__":
    main_emit = open_protocol()
    faulthandler.enable()
    if sys.path and os.path.abspath(sys.path[0]) == os.path.dirname(os.path.abspath(__file__)):
        del sys.path[0]  # the modules of this folder would shadow the user's
    main(main_emit)
    # Leave without the group's clean-up, which waits for the other ranks and can hang in a sick driver.
    sys.stderr.flush()
    os._exit(0)
