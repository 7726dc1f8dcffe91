"""The ticket: inert values, whatever they hold, and the summary on top."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from msgspec import structs

from cudadoctor.report import RENDERERS, RenderOptions
from cudadoctor.report.markdown import code, fenced, plain
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import ARCH_MISSING, SAMPLES, healthy_h100, rtx_5090_old_wheel

OURS = {
    "details",
    "summary",
    "p",
    "strong",
    "em",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "h3",
    "code",
    "pre",
    "ul",
    "li",
    "a",
}
MENTION = re.compile(r"(?<![\w`])@\w|(?<![\w&`])#\d|\bwww\.\w|https?://")


class Tags(HTMLParser):
    """Collects elements, links and the text outside code."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.links: list[str] = []
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        if not {"code", "a"} & set(self.open):
            self.text += data


def markdown(name: str) -> str:
    report = SAMPLES[name]() if name in SAMPLES else hostile_report(HOSTILE[name])
    return RENDERERS["markdown"](report, RenderOptions())


def as_html(text: str) -> Tags:
    """The text as GitHub would see it: HTML let through, tables and strike-through on."""
    tags = Tags()
    tags.feed(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(text))
    tags.close()
    return tags


@pytest.mark.parametrize("name", [*SAMPLES, *HOSTILE])
def test_no_value_makes_an_element_or_a_link(name: str) -> None:
    tags = as_html(markdown(name))
    assert tags.elements <= OURS
    assert tags.open == []
    assert set(tags.links) <= set(ARCH_MISSING.references)
    assert not MENTION.search(tags.text)


@pytest.mark.parametrize("name", [*SAMPLES, *HOSTILE])
def test_the_blocks_are_the_same_whatever_the_values_hold(name: str) -> None:
    tags = as_html(markdown(name))
    assert tags.text.count("Machine-readable report") == 1
    if name in HOSTILE:
        plain_tags = as_html(RENDERERS["markdown"](hostile_report("word"), RenderOptions()))
        assert tags.elements <= plain_tags.elements | {"p"}


def test_the_summary_is_the_first_line() -> None:
    assert markdown("rtx_5090_old_wheel").startswith("**2 problems, 1 to fix first: torch.")


def test_details_are_folded_and_findings_are_not() -> None:
    text = markdown("rtx_5090_old_wheel")
    unfolded = re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)
    assert "arch-missing-in-wheel" in unfolded
    assert "pip install --upgrade torch" in unfolded
    assert "python.torch.arch_list" not in unfolded
    assert "cudadoctor report begins" not in unfolded


def test_commands_are_exact() -> None:
    fix = structs.replace(ARCH_MISSING.fixes[0], commands=("echo '```' \"<b>\" | tee -a x_y_z @file",))
    report = structs.replace(rtx_5090_old_wheel(), findings=(structs.replace(ARCH_MISSING, fixes=(fix,)),))
    tokens = MarkdownIt("commonmark").parse(RENDERERS["markdown"](report, RenderOptions()))
    assert "echo '```' \"<b>\" | tee -a x_y_z @file\n" in [token.content for token in tokens if token.type == "fence"]


def test_a_healthy_report_has_no_headings() -> None:
    text = RENDERERS["markdown"](healthy_h100(), RenderOptions())
    assert "\n#" not in text
    assert "Evidence" not in text


@pytest.mark.parametrize("text", [*HOSTILE.values(), "a|b", "`", "``", " ` ", "x`", "\\", "\\|", "|"])
def test_a_code_span_in_a_table_shows_its_value(text: str) -> None:
    if not text.strip() or len(text) > 1_000:
        return
    html = MarkdownIt("commonmark").enable("table").render(f"| a | b |\n| --- | --- |\n| {code(text)} | end |\n")
    tags = Tags()
    tags.feed(html)
    assert html.count("<td>") == 2
    assert "<code>" in html


@pytest.mark.parametrize(
    "text", ["# x", "- x", "+ x", "1. x", "1) x", "===", "--- ", "> x", "    x", "| a |", "~~~", "[x]: http://y"]
)
def test_running_text_starts_no_block(text: str) -> None:
    html = MarkdownIt("commonmark").enable(["table"]).render(plain(text))
    assert html.startswith("<p>")


@pytest.mark.parametrize("text", ["sm_90a", "CUDA_HOME", "2.5.1+cu124", "nvidia-cudnn-cu12", "gpus[0]", "(newest sm_90, no PTX)"])
def test_ordinary_names_stay_readable(text: str) -> None:
    assert plain(text).replace("\\[", "[").replace("\\]", "]") == text
    assert MarkdownIt("commonmark").renderInline(plain(text)) == text


def test_a_fence_is_longer_than_any_inside() -> None:
    assert fenced("a\n````\nb", "sh").startswith("`````sh\n")
