"""The report as one JSON document, described by report.schema.json."""

from __future__ import annotations

from typing import Any

from cudadoctor.model import codec
from cudadoctor.model.report import SCHEMA, Report
from cudadoctor.model.schema import json_schema
from cudadoctor.report.options import RenderOptions


def render(report: Report, options: RenderOptions) -> str:  # noqa: ARG001  # every renderer has this signature
    """The report, indented, keys in the model's order, a newline at the end."""
    return codec.to_json(report).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that ships as cudadoctor/report.schema.json."""
    return {"$id": SCHEMA, "title": "cudadoctor report", **json_schema(Report)}


def schema_text() -> bytes:
    """The content of cudadoctor/report.schema.json."""
    return codec.to_json(schema()) + b"\n"
