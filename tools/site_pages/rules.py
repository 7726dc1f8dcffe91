"""One page a rule, made from what `cudadoctor explain` prints, and the list of all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cudadoctor.commands.explain import rule_page
from cudadoctor.matrices.error_patterns import error_patterns
from cudadoctor.rules.engine import Rule
from cudadoctor.rules.registry import RULES
from site_pages.markdown import code, escaped, prose, table, with_links

HEADINGS = ("What it checks", "Why it matters", "How to fix", "When it is wrong", "Sources")
AREAS = {
    "1": "Driver",
    "2": "Toolkit and building",
    "3": "Runtime libraries",
    "4": "Python frameworks",
    "5": "GPU and program",
    "6": "Containers, WSL, permissions",
    "7": "Environment variables",
    "8": "Kernels, preflight, plugins, requirements",
}
TEXTS_SHOWN = 8
TEXTS_OF_A_KIND = 3
_PLACEHOLDER = re.compile(r"\{(\w+)[:=][^}]*\}")
CODES = frozenset(rule.code for rule in RULES)
BY_NAME = {rule.name: rule for rule in RULES}


def pages() -> Iterator[tuple[str, str]]:
    """The path of each page within the site, without suffix, and its Markdown."""
    yield "rules/index", _index()
    for rule in RULES:
        yield f"rules/{rule.code}", _page(rule)


def _index() -> str:
    sections = ["# Rules", f"{len(RULES)} rules. `cudadoctor explain CODE` prints the page of one, `cudadoctor rules` this list."]
    for digit, area in AREAS.items():
        rows = [
            (f"[{rule.code}]({rule.code}.md)", code(rule.name), rule.severity.value, escaped(rule.summary))
            for rule in sorted(RULES, key=lambda rule: rule.code)
            if rule.code[2] == digit
        ]
        sections += [f"## {area}", table(("code", "name", "severity", "summary"), rows)]
    return "\n\n".join(sections) + "\n"


def _page(rule: Rule) -> str:
    _, *paragraphs = rule_page(rule).rstrip().split("\n\n")
    parts = [
        "---\norphan: true\n---",
        f"# {rule.code} {rule.name}",
        f"**{rule.severity.value}** · {escaped(rule.summary)} · [all rules](index.md)",
        *(with_links(_paragraph(text), CODES - {rule.code}) for text in paragraphs),
        *_section("Error texts that lead here", [code(text) for text in _texts(rule)]),
        *_section("May be a consequence of", [_link(name) for name in rule.explained_by]),
        *_section("May be the cause of", [_link(other.name) for other in RULES if rule.name in other.explained_by]),
        f"The check is {code(rule.check.__name__)} in {code(rule.check.__module__.replace('.', '/') + '.py')}.",
    ]
    return "\n\n".join(parts) + "\n"


def _paragraph(text: str) -> str:
    """A paragraph of the docstring as Markdown; a heading that opens it stands out."""
    heading, colon, rest = text.partition(":")
    return f"**{heading}:** {prose(rest.strip())}" if colon and heading in HEADINGS else prose(text)


def _section(title: str, items: list[str]) -> list[str]:
    return [f"## {title}", "\n".join(f"- {item}" for item in items)] if items else []


def _link(name: str) -> str:
    rule = BY_NAME[name]
    return f"[{rule.code}]({rule.code}.md) {code(name)}: {escaped(rule.summary)}"


def _texts(rule: Rule) -> list[str]:
    """Sentences by which the readers recognise an error that this rule may be the cause of, the surest kinds first."""
    kinds = [
        (next(place for place, cause in enumerate(row.causes) if cause.finding == rule.name), row)
        for row in error_patterns().rows.values()
        if any(cause.finding == rule.name for cause in row.causes)
    ]
    kinds.sort(key=lambda pair: pair[0])
    texts = [matcher.text for _, row in kinds for matcher in row.says[:TEXTS_OF_A_KIND]]
    shown = (
        _PLACEHOLDER.sub(lambda match: "..." if match[1] == "_" else f"{{{match[1]}}}", " ".join(text.split())) for text in texts
    )
    return list(dict.fromkeys(shown))[:TEXTS_SHOWN]
