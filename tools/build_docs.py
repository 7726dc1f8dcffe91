"""Builds the documentation site: pip install -e '.[docs]' && python tools/build_docs.py [FOLDER]

The pages are README.md as the front page, the other Markdown files of the checkout, and those that are made from the rules, the
matrices, the kernels, the command line and the docstrings. The site is FOLDER/site (default: build/docs/site). Ends with 1 where
Sphinx warns or a link of the built site leads nowhere. Needs no network.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from site_pages import api, commands, kernels, links, matrices, rules
from sphinx.cmd.build import build_main

CHECKOUT = Path(__file__).resolve().parents[1]
CONTENTS = CHECKOUT / "docs" / "contents.md"
"""The tables of contents that stand in the sidebar; put under the front page."""
BESIDE_DOCS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "kernels/*.md", "docs/*.md")


def gather(source: Path) -> None:
    """Write all pages into `source`, where each lies as in the checkout, so that relative links hold."""
    for page in _written():
        _copy(page, source)
        for target in links.targets(page):
            if target.is_file() and target.suffix != ".md":
                _copy(target, source)
    front = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    _write(source / "index.md", f"{front}\n{CONTENTS.read_text(encoding='utf-8')}")
    for module in (rules, matrices, kernels, commands, api):
        for path, text in module.pages():
            _write(source / f"{path}.md", text)


def _written() -> Iterator[Path]:
    return (page for pattern in BESIDE_DOCS for page in sorted(CHECKOUT.glob(pattern)) if page != CONTENTS)


def _copy(file: Path, source: Path) -> None:
    target = source / file.relative_to(CHECKOUT)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, target)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def build(folder: Path) -> int:
    """Build the site into `folder`, which may hold an older build; returns the exit code."""
    source, site = folder / "source", folder / "site"
    for old in (source, site):
        shutil.rmtree(old, ignore_errors=True)
    gather(source)
    options = ("-q", "-W", "--keep-going", "-E", "-j", "auto", "-c", str(CHECKOUT / "docs"), "-d", str(folder / "doctrees"))
    code = build_main([*options, str(source), str(site)])
    if code != 0:
        return code
    broken = links.broken(site)
    for line in broken:
        print(line, file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else CHECKOUT / "build" / "docs").resolve()))
