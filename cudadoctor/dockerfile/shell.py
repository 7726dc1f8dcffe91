"""Takes the shell text of RUN apart into simple commands with the line of each; nothing is run or looked up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudadoctor.dockerfile.parser import Instruction, Piece
from cudadoctor.dockerfile.substitution import Lookup, expand, unquoted

MAX_COMMANDS = 2_000
"""Commands of one RUN that are looked at."""
ASSIGNMENT = re.compile(r"^([A-Za-z_]\w*)=(.*)$", re.DOTALL)
WRAPPERS = frozenset({"sudo", "time", "exec", "nohup", "env", "command", "then", "do", "else", "!", "{"})
"""Words in front of a command that do not change what it is."""
SEPARATORS = "&|;()\n"
CUT = re.compile(r"""\$\(\s*echo\s+"?([\w.]{1,40})"?\s*\|\s*cut\s+-d\s*["']?([.\-_])["']?\s+-f\s*(\d(?:[-,]\d?)*)\s*\)""")


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command: the variables set in front of it, its words, and the line where it begins."""

    line: int
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    redirected_to: str = ""

    @property
    def program(self) -> str:
        """The name of the program, without its folder; empty where only variables are set."""
        return self.words[0].rpartition("/")[2] if self.words else ""

    @property
    def text(self) -> str:
        """The command as one would type it."""
        return " ".join((*(f"{name}={value}" for name, value in self.variables), *self.words))


def commands(instruction: Instruction, lookup: Lookup) -> Iterator[Command]:
    """The commands of a RUN: of its shell form, its JSON form and its here-documents."""
    text = instruction.text
    if text.startswith("["):
        words = _json_words(text)
        if words is not None:
            yield from _of_json(words, instruction.line, lookup)
            return
    yield from _simple(instruction.pieces, lookup)
    yield from _simple(instruction.heredoc, lookup)


def _json_words(text: str) -> tuple[str, ...] | None:
    try:
        words = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tuple(words) if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def _of_json(words: tuple[str, ...], line: int, lookup: Lookup) -> Iterator[Command]:
    """A program with its arguments; of `["bash", "-c", "..."]` the commands in the text."""
    if len(words) > 2 and words[0].rpartition("/")[2] in ("sh", "bash") and "c" in words[1]:
        yield from _simple((Piece(line, words[2], ends_command=True),), lookup)
    elif words:
        yield Command(line, words)


def _simple(pieces: Sequence[Piece], lookup: Lookup) -> Iterator[Command]:
    for count, (line, raw) in enumerate(_raw_commands(pieces)):
        if count >= MAX_COMMANDS:
            return
        command = _command(line, raw, lookup)
        if command is not None:
            yield command


def _raw_commands(pieces: Sequence[Piece]) -> Iterator[tuple[int, list[str]]]:
    """Each command as its raw words and the line of the first; those behind `||`, which run where another failed, left out."""
    words: list[str] = []
    line, operators = 0, ""
    for at, word, is_operator in _Tokens().of(pieces):
        if is_operator:
            if words and not operators.endswith("||"):
                yield line, words
            operators = (word if words else operators + word)[-2:]
            words = []
            continue
        line = line if words else at
        words.append(word)
    if words and not operators.endswith("||"):
        yield line, words


class _Tokens:
    """Takes shell text apart into words with their quotes, and operators, each with its line."""

    def __init__(self) -> None:
        self.word: list[str] = []
        self.begun = 0
        self.quote = ""
        self.nesting = 0

    def of(self, pieces: Sequence[Piece]) -> Iterator[tuple[int, str, bool]]:
        """Line, text, and whether it is an operator."""
        for piece in pieces:
            yield from self._piece(piece)
        yield from self._ended()

    def _piece(self, piece: Piece) -> Iterator[tuple[int, str, bool]]:
        text = piece.text + ("\n" if piece.ends_command else " ")
        at = 0
        while at < len(text):
            sign = text[at]
            if sign == "#" and not self.word and not self.quote and piece.ends_command:
                break  # a comment of a here-document; in a continued line the parser has taken them out
            length = self._within_word(text, at)
            if length:
                self.begun = self.begun if self.word else piece.line
                self.word.append(text[at : at + length])
                at += length
                continue
            yield from self._ended()
            if sign in SEPARATORS:
                yield piece.line, sign, True
            at += 1
        if piece.ends_command and not self.quote and not self.nesting:
            yield from self._ended()
            yield piece.line, "\n", True

    def _within_word(self, text: str, at: int) -> int:
        """How many characters at this place belong to a word; 0 for a blank or an operator outside of quotes."""
        sign = text[at]
        if sign == "\\" and self.quote != "'":
            return 2
        if self.quote:
            self.quote = "" if sign == self.quote else self.quote
        elif sign in "'\"`":
            self.quote = sign
        elif text.startswith("$(", at):
            self.nesting += 1
            return 2
        elif self.nesting:
            self.nesting += {"(": 1, ")": -1}.get(sign, 0)
        elif sign in SEPARATORS or sign.isspace():
            return 0
        return 1

    def _ended(self) -> Iterator[tuple[int, str, bool]]:
        if self.word:
            yield self.begun, "".join(self.word), False
        self.word = []


def _command(line: int, raw: list[str], lookup: Lookup) -> Command | None:
    variables: list[tuple[str, str]] = []
    words: list[str] = []
    target = ""
    of_command = dict[str, str]()
    for word in _expanded(raw, lambda name: of_command.get(name) or lookup(name)):
        if target == ">":
            target = word
        elif word.lstrip("12&").startswith(">"):
            target = word.lstrip("12&>") or ">"
        elif not words and word in WRAPPERS:
            continue
        elif not words and (match := ASSIGNMENT.match(word)):
            variables.append((match[1], match[2]))
            of_command[match[1]] = match[2]
        else:
            words.append(word)
    return Command(line, tuple(words), tuple(variables), target) if words or variables else None


def _expanded(raw: list[str], lookup: Lookup) -> Iterator[str]:
    for word in raw:
        expanded = CUT.sub(_cut, expand(word, lookup).text)
        plain = unquoted(expanded)
        if "$" in word and not {'"', "'"} & set(word) and " " in plain.strip():
            yield from plain.split()  # an unquoted variable with blanks is several words
        elif plain:
            yield plain


def _cut(match: re.Match[str]) -> str:
    """What `$(echo 12.4.1 | cut -d. -f1,2)` prints: how Dockerfiles shorten a version."""
    parts = match[1].split(match[2])
    wanted: list[str] = []
    for numbers in match[3].split(","):
        first, dash, last = numbers.partition("-")
        start = int(first or 1) - 1
        wanted += parts[start : (int(last) if last else len(parts)) if dash else start + 1]
    return match[2].join(wanted)
