"""Multiplies matrices on the GPU until its standard input is closed, and checks every product against the first.

Prints `ready` once it computes, and at its end `[[seconds, products, wrong products], ...]`, one item for each batch.
"""

from __future__ import annotations

import json
import select
import sys
import time

import torch  # type: ignore[import-not-found, unused-ignore]  # only the examined interpreter may have it

SIZE = 4096
BATCH = 20


def main() -> None:
    torch.manual_seed(7)
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    wanted = a @ b
    torch.cuda.synchronize()
    print("ready", flush=True)
    batches = [(time.monotonic(), 0, 0)]
    while not select.select([sys.stdin], [], [], 0)[0]:
        different = torch.zeros((), device="cuda", dtype=torch.int64)
        for _ in range(BATCH):
            different += (a @ b != wanted).any()
        wrong = int(different)  # waits for the GPU
        batches.append((time.monotonic(), BATCH, wrong))
    print(json.dumps(batches))


main()
