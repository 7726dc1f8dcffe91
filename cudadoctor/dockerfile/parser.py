"""Splits a Dockerfile into instructions, each with the number of its line; nothing is interpreted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

MAX_BYTES = 1024 * 1024
"""Longest Dockerfile that is read."""
MAX_LINES = 20_000
KEYWORDS = frozenset(
    [
        "FROM",
        "RUN",
        "CMD",
        "LABEL",
        "MAINTAINER",
        "EXPOSE",
        "ENV",
        "ADD",
        "COPY",
        "ENTRYPOINT",
        "VOLUME",
        "USER",
        "WORKDIR",
        "ARG",
        "ONBUILD",
        "STOPSIGNAL",
        "HEALTHCHECK",
        "SHELL",
    ]
)
"""The instructions of the Dockerfile reference."""
WITH_HEREDOCS = frozenset({"RUN", "COPY", "ADD"})
DIRECTIVE = re.compile(r"^#\s*([a-z][a-z0-9]*)\s*=\s*(\S.*?)\s*$", re.IGNORECASE)
HEREDOC = re.compile(r"<<(-?)\s*([\"']?)([A-Za-z0-9_.-]{1,80})\2")
FLAG = re.compile(r"^--([a-z-]+)(?:=(\S*))?$")


class DockerfileError(ValueError):
    """The text is no Dockerfile; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an instruction that stands in one line of the file; `ends_command` where a shell would end a command there."""

    line: int
    text: str
    ends_command: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its flags taken off; `pieces` keep the line numbers of a long one."""

    line: int
    keyword: str
    flags: tuple[tuple[str, str], ...]
    pieces: tuple[Piece, ...]
    heredoc: tuple[Piece, ...] = ()
    """The lines of its here-documents."""

    @property
    def text(self) -> str:
        """All of it in one line, here-documents left out."""
        return " ".join(piece.text.strip() for piece in self.pieces).strip()

    def flag(self, name: str) -> str | None:
        """The value of a flag such as `--from=build`; None where it is not given."""
        return next((value for key, value in self.flags if key == name), None)


def parse(data: bytes) -> tuple[Instruction, ...]:
    """The instructions of a Dockerfile; raises DockerfileError."""
    lines = _lines(data)
    instructions = tuple(_instructions(lines, _escape(lines)))
    if not any(instruction.keyword == "FROM" for instruction in instructions):
        raise DockerfileError("it has no FROM")
    return instructions


def _lines(data: bytes) -> list[str]:
    if len(data) > MAX_BYTES:
        raise DockerfileError(f"it is larger than {MAX_BYTES // 1024} kB, too large for a Dockerfile")
    if b"\0" in data:
        raise DockerfileError("it is not a text file")
    lines = data.decode("utf-8-sig", "replace").replace("\r\n", "\n").split("\n")
    if len(lines) > MAX_LINES:
        raise DockerfileError(f"it has more than {MAX_LINES} lines")
    return lines


def _escape(lines: list[str]) -> str:
    """The character that continues a line: a backslash, or what the directive `escape` at the top names."""
    for line in lines:
        match = DIRECTIVE.match(line.strip())
        if match is None:
            return "\\"
        if match[1].lower() == "escape" and match[2] in ("\\", "`"):
            return match[2]
    return "\\"


def _instructions(lines: list[str], escape: str) -> Iterator[Instruction]:
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        pieces, after = _pieces(lines, at, escape)
        keyword, flags, rest = _split(pieces)
        body, at = _heredocs(lines, after, rest) if keyword in WITH_HEREDOCS else ((), after)
        yield Instruction(pieces[0].line, keyword, flags, rest, body)


def _pieces(lines: list[str], start: int, escape: str) -> tuple[tuple[Piece, ...], int]:
    """One instruction from its first line on, and where the next begins; comments and empty lines in it are left out."""
    pieces: list[Piece] = []
    at = start
    while at < len(lines):
        text = lines[at].rstrip()
        at += 1
        if pieces and (not text.strip() or text.lstrip().startswith("#")):
            continue
        continued = text.endswith(escape)
        pieces.append(Piece(at, text[:-1] if continued else text))
        if not continued:
            break
    return tuple(pieces), at


def _split(pieces: tuple[Piece, ...]) -> tuple[str, tuple[tuple[str, str], ...], tuple[Piece, ...]]:
    """The keyword, the flags behind it, and the pieces that are left."""
    first = pieces[0].text.split(None, 1)
    keyword = first[0].upper() if first else ""
    if keyword not in KEYWORDS:
        raise DockerfileError(f"line {pieces[0].line}: {(first or [''])[0][:40]!r} is no instruction")
    rest = [Piece(pieces[0].line, first[1] if len(first) > 1 else ""), *pieces[1:]]
    flags: list[tuple[str, str]] = []
    while rest:
        words = rest[0].text.split(None, 1)
        match = FLAG.match(words[0]) if words else None
        if match is not None:
            flags.append((match[1], match[2] or ""))
            rest[0] = Piece(rest[0].line, words[1] if len(words) > 1 else "")
        elif not words and len(rest) > 1:
            rest = rest[1:]
        else:
            break
    return keyword, tuple(flags), tuple(rest)


def _heredocs(lines: list[str], start: int, pieces: tuple[Piece, ...]) -> tuple[tuple[Piece, ...], int]:
    """The lines of the here-documents that an instruction announces, and where the next instruction begins."""
    body: list[Piece] = []
    at = start
    for dash, _, word in HEREDOC.findall(" ".join(piece.text for piece in pieces)):
        begun = at
        while at < len(lines) and (lines[at].lstrip("\t") if dash else lines[at]).rstrip() != word:
            continued = lines[at].rstrip().endswith("\\")
            body.append(Piece(at + 1, lines[at].rstrip()[:-1] if continued else lines[at], ends_command=not continued))
            at += 1
        if at >= len(lines):
            raise DockerfileError(f"line {begun}: the here-document {word} has no end")
        at += 1
    return tuple(body), at
