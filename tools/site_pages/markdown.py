"""Plain text as Markdown that shows exactly that text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_SPECIAL = re.compile(r"([\\*_\[\]<>#|$~{}!`])")
_CODE = re.compile(r"(`[^`\n]+`)")
_CODE_OF_RULE = re.compile(r"\bCD\d{3}\b")


def escaped(text: str) -> str:
    """The text with all that Markdown would read as markup made literal."""
    return _SPECIAL.sub(r"\\\1", text)


def prose(text: str) -> str:
    """Text of a docstring: what stands in backticks is code, the rest is literal."""
    parts = _CODE.split(text)
    return "".join(part if number % 2 else escaped(part) for number, part in enumerate(parts))


def code(text: str) -> str:
    """The text as code, whatever backticks it holds."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def block(text: str, language: str = "text") -> str:
    """The text as a block of code."""
    return f"````{language}\n{text.rstrip()}\n````"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already, each in one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)


def with_links(text: str, codes: frozenset[str], folder: str = "") -> str:
    """The Markdown with codes of rules outside of code made links to their pages; `folder` leads to those."""

    def link(match: re.Match[str]) -> str:
        return f"[{match[0]}]({folder}{match[0]}.md)" if match[0] in codes else match[0]

    parts = _CODE.split(text)
    return "".join(part if number % 2 else _CODE_OF_RULE.sub(link, part) for number, part in enumerate(parts))
