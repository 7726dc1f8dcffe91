"""Hostile text: no reader raises, hangs or grows, whatever is pasted."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudadoctor.matrices.error_patterns import error_patterns
from cudadoctor.model.codec import from_json, to_json
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.readers import READERS
from cudadoctor.readers.errors import recognise
from cudadoctor.readers.paste import PasteError, read_paste
from cudadoctor.readers.text import normalise
from tests.readers.samples import samples

RELAXED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
TEXTS = tuple(sample.text for sample in samples())
FRAGMENTS = (
    *(mark for reader in READERS for mark in reader.marks if mark),
    "\n",
    " ",
    "|",
    "12.4",
    "-1",
    "999999999999999999999",
    "\x1b[",
    "&#",
    "<",
    "{",
)


@RELAXED
@given(st.text(max_size=2000) | st.binary(max_size=2000))
def test_anything_is_read_or_refused_as_no_text(data: str | bytes) -> None:
    try:
        read_paste(data)
    except PasteError as error:
        assert "binary" in str(error)


@RELAXED
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=200).map("".join))
def test_marks_of_formats_in_any_order(text: str) -> None:
    read_paste(text)


@settings(RELAXED, max_examples=300)
@given(st.integers(min_value=0, max_value=2**32))
def test_mutated_samples(seed: int) -> None:
    """Real outputs cut, doubled, shuffled and with characters replaced; the snapshot still travels as JSON."""
    chance = random.Random(seed)
    text = mutated(chance, chance.choice(TEXTS))
    try:
        snapshot = read_paste(text[:20000]).snapshot
    except PasteError as error:
        assert "binary" in str(error)
        return
    assert from_json(to_json(snapshot), Snapshot) == snapshot


def mutated(chance: random.Random, text: str) -> str:
    """The text after one to four random changes."""
    for _ in range(chance.randint(1, 4)):
        position, other = chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)
        start, end = sorted((position, other))
        change = chance.randrange(7)
        if change == 0:
            text = text[start:end]
        elif change == 1:
            text = text[:position] + text[start:end][:500] * chance.randint(2, 5) + text[position:]
        elif change == 2:
            text = (
                text[:position]
                + chance.choice(["\x00", "9" * 30, "é", "\ud83d\ude00", "|", ":", "\u2028", "A" * 300])
                + text[position:]
            )
        elif change == 3:
            text = text.replace(chance.choice([" ", "\n", ":", "|", ".", "0"]), chance.choice(["", "  ", "\t", "9"]))
        elif change == 4:
            lines = text.split("\n")
            chance.shuffle(lines)
            text = "\n".join(lines)
        elif change == 5:
            text = text + "\n" + chance.choice(TEXTS)
        else:
            text = "\n".join(text[i : i + 80] for i in range(0, len(text), 80))
        text = text.encode("utf-8", "replace").decode() or " "
    return text


def repeated(words: str, size: int) -> str:
    return (words * (size // max(len(words), 1) + 1))[:size]


@pytest.mark.parametrize(
    "words", [" ", "\n", "a", "9", "|", "(", ".", "=", "-", "/", "\\", "$ ", "> ", "a.", "1.", "lib", "GPU 0: ", "\x1b[", "&#1;"]
)
def test_one_word_without_end_is_read(words: str) -> None:
    read_paste(repeated(words, 2**20))


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: str(reader.kind))
def test_repeated_marks_of_a_reader_end(reader: object) -> None:
    """200 kB of each mark, on one line and on lines of their own."""
    for known in READERS:
        if known is reader:
            for mark in known.marks:
                for text in (repeated(mark or "x", 200_000), repeated(f"{mark}\n", 200_000)):
                    known.read(normalise(text))


def test_repeated_anchors_of_every_sentence_end() -> None:
    """The beginning of every sentence of the error table, many times, so that each is tried and fails."""
    for row in error_patterns().rows.values():
        for matcher in row.says:
            recognise(repeated(" ".join(sorted(matcher.words)) + " ", 3_000), "test")
