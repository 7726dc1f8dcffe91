"""Does `check` say the same each time, and leave a program that computes on the GPU undisturbed?"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from tests.real_faults.fault import Check
from tests.real_faults.machine import PROGRAM_LIMIT_S, Machine, NotHereError
from tests.real_faults.run import Said, check

NEIGHBOUR = Path(__file__).with_name("_neighbour.py")
ALONE_S = 4.0
"""How long the neighbour computes alone, before and again after."""


def repeated(machine: Machine, times: int, folder: Path) -> tuple[Said, ...]:
    """`check` several times in a row, with one cache, as a user's would be."""
    return tuple(check(machine, Check(), folder) for _ in range(times))


@dataclass(frozen=True)
class Neighbour:
    """What a program that multiplies matrices all the time saw: products a second, and products with wrong results."""

    before: float
    during: float
    after: float
    wrong: int
    products: int


def on_a_busy_gpu(machine: Machine, times: int, folder: Path) -> tuple[tuple[Said, ...], Neighbour]:
    """`check` while another process computes without a pause; raises NotHereError where there is no torch for it."""
    machine.require_torch()
    argv = [machine.python, str(NEIGHBOUR)]
    with subprocess.Popen(argv, env=dict(machine.env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as neighbour:
        assert neighbour.stdin is not None and neighbour.stdout is not None  # Popen was asked for pipes
        if neighbour.stdout.readline().strip() != "ready":
            raise NotHereError("the neighbour did not start")
        time.sleep(ALONE_S)
        start = time.monotonic()
        said = repeated(machine, times, folder)
        end = time.monotonic()
        time.sleep(ALONE_S)
        output, _ = neighbour.communicate("", timeout=PROGRAM_LIMIT_S)
    return said, _seen(json.loads(output.splitlines()[-1]), start, end)


def _seen(batches: Sequence[Any], start: float, end: float) -> Neighbour:
    """The rates from batches of `[monotonic seconds at the end, products, wrong ones]`; the clock is the machine's."""
    spans = [(last, now, done) for (last, _, _), (now, done, _) in pairwise(batches)]

    def rate(first: float, last: float) -> float:
        inside = [done / (now - then) for then, now, done in spans if first <= then and now <= last]
        return median(inside) if inside else 0.0

    wrong = sum(batch[2] for batch in batches)
    products = sum(batch[1] for batch in batches)
    return Neighbour(rate(0.0, start), rate(start, end), rate(end, float("inf")), wrong, products)
