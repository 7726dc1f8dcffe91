"""Writes docs/error_kinds.md from matrices/error_patterns.toml: every kind of error text, its meaning and its causes."""

from __future__ import annotations

from pathlib import Path

from cudadoctor.matrices.error_patterns import ErrorRow, error_patterns

TARGET = Path(__file__).parents[1] / "docs" / "error_kinds.md"

HEAD = """# Kinds of error texts

Made by `python tools/error_kinds.py` from matrices/error_patterns.toml; do not edit. `recognise` and `read_paste` give these
kinds in `Snapshot.errors`, with the values named. The causes are findings, the most likely first; in brackets what confirms one
(`+`) and what rules it out (`-`). Kinds of the layer *circumstance* are no faults: they decide between causes.

| kind | layer | codes | meaning | values | leads to |
| --- | --- | --- | --- | --- | --- |
"""


def render() -> str:
    """The whole document."""
    return HEAD + "\n".join(_line(row) for row in sorted(error_patterns().rows.values(), key=lambda row: row.kind)) + "\n"


def _line(row: ErrorRow) -> str:
    names = sorted({name for matcher in row.says for name in matcher.regex.groupindex})
    cells = (f"`{row.kind}`", row.layer, ", ".join(map(str, row.codes)), row.means, ", ".join(names), _causes(row))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _causes(row: ErrorRow) -> str:
    told = []
    for cause in row.causes:
        facts = "; ".join(
            part
            for part in (
                f"+ {cause.confirmed_by}" if cause.confirmed_by else "",
                f"- {cause.ruled_out_by}" if cause.ruled_out_by else "",
            )
            if part
        )
        told.append(f"`{cause.finding}` ({facts})" if facts else f"`{cause.finding}`")
    return ", ".join(told)


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
