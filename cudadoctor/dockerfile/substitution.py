"""Replaces `$NAME` and `${NAME:-default}` as the Dockerfile reference says, and takes ENV, ARG and LABEL apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

MAX_DEPTH = 8
"""Defaults within defaults that are followed."""
MAX_LENGTH = 65_536
"""Characters of a value, so that values that contain each other twice cannot grow without end."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PAIR = re.compile(r"[A-Za-z_][\w.-]*=")

Lookup = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class Expanded:
    """The text with variables replaced; `unset` are the names that have no value (they become empty, as in a build)."""

    text: str
    unset: tuple[str, ...] = ()


def expand(text: str, lookup: Lookup, depth: int = 0) -> Expanded:
    """The text with its variables replaced; within single quotes nothing is, and quotes are kept."""
    out: list[str] = []
    unset: list[str] = []
    at, quote = 0, ""
    while at < len(text):
        sign = text[at]
        if sign == "\\" and at + 1 < len(text) and quote != "'":
            out.append(text[at + 1] if text[at + 1] == "$" else text[at : at + 2])
            at += 2
        elif sign == "$" and quote != "'":
            value, missing, at = _variable(text, at + 1, lookup, depth)
            out.append(value)
            unset += missing
        else:
            if sign in "'\"" and quote in ("", sign):
                quote = "" if quote else sign
            out.append(sign)
            at += 1
    return Expanded("".join(out)[:MAX_LENGTH], tuple(unset))


def _variable(text: str, at: int, lookup: Lookup, depth: int) -> tuple[str, tuple[str, ...], int]:
    """The value of the variable whose name begins at `at`, the names without a value, and where the text goes on."""
    if text[at : at + 1] != "{":
        match = NAME.match(text, at)
        if match is None:
            return "$", (), at
        value = lookup(match[0])
        return value or "", () if value is not None else (match[0],), match.end()
    end = _closing(text, at)
    match = NAME.match(text, at + 1)
    if end is None or match is None:
        return "$", (), at
    value, missing = _with_operator(match[0], text[match.end() : end], lookup, depth)
    return value, missing, end + 1


def _closing(text: str, at: int) -> int | None:
    open_braces = 0
    for place in range(at, min(len(text), at + 4096)):
        open_braces += {"{": 1, "}": -1}.get(text[place], 0)
        if open_braces == 0:
            return place
    return None


def _with_operator(name: str, operator: str, lookup: Lookup, depth: int) -> tuple[str, tuple[str, ...]]:
    value = lookup(name)
    word = operator.removeprefix(":")
    counts = bool(value) if operator.startswith(":") else value is not None
    kind, rest = word[:1], word[1:]
    if kind in ("-", "+", "?") and depth < MAX_DEPTH:
        if (kind == "-" and not counts) or (kind == "+" and counts):
            inner = expand(rest, lookup, depth + 1)
            return inner.text, inner.unset
        return ("", ()) if kind == "+" else (value or "", () if counts else (name,))
    return value or "", () if value is not None and not operator else (name,)


def unquoted(text: str) -> str:
    """The text without its quotes and the backslashes before other signs, as a shell takes a word."""
    out: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        sign = text[at]
        if sign == "\\" and quote != "'" and at + 1 < len(text):
            keeps = quote == '"' and text[at + 1] not in '"\\$'
            out.append(text[at : at + 2] if keeps else text[at + 1])
            at += 2
            continue
        if sign in "'\"" and quote in ("", sign):
            quote = "" if quote else sign
        else:
            out.append(sign)
        at += 1
    return "".join(out)


def words(text: str) -> Iterator[str]:
    """The words of a line, their quotes kept; a blank within quotes or behind a backslash does not end a word."""
    word: list[str] = []
    quote = ""
    escaped = False
    for sign in text:
        if escaped or (sign == "\\" and quote != "'"):
            escaped = not escaped
            word.append(sign)
        elif sign.isspace() and not quote:
            if word:
                yield "".join(word)
            word = []
        else:
            if sign in "'\"" and quote in ("", sign):
                quote = "" if quote else sign
            word.append(sign)
    if word:
        yield "".join(word)


def pairs(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of `A=1 B="two words"`, or of the old form `A the rest of the line`; values with their quotes."""
    found = list(words(text))
    if found and not PAIR.match(found[0]):
        name, _, value = text.strip().partition(" ")
        yield name, value.strip()
        return
    for word in found:
        name, equals, value = word.partition("=")
        if equals:
            yield name, value
