"""Renderers: each turns a Report into one text. They show what was judged and judge nothing themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from cudadoctor.report.options import Charset, Detail, JudgedFile, RenderOptions

if TYPE_CHECKING:
    from cudadoctor.model.report import Report

__all__ = ["RENDERERS", "Charset", "Detail", "JudgedFile", "RenderOptions", "Renderer"]

Renderer = Callable[["Report", RenderOptions], str]


def _on_use(module: str) -> Renderer:
    """The `render` of a module that is imported only when it is called, so that `--help` stays fast."""

    def render(report: Report, options: RenderOptions) -> str:
        text: str = import_module(module).render(report, options)
        return text

    return render


RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        "text": _on_use("cudadoctor.report.text"),
        "json": _on_use("cudadoctor.report.json"),
        "markdown": _on_use("cudadoctor.report.markdown"),
        "html": _on_use("cudadoctor.report.html"),
        "junit": _on_use("cudadoctor.report.junit"),
        "sarif": _on_use("cudadoctor.report.sarif"),
        "github": _on_use("cudadoctor.report.github"),
        "prometheus": _on_use("cudadoctor.report.prometheus"),
    }
)
"""Format name to the function that renders it."""
