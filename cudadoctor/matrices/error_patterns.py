"""The table of error texts (matrices/error_patterns.toml), checked and compiled to linear-time matchers.

A pattern is a sentence as the software prints it, not a regular expression, so no row can backtrack without bound: every
placeholder and every gap has a maximum length.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from cudadoctor.resources import matrices_folder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_GAP = 200
"""Characters that `...` may skip."""

_WORD = re.compile(r"[a-z0-9_]+")
_WORD_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_INNER_WORD = re.compile(r"(?<=[^a-z0-9_*])[a-z0-9_]+(?=[^a-z0-9_*])")
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<name>\w+)(?::(?P<shape>\w+)|=(?P<forms>[^}]*))\}|\.\.\.")
_GLOB_STAR = r"[\w.+@/\\:~-]{0,120}"

# Each shape: its regular expression (on lower-case text) and the most characters that it can take.
_SHAPES: dict[str, tuple[str, int]] = {
    "int": (r"\d{1,12}", 12),
    "version": (r"\d{1,6}(?:\.\d{1,6}){0,5}", 41),
    "word": (r"[^\s\"'`,;()\[\]]{1,160}", 160),
    "arch": (r"(?:sm|compute)_\d{1,3}[a-z]?", 12),
    "archs": (r"(?:(?:sm|compute)_\d{1,3}[af]?[ \n]?){1,40}", 520),
    "cc": (r"\d{1,2}\.\d", 4),
    "list": (r"[0-9a-z.,_ \-]{1,80}", 80),
    "container_id": (r"[0-9a-f]{12}", 12),
    "size": (r"\d{1,9}(?:\.\d{1,4})? ?[kmgt]?i?b(?:ytes)?", 24),
    "requirement": (r"[a-z0-9][^\s()`]{0,120}", 121),
    "versions": (r"[^()]{0,4000}", 4000),
    "maybe": (r"[^\"\n]{0,60}", 60),
    "gpu": (r"[a-z0-9][\w ()\-]{1,80}?", 82),
    "text": (r"[^\n]{1,160}?", 160),
    "line": (r"[^\n]{1,200}", 200),
    "devices": (r"[0-9a-z,_/\-]{1,160}", 160),
    "command": (r"[^\n]{1,200}(?:(?<=\\)\n[^\n]{1,200}){0,12}", 2612),
}


class PatternError(ValueError):
    """A row of the table is malformed; the text names it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One possible cause of an error text: the finding, and the facts that decide."""

    finding: str
    confirmed_by: str
    ruled_out_by: str


@dataclass(frozen=True)
class Matcher:
    """One sentence to look for. A text can hold it only if it has all of `words`; `anchor` is the longest of them."""

    text: str
    expression: str
    words: frozenset[str]
    anchor: str
    before: int
    """Most characters between the start of a match and its anchor."""
    after: int
    """Most characters from the anchor to the end of a match."""
    needs: tuple[tuple[str, ...], ...]
    """A text, its lines joined by blanks, can hold the sentence only if it has one of each of these."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """Compiled at first use: most of the thousand sentences never meet a text that has their words."""
        return re.compile(self.expression)


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What one kind of error text means."""

    kind: str
    layer: str
    means: str
    says: tuple[Matcher, ...]
    causes: tuple[Cause, ...]
    source: str
    yields_to: tuple[str, ...] = ()
    codes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErrorPatterns:
    """The whole table, with the index by words that makes recognition fast."""

    rows: dict[str, ErrorRow]
    kind_of_code: dict[int, str]
    contexts: tuple[Matcher, ...]
    by_anchor: dict[str, tuple[tuple[str, Matcher], ...]]
    """Anchor word -> (kind, matcher); the kind is empty for the contexts of numbers."""


@dataclass(frozen=True, slots=True)
class _Part:
    regex: str
    longest: int
    literal: str = ""
    form: str = ""
    """The form of a placeholder that has only one."""
    needs: tuple[str, ...] = ()
    """Texts of which one is in every text that matches; none where a match may be anything."""


def _glob(form: str) -> tuple[str, int]:
    pieces = [re.escape(piece) for piece in form.lower().split("*")]
    return _GLOB_STAR.join(pieces), len(form) + 120 * (len(pieces) - 1)


def _placeholder(match: re.Match[str]) -> _Part:
    brace = match[0]
    if brace in ("{{", "}}"):
        return _Part(re.escape(brace[0]), 1, brace[0], needs=(brace[0],))
    if brace == "...":
        return _Part(rf"[\s\S]{{0,{MAX_GAP}}}?", MAX_GAP)
    form = (match["forms"] or "").lower()
    body, longest = _forms(match) if form else _shape(match["shape"])
    named = f"(?:{body})" if match["name"] == "_" else f"(?P<{match['name']}>{body})"
    fixed = tuple(max(each.split("*"), key=len) for each in form.split("|"))
    return _Part(named, longest, form="" if "|" in form else form, needs=fixed if all(fixed) else ())


def _shape(name: str) -> tuple[str, int]:
    if name not in _SHAPES:
        raise PatternError(f"unknown shape {name!r}")
    return _SHAPES[name]


