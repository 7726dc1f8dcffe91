"""SARIF against the official schema, and what code scanning needs of it: rules, places, messages that are only text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft4Validator, ValidationError
from msgspec import structs

from cudadoctor.model.finding import Finding, Severity
from cudadoctor.report import RENDERERS, Charset, JudgedFile, RenderOptions
from cudadoctor.report.sarif import message
from cudadoctor.rules.registry import RULES
from tests.report.ci_reports import NAMES, NVCC_MISSING, dockerfile, is_inert, of_line, report_of
from tests.report.hostile import HOSTILE
from tests.report.sample_reports import SAMPLES, healthy_h100, sick_node

SCHEMA = Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def validator() -> Draft4Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    Draft4Validator.check_schema(schema)
    return Draft4Validator(schema)


def rendered(name: str, options: RenderOptions | None = None) -> str:
    return RENDERERS["sarif"](report_of(name), options or RenderOptions())


def run(name: str, options: RenderOptions | None = None) -> Json:
    (only,) = json.loads(rendered(name, options))["runs"]
    return dict(only)


def result(name: str, code: str, options: RenderOptions | None = None) -> Json:
    return next(result for result in run(name, options)["results"] if result["ruleId"] == code)


@pytest.mark.parametrize("name", NAMES)
def test_the_official_schema_accepts_every_report(name: str, validator: Draft4Validator) -> None:
    validator.validate(json.loads(rendered(name)))


def test_the_schema_refuses_what_is_wrong(validator: Draft4Validator) -> None:
    with pytest.raises(ValidationError):
        validator.validate(json.loads(rendered("no_gpu").replace('"level": "error"', '"level": "fatal"')))


@pytest.mark.parametrize("name", [*SAMPLES, "dockerfile"])
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    log = json.loads(rendered(name))
    driver = log["runs"][0]["tool"]["driver"]
    driver["rules"] = [{"id": rule["id"], "the rest": "from the rule"} for rule in driver["rules"]]
    golden(f"{name}/report.sarif.json", json.dumps(log, indent=2, ensure_ascii=False) + "\n")


@pytest.mark.parametrize("name", NAMES)
def test_every_result_and_notification_names_its_rule(name: str) -> None:
    only = run(name)
    ids = [rule["id"] for rule in only["tool"]["driver"]["rules"]]
    assert len(set(ids)) == len(ids)
    notices = only["invocations"][0]["toolExecutionNotifications"]
    named = [(r["ruleId"], r["ruleIndex"]) for r in only["results"]]
    named += [(notice["associatedRule"]["id"], notice["associatedRule"]["index"]) for notice in notices]
    assert all(ids[index] == code for code, index in named)


def test_every_rule_has_help_from_its_docstring(validator: Draft4Validator) -> None:
    findings = tuple(Finding(code=r.code, name=r.name, severity=r.severity, subject="x", what="x") for r in RULES)
    log = json.loads(RENDERERS["sarif"](structs.replace(healthy_h100(), findings=findings), RenderOptions()))
    validator.validate(log)
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(rule.code for rule in RULES)
    assert all("How to fix" in rule["help"]["text"] for rule in rules)
    assert all("\n" not in rule["fullDescription"]["text"] for rule in rules)


@pytest.mark.parametrize(
    ("severity", "level"), [(Severity.ERROR, "error"), (Severity.WARNING, "warning"), (Severity.NOTE, "note")]
)
def test_severities_are_levels(severity: Severity, level: str) -> None:
    report = structs.replace(healthy_h100(), findings=(structs.replace(NVCC_MISSING, severity=severity),))
    log = json.loads(RENDERERS["sarif"](report, RenderOptions()))
    assert log["runs"][0]["results"][0]["level"] == {"ERROR": "error", "WARNING": "warning", "NOTE": "note"}[severity.name]


def test_the_first_line_is_the_location_and_the_others_are_related() -> None:
    found = result("dockerfile", "CD201")
    artifact = {"uri": "Dockerfile", "uriBaseId": "%SRCROOT%"}
    assert found["locations"][0]["physicalLocation"] == {"artifactLocation": artifact, "region": {"startLine": 4}}
    lines = [each["physicalLocation"]["region"]["startLine"] for each in found["relatedLocations"]]
    assert lines == [2], "line 9 is not one of the Dockerfile"


def test_a_finding_without_a_line_is_about_the_file() -> None:
    place = result("dockerfile", "CD890")["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "Dockerfile", "uriBaseId": "%SRCROOT%"}}


def test_a_machine_has_a_name_and_no_file() -> None:
    (place,) = result("rtx_5090_old_wheel", "CD412")["locations"]
    assert place == {"logicalLocations": [{"name": "GPU 0", "kind": "resource"}]}


def test_the_path_is_the_command_lines_and_a_valid_uri() -> None:
    options = RenderOptions(judged=JudgedFile("deploy/my images/50%#1?.Dockerfile", "Dockerfile"))
    place = result("dockerfile", "CD201", options)["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "deploy/my%20images/50%25%231%3F.Dockerfile"


def test_the_message_has_the_fix() -> None:
    text = result("dockerfile", "CD201")["message"]["text"]
    assert "Fix: Build in the devel variant of the base image (in the container):\n  FROM nvidia/cuda:12.4.1-devel" in text
    assert "Explained by CD412." in result("rtx_5090_old_wheel", "CD802")["message"]["text"]


@pytest.mark.parametrize("name", HOSTILE)
def test_values_are_inert(name: str) -> None:
    assert is_inert(rendered(name))
    assert rendered(name, RenderOptions(charset=Charset.ASCII)).isascii()
    for found in run(name)["results"]:
        assert is_inert(found["message"]["text"])
        assert not re.search(r"(?<!\\)\]\(", found["message"]["text"]), "no link"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("[a](javascript:x)", "[a\\](javascript:x)"), ("{0} ${HOME} {x}", "{{0}} ${HOME} {x}"), ("gpus[0]", "gpus[0]")],
)
def test_no_text_is_a_link_or_a_placeholder(text: str, shown: str) -> None:
    assert message(text) == {"text": shown}


def test_fingerprints_stay_where_lines_move_and_tell_findings_apart() -> None:
    moved = structs.replace(NVCC_MISSING, evidence=(of_line("builds", "pip install flash-attn", 40),))
    report = structs.replace(dockerfile(), findings=(moved, *dockerfile().findings[1:]))
    after = json.loads(RENDERERS["sarif"](report, RenderOptions()))["runs"][0]["results"]
    before = run("dockerfile")["results"]
    assert after[0]["locations"] != before[0]["locations"]
    assert [r["partialFingerprints"] for r in after] == [r["partialFingerprints"] for r in before]
    assert before[0]["partialFingerprints"] != before[1]["partialFingerprints"]


def test_an_open_verdict_is_a_result_of_its_own() -> None:
    assert result("undetermined", "undetermined")["level"] == "warning"
    assert run("healthy_h100")["results"] == []
    assert len(run("undetermined")["invocations"][0]["toolExecutionNotifications"]) == 3


def test_the_same_finding_of_many_gpus_is_one_result() -> None:
    results = json.loads(RENDERERS["sarif"](sick_node(), RenderOptions()))["runs"][0]["results"]
    assert [found["ruleId"] for found in results].count("CD530") == 1
