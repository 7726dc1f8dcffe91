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
    """Each command as its raw words and the line of the first."""
    words: list[str] = []
    line = 0
    for at, word in _tokens(pieces):
        if word in ("", ";"):
            if words:
                yield line, words
            words = []
            continue
        line = line if words else at
        words.append(word)
    if words:
        yield line, words


def _tokens(pieces: Sequence[Piece]) -> Iterator[tuple[int, str]]:
    """Words with their quotes and lines; an empty word ends a command."""
    word: list[str] = []
    begun = 0
    quote, nesting = "", 0
    for piece in pieces:
        text = piece.text + ("\n" if piece.ends_command else " ")
        at = 0
        while at < len(text):
            sign = text[at]
            at += 1
            if sign == "\\" and quote != "'" and at < len(text):
                word.append(sign + text[at])
                at += 1
            elif quote:
                word.append(sign)
                quote = "" if sign == quote else quote
            elif sign in "'\"`":
                begun = begun if word else piece.line
                word.append(sign)
                quote = sign
            elif sign == "$" and text[at : at + 1] == "(":
                begun = begun if word else piece.line
                word.append("$(")
                nesting, at = nesting + 1, at + 1
            elif nesting:
                word.append(sign)
                nesting += {"(": 1, ")": -1}.get(sign, 0)
            elif sign == "#" and not word and not piece.ends_command:
                word.append(sign)
            elif sign == "#" and not word:
                at = len(text)
                yield piece.line, ""
            elif sign in SEPARATORS or sign.isspace():
                if word:
                    yield begun, "".join(word)
                word = []
                if sign in SEPARATORS:
                    yield piece.line, ""
            else:
                begun = begun if word else piece.line
                word.append(sign)
    if word:
        yield begun, "".join(word)


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
        expanded = expand(word, lookup).text
        plain = unquoted(expanded)
        if "$" in word and not {'"', "'"} & set(word) and " " in plain.strip():
            yield from plain.split()  # an unquoted variable with blanks is several words
        elif plain:
            yield plain
