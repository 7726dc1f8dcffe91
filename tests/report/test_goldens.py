"""What users see, for hand-built machines: text, Markdown, JSON and HTML as whole files that are read in review."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cudadoctor.report import RENDERERS, RenderOptions
from tests.report.sample_reports import SAMPLES

Golden = Callable[[str, str], None]
PACKED = re.compile(r"cudadoctor report begins.*cudadoctor report ends", re.DOTALL)
"""Left out of the files: its letters depend on the zlib at hand; test_packed.py reads it back."""
EXTENSIONS = {"text": "txt", "markdown": "md", "json": "json", "html": "html"}


@pytest.mark.parametrize("format_name", EXTENSIONS)
@pytest.mark.parametrize("name", SAMPLES)
def test_golden(name: str, format_name: str, golden: Golden) -> None:
    rendered = RENDERERS[format_name](SAMPLES[name](), RenderOptions(width=100))
    golden(f"{name}/report.{EXTENSIONS[format_name]}", PACKED.sub("(packed report)", rendered))


@pytest.mark.parametrize("name", SAMPLES)
def test_golden_at_80_columns(name: str, golden: Golden) -> None:
    golden(f"{name}/report_80.txt", RENDERERS["text"](SAMPLES[name](), RenderOptions(width=80)))
