"""Shows the rows of a matrix as lines of text with their sources, for `cudadoctor matrix` and for tests over all rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import fields

from cudadoctor.matrices.catalog import Matrices
from cudadoctor.matrices.source import Provenance


class MatrixName(Enum):
    """The matrices by the names that the command line uses."""

    GPUS = "gpus"
    CAPABILITIES = "capabilities"
    DRIVERS = "drivers"
    TOOLKITS = "toolkits"
    COMPILERS = "compilers"
    TORCH = "torch"
    CUDNN = "cudnn"
    ECOSYSTEM = "ecosystem"
    ERRORS = "errors"
    ENV = "env"
    SONAMES = "sonames"
    IMAGES = "images"
    SPEEDS = "speeds"


class Line(Struct, frozen=True):
    """One row in words."""

    table: str
    cells: tuple[tuple[str, str], ...]
    """Field and value; fields without a value are left out."""
    origin: Provenance

    @property
    def text(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.cells)


def matrix_of(matrices: Matrices, name: MatrixName) -> Any:
    """The matrix object behind a name; raises MatrixError where its file is bad."""
    return getattr(matrices, name.value)


def title_of(matrices: Matrices, name: MatrixName) -> str:
    return str(matrix_of(matrices, name).title)


def as_of(matrices: Matrices, name: MatrixName) -> date:
    """The day that the rows of a matrix describe, where they name none themselves."""
    day = matrix_of(matrices, name).as_of
    return day if isinstance(day, date) else date.min


def lines(matrices: Matrices, name: MatrixName, query: str = "") -> tuple[Line, ...]:
    """The rows in which all words of `query` occur (case does not matter), in the file's order; all rows without a query."""
    words = query.lower().split()
    return tuple(line for line in _all_lines(matrix_of(matrices, name)) if all(word in _searched(line) for word in words))


def _searched(line: Line) -> str:
    return f"{line.table} {line.text}".lower()


def _all_lines(matrix: Struct) -> Iterator[Line]:
    for field in fields(matrix):
        rows = getattr(matrix, field.name)
        if isinstance(rows, tuple):
            yield from (Line(field.name.replace("_", " "), _cells(row), row.origin) for row in rows)


def _cells(row: Struct) -> tuple[tuple[str, str], ...]:
    cells: list[tuple[str, str]] = []
    for field in fields(row):
        value = getattr(row, field.name)
        if isinstance(value, Provenance):
            continue
        if isinstance(value, Struct) and type(value).__str__ is object.__str__:
            cells += _cells(value)
        elif value not in (None, "", (), frozenset()):
            cells.append((field.name.replace("_", " "), _words(value)))
    return tuple(cells)


def _words(value: object) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (tuple, frozenset)):
        words = [_words(item) for item in value]
        return " ".join(sorted(words) if isinstance(value, frozenset) else words)
    return str(value)
