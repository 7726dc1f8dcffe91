"""One page a compatibility matrix: its rows, and the numbered sources that they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.listing import Line, MatrixName, as_of, lines, title_of
from site_pages.markdown import escaped, table

URL = re.compile(r"https://[^\s<>\"']+[^\s<>\"'.,;:)]")


def pages() -> Iterator[tuple[str, str]]:
    """The path of each page within the site, without suffix, and its Markdown."""
    matrices = Matrices.load()
    rows = [
        (f"[{name.value}]({name.value}.md)", escaped(title_of(matrices, name)), str(len(lines(matrices, name))))
        for name in MatrixName
    ]
    text = "What cudadoctor knows about versions; `cudadoctor matrix NAME` prints the same."
    how = "[How the data is kept](../docs/matrices.md)."
    yield "matrices/index", f"# Matrices\n\n{text} {how}\n\n{table(('matrix', 'what', 'rows'), rows)}\n"
    for name in MatrixName:
        yield f"matrices/{name.value}", _page(matrices, name)


def _page(matrices: Matrices, name: MatrixName) -> str:
    rows = lines(matrices, name)
    sources = list(dict.fromkeys(row.origin.source for row in rows))
    parts = [
        "---\norphan: true\n---",
        f"# {escaped(title_of(matrices, name))}",
        f"State of {as_of(matrices, name)}; the number in the last column leads to the [source](#sources). "
        "*mechanical*: read from or run out of a real binary, header or package; *reported*: somebody's machine, quoted in "
        "public; *doc*: a vendor's page; *inferred*: interpolated or recalled. [All matrices](index.md).",
    ]
    for title, group in groupby(rows, key=lambda row: row.table):
        parts += [f"## {title.capitalize()}", _html(_table(list(group), sources))]
    parts += ["## Sources", _html(_source_list(sources))]
    return "\n\n".join(parts) + "\n"


def _html(text: str) -> str:
    return f"```{{raw}} html\n{text}\n```"


def _table(rows: Sequence[Line], sources: Sequence[str]) -> str:
    fields = list(dict.fromkeys(field for row in rows for field, _ in row.cells))
    noted = ["note"] if any(row.origin.note for row in rows) else []
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in (*fields, *noted, "source"))
    body = "\n".join(_row(row, fields, bool(noted), sources) for row in rows)
    parts = (f"<thead><tr>{head}</tr></thead>", f"<tbody>\n{body}\n</tbody>")
    return '<div class="matrix" tabindex="0"><table class="docutils">\n' + "\n".join(parts) + "</table></div>"


def _row(row: Line, fields: Sequence[str], noted: bool, sources: Sequence[str]) -> str:
    cells = dict(row.cells)
    values = [*(_linked(cells.get(field, "")) for field in fields), *([_linked(row.origin.note or "")] if noted else [])]
    number = sources.index(row.origin.source) + 1
    source = f'<a href="#source-{number}">{number}</a> {row.origin.as_of}, {row.origin.verified.value}'
    return "<tr>" + "".join(f"<td>{value}</td>" for value in (*values, source)) + "</tr>"


def _source_list(sources: Sequence[str]) -> str:
    items = "\n".join(f'<li id="source-{number}">{_linked(source)}</li>' for number, source in enumerate(sources, 1))
    return f"<ol>\n{items}\n</ol>"


def _linked(text: str) -> str:
    """The text as HTML, its URLs as links."""
    parts: list[str] = []
    end = 0
    for match in URL.finditer(text):
        parts += [escape(text[end : match.start()]), f'<a href="{escape(match[0])}">{escape(match[0])}</a>']
        end = match.end()
    return "".join(parts) + escape(text[end:])