def _forms(match: re.Match[str]) -> tuple[str, int]:
    """The expression of `a*|b*`; unless it continues a word of the sentence, it begins where a word begins."""
    globs = [_glob(form) for form in match["forms"].split("|")]
    bodies = [glob[0] for glob in globs]
    body = "|".join(bodies)
    if all(each.startswith(_GLOB_STAR) for each in bodies):
        body = rf"{_GLOB_STAR}(?:{'|'.join(each.removeprefix(_GLOB_STAR) for each in bodies)})"
    glued = match.start() > 0 and match.string[match.start() - 1] in _WORD_CHARACTERS
    if not glued and not match["forms"].startswith("*"):
        body = rf"(?<![\w])(?:{body})"
    return body, max(glob[1] for glob in globs)


def _literal(text: str) -> _Part:
    lowered = text.lower()
    return _Part(re.sub(r"(?:\\ )+", "[ \\\\n]", re.escape(lowered)), len(lowered), lowered, needs=(lowered,))


def _parts(text: str) -> list[_Part]:
    parts: list[_Part] = []
    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() > position:
            parts.append(_literal(text[position : match.start()]))
        parts.append(_placeholder(match))
        position = match.end()
    if position < len(text):
        parts.append(_literal(text[position:]))
    return parts


def _whole_words(parts: list[_Part]) -> list[tuple[str, int]]:
    """The complete words of the literal parts, each with the longest distance from the start of a match."""
    words: list[tuple[str, int]] = []
    offset = 0
    for index, part in enumerate(parts):
        for match in _WORD.finditer(part.literal):
            open_left = match.start() == 0 and index > 0
            open_right = match.end() == len(part.literal) and index < len(parts) - 1
            if not open_left and not open_right:
                words.append((match[0], offset + match.start()))
        words += [(match[0], offset + part.longest) for match in _INNER_WORD.finditer(part.form)]
        offset += part.longest
    return words


def compile_sentence(text: str) -> Matcher:
    """The matcher of one sentence of the table; raises PatternError where it has no whole word to search for."""
    parts = _parts(" ".join(text.split()))
    words = _whole_words(parts)
    if not words:
        raise PatternError(f"no whole word outside the placeholders: {text!r}")
    anchor, before = max(words, key=lambda word: (len(word[0]), word[1]))
    regex = "".join(part.regex for part in parts)
    first, last = parts[0].literal, parts[-1].literal
    if first and _WORD.match(first):
        regex = r"(?<![\w])" + regex
    if last and _WORD.fullmatch(last[-1]):
        regex += r"(?![\w])"
    longest = sum(part.longest for part in parts)
    needs = tuple(part.needs for part in parts if part.needs)
    return Matcher(text, regex, frozenset(word for word, _ in words), anchor, before, longest - before, needs)


def _row(raw: dict[str, Any], codes: dict[str, list[dict[str, Any]]]) -> ErrorRow:
    kind = str(raw["kind"])
    extra = codes.get(kind, [])
    names = tuple(str(name) for entry in extra for name in entry["names"])
    if not raw["says"] or not raw["means"] or not raw["source"] or not raw["causes"]:
        raise PatternError(f"row {kind} lacks says, means, causes or source")
    return ErrorRow(
        kind=kind,
        layer=str(raw["layer"]),
        means=str(raw["means"]),
        says=tuple(compile_sentence(text) for text in (*raw["says"], *names)),
        causes=tuple(Cause(*cause) for cause in raw["causes"]),
        source=str(raw["source"]),
        yields_to=tuple(raw.get("yields_to", ())),
        codes=tuple(int(code) for entry in extra for code in entry["codes"]),
        names=names,
    )


def _index(rows: dict[str, ErrorRow], contexts: tuple[Matcher, ...]) -> dict[str, tuple[tuple[str, Matcher], ...]]:
    index: dict[str, list[tuple[str, Matcher]]] = {}
    for kind, matchers in [*((row.kind, row.says) for row in rows.values()), ("", contexts)]:
        for matcher in matchers:
            index.setdefault(matcher.anchor, []).append((kind, matcher))
    return {anchor: tuple(found) for anchor, found in index.items()}


def parse_error_patterns(text: str) -> ErrorPatterns:
    """The table in a TOML text; raises PatternError where rows are malformed or contradict each other."""
    raw = tomllib.loads(text)
    codes: dict[str, list[dict[str, Any]]] = {}
    for entry in raw["code"]:
        codes.setdefault(str(entry["kind"]), []).append(entry)
    rows: dict[str, ErrorRow] = {}
    for entry in raw["error"]:
        row = _row(entry, codes)
        if row.kind in rows:
            raise PatternError(f"two rows of kind {row.kind}")
        rows[row.kind] = row
    unknown = (codes.keys() | {kind for row in rows.values() for kind in row.yields_to}) - rows.keys()
    if unknown:
        raise PatternError(f"kinds without a row: {', '.join(sorted(unknown))}")
    contexts = tuple(compile_sentence(says) for entry in raw["code_context"] for says in entry["says"])
    kind_of_code = {code: row.kind for row in rows.values() for code in row.codes}
    return ErrorPatterns(rows, kind_of_code, contexts, _index(rows, contexts))


def load_error_patterns(folder: Path) -> ErrorPatterns:
    """The table in `folder`/error_patterns.toml; raises OSError or PatternError."""
    return parse_error_patterns((folder / "error_patterns.toml").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def error_patterns() -> ErrorPatterns:
    """The table that ships with the package (read once; `error_patterns.cache_clear()` forgets it)."""
    return load_error_patterns(matrices_folder())
