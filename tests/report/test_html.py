"""The page: its own elements only, whatever the values hold; unknown is never green; and what a Chromium makes of it, if any."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec import structs

from cudadoctor.model.fact import Known
from cudadoctor.model.proof import ProofLayer, ProofOutcome
from cudadoctor.model.report import Report
from cudadoctor.report import RENDERERS, RenderOptions
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import SAMPLES, healthy_h100, rtx_5090_old_wheel

VOID = {"meta", "br"}
OURS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "script",
        "body",
        "header",
        "main",
        "section",
        "article",
        "footer",
        "div",
        "span",
    ),
    *("h1", "h2", "h3", "p", "strong", "code", "pre", "button", "details", "summary", "ol", "ul", "li", "a"),
    *("table", "thead", "tbody", "tr", "th", "td"),
    *("figure", "figcaption", "svg", "path", "text", "circle", "title"),
}
CHROMIUM = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


class Page(HTMLParser):
    """Elements, attributes and visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.script = ""
        self.headings: list[int] = []
        self.feed(text)
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, "elements are nested"

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.script += data


def rendered(report: Report) -> str:
    return RENDERERS["html"](report, RenderOptions())


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_text(name: str) -> None:
    html = rendered(hostile_report(HOSTILE[name]))
    page = Page(html)
    assert set(page.elements) <= OURS
    assert not [each for each, _ in page.attributes if each.startswith("on")]
    assert all(re.match(r"https?://|#", value) for each, value in page.attributes if each in ("href", "src"))
    assert page.elements.count("script") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2066-\u2069\ufeff]", html)
    html.encode()


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_asks_for_nothing_and_runs_one_script_only(name: str) -> None:
    page = Page(rendered(SAMPLES[name]()))
    policy = next(value for _, value in page.attributes if value.startswith("default-src"))
    digest = base64.b64encode(hashlib.sha256(page.script.encode()).digest()).decode()
    assert policy.startswith("default-src 'none'") and f"script-src 'sha256-{digest}'" in policy
    assert not {"img", "link", "iframe", "object", "form"} & set(page.elements)
    assert "src" not in {each for each, _ in page.attributes}


@pytest.mark.parametrize("name", SAMPLES)
def test_headings_are_in_order_and_ids_unique(name: str) -> None:
    page = Page(rendered(SAMPLES[name]()))
    assert page.headings[0] == 1 and page.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(page.headings, page.headings[1:], strict=False))
    ids = [value for each, value in page.attributes if each == "id"]
    assert len(ids) == len(set(ids))
    assert {value for each, value in page.attributes if each == "aria-labelledby"} <= set(ids)


def test_an_unknown_proof_is_never_shown_as_proven() -> None:
    report = healthy_h100()
    assert "driver proven" in rendered(report)
    proofs = tuple(
        structs.replace(proof, outcome=ProofOutcome.UNKNOWN) if proof.layer is ProofLayer.DRIVER_JIT else proof
        for proof in report.proofs
    )
    html = rendered(structs.replace(report, proofs=proofs))
    assert "driver proven" not in html
    assert '<span class="mark unknown">? driver unknown</span>' in html


def test_a_toolkit_that_no_proof_used_is_not_shown_as_proven() -> None:
    report = healthy_h100()
    assert isinstance(report.snapshot.toolkits, Known)
    (used,) = report.snapshot.toolkits.value
    other = structs.replace(used, root="/opt/other", aliases=(), chosen_for_builds=False)
    toolkits = structs.replace(report.snapshot.toolkits, value=(other, used))
    html = rendered(structs.replace(report, snapshot=structs.replace(report.snapshot, toolkits=toolkits)))
    rows = re.findall(r'<span class="label">Toolkit</span>.*', html)
    assert ["nvcc proven" in row for row in rows] == [False, True]
    assert "/opt/other" in rows[0]


def test_the_broken_layer_is_the_torch_of_the_old_wheel() -> None:
    html = rendered(rtx_5090_old_wheel())
    assert re.findall(r'<li class="layer error broken"><span class="label">(\w+)</span>', html) == ["torch"]
    assert "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu130</pre>" in html


def test_in_a_real_browser_nothing_is_asked_for_and_the_script_is_let_run(tmp_path: Path) -> None:
    """The dump of the page after scripts ran: the copy buttons are shown, and the log has no error and no refused script."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no chromium here")
    file = tmp_path / "report.html"
    file.write_text(rendered(rtx_5090_old_wheel()), encoding="utf-8")
    log = tmp_path / "net.json"
    argv = [chromium, *CHROMIUM, f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}", "--enable-logging=stderr"]
    done = subprocess.run([*argv, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=90, check=True)
    assert "Content Security Policy" not in done.stderr
    assert "Uncaught" not in done.stderr
    assert 'data-copy="" aria-label' in done.stdout, "the script took away `hidden`"
    asked = {event.get("params", {}).get("url", "") for event in json.loads(log.read_text())["events"]}
    assert [url for url in asked if url.startswith("http") and "google" not in url] == []
