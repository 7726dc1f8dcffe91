"""Reads one matrix file into typed rows, each with its source and date; a bad row is named and refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Mapping
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any, Generic, TypeVar

from msgspec import Struct

from cudadoctor.model.versions import VersionError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class MatrixError(ValueError):
    """A matrix file is not what its schema says; the text names the file and the row."""


class Verified(Enum):
    """How a row was checked, surest first."""

    MECHANICAL = "mechanical"
    """Read from, or run out of, a real binary, header or package metadata."""
    REPORTED = "reported"
    """Output of somebody's machine quoted in public."""
    DOC = "doc"
    """Read in a vendor page, README, build script or public log."""
    INFERRED = "inferred"
    """Interpolated, or known but not read again."""


class Provenance(Struct, frozen=True):
    """Where a row comes from, when that was read, and how it was checked."""

    source: str
    as_of: date
    verified: Verified
    note: str | None = None


class Note(Struct, frozen=True):
    """A statement in words that belongs to a matrix."""

    topic: str
    text: str
    origin: Provenance


class Row:
    """One table of a matrix file; every getter raises MatrixError naming file, table and row."""

    __slots__ = ("_as_of", "_data", "_left", "_source", "where")

    def __init__(self, where: str, data: Mapping[str, Any], source: str, as_of: date) -> None:
        self.where = where
        self._data = data
        self._left = set(data)
        self._source = source
        self._as_of = as_of

    def _get(self, name: str, kind: type[T] | tuple[type, ...]) -> T | None:
        self._left.discard(name)
        value = self._data.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise MatrixError(f"{self.where}: {name} has the wrong type: {value!r}")
        return value  # type: ignore[return-value] # isinstance with a tuple of types does not narrow to T

    def _required(self, name: str, value: T | None) -> T:
        if value is None:
            raise MatrixError(f"{self.where}: {name} is missing")
        return value

    def text(self, name: str) -> str:
        return self._required(name, self.text_or_none(name))

    def text_or_none(self, name: str) -> str | None:
        value = self._get(name, str)
        if value == "":
            raise MatrixError(f"{self.where}: {name} is empty; leave it out instead")
        return value

    def integer(self, name: str) -> int:
        return self._required(name, self.integer_or_none(name))

    def integer_or_none(self, name: str) -> int | None:
        return self._get(name, int)

    def number(self, name: str) -> float:
        return self._required(name, self.number_or_none(name))

    def number_or_none(self, name: str) -> float | None:
        value: float | None = self._get(name, (int, float))
        return None if value is None else float(value)

    def flag(self, name: str) -> bool:
        return self._required(name, self._get(name, bool))

    def flag_or_none(self, name: str) -> bool | None:
        return self._get(name, bool)

    def parsed(self, name: str, parse: Callable[[str], T]) -> T:
        return self._required(name, self.parsed_or_none(name, parse))

    def parsed_or_none(self, name: str, parse: Callable[[str], T]) -> T | None:
        text = self.text_or_none(name)
        return None if text is None else self._parse(name, text, parse)

    def one_of(self, name: str, kind: type[E]) -> E:
        return self.parsed(name, kind)

    def texts(self, name: str) -> tuple[str, ...]:
        """The strings of a list; empty where the row has none."""
        values: list[Any] = self._get(name, list) or []
        return tuple(self._parse(name, value, str) for value in values)

    def integers(self, name: str) -> tuple[int, ...]:
        """The whole numbers of a list; empty where the row has none."""
        return self.integers_or_none(name) or ()

    def integers_or_none(self, name: str) -> tuple[int, ...] | None:
        values: list[Any] | None = self._get(name, list)
        if values is None:
            return None
        if not all(type(value) is int for value in values):
            raise MatrixError(f"{self.where}: {name} holds something else than whole numbers: {values!r}")
        return tuple(values)

    def many(self, name: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        """The parsed values of a list; empty where the row has none."""
        values: list[Any] = self._get(name, list) or []
        return tuple(self._parse(name, value, parse) for value in values)

    def _parse(self, name: str, text: object, parse: Callable[[str], T]) -> T:
        if not isinstance(text, str):
            raise MatrixError(f"{self.where}: {name} holds {text!r}, which is no text")
        try:
            return parse(text)
        except (VersionError, ValueError) as error:
            raise MatrixError(f"{self.where}: {name}: {error}") from error

    def grade(self, name: str) -> Verified | None:
        """The `verified_<name>` field, which grades a part of the row."""
        return self.parsed_or_none(f"verified_{name}", Verified)

    def origin(self) -> Provenance:
        """Source, date and grade of the row; source and date fall back to those of its table and file."""
        source = self.text_or_none("source") or self._source
        as_of = self.parsed_or_none("as_of", date.fromisoformat) or self._as_of
        return Provenance(source, as_of, self.one_of("verified", Verified), self.text_or_none("note"))

    def finish(self) -> None:
        """Raise MatrixError where the row has a field that nothing has read."""
        if self._left:
            raise MatrixError(f"{self.where}: unknown fields: {', '.join(sorted(self._left))}")


class Order(Enum):
    """How the keys of a table must follow each other."""

    ASCENDING = 1
    DESCENDING = -1
    FREE = 0


class Schema(Struct, Generic[T], frozen=True):
    """How a table is read: the builder of a row, its unique key, and the order of the keys."""

    build: Callable[[Row], T]
    key: Callable[[T], Any]
    order: Order = Order.FREE
    order_by: Callable[[T], Any] | None = None
    """What is ordered, where that is not the key itself."""


class Document:
    """One matrix file, read and parsed; its tables are taken out one by one."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        try:
            with path.open("rb") as file:
                self._tables = tomllib.load(file)
        except OSError as error:
            raise MatrixError(f"{path.name}: cannot be read: {error}") from error
        except tomllib.TOMLDecodeError as error:
            raise MatrixError(f"{path.name}: not TOML: {error}") from error
        meta = Row(f"{self.name}: [meta]", self._tables.pop("meta", {}), "", date.min)
        self.title = meta.text("title")
        self.as_of = meta.parsed("as_of", date.fromisoformat)
        self._sources: Mapping[str, object] = meta._get("source", dict) or {}
        meta.finish()

    def table(self, name: str, schema: Schema[T]) -> tuple[T, ...]:
        """The rows of a table, in the file's order; raises MatrixError for a bad, repeated or misplaced one."""
        source = self._sources.get(name)
        if not isinstance(source, str) or not source:
            raise MatrixError(f"{self.name}: [meta.source] has no text for {name}")
        data = self._tables.pop(name, None)
        if not isinstance(data, list) or not data:
            raise MatrixError(f"{self.name}: table {name} is missing or empty")
        rows = tuple(self._row(f"{self.name}: {name} {number}", row, source, schema) for number, row in enumerate(data, 1))
        self._check_keys(name, rows, schema)
        return rows

    def _row(self, where: str, data: object, source: str, schema: Schema[T]) -> T:
        if not isinstance(data, dict):
            raise MatrixError(f"{where}: not a table")
        row = Row(where, data, source, self.as_of)
        built = schema.build(row)
        row.finish()
        return built

    def _check_keys(self, name: str, rows: tuple[T, ...], schema: Schema[T]) -> None:
        seen: set[Hashable] = set()
        previous: Any = None
        for number, row in enumerate(rows, 1):
            key = schema.key(row)
            if key in seen:
                raise MatrixError(f"{self.name}: {name} {number}: {key!s} is there twice")
            seen.add(key)
            rank = schema.order_by(row) if schema.order_by else key
            if number > 1 and not _follows(previous, rank, schema.order):
                raise MatrixError(f"{self.name}: {name} {number}: {rank!s} is out of order after {previous!s}")
            previous = rank

    def notes(self) -> tuple[Note, ...]:
        return self.table(
            "note", Schema(lambda row: Note(row.text("topic"), row.text("text"), row.origin()), lambda note: note.text)
        )

    def finish(self) -> None:
        """Raise MatrixError where the file has a table that nothing has read."""
        if self._tables:
            raise MatrixError(f"{self.name}: unknown tables: {', '.join(sorted(self._tables))}")


def _follows(previous: Any, following: Any, order: Order) -> bool:
    if order is Order.ASCENDING:
        return bool(previous <= following)
    return order is Order.FREE or bool(previous >= following)


def newest_date(rows: Iterable[Provenance]) -> date:
    """The latest date among the rows' sources."""
    return max(row.as_of for row in rows)
