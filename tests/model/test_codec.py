"""JSON and back is the identity, versions travel as text, and bad documents are refused with the place named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudadoctor.model import codec
from cudadoctor.model.fact import Known, Missing, MissingReason
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import Driver, Gpu, Host, Snapshot, TextReading
from cudadoctor.model.versions import DriverRelease, Ordered
from tests.model.filled import TEXTS, filled, paths_of_defaults


def test_filled_report_leaves_no_field_at_its_default() -> None:
    assert paths_of_defaults(filled(Report)) == []


@pytest.mark.parametrize("missing", [False, True], ids=["known", "missing"])
def test_every_field_survives_the_round_trip(missing: bool) -> None:
    report = filled(Report, missing=missing)
    text = codec.to_json(report)
    again = codec.from_json(text, Report)
    assert again == report
    assert codec.to_json(again) == text, "versions compare by number: the text must survive too"


@pytest.mark.parametrize("missing", [False, True], ids=["known", "missing"])
def test_builtins_round_trip(missing: bool) -> None:
    report = filled(Report, missing=missing)
    assert codec.from_builtins(codec.to_builtins(report), Report) == report


def test_an_empty_snapshot_is_an_empty_object() -> None:
    assert codec.to_compact_json(Snapshot()) == b"{}"
    assert codec.from_json(b"{}", Snapshot) == Snapshot()


@pytest.mark.parametrize("kind", TEXTS, ids=lambda kind: kind.__name__)
def test_versions_are_text_in_json(kind: type[Ordered]) -> None:
    value = kind.parse(TEXTS[kind])
    assert json.loads(codec.to_json(value)) == TEXTS[kind]
    assert codec.from_json(json.dumps(TEXTS[kind]), kind) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"driver": {"driver_release": {"state": "known", "value": "new", "source": ""}}}', "$.driver.driver_release.value"),
        ('{"driver": {"driver_release": {"state": "known", "value": 580, "source": ""}}}', "$.driver.driver_release.value"),
        ('{"gpus": {"state": "guessed"}}', "$.gpus"),
        ("[" * 100_000, ""),
        ('{"readings": [{"kind": "x", "values": {"a": ' + "[" * 100_000, ""),
        ("", ""),
        ("\ud800", ""),
    ],
)
def test_bad_documents_are_refused(text: str, said: str) -> None:
    with pytest.raises(codec.DocumentError) as caught:
        codec.from_json(text, Snapshot)
    assert said in str(caught.value)


def test_bytes_that_are_no_text_are_refused() -> None:
    with pytest.raises(codec.DocumentError):
        codec.from_json(b'{"environment": "\xff"}', Snapshot)


@pytest.mark.parametrize("schema", ["cudadoctor.report/2", "cudadoctor.scan/1", 1])
def test_a_report_of_another_schema_is_refused(schema: Any) -> None:
    document = codec.to_builtins(filled(Report)) | {"schema": schema}
    with pytest.raises(codec.DocumentError, match=r"\$\.schema"):
        codec.from_json(json.dumps(document), Report)


def test_unknown_fields_of_a_later_version_are_ignored() -> None:
    document = codec.to_builtins(filled(Report)) | {"added_later": {"x": 1}}
    assert codec.from_json(json.dumps(document), Report) == filled(Report)


def test_undecodable_bytes_of_a_path_are_spelled_out() -> None:
    snapshot = Snapshot(environment=Known({"LD_LIBRARY_PATH": b"/opt/\xff\xe9".decode("utf-8", "surrogateescape")}, "env"))
    again = codec.from_json(codec.to_json(snapshot), Snapshot)
    assert again == Snapshot(environment=Known({"LD_LIBRARY_PATH": r"/opt/\xff\xe9"}, "env"))


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_without_surrogates_survives(text: str) -> None:
    host = Host(os_name=Known(text, text), kernel_release=Missing(MissingReason.FAILED, text, text))
    snapshot = Snapshot(host=host, readings=(TextReading(kind="x", values={text: text}),))
    assert codec.from_json(codec.to_json(snapshot), Snapshot) == snapshot


def test_a_wrong_value_inside_a_tuple_of_structs_is_named() -> None:
    snapshot = Snapshot(
        gpus=Known((Gpu(index=0),), "NVML"), driver=Driver(driver_release=Known(DriverRelease.parse("580"), "NVML"))
    )
    document = codec.to_builtins(snapshot)
    document["gpus"]["value"][0]["index"] = "zero"
    with pytest.raises(codec.DocumentError, match=r"\$\.gpus\.value\[0\]\.index"):
        codec.from_builtins(document, Snapshot)
