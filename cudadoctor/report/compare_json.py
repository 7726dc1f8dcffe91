"""A comparison as one JSON document, described by compare.schema.json."""

from __future__ import annotations

from typing import Any

from cudadoctor.compare.comparison import SCHEMA, CompareReport
from cudadoctor.model import codec
from cudadoctor.model.schema import json_schema


def render(report: CompareReport) -> str:
    """The comparison, indented, a newline at the end."""
    return codec.to_json(report).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that ships as cudadoctor/compare.schema.json."""
    return {"$id": SCHEMA, "title": "cudadoctor comparison", **json_schema(CompareReport)}


def schema_text() -> bytes:
    """The content of cudadoctor/compare.schema.json."""
    return codec.to_json(schema()) + b"\n"
