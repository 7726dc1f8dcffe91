"""What a reader is, and the small conversions that all of them need."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudadoctor.readers.text import PlainText

Values = dict[str, Any]

_ABSENT = frozenset(
    {
        "", "n/a", "[n/a]", "na", "err!", "could not collect", "[unknown error]", "[not supported]", "not supported",
        "no cuda", "none",
        "unknown", "[insufficient permissions]", "[gpu is lost]", "not installed", "not installed (na)", "module not found",
        "not available",
        "requested functionality has been deprecated", "[gpu requires reset]", "unknown error", "null", "not found", "[unknown]",
    }
)  # fmt: skip
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){1,5}")
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,6})?")


@dataclass(frozen=True, slots=True)
class Reader:
    """One format: `marks` are words without one of which a text cannot be of it; `read` gives None where it is not."""

    kind: str
    marks: tuple[str, ...]
    read: Callable[[PlainText], Values | None]

    def looks_like(self, text: PlainText) -> bool:
        """Could the text hold this format? Cheap, and never wrongly False."""
        body = text.body
        for mark in self.marks:  # noqa: SIM110  # a generator would cost more than most of these searches
            if mark in body:
                return True
        return False


def present(text: str | None) -> str | None:
    """The text without blanks around it, or None where it is one of the words for no value."""
    if text is None:
        return None
    stripped = text.strip()
    return None if stripped.lower() in _ABSENT else stripped


def first_version(text: str | None) -> str | None:
    """The first dotted number in a text."""
    match = _VERSION.search(text) if text else None
    return match[0] if match else None


def number(text: str | None) -> int | float | None:
    """The number at the beginning of a cell such as `8192 MiB`, `9.84 W` or `41 %`."""
    match = _NUMBER.match(text.strip()) if text else None
    if match is None:
        return None
    return float(match[0]) if "." in match[0] else int(match[0])


def integer(text: str | None) -> int | None:
    """The whole number at the beginning of a cell."""
    value = number(text)
    return None if value is None else int(value)


def truth(text: str | None) -> bool | None:
    """True for True, Yes, [YES], [OKAY]; False for False, No, [NO]; None for anything else."""
    word = (text or "").strip().strip("[]()").lower()
    return {"true": True, "yes": True, "okay": True, "false": False, "no": False}.get(word)


def unmarked(text: PlainText) -> tuple[str, ...]:
    """The lines without comment and quote marks before them."""
    return text.unmarked


def from_integer(text: str | None) -> str | None:
    """`12.9` for the API's integer 12090, and for 1209 (thousands left out)."""
    value = integer(text)
    if value is None or value < 100:
        return None
    return f"{value // 1000}.{value % 1000 // 10}" if value >= 5000 else f"{value // 100}.{value % 100}"


def blocks(starts: Sequence[re.Match[str]], body: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each match with the text after it, up to the next match."""
    for position, match in enumerate(starts):
        end = starts[position + 1].start() if position + 1 < len(starts) else len(body)
        yield match, body[match.end() : end]


MAX_LINES = 200
"""Lines with a word that are looked at; a hostile text may repeat it without end."""
MAX_LINE = 2000
"""Characters of a line that are looked at."""


def lines_with(text: PlainText, words: Iterable[str]) -> list[tuple[int, int]]:
    """Start and end, in `text.flat`, of the lines that hold one of the words (given in lower case), in order."""
    lowered = text.lowered
    found: dict[int, int] = {}
    for word in words:
        position = lowered.find(word)
        while position >= 0 and len(found) < MAX_LINES:
            start = lowered.rfind("\n", 0, position) + 1
            end = lowered.find("\n", position)
            end = len(lowered) if end < 0 else end
            if end - start > MAX_LINE:
                start, end = max(start, position - MAX_LINE // 2), min(end, position + MAX_LINE // 2)
            found[start] = max(end, found.get(start, 0))
            position = lowered.find(word, end)
    return sorted(found.items())
