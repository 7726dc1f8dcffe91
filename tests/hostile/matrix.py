"""Runs a cell of the matrix and says what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.hostile import surroundings as s
from tests.hostile.cells import THINGS, Cell, torch_cells
from tests.hostile.doctor import Run, run_doctor
from tests.hostile.judge import SLACK_S, faults
from tests.hostile.machine import MACHINE_KINDS, Prey
from tests.hostile.variables import variable_cells

TIMEOUT_S = 6.0


def all_cells() -> Iterator[Cell]:
    """The whole matrix."""
    for thing in THINGS:
        yield from thing.cells()
    for cells in (torch_cells, variable_cells, s.home_cells, s.cwd_cells, s.limit_cells, s.machine_cells, s.output_cells):
        yield from cells()


def plain_run(kind: str, folder: Path) -> tuple[Run, Prey]:
    """The machine as it is."""
    prey = MACHINE_KINDS[kind](folder)
    return run_doctor(prey.place(), TIMEOUT_S), prey


def run_cell(cell: Cell, kind: str, folder: Path) -> tuple[Run, Prey]:
    """The machine with one hostile thing; raises ImpossibleHereError."""
    prey = MACHINE_KINDS[kind](folder)
    place = prey.place(**cell.prepare(prey))
    return run_doctor(place, TIMEOUT_S), prey


def faults_of(cell: Cell, ran: tuple[Run, Prey], plain: tuple[Run, Prey], slack: float = SLACK_S) -> list[str]:
    """What is wrong with the run of a cell."""
    folders = (str(ran[1].folder), str(plain[1].folder))
    return list(faults(ran[0], plain[0], cell.expected, folders, slack))
