"""The reference of the Python interface; Sphinx fills it in from the docstrings."""

from __future__ import annotations

from collections.abc import Iterator

SECTIONS = {
    "Functions": ("cudadoctor.api", "`import cudadoctor` offers these."),
    "Reports": ("cudadoctor.model.report", ""),
    "Findings": ("cudadoctor.model.finding", ""),
    "Proofs": ("cudadoctor.model.proof", ""),
    "Facts": ("cudadoctor.model.fact", ""),
    "Snapshots": ("cudadoctor.model.snapshot", "The facts of a machine."),
    "Binaries in a snapshot": ("cudadoctor.model.binaries", ""),
    "Versions": ("cudadoctor.model.versions", ""),
    "Writing and reading": ("cudadoctor.model.codec", ""),
    "Redaction": ("cudadoctor.model.redact", ""),
    "Rules of your own": ("cudadoctor.rules.engine", "See [plugins](../docs/plugins.md)."),
}


def pages() -> Iterator[tuple[str, str]]:
    """The path of each page within the site, without suffix, and its Markdown."""
    parts = ["# Python reference", "With examples: [the doctor as a library](../docs/python_api.md)."]
    for title, (module, text) in SECTIONS.items():
        parts += [f"## {title}", *([text] if text else []), f"```{{eval-rst}}\n.. automodule:: {module}\n   :members:\n```"]
    yield "reference/python", "\n\n".join(parts) + "\n"
