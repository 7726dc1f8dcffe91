"""The JSON output and the schema that ships with the package agree."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from jsonschema import Draft202012Validator, ValidationError

from cudadoctor.model.codec import from_json
from cudadoctor.model.report import Report
from cudadoctor.report import RENDERERS, RenderOptions
from cudadoctor.report.json import schema_text
from tests.model.filled import filled
from tests.report.sample_reports import SAMPLES

SHIPPED = files("cudadoctor").joinpath("report.schema.json")


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = json.loads(SHIPPED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def rendered(report: Report) -> str:
    return RENDERERS["json"](report, RenderOptions())


def test_shipped_schema_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        request.path.parents[2].joinpath("cudadoctor", "report.schema.json").write_bytes(schema_text())
    assert SHIPPED.read_bytes() == schema_text(), "the model changed: run pytest --update-golden"


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_validate_and_read_back(name: str, validator: Draft202012Validator) -> None:
    report = SAMPLES[name]()
    validator.validate(json.loads(rendered(report)))
    assert from_json(rendered(report), Report) == report


@pytest.mark.parametrize("missing", [False, True], ids=["known", "missing"])
def test_a_report_with_every_field_filled_validates(missing: bool, validator: Draft202012Validator) -> None:
    validator.validate(json.loads(rendered(filled(Report, missing=missing))))


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        (("schema",), "cudadoctor.report/2"),
        (("verdict",), "fine"),
        (("findings", 0, "severity"), "fatal"),
        (("findings", 0, "fixes", 0, "where"), "cloud"),
        (("proofs", 0, "layer"), "guess"),
        (("snapshot", "driver", "driver_release", "state"), "guessed"),
        (("snapshot", "gpus", "value", 0, "index"), "zero"),
    ],
)
def test_the_schema_refuses_what_is_wrong(path: tuple[str | int, ...], wrong: str, validator: Draft202012Validator) -> None:
    document = json.loads(rendered(filled(Report)))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    with pytest.raises(ValidationError):
        validator.validate(document)


def test_top_level_keys_are_in_the_order_of_the_contract() -> None:
    keys = list(json.loads(rendered(SAMPLES["rtx_5090_old_wheel"]())))
    contract = ["schema", "tool", "created", "node", "verdict", "summary", "findings", "unknown", "proofs", "snapshot"]
    assert keys[: len(contract)] == contract


def test_finding_keys_are_those_of_the_contract() -> None:
    finding = json.loads(rendered(SAMPLES["rtx_5090_old_wheel"]()))["findings"][0]
    assert list(finding) == [
        *("code", "name", "severity", "tags", "subject", "what", "why", "confidence"),
        *("root", "explains", "evidence", "fixes", "references"),
    ]
    assert list(finding["fixes"][0]) == ["title", "commands", "where", "needs_root", "needs_reboot", "rechecked", "verify"]
    assert finding["evidence"][0] == {
        "fact": "python.torch.arch_list",
        "value": "sm_50, sm_60, sm_70, sm_75, sm_80, sm_86, sm_90",
        "source": "libtorch_cuda.so",
        "line": None,
    }
