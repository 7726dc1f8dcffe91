"""Time and peak memory of `fleet summary` over generated reports, and whether exactly the sick nodes are named.

    python benchmarks/fleet_reports.py [COUNT...] [--rounds N] [--keep FOLDER]

For each count (default 1,000 and 10,000) a fleet is generated (tests/fleet/generated.py: one node in a hundred sick, each kind
of node judged by the engine), once as a folder with an indented file a node, as `check --format json > FILE` writes it, and
once as one file of JSON lines. Every run is a new process on one core. Printed are medians of the wall clock and of the CPU
time, which other work on the machine hardly changes, and the greatest peak memory.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudadoctor.fleet.summary import FleetSummary  # noqa: E402 - after the path
from cudadoctor.model.codec import from_json, to_compact_json, to_json  # noqa: E402
from tests.fleet.generated import Fleet, generate  # noqa: E402
from tests.fleet.named_sick import named_sick  # noqa: E402


@dataclass(frozen=True)
class Run:
    """How one summary went."""

    seconds: float
    cpu_seconds: float
    summary: FleetSummary


def write_fleet(count: int, folder: Path) -> Fleet:
    """The fleet, its reports in `folder`/nodes and in `folder`/all.jsonl."""
    fleet, nodes = Fleet(), folder / "nodes"
    nodes.mkdir(parents=True)
    with (folder / "all.jsonl").open("wb") as lines:
        for name, report, ailment in generate(count, fleet):
            if report is None:
                continue
            indented, compact = to_json(report), to_compact_json(report)
            if ailment == "cut short":
                indented, compact = indented[: len(indented) // 2], compact[: len(compact) // 2]
            (nodes / f"{name}.json").write_bytes(indented)
            lines.write(compact + b"\n")
    (folder / "expected").write_text("\n".join(fleet.nodes), encoding="utf-8")
    return fleet


def summarise(source: Path, folder: Path) -> Run:
    """Run the command in a process of its own, pinned to one core where the system can."""
    output = folder / "summary.json"
    options = ["--format", "json", "--output", str(output), "--nodes", str(folder / "expected")]
    argv = [sys.executable, "-m", "cudadoctor", "fleet", "summary", str(source), *options]
    started = time.perf_counter()
    child = os.posix_spawn(argv[0], argv, {**os.environ, "PYTHONPATH": str(ROOT)})
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(child, {min(os.sched_getaffinity(0))})
    _, _, usage = os.wait4(child, 0)
    seconds = time.perf_counter() - started
    cpu_seconds = usage.ru_utime + usage.ru_stime
    return Run(seconds, cpu_seconds, from_json(output.read_bytes(), FleetSummary))


def bytes_of(source: Path) -> int:
    """The size of a file, or of all files of a folder."""
    return sum(path.stat().st_size for path in source.iterdir()) if source.is_dir() else source.stat().st_size


def measure(count: int, folder: Path, rounds: int) -> bool:
    """Print the figures of one count; True where exactly the sick nodes were named."""
    fleet = write_fleet(count, folder)
    exact = True
    for source in (folder / "nodes", folder / "all.jsonl"):
        runs = [summarise(source, folder) for _ in range(rounds)]
        named = named_sick(runs[-1].summary)
        if source.is_file():  # a line cut short names no node, so that node is one that never reported
            named["silent"] -= fleet.sick["cut short"]
            named["cut short"] = fleet.sick["cut short"] if len(named["cut short"]) == 1 else set()
        right = named == fleet.sick
        exact = exact and right
        seconds, peak = median(run.seconds for run in runs), max(run.summary.peak_memory_bytes or 0 for run in runs)
        size = bytes_of(source) / 1e6
        cpu = median(run.cpu_seconds for run in runs)
        figures = f"{size:6.0f} MB   {seconds:6.2f} s ({cpu:.2f} s of CPU)   {peak / 1e6:5.0f} MB at most"
        print(f"  {source.name:<10} {figures}   sick named exactly: {right}")
        if not right:
            print(json.dumps({key: sorted(nodes ^ fleet.sick.get(key, set()))[:5] for key, nodes in named.items()}))
    return exact


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where a sick node was missed or a healthy one named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", type=int, default=[1000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="write the reports here, and leave them")
    options = parser.parse_args(arguments)
    exact = True
    for count in options.counts:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (options.keep or Path(temporary)) / str(count)
            print(f"{count:,} nodes, 1 % sick, {options.rounds} runs each")
            exact = measure(count, folder, options.rounds) and exact
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
