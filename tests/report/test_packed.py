"""A packed report survives what tickets, mail and browsers do to a text, and damage is noticed."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import textwrap
import zlib
from collections.abc import Callable

import pytest

from cudadoctor.model.report import Report
from cudadoctor.report import RENDERERS, RenderOptions
from cudadoctor.report.packed import MAX_UNPACKED_BYTES, extract_report, pack
from tests.model.filled import filled
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import SAMPLES, rtx_5090_old_wheel, sick_node


def smart(text: str) -> str:
    """As a word processor would improve it."""
    text = re.sub(r'"([^"\n]*)"', "\u201c\\1\u201d", text).replace("'", "\u2019")
    return text.replace("---", "\u2014").replace("--", "\u2013").replace("...", "\u2026")


def rewrapped(text: str) -> str:
    """Every paragraph refilled to 80 columns."""
    return "\n\n".join(textwrap.fill(part, 80) for part in text.split("\n\n"))


MANGLERS: dict[str, Callable[[str], str]] = {
    "as it is": lambda text: text,
    "indent lost": lambda text: "\n".join(line.strip() for line in text.splitlines()),
    "indented": lambda text: textwrap.indent(text, "    "),
    "windows line ends": lambda text: text.replace("\n", "\r\n"),
    "wrapped at 80": rewrapped,
    "wrapped at 40": lambda text: "\n".join(textwrap.fill(line, 40) for line in text.splitlines()),
    "all in one line": lambda text: " ".join(text.split()),
    "smart quotes": smart,
    "quoted in a reply": lambda text: textwrap.indent(text, "> ", lambda _: True),
    "quoted twice and wrapped": lambda text: textwrap.indent(rewrapped(text), "> > ", lambda _: True),
    "quoted as html": lambda text: html.escape(textwrap.indent(text, "> ", lambda _: True)),
    "no-break spaces": lambda text: text.replace(" ", "\u00a0"),
    "zero-width characters": lambda text: text.replace("\n", "\u200b\n"),
    "fences lost": lambda text: text.replace("```", ""),
    "tags lost": lambda text: re.sub(r"</?(details|summary)>", "", text),
    "in a longer text": lambda text: f"Hello,\nmy cudadoctor report begins here:\n{text}\nRegards\n",
}


@pytest.mark.parametrize("mangler", MANGLERS)
@pytest.mark.parametrize("name", SAMPLES)
def test_the_report_reads_back_exactly(name: str, mangler: str) -> None:
    report = SAMPLES[name]()
    text = RENDERERS["markdown"](report, RenderOptions())
    assert extract_report(MANGLERS[mangler](text)) == report


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "surrogate"])
def test_hostile_values_read_back_exactly(name: str) -> None:
    report = hostile_report(HOSTILE[name])
    assert extract_report(RENDERERS["markdown"](report, RenderOptions())) == report


def test_every_field_reads_back() -> None:
    assert extract_report(pack(filled(Report))) == filled(Report)


def test_a_damaged_block_is_refused_and_the_next_is_tried() -> None:
    good, bad = pack(sick_node()), pack(rtx_5090_old_wheel())
    middle = len(bad) // 2
    damaged = bad[:middle] + ("A" if bad[middle] != "A" else "B") + bad[middle + 1 :]
    shortened = bad[:middle] + bad[middle + 5 :]
    for text in (damaged, shortened):
        assert extract_report(text) is None
        assert extract_report(f"{text}\n{good}") == sick_node()


def test_a_block_without_its_end_does_not_hide_the_next() -> None:
    cut = pack(rtx_5090_old_wheel())[:500]
    assert extract_report(f"{cut}\n{pack(sick_node())}") == sick_node()


@pytest.mark.parametrize(
    "text",
    ["", "cudadoctor", "cudadoctor report ends", "cudadoctor report begins 4 0123456789abcdef AAAA cudadoctor report ends"],
)
def test_no_report_is_none(text: str) -> None:
    assert extract_report(text) is None


def block_of(data: bytes) -> str:
    letters = base64.b64encode(zlib.compress(data, 9)).decode().rstrip("=")
    checksum = hashlib.sha256(letters.encode()).hexdigest()[:16]
    return f"cudadoctor report begins {len(letters)} {checksum}\n{letters}\ncudadoctor report ends"


@pytest.mark.parametrize(
    "data", [b"{}", b"not json", b'{"schema": "cudadoctor.report/2"}', b"[" * 100_000], ids=["empty", "text", "later", "deep"]
)
def test_a_block_that_holds_no_report_is_none(data: bytes) -> None:
    assert extract_report(block_of(data)) is None


def test_a_bomb_is_refused() -> None:
    assert extract_report(block_of(b" " * (MAX_UNPACKED_BYTES + 1))) is None


def test_many_beginnings_are_read_in_linear_time() -> None:
    begins = "cudadoctor report begins 9 0123456789abcdef\n"
    assert extract_report(begins * 20_000 + "cudadoctor " * 20_000 + "cudadoctor" + " " * 200_000) is None
    assert extract_report((begins + "cudadoctor report ends\n") * 5_000 + pack(sick_node())) == sick_node()
