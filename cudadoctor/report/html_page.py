"""A page that needs nothing but itself: no script, no font, no image, no request; every value in it is inert."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from cudadoctor.report import inert

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35em .8em .35em 0; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; }
.error { color: light-dark(#b00020, #ff8a94); } .warning { color: light-dark(#8a5a00, #ffc66b); }
.unknown { color: light-dark(#7b1fa2, #d9a1ec); } .ok { color: light-dark(#1b6e2b, #7ddb8f); }
footer { margin-top: 2em; opacity: .7; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, parts: Iterable[str]) -> str:
    """The document; `parts` are HTML already."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n" + "\n".join(parts) + "\n</body>\n</html>\n"
    )


def text(value: str, limit: int = inert.VALUE_LIMIT) -> str:
    """A value as text: no markup, no control characters."""
    return html.escape(inert.value(value, limit=limit))


def element(name: str, value: str, kind: str = "", limit: int = inert.VALUE_LIMIT) -> str:
    """A value within an element; `kind` is a class of the style sheet."""
    of_class = f' class="{kind}"' if kind else ""
    return f"<{name}{of_class}>{text(value, limit)}</{name}>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells of `rows` are HTML already."""
    head = "".join(f"<th>{text(each)}</th>" for each in heads)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def bullets(lines: Iterable[str]) -> str:
    """A list of values."""
    return f"<ul>\n{chr(10).join(element('li', line, limit=inert.PROSE_LIMIT) for line in lines)}\n</ul>"
