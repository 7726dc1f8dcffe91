"""Lists of node names as Slurm writes them: `node[01-16,20],login`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path

MAX_LIST_BYTES = 2**20
"""Largest file of lists read."""
MOST_NODES = 1_000_000
"""A list of more names is a mistake in a range, or an attack."""
_RANGES = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", re.ASCII)
_COMMA_OUTSIDE = re.compile(r",(?![^\[]*\])")
_DIGITS = re.compile(r"(\d{1,18})", re.ASCII)
_LAST_NUMBER = re.compile(r"(.*?)(\d{1,18})(\D*)", re.DOTALL | re.ASCII)


class HostlistError(ValueError):
    """A text is no list of nodes; the words say where."""


def nodes_of(argument: str) -> tuple[str, ...]:
    """The nodes that `--nodes` names: a list, or a file of lists, one a line (`#` begins a comment); raises HostlistError."""
    path = Path(argument)
    try:
        if path.is_file() and path.stat().st_size > MAX_LIST_BYTES:
            raise HostlistError(f"{argument} is larger than {MAX_LIST_BYTES // 2**20} MiB, too large for a list of nodes")
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else [argument]
    except (OSError, UnicodeDecodeError) as error:
        raise HostlistError(f"cannot read the list of nodes {argument}: {error}") from error
    names = dict.fromkeys(name for line in lines for name in expand(line.partition("#")[0]))
    if not names:
        raise HostlistError(f"{argument!r} names no node")
    return tuple(names)


def expand(text: str) -> tuple[str, ...]:
    """`node[01-03],b` as node01, node02, node03, b; raises HostlistError."""
    names: list[str] = []
    for part in _COMMA_OUTSIDE.split(text):
        pieces = _RANGES.split(part.strip())
        if any("[" in piece or "]" in piece for piece in pieces[::2]):
            raise HostlistError(f"{part.strip()!r} has a bracket without its partner")
        choices = [tuple(_numbers(piece)) if number % 2 else (piece,) for number, piece in enumerate(pieces)]
        for choice in product(*choices):
            names.append("".join(choice))
            if len(names) > MOST_NODES:
                raise HostlistError(f"{part.strip()!r} names more than {MOST_NODES:,} nodes")
    return tuple(name for name in names if name)


def _numbers(ranges: str) -> Iterator[str]:
    """`01-03,7` as 01, 02, 03, 7: as wide as the first number of each range."""
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text)
        if match is None:
            raise HostlistError(f"{text!r} is no range of numbers, such as 01-16")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first or last - first >= MOST_NODES:
            raise HostlistError(f"{text!r} is no range of at most {MOST_NODES:,} numbers")
        yield from (str(number).zfill(len(match[1])) for number in range(first, last + 1))


def compress(names: Iterable[str]) -> str:
    """The shortest common spelling of node names, `node[01-16,20],login`, in natural order."""
    plain: list[str] = []
    numbered: dict[tuple[str, str], list[str]] = {}
    for name in dict.fromkeys(names):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbered.setdefault((match[1], match[3]), []).append(match[2])
    return ",".join(sorted([*plain, *(_spelled(before, found, after) for (before, after), found in numbered.items())]))


def _spelled(before: str, numbers: list[str], after: str) -> str:
    runs: list[list[str]] = []
    for number in sorted(numbers, key=lambda text: (int(text), len(text))):
        if runs and runs[-1][0] and number == str(int(runs[-1][-1]) + 1).zfill(len(runs[-1][0])):
            runs[-1].append(number)
        else:
            runs.append([number])
    spelled = [run[0] if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    alone = len(spelled) == 1 and "-" not in spelled[0]
    return f"{before}{spelled[0]}{after}" if alone else f"{before}[{','.join(spelled)}]{after}"


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts node2 before node10."""
    return tuple(
        (1, int(part), "") if part.isascii() and part.isdecimal() else (0, 0, part) for part in _DIGITS.split(name) if part
    )
