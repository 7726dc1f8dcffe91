"""The summary of a fleet as one JSON document, described by fleet.schema.json."""

from __future__ import annotations

from typing import Any

from cudadoctor.fleet.summary import SCHEMA, FleetSummary
from cudadoctor.model import codec
from cudadoctor.model.schema import json_schema
from cudadoctor.report.options import RenderOptions


def render(summary: FleetSummary, options: RenderOptions) -> str:  # noqa: ARG001  # every renderer has this signature
    """The summary, indented, a newline at the end."""
    return codec.to_json(summary).decode() + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema that ships as cudadoctor/fleet.schema.json."""
    return {"$id": SCHEMA, "title": "cudadoctor fleet summary", **json_schema(FleetSummary)}


def schema_text() -> bytes:
    """The content of cudadoctor/fleet.schema.json."""
    return codec.to_json(schema()) + b"\n"
