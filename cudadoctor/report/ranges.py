"""Short spellings of sets: GPU numbers and compile targets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from cudadoctor.model.versions import CodeKind, SmTarget


def number_ranges(numbers: Iterable[int]) -> str:
    """`0..3, 5` for 0, 1, 2, 3, 5; two neighbours are `0, 1`."""
    runs = [[n for _, n in run] for _, run in groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0])]
    return ", ".join(f"{run[0]}..{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def target_span(targets: Sequence[SmTarget]) -> str:
    """`sm_50 to sm_90a, PTX compute_90`: lowest and highest machine code, and the PTX."""
    machine = sorted(target for target in targets if target.kind is not CodeKind.PTX)
    ptx = sorted(target for target in targets if target.kind is CodeKind.PTX)
    parts = [_span(machine)] if machine else []
    if ptx:
        parts.append(f"PTX {_span(ptx)}")
    return ", ".join(parts) or "nothing"


def _span(targets: Sequence[SmTarget]) -> str:
    if len(targets) <= 2:
        return ", ".join(map(str, targets))
    return f"{targets[0]} to {targets[-1]}"
