"""Values made harmless to look at: they come from files, environments and other people's texts, and may hold anything."""

from __future__ import annotations

import re

from cudadoctor.report.options import Charset

CELL_LIMIT = 160
"""Longest value of a table cell, in characters."""
VALUE_LIMIT = 400
"""Longest piece of evidence."""
PROSE_LIMIT = 2000
"""Longest explanation."""
COMMAND_LIMIT = 2000
"""Longest command; a longer one is not shown at all, since a part of a command is another command."""

_ORDINARY = re.compile(r"[ -~]*")
_TO_ASCII = str.maketrans(
    {
        "\N{EN DASH}": "-",
        "\N{EM DASH}": "-",
        "\N{HORIZONTAL ELLIPSIS}": "...",
        "\N{MIDDLE DOT}": "-",
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{MULTIPLICATION SIGN}": "x",
        "\N{NO-BREAK SPACE}": " ",
    }
)


def escaped(text: str, charset: Charset = Charset.UNICODE) -> str:
    """The text with control characters, direction overrides and other invisible ones spelled out, e.g. `\\x1b`."""
    if _ORDINARY.fullmatch(text):
        return text
    if charset is Charset.ASCII:
        text = text.translate(_TO_ASCII)
    return "".join(character if _shows(character, charset) else _spelled(character) for character in text)


def _shows(character: str, charset: Charset) -> bool:
    """Is the character visible, or a plain space?"""
    return character.isprintable() and (charset is Charset.UNICODE or character.isascii())


def _spelled(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def clipped(text: str, limit: int) -> str:
    """At most about `limit` characters of the text; what is left out is counted."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text):,} characters in all)"


def value(text: str, charset: Charset = Charset.UNICODE, limit: int = VALUE_LIMIT) -> str:
    """A value on one line; a newline in it is shown as `\\n`."""
    return escaped(clipped(text.strip(), limit), charset)


def prose(text: str, charset: Charset = Charset.UNICODE, limit: int = PROSE_LIMIT) -> str:
    """Sentences on one line to be wrapped by the renderer; any run of white space counts as one space."""
    return escaped(" ".join(clipped(text.strip(), limit).split()), charset)


def command(text: str, charset: Charset = Charset.UNICODE) -> str:
    """A command to be typed: whole, or, where it is absurdly long, only its length."""
    if len(text) > COMMAND_LIMIT:
        return f"# a command of {len(text):,} characters: see --format json"
    return escaped(text.strip(), charset)
