"""Tickets a second that `triage --jsonl` diagnoses on one core, and the share of each stage.

    python benchmarks/triage_speed.py [DUMP.jsonl...] [--rounds N]

Counts the process's CPU time, not the clock, so that other work on the machine hardly matters. Each round runs every stage
over all tickets before the next round begins; the median of the rounds is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudadoctor.commands.triage import Ticket, diagnose_text, result_line  # noqa: E402 - after the path
from cudadoctor.matrices import Matrices  # noqa: E402
from cudadoctor.model import codec  # noqa: E402
from cudadoctor.model.redact import redact  # noqa: E402
from cudadoctor.readers.paste import read_paste  # noqa: E402
from cudadoctor.rules.engine import Case, evaluate  # noqa: E402
from cudadoctor.rules.registry import RULES  # noqa: E402

DUMPS = (ROOT / "tests/tickets/open.jsonl", ROOT / "tests/tickets/unseen.jsonl")
WHOLE = "whole path"
Stage = tuple[Callable[[Any], object], list[Any]]


def tickets(dumps: Iterable[Path]) -> list[str]:
    """The pasted texts of all dumps."""
    rows = [json.loads(line) for dump in dumps for line in dump.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [row.get("pasted") or row["text"] for row in rows]


def stages(texts: list[str], matrices: Matrices) -> dict[str, Stage]:
    """What is measured: a function and its inputs, which the stages before it made."""
    lines = [codec.to_compact_json(Ticket(id=str(number), text=text)) for number, text in enumerate(texts)]
    snapshots = [read_paste(text).snapshot for text in texts]
    reports = [diagnose_text(text, matrices).report for text in texts]
    return {
        "reading": (read_paste, texts),
        "rules alone": (lambda snapshot: RULES.outcomes(Case(snapshot, matrices)), snapshots),
        "rules, fixes re-checked": (lambda snapshot: evaluate(Case(snapshot, matrices), RULES), snapshots),
        "redaction": (redact, reports),
        "JSON": (codec.to_compact_json, reports),
        WHOLE: (lambda line: result_line(line, matrices), lines),
    }


def microseconds(stage: Stage) -> float:
    """CPU time for one ticket, the mean over all."""
    function, inputs = stage
    started = time.process_time()
    for item in inputs:
        function(item)
    return (time.process_time() - started) / len(inputs) * 1e6


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dumps", nargs="*", type=Path, default=DUMPS)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    texts = tickets(options.dumps)
    measured = stages(texts, Matrices.load())
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(options.rounds):
        for name, stage in measured.items():
            times[name].append(microseconds(stage))
    whole = median(times[WHOLE])
    print(f"{len(texts)} tickets, {len(RULES)} rules, {options.rounds} rounds; CPU time per ticket")
    for name, taken in times.items():
        print(f"  {name:<24} {median(taken):7.0f} us   {median(taken) / whole:6.1%} of the whole")
    print(f"{1e6 / whole:.0f} tickets a second on one core")


if __name__ == "__main__":
    main()
