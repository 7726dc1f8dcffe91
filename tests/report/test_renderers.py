"""Every format is there, and asking for one loads nothing of the others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cudadoctor.report import RENDERERS, RenderOptions
from tests.report.sample_reports import healthy_h100


@pytest.mark.parametrize("name", RENDERERS)
def test_every_renderer_ends_its_text_with_one_newline(name: str) -> None:
    text = RENDERERS[name](healthy_h100(), RenderOptions())
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def loaded(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    return set(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split())


def test_the_mapping_costs_no_import() -> None:
    modules = loaded("from cudadoctor.report import RENDERERS, RenderOptions; RENDERERS['text']")
    assert not {"rich", "msgspec", "cudadoctor.model.report", "cudadoctor.report.text"} & modules


def test_json_needs_no_rich() -> None:
    modules = loaded("import cudadoctor.report.json")
    assert "rich" not in modules
