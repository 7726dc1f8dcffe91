"""JUnit XML against the schemas of Ant and of Jenkins, and read back by a parser of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import junitparser
import pytest
import xmlschema
from msgspec import structs

from cudadoctor.model.report import Verdict
from cudadoctor.report import RENDERERS, Charset, RenderOptions
from tests.report.ci_reports import NAMES, is_inert, report_of, with_file_named
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import SAMPLES, healthy_h100

SCHEMAS = Path(__file__).parent / "schemas"


def rendered(name: str, charset: Charset = Charset.UNICODE) -> str:
    return RENDERERS["junit"](report_of(name), RenderOptions(charset=charset))


def cases(name: str) -> Iterator[junitparser.TestCase]:
    for suite in junitparser.JUnitXml.fromstring(rendered(name).encode()):
        yield from suite


def case(name: str, title: str) -> junitparser.TestCase:
    return next(case for case in cases(name) if case.name.startswith(title))


@pytest.fixture(scope="module", params=["ant-junit.xsd", "jenkins-junit-10.xsd"])
def schema(request: pytest.FixtureRequest) -> xmlschema.XMLSchema:
    return xmlschema.XMLSchema(str(SCHEMAS / request.param))


@pytest.mark.parametrize("name", NAMES)
def test_both_schemas_accept_every_report(name: str, schema: xmlschema.XMLSchema) -> None:
    schema.validate(rendered(name))
    schema.validate(rendered(name, Charset.ASCII))


def test_the_schemas_refuse_what_is_wrong(schema: xmlschema.XMLSchema) -> None:
    with pytest.raises(xmlschema.XMLSchemaValidationError):
        schema.validate(rendered("no_gpu").replace("<failure ", "<fault ").replace("</failure>", "</fault>"))


@pytest.mark.parametrize("name", SAMPLES)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}/report.junit.xml", rendered(name))


@pytest.mark.parametrize("name", NAMES)
def test_the_counts_are_those_of_the_cases(name: str) -> None:
    for suite in junitparser.JUnitXml.fromstring(rendered(name).encode()):
        endings = Counter(type(result) for case in suite for result in case.result)
        counted = (len(list(suite)), *(endings[kind] for kind in (junitparser.Failure, junitparser.Error, junitparser.Skipped)))
        assert (suite.tests, suite.failures, suite.errors, suite.skipped) == counted


@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_makes_an_element_or_hides(name: str) -> None:
    def tags(text: str) -> list[str]:
        return [element.tag for element in ElementTree.fromstring(text).iter()]

    plain = RENDERERS["junit"](with_file_named(hostile_report("word"), "word"), RenderOptions())
    assert tags(rendered(name)) == tags(plain)
    assert is_inert(rendered(name))
    assert rendered(name, Charset.ASCII).isascii()


def test_errors_fail_and_warnings_do_not() -> None:
    failed = [case.name for case in cases("rtx_5090_old_wheel") if any(isinstance(r, junitparser.Failure) for r in case.result)]
    assert failed == [
        "CD412 arch-missing-in-wheel: GPU 0",
        "CD802 torch-proof-fails: GPU 0",
        "GPU 0 matmul sm_120",
        "GPU 0 sdpa sm_120",
    ]
    assert "Matters only when you compile." in rendered("rtx_5090_old_wheel")


def test_a_failure_holds_the_command_and_a_consequence_its_cause() -> None:
    (failure,) = case("rtx_5090_old_wheel", "CD412").result
    assert "\n  pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu130\n" in failure.text
    assert "Explained by CD412." in case("rtx_5090_old_wheel", "CD802").result[0].text


def test_what_could_not_be_judged_is_skipped_with_the_reason() -> None:
    (skipped,) = case("no_gpu", "CD102").result
    assert isinstance(skipped, junitparser.Skipped)
    assert "libnvidia-ml.so.1: cannot open shared object file" in skipped.message


def test_an_open_verdict_is_an_error_and_a_healthy_one_a_pass() -> None:
    (error,) = case("undetermined", "undetermined").result
    assert isinstance(error, junitparser.Error)
    assert case("healthy_h100", "healthy").is_passed
    assert not any(case.classname == "cudadoctor.verdict" for case in cases("no_gpu"))


def test_proofs_have_their_time_in_seconds() -> None:
    assert case("healthy_h100", "GPU 0 gemm_f32_naive_sm50 compute_50").time == pytest.approx(0.00031)


def test_a_proof_that_did_not_run_is_no_pass() -> None:
    unknown = [case for case in cases("undetermined") if case.classname == "cudadoctor.proofs.driver-jit"]
    assert unknown
    assert not any(case.is_passed for case in unknown)


def test_a_report_without_anything_still_has_a_case() -> None:
    report = structs.replace(healthy_h100(), proofs=(), verdict=Verdict.UNDETERMINED, created="yesterday")
    xml = junitparser.JUnitXml.fromstring(RENDERERS["junit"](report, RenderOptions()).encode())
    assert [case.name for suite in xml for case in suite] == ["undetermined"]
