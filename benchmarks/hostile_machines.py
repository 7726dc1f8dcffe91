"""Runs `cudadoctor check` on machines with one hostile thing at a time, all of the matrix, and prints what did not hold.

    python benchmarks/hostile_machines.py [--only REGEX] [--machine A|"no GPU"|files]... [--jobs 2] [--package FOLDER]

Then the score as Markdown: for each thing, and for each hostility, the runs, those right and wrong, and their seconds.
`--package` takes the doctor from another checkout, e.g. an older one, to compare. A run takes one to six seconds; what hangs
uses up the deadline of six.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.hostile import doctor  # noqa: E402 - after the path
from tests.hostile.cells import Cell  # noqa: E402
from tests.hostile.machine import MACHINE_KINDS, Prey  # noqa: E402
from tests.hostile.matrix import TIMEOUT_S, all_cells, faults_of, plain_run, run_cell  # noqa: E402
from tests.hostile.system_files import SystemCell, as_run, rooted, snapshot_of, system_cells  # noqa: E402
from tests.hostile.system_files import machine as system_machine  # noqa: E402

FILES_ALONE = "files"
"""A machine that is only files below a folder, asked in this process."""


@dataclass(frozen=True)
class Outcome:
    """How one cell went; no seconds where its conditions cannot be made on this machine."""

    machine: str
    cell: Cell | SystemCell
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
    """All cells on one machine as they come; a fault is looked at once more alone, as a busy machine misses deadlines."""
    plain = plain_run(machine, scratch / "plain")
    suspects: list[Cell] = []
    with ThreadPoolExecutor(jobs) as workers:
        folders = (scratch / str(number) for number in range(len(cells)))
        found = workers.map(lambda cell, folder: outcome(cell, machine, folder, plain), cells, folders)
        for cell, result in zip(cells, found, strict=True):
            if result.faults and result.seconds is not None:
                suspects.append(cell)
            else:
                yield result
    for number, cell in enumerate(suspects):
        yield outcome(cell, machine, scratch / f"again-{number}", plain)


def system_outcomes(only: str, scratch: Path) -> Iterator[Outcome]:
    """The cells of files of the system, one after the other in this process."""
    plain = as_run(snapshot_of(rooted(system_machine(scratch / "plain"))))
    for number, cell in enumerate(system_cells()):
        if re.search(only, cell.name):
            started = time.monotonic()
            faults = cell.faults(scratch / str(number), plain)
            yield Outcome(FILES_ALONE, cell, faults, time.monotonic() - started)


def table(title: str, results: Sequence[Outcome], row: Callable[[Outcome], str]) -> Iterator[str]:
    """The score as Markdown, one line for each value of `row`, and a last one for all."""
    rows: dict[str, list[Outcome]] = defaultdict(list)
    for result in results:
        rows[row(result)].append(result)
    yield f"| {title} | runs | right | wrong | impossible here | median | longest |"
    yield "|---|--:|--:|--:|--:|--:|--:|"
    for name, found in (*rows.items(), ("**all**", list(results))):
        seconds = [result.seconds for result in found if result.seconds is not None]
        wrong = sum(bool(result.faults) for result in found if result.seconds is not None)
        times = f"{median(seconds):.1f} s | {max(seconds):.1f} s" if seconds else "| "
        yield f"| {name} | {len(seconds)} | {len(seconds) - wrong} | {wrong} | {len(found) - len(seconds)} | {times} |"


def use_package(folder: Path) -> None:
    """Let the runs take cudadoctor from `folder`."""
    script = Path(tempfile.mkdtemp()) / "run_cudadoctor.py"
    lines = ("import sys", f"sys.path.insert(0, {str(folder)!r})", "from cudadoctor.__main__ import main", "main()", "")
    script.write_text("\n".join(lines))
    original = doctor.run_doctor

    def with_other(place: doctor.Place, timeout: float) -> doctor.Run:
        program = (sys.executable, str(script), "check") if place.program == doctor.PLAIN_PROGRAM else place.program
        return original(replace(place, program=program), timeout)

    sys.modules["tests.hostile.matrix"].__dict__["run_doctor"] = with_other


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--machine", action="append", choices=[*MACHINE_KINDS, FILES_ALONE])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--package", type=Path)
    options = parser.parse_args()
    if options.package is not None:
        use_package(options.package.resolve())
    cells = [cell for cell in all_cells() if re.search(options.only, cell.name)]
    results: list[Outcome] = []
    for machine in options.machine or [*MACHINE_KINDS, FILES_ALONE]:
        scratch = Path(tempfile.mkdtemp())
        of_files = machine == FILES_ALONE
        for result in system_outcomes(options.only, scratch) if of_files else outcomes(machine, cells, options.jobs, scratch):
            results.append(result)
            for fault in result.faults:
                print(f"{machine}, {result.cell.name}: {fault[:300]}", flush=True)
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\ndeadline of a run: {TIMEOUT_S:.0f} s\n")
    for title, row in (("thing", lambda found: found.cell.thing), ("hostility", lambda found: found.cell.hostility)):
        print("\n".join(table(title, results, row)), end="\n\n")


if __name__ == "__main__":
    main()
