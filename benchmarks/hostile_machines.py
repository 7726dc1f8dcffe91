"""Runs `cudadoctor check` on machines with one hostile thing at a time, all of the matrix, and prints what did not hold.

    python benchmarks/hostile_machines.py [--only REGEX] [--machine A|"no GPU"]... [--jobs 2] [--package FOLDER]

For each thing: its runs, those at fault, and the longest run. `--package` takes the doctor from another checkout, e.g. an older
one, to compare. A run takes one to six seconds; what hangs uses up the deadline of six.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.hostile import doctor  # noqa: E402 - after the path
from tests.hostile.cells import Cell  # noqa: E402
from tests.hostile.machine import MACHINE_KINDS, Prey  # noqa: E402
from tests.hostile.matrix import TIMEOUT_S, all_cells, faults_of, plain_run, run_cell  # noqa: E402


@dataclass(frozen=True)
class Outcome:
    """How one cell went; no seconds where its conditions cannot be made on this machine."""

    machine: str
    cell: Cell
    faults: Sequence[str]
    seconds: float | None


def outcome(cell: Cell, machine: str, folder: Path, plain: tuple[doctor.Run, Prey]) -> Outcome:
    """One run, its machine removed afterwards."""
    try:
        ran = run_cell(cell, machine, folder)
    except doctor.ImpossibleHereError as reason:
        return Outcome(machine, cell, (str(reason),), None)
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", str(folder)], capture_output=True, check=False)
    result = Outcome(machine, cell, faults_of(cell, ran, plain), ran[0].seconds)
    shutil.rmtree(folder, ignore_errors=True)
    return result


def outcomes(machine: str, cells: Sequence[Cell], jobs: int, scratch: Path) -> Iterator[Outcome]:
    """All cells on one machine; a fault is looked at once more alone, as a busy machine misses deadlines."""
    plain = plain_run(machine, scratch / "plain")
    with ThreadPoolExecutor(jobs) as workers:
        folders = (scratch / str(number) for number in range(len(cells)))
        first = list(workers.map(lambda pair: outcome(pair[0], machine, pair[1], plain), zip(cells, folders, strict=False)))
    for number, found in enumerate(first):
        again = found.faults and found.seconds is not None
        yield outcome(found.cell, machine, scratch / f"again-{number}", plain) if again else found


def table(results: Sequence[Outcome]) -> Iterator[str]:
    """One row a thing."""
    rows: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for result in results:
        rows[result.machine, result.cell.thing].append(result)
    yield f"{'machine':8} {'thing':24} {'runs':>5} {'faults':>7} {'longest':>8}"
    for (machine, thing), found in rows.items():
        ran = [result for result in found if result.seconds is not None]
        faulty = sum(bool(result.faults) for result in ran)
        longest = max((result.seconds or 0 for result in ran), default=0)
        yield f"{machine:8} {thing:24} {len(ran):5} {faulty:7} {longest:6.1f} s"
    ran = [result for result in results if result.seconds is not None]
    yield f"{len(ran)} runs, {sum(bool(result.faults) for result in ran)} at fault, {len(results) - len(ran)} impossible here"


def use_package(folder: Path) -> None:
    """Let the runs take cudadoctor from `folder`."""
    script = Path(tempfile.mkdtemp()) / "run_cudadoctor.py"
    lines = ("import sys", f"sys.path.insert(0, {str(folder)!r})", "from cudadoctor.__main__ import main", "main()", "")
    script.write_text("\n".join(lines))
    plain = doctor.Place.__dataclass_fields__["program"].default
    original = doctor.run_doctor

    def with_other(place: doctor.Place, timeout: float) -> doctor.Run:
        program = (sys.executable, str(script), "check") if tuple(place.program) == tuple(plain) else place.program
        return original(replace(place, program=program), timeout)

    sys.modules["tests.hostile.matrix"].__dict__["run_doctor"] = with_other


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--machine", action="append", choices=list(MACHINE_KINDS))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--package", type=Path)
    options = parser.parse_args()
    if options.package is not None:
        use_package(options.package.resolve())
    cells = [cell for cell in all_cells() if re.search(options.only, cell.name)]
    results: list[Outcome] = []
    for machine in options.machine or list(MACHINE_KINDS):
        scratch = Path(tempfile.mkdtemp())
        for result in outcomes(machine, cells, options.jobs, scratch):
            results.append(result)
            for fault in result.faults:
                print(f"{machine}, {result.cell.name}: {fault[:300]}", flush=True)
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"deadline {TIMEOUT_S:.0f} s")
    print("\n".join(table(results)))


if __name__ == "__main__":
    main()
