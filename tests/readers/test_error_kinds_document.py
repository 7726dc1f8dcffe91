"""docs/error_kinds.md says what the table says."""

from __future__ import annotations

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_document_is_made_from_the_table() -> None:
    spec = importlib.util.spec_from_file_location("error_kinds", ROOT / "tools" / "error_kinds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "error_kinds.md").read_text(encoding="utf-8") == module.render(), "run python tools/error_kinds.py"
