"""The documentation: links of the written pages lead somewhere, and the site builds with a page for everything there is."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from types import ModuleType

import pytest

from cudadoctor.commands.explain import rule_page
from cudadoctor.gpu.catalog import CATALOG
from cudadoctor.matrices.listing import MatrixName
from cudadoctor.rules.registry import RULES

ROOT = Path(__file__).parents[1]
WRITTEN = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("kernels/*.md")])
COMMANDS = ("check", "preflight", "triage", "scan", "explain", "archs", "recommend", "fleet summary", "bench", "mcp")


def load_links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("links", ROOT / "tools" / "site_pages" / "links.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


links = load_links()


def anchors(page: Path) -> set[str]:
    """The anchors that a forge makes of the headings of a Markdown file."""
    titles = re.findall(r"^#{1,6} (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_links_of_a_written_page_lead_to_files_and_headings(page: Path) -> None:
    for link in links.written(page):
        if "://" in link:
            assert links.well_formed(link), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link}: there is no {target}"
        assert not anchor or anchor in anchors(target), f"{link}: no heading of {target.name} is called so"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_pages_that_are_named_in_words_exist(page: Path) -> None:
    named = re.findall(r"\b(?:docs|kernels)/\w+\.md\b", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).is_file()] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as the documentation says: warnings of Sphinx and links that lead nowhere are errors."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(ROOT / "tools" / "build_docs.py"), str(folder)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder / "site"


def words(page: Path) -> str:
    """The text of a built page, in one line."""
    text = re.sub(r"<(script|style)\b.*?</\1>", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())


def test_every_rule_has_a_page_with_what_explain_says(site: Path) -> None:
    """Word for word: stars, underscores and angle brackets of a docstring are no markup."""
    listed = words(site / "rules" / "index.html")
    for rule in RULES:
        text = words(site / "rules" / f"{rule.code}.html")
        assert f"{rule.code} {rule.name}" in text
        said = [" ".join(part.split()) for part in rule_page(rule).replace("`", "").split("\n\n")[1:]]
        assert [part for part in said if part not in text.replace("`", "")] == []
        assert rule.name in listed


def test_a_rule_page_shows_error_texts(site: Path) -> None:
    text = words(site / "rules" / "CD102.html").partition("Error texts that lead here")[2]
    assert "CUDA driver version is insufficient for CUDA runtime version" in text


@pytest.mark.parametrize("name", MatrixName, ids=lambda name: name.value)
def test_every_matrix_has_a_page_whose_rows_name_their_sources(site: Path, name: MatrixName) -> None:
    text = (site / "matrices" / f"{name.value}.html").read_text(encoding="utf-8")
    rows = re.findall(r"<tr>(<td>.*?)</tr>", text)
    assert rows
    assert all(re.search(r'<a href="#source-\d+">', row) for row in rows)


def test_every_kernel_has_a_page_with_its_budget(site: Path) -> None:
    for spec in CATALOG:
        text = words(site / "kernels" / f"{Path(spec.file).stem}.html")
        assert f"{spec.smem_bytes:,} + {spec.dynamic_smem_bytes:,}" in text
        assert "__global__" in text


def test_every_command_is_in_the_reference(site: Path) -> None:
    text = words(site / "reference" / "commands.html")
    assert all(f"cudadoctor {command} [OPTIONS]" in text for command in COMMANDS)
    assert "--fail-on" in text


def test_the_python_reference_has_the_docstrings(site: Path) -> None:
    text = words(site / "reference" / "python.html")
    assert "The facts of this machine, judged by nobody" in text
    assert "UTC, ISO 8601" in text


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="one">A</h1><a href="b.html#two">b</a><a href="#one">top</a>', encoding="utf-8")
    (tmp_path / "b.html").write_text(
        '<p id="three"></p><a href="c.html">c</a><a href="http://example.org">x</a>', encoding="utf-8"
    )
    assert links.broken(tmp_path) == [
        "a.html: b.html#two, no such place in that page",
        "b.html: c.html, no such page",
        "b.html: http://example.org, no address of the web",
    ]
