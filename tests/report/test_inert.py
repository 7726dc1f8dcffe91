"""Values are spelled out, cut with a mark, and never lose what makes a command the same command."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudadoctor.report import inert
from cudadoctor.report.options import Charset


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, as is", "plain text, as is"),
        ("\x1b[31m", r"\x1b[31m"),
        ("a\u202eb", r"a\u202eb"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x00", r"\x00"),
        ("\udcff", r"\udcff"),
        ("caf\u00e9 \u6f22", "caf\u00e9 \u6f22"),
        ("C:\\new\\x1b", "C:\\new\\x1b"),
    ],
)
def test_escaped(text: str, shown: str) -> None:
    assert inert.escaped(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("caf\u00e9", r"caf\xe9"),
        ("a \N{EN DASH} b\N{HORIZONTAL ELLIPSIS}", "a - b..."),
        ("\N{LEFT DOUBLE QUOTATION MARK}x", '"x'),
    ],
)
def test_escaped_for_ascii(text: str, shown: str) -> None:
    assert inert.escaped(text, Charset.ASCII) == shown


@given(st.text())
def test_nothing_invisible_and_no_second_line_is_left(text: str) -> None:
    for shown in (inert.value(text), inert.prose(text), inert.command(text)):
        assert len(shown.splitlines()) <= 1
        assert shown.isprintable()


@given(st.text())
def test_ascii_is_ascii(text: str) -> None:
    assert inert.value(text, Charset.ASCII).isascii()


def test_prose_joins_lines_and_values_do_not() -> None:
    assert inert.prose("first line\n   second\tline ") == "first line second line"
    assert inert.value("first\nsecond") == r"first\nsecond"


def test_clipped_counts_what_it_leaves_out() -> None:
    assert inert.clipped("x" * 10, 10) == "x" * 10
    assert inert.clipped("x" * 1_011, 10) == "xxxxxxxxxx\N{HORIZONTAL ELLIPSIS} (1,011 characters in all)"


def test_a_command_is_whole_or_not_there() -> None:
    long = "pip install " + "x" * (inert.COMMAND_LIMIT - 12)
    assert inert.command(long) == long
    assert inert.command(long + "x").startswith("# a command of 2,001 characters")
