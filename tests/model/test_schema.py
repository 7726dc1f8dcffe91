"""The schema's definitions have names that do not depend on the Python that made them."""

from __future__ import annotations

import re

from cudadoctor.model.report import Report
from cudadoctor.model.schema import json_schema
from cudadoctor.model.snapshot import Snapshot


def test_known_facts_are_named_after_their_values() -> None:
    definitions = json_schema(Snapshot)["$defs"]
    assert {"Known_string", "Known_DriverRelease", "Known_list_of_Gpu", "Known_list_of_SmTarget", "Known_map_of_string"} <= set(
        definitions
    )
    assert definitions["Known_list_of_Gpu"]["properties"]["value"] == {"type": "array", "items": {"$ref": "#/$defs/Gpu"}}


def test_every_name_is_plain_and_every_reference_resolves() -> None:
    schema = json_schema(Report)
    assert [name for name in schema["$defs"] if not re.fullmatch(r"[A-Za-z_]+", name)] == []
    references = set(re.findall(r"#/\$defs/([^']+)'", repr(schema)))
    assert references == set(schema["$defs"])


def test_no_two_definitions_fell_together() -> None:
    facts = [name for name in json_schema(Report)["$defs"] if name.startswith("Known_")]
    assert len(facts) >= 25
