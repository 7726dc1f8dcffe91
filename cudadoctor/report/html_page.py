"""A page that needs nothing but itself: no font, image or request, no script but one known by its digest; values are inert."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Iterable, Sequence

from cudadoctor.report import inert

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d5d7db, #3d4147); --dim: light-dark(#5a6068, #a2a8b0);
  --error: light-dark(#b00020, #ff8a94); --warn: light-dark(#8a5a00, #ffc66b); --unknown: light-dark(#7b1fa2, #d9a1ec);
  --ok: light-dark(#1b6e2b, #7ddb8f); --note: light-dark(#0a5fb4, #7db8f5);
  --card: light-dark(#fff, #1d2024); --code: light-dark(#f1f3f5, #121417); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 90em; padding: 0 1em;
  color: light-dark(#1c1e21, #e6e8ea); background: light-dark(#fafbfc, #16181b); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .35em .8em .35em 0; border-bottom: 1px solid var(--line); }
td { overflow-wrap: anywhere; }
td.error { color: var(--error); } td.warning { color: var(--warn); }
td.unknown { color: var(--unknown); } td.ok { color: var(--ok); }
footer { margin-top: 2em; color: var(--dim); }
"""


def page(title: str, parts: Iterable[str], style: str = "", script: str = "") -> str:
    """The document; `parts` are HTML already, `style` comes after the common one, and only `script` may run."""
    scripts = f"script-src '{_digest(script)}'; " if script else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; {scripts}base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + (f"\n<script>{script}</script>" if script else "")
        + "\n</body>\n</html>\n"
    )


def _digest(script: str) -> str:
    """The script's digest as a Content-Security-Policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}"


def text(value: str, limit: int = inert.VALUE_LIMIT) -> str:
    """A value as text: no markup, no control characters."""
    return html.escape(inert.value(value, limit=limit))


def element(name: str, value: str, kind: str = "", limit: int = inert.VALUE_LIMIT) -> str:
    """A value within an element; `kind` is a class of the style sheet."""
    of_class = f' class="{kind}"' if kind else ""
    return f"<{name}{of_class}>{text(value, limit)}</{name}>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells of `rows` are HTML already."""
    head = "".join(f'<th scope="col">{text(each)}</th>' for each in heads)
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def bullets(lines: Iterable[str]) -> str:
    """A list of values."""
    return f"<ul>\n{chr(10).join(element('li', line, limit=inert.PROSE_LIMIT) for line in lines)}\n</ul>"
