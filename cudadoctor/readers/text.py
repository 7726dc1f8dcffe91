"""Pasted text made plain once, before any reader looks at it: what the web did to it is undone, line numbers are kept."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

_ANSI = re.compile(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,5});")
_BLANKS = re.compile(r"[ \t]+")
_PLAIN = str.maketrans(
    {
        "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'",
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
        "\u00a0": " ", "\u2007": " ", "\u202f": " ", "\u2002": " ", "\u2003": " ", "\u2009": " ",
        "\u200b": None, "\u200c": None, "\u200d": None, "\u2060": None, "\ufeff": None, "\u00ad": None,
        "\u200e": None, "\u200f": None,
        "\u2010": "-", "\u2011": "-", "\u2013": "-", "\u2212": "-", "\u2026": "...",
    }
)  # fmt: skip
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_QUOTED = re.compile(r"^\s{0,8}>(?!>>)[ >]?\s?")
_FENCE = re.compile(r"^\s{0,12}(?:```|~~~)")
_COLLAPSIBLE = re.compile(r"<(?:/?(?:details|summary|pre|code|br|p|b|kbd|tt|samp)\b[^<>]{0,40})>", re.IGNORECASE)
_MARKS = re.compile(r"^[\s`*]{0,40}(?:#{1,3}\$?|//|>>?|REM)?[ \t]{0,40}")
"""Comment and quote marks that people put before pasted lines."""
MIN_WRAP = 60
"""Narrowest width at which equal line lengths are taken for a terminal's hard wrap."""


@dataclass(frozen=True)
class PlainText:
    """A text in lines without markup; `numbers[i]` is the line of the original (from 1) that `lines[i]` comes from."""

    lines: tuple[str, ...]
    numbers: tuple[int, ...]

    @cached_property
    def flat(self) -> str:
        """All lines with blanks collapsed and ends trimmed: what the error table is matched against."""
        return "\n".join([line.strip() for line in _BLANKS.sub(" ", self.body).split("\n")])

    @cached_property
    def lowered(self) -> str:
        """`flat` in ASCII lower case: of the same length, so that positions agree."""
        flat = self.flat
        return flat.lower() if flat.isascii() else flat.translate(_LOWER)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        starts = [0]
        position = self.flat.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.flat.find("\n", position + 1)
        return tuple(starts)

    def index_at(self, position: int) -> int:
        """The index in `lines` of a position in `flat`."""
        return bisect_right(self._starts, position) - 1

    def line_at(self, position: int) -> int:
        """The original line number (from 1) of a position in `flat`."""
        return self.numbers[self.index_at(position)]

    def span(self, start: int, end: int) -> str:
        """`flat` from the beginning of the first to the end of the last line of a match."""
        flat = self.flat
        left = flat.rfind("\n", 0, start) + 1
        right = flat.find("\n", max(start, end - 1))
        return flat[left : right if right >= 0 else len(flat)]

    @cached_property
    def body(self) -> str:
        """The lines with their indentation, joined: what most readers search."""
        return "\n".join(self.lines)

    @cached_property
    def unmarked(self) -> tuple[str, ...]:
        """The lines without comment and quote marks before them."""
        return tuple([_MARKS.sub("", line, count=1) for line in self.lines])

    def cut(self, start: int, end: int) -> PlainText:
        """The lines from index `start` to `end` (not included)."""
        return PlainText(self.lines[start:end], self.numbers[start:end])


def normalise(text: str) -> PlainText:
    """The text without ANSI codes, entities, smart quotes, zero-width characters, quote marks and code fences."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if not text.isascii():
        text = text.translate(_PLAIN)
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\u2028", "\n")
    text = _CONTROL.sub("", text)
    numbered = _numbered(text)
    if "<" in text:
        numbered = [(number, _COLLAPSIBLE.sub("", line)) for number, line in numbered]
    return PlainText(tuple(line for _, line in numbered), tuple(number for number, _ in numbered))


def _numbered(text: str) -> list[tuple[int, str]]:
    numbered = [(number, line.rstrip()) for number, line in enumerate(text.split("\n"), 1)]
    if "```" in text or "~~~" in text:
        numbered = [(number, line) for number, line in numbered if not _FENCE.match(line)]
    if text.count(">") >= 2:
        quoted = sum(1 for _, line in numbered if _QUOTED.match(line))
        filled = sum(1 for _, line in numbered if line)
        if quoted >= 2 and quoted * 10 >= filled * 6:
            numbered = [(number, _QUOTED.sub("", line)) for number, line in numbered]
    return numbered or [(1, "")]


def unwrapped(text: PlainText) -> PlainText | None:
    """The text with a terminal's hard wraps undone (words cut at the same column), or None where there are none."""
    lengths = Counter(len(line) for line in text.lines if len(line) >= MIN_WRAP)
    if not lengths:
        return None
    width, count = max(lengths.items(), key=lambda item: (item[0], item[1]))
    if count < 2:
        return None
    lines: list[str] = []
    numbers: list[int] = []
    glued = False
    for number, line in zip(text.numbers, text.lines, strict=True):
        if glued:
            lines[-1] += line
        else:
            lines.append(line)
            numbers.append(number)
        glued = len(line) == width and "|" not in line[-1:] and "+" not in line[-1:]
    return PlainText(tuple(lines), tuple(numbers)) if len(lines) < len(text.lines) else None
