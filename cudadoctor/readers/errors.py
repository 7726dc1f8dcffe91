"""Recognises error texts: what a probe, a child process or a pasted ticket said, named by the table of error patterns."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cudadoctor.matrices.error_patterns import ErrorPatterns, Matcher, error_patterns
from cudadoctor.model.snapshot import ErrorSeen
from cudadoctor.readers.secrets import masked
from cudadoctor.readers.text import PlainText, normalise, unwrapped

MAX_QUOTE = 400
"""Longest quotation, in characters."""
MAX_TRIES = 64
"""Places at which one sentence is tried in one text; a hostile text may repeat its words without end."""
MAX_OF_A_KIND = 8
"""Errors of one kind that are kept."""

_WORDS = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True, slots=True)
class _Hit:
    kind: str
    start: int
    end: int
    values: dict[str, str]


def recognise(text: str, source: str) -> tuple[ErrorSeen, ...]:
    """The errors that the table knows in `text`, in the order of their lines; `source` is who said it."""
    return recognise_plain(normalise(text), source)


def recognise_plain(text: PlainText, source: str) -> tuple[ErrorSeen, ...]:
    """`recognise` for a text that is normalised already."""
    patterns = error_patterns()
    seen = [_seen(text, hit, source) for hit in _hits(text, patterns)]
    glued = unwrapped(text)
    if glued is not None:
        kinds = {error.kind for error in seen}
        seen += [error for error in (_seen(glued, hit, source) for hit in _hits(glued, patterns)) if error.kind not in kinds]
        seen.sort(key=lambda error: error.line or 0)
    return tuple(_capped(seen))


def _hits(text: PlainText, patterns: ErrorPatterns) -> list[_Hit]:
    """The matches in a text, the most telling ones where several overlap."""
    lowered = text.lowered
    words = set(_WORDS.findall(lowered))
    in_one_line = lowered.replace("\n", " ")
    found: list[_Hit] = []
    for anchor in words & patterns.by_anchor.keys():
        for kind, matcher in patterns.by_anchor[anchor]:
            if matcher.words <= words and _has_needed(matcher, in_one_line):
                found += _matches(text, kind, matcher, patterns)
    return _without_superseded(text, found, patterns)


def _has_needed(matcher: Matcher, in_one_line: str) -> bool:
    """Is there one of each group of texts that the sentence needs? Far cheaper than its regular expression."""
    return all(any(map(in_one_line.__contains__, group)) for group in matcher.needs)


def _matches(text: PlainText, kind: str, matcher: Matcher, patterns: ErrorPatterns) -> Iterable[_Hit]:
    """The matches of one sentence, searched only around its anchor word."""
    lowered = text.lowered
    position = done = 0
    for _ in range(MAX_TRIES):
        position = lowered.find(matcher.anchor, position if position > done else done)
        if position < 0:
            return
        match = matcher.regex.search(lowered, max(done, position - matcher.before), position + matcher.after + 1)
        position += len(matcher.anchor)
        if match is None or match.end() == match.start():
            continue
        done = match.end()
        values = {
            name: text.flat[slice(*match.span(name))].strip().rstrip(".,:;")
            for name in match.groupdict()
            if match.span(name)[0] >= 0
        }
        named = kind or patterns.kind_of_code.get(int(values["code"]), "")
        if named:
            yield _Hit(named, match.start(), match.end(), values)


def _without_superseded(text: PlainText, found: list[_Hit], patterns: ErrorPatterns) -> list[_Hit]:
    """Of matches of one kind on the same words the one with most values; kinds that yield to another's match are dropped."""
    kept: dict[str, list[_Hit]] = {}
    for hit in sorted(found, key=_preference):
        same = kept.setdefault(hit.kind, [])
        if not any(_overlap(other, hit) or (not hit.values and _share_line(text, other, hit)) for other in same):
            same.append(hit)
    strong = [
        hit
        for kind, hits in kept.items()
        for hit in hits
        if not any(_overlap(other, hit) for name in patterns.rows[kind].yields_to for other in kept.get(name, ()))
    ]
    return sorted(strong, key=lambda hit: (hit.start, hit.kind))


def _preference(hit: _Hit) -> tuple[int, int, int]:
    """Most values first; then the tightest around them, but of those without values the longest."""
    length = hit.end - hit.start
    return -len(hit.values), length if hit.values else -length, hit.start


def _share_line(text: PlainText, one: _Hit, other: _Hit) -> bool:
    first, second = sorted((one, other), key=lambda hit: hit.start)
    return "\n" not in text.flat[first.end : second.start]


def _overlap(one: _Hit, other: _Hit) -> bool:
    return one.start < other.end and other.start < one.end


def _seen(text: PlainText, hit: _Hit, source: str) -> ErrorSeen:
    values = {name: masked(" ".join(value.split())) for name, value in hit.values.items()}
    return ErrorSeen(kind=hit.kind, text=_quote(text, hit), source=source, line=text.line_at(hit.start), values=values)


def _quote(text: PlainText, hit: _Hit) -> str:
    """The lines of the match, shortened around it where they are long."""
    whole = text.span(hit.start, hit.end)
    if len(whole) > MAX_QUOTE:
        left = max(0, hit.start - 60)
        whole = text.flat[left : min(hit.end + 120, left + MAX_QUOTE)]
    return masked(whole.strip())


def _capped(seen: list[ErrorSeen]) -> Iterable[ErrorSeen]:
    """Each kind once for each set of values, or for each quotation where it has none; at most `MAX_OF_A_KIND` times."""
    counts: dict[str, int] = {}
    told: set[tuple[str, object]] = set()
    for error in seen:
        key = (error.kind, tuple(sorted(error.values.items())) or error.text)
        if key in told or counts.get(error.kind, 0) >= MAX_OF_A_KIND:
            continue
        told.add(key)
        counts[error.kind] = counts.get(error.kind, 0) + 1
        yield error
