"""Links: those that a Markdown file holds, and those of a built site that lead nowhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^(`{3,}|~{3,}).*?^\1", re.DOTALL | re.MULTILINE)
_ID = re.compile(r"""<[a-z][^<>]* id="([^"]+)\"""")
_HREF = re.compile(r"""<a\s[^<>]*?href="([^"]+)\"""")
_CODE = re.compile(r"`[^`\n]*`")


def written(page: Path) -> list[str]:
    """The targets of the links in a Markdown file, as they stand there; what is code holds none."""
    return _LINK.findall(_CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8"))))


def targets(page: Path) -> Iterator[Path]:
    """The files of the checkout that a Markdown file links to."""
    for link in written(page):
        if not urlsplit(link).scheme and urlsplit(link).path:
            yield (page.parent / unquote(urlsplit(link).path)).resolve()


class _Page:
    """The anchors of a page and the links that it holds, as Sphinx writes them; an HTML parser takes a second for all pages."""

    def __init__(self, text: str) -> None:
        self.anchors = {"", "top", *_ID.findall(text)}
        self.links = [unescape(link) for link in dict.fromkeys(_HREF.findall(text))]


def broken(site: Path) -> list[str]:
    """`page: link, why` for each link to a page or an anchor that is not there, and each address that is none."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = ((path, link, _fault(path, link, pages)) for path, page in pages.items() for link in page.links)
    return [f"{path.relative_to(site)}: {link}, {fault}" for path, link, fault in found if fault]


def _fault(page: Path, link: str, pages: dict[Path, _Page]) -> str:
    address = urlsplit(link)
    if address.scheme or address.netloc:
        return "" if well_formed(link) else "no address of the web"
    target = (page.parent / unquote(address.path)).resolve() if address.path else page
    if target not in pages:
        return "" if target.is_file() else "no such page"
    return "" if unquote(address.fragment) in pages[target].anchors else "no such place in that page"


def well_formed(link: str) -> bool:
    """True for an address with a host that has a dot in its name, over HTTPS, or a mail address."""
    address = urlsplit(link)
    if address.scheme == "mailto":
        return "@" in address.path
    return address.scheme == "https" and "." in (address.hostname or "") and re.search(r"[\s<>\"]", link) is None
