"""JSON Schemas of the model's documents, the same under every Python version."""

from __future__ import annotations

from typing import Any

import msgspec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_DEFINITIONS = "#/$defs/"
_AS_TEXT = " as text"


def json_schema(kind: type) -> dict[str, Any]:
    """The JSON Schema of a document type; the definitions of known facts are named after their values."""
    schema = msgspec.json.schema(kind, schema_hook=_text_schema)
    names = {old: _name(old, definition) for old, definition in schema["$defs"].items()}
    definitions = {names[old]: _titled(definition, names[old]) for old, definition in schema["$defs"].items()}
    renamed: dict[str, Any] = _renamed({**schema, "$defs": definitions}, names)
    return {"$schema": DIALECT, **renamed}


def _text_schema(part: type) -> dict[str, Any]:
    return {"type": "string", "description": f"{part.__name__}{_AS_TEXT}"}


def _name(old: str, definition: dict[str, Any]) -> str:
    """`Known_list_of_Gpu`: msgspec's own names of generic types differ between Python versions."""
    properties = definition.get("properties", {})
    is_known_fact = properties.get("state", {}).get("enum") == ["known"]
    return f"Known_{_name_of_value(properties['value'])}" if is_known_fact else old


def _name_of_value(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(_DEFINITIONS)
    if schema.get("type") == "array":
        return f"list_of_{_name_of_value(schema['items'])}"
    if schema.get("type") == "object":
        return f"map_of_{_name_of_value(schema['additionalProperties'])}"
    description = str(schema.get("description", ""))
    return description.removesuffix(_AS_TEXT) if description.endswith(_AS_TEXT) else str(schema["type"])


def _titled(definition: dict[str, Any], name: str) -> dict[str, Any]:
    return {**definition, "title": name}


def _renamed(tree: Any, names: dict[str, str]) -> Any:
    """The schema with every reference to a definition by its new name."""
    if isinstance(tree, dict):
        return {key: _renamed(value, names) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_renamed(item, names) for item in tree]
    if isinstance(tree, str) and tree.startswith(_DEFINITIONS):
        return _DEFINITIONS + names[tree.removeprefix(_DEFINITIONS)]
    return tree
