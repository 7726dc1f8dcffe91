"""Answers about environment variables: who reads one, what it does, what people get wrong."""

from __future__ import annotations

from datetime import date
from functools import cached_property

from msgspec import Struct

from cudadoctor.matrices.source import Document, Provenance, Row, Schema, Verified


class Variable(Struct, frozen=True):
    """One variable."""

    name: str
    scope: str
    """Who reads it."""
    effect: str
    syntax: str | None
    mistakes: tuple[str, ...]
    seen_in: tuple[str, ...]
    """Where the name was found."""
    verified_effect: Verified | None
    source_effect: str | None
    origin: Provenance


class KnownNames(Struct, frozen=True):
    """Names found as strings in a library, without further knowledge."""

    library: str
    names: tuple[str, ...]
    origin: Provenance


class EnvironmentMatrix(Struct, frozen=True, dict=True):
    """matrices/env_vars.toml."""

    title: str
    as_of: date
    variables: tuple[Variable, ...]
    known_names: tuple[KnownNames, ...]

    @cached_property
    def _by_name(self) -> dict[str, Variable]:
        return {row.name: row for row in self.variables}

    @cached_property
    def _raw_names(self) -> frozenset[str]:
        return frozenset(name for row in self.known_names for name in row.names)

    def variable(self, name: str) -> Variable | None:
        """What is known about a variable; None where nothing is."""
        return self._by_name.get(name)

    def is_known(self, name: str) -> bool:
        """Whether any library is known to read a variable of this name."""
        return name in self._by_name or name in self._raw_names

    def meant(self, name: str) -> Variable | None:
        """The variable that a name which nothing reads was probably meant to be (`CUDA_VISIBLE_DEVICE`); None where unclear."""
        if self.is_known(name):
            return None
        from difflib import get_close_matches  # 2 ms, and few machines have a misspelt variable

        close = get_close_matches(name, self._by_name, n=1, cutoff=0.9)
        return self._by_name[close[0]] if close else None


def _variable(row: Row) -> Variable:
    return Variable(
        name=row.text("name"),
        scope=row.text("scope"),
        effect=row.text("effect"),
        syntax=row.text_or_none("syntax"),
        mistakes=row.texts("mistakes"),
        seen_in=row.texts("seen_in"),
        verified_effect=row.grade("effect"),
        source_effect=row.text_or_none("source_effect"),
        origin=row.origin(),
    )


def _known_names(row: Row) -> KnownNames:
    return KnownNames(row.text("library"), row.texts("names"), row.origin())


VARIABLES = Schema(_variable, lambda row: row.name)
KNOWN_NAMES = Schema(_known_names, lambda row: row.library)


def load(document: Document) -> EnvironmentMatrix:
    """The matrix in a parsed env_vars.toml; raises MatrixError."""
    variables, names = document.table("variable", VARIABLES), document.table("known_names", KNOWN_NAMES)
    matrix = EnvironmentMatrix(document.title, document.as_of, variables, names)
    document.finish()
    return matrix
