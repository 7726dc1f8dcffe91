"""The metrics, read back by Prometheus' own client library."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from msgspec import structs
from prometheus_client.parser import text_string_to_metric_families

from cudadoctor.model.proof import ProofOutcome
from cudadoctor.model.report import Report
from cudadoctor.report import RENDERERS, Charset, RenderOptions
from tests.report.ci_reports import NAMES, is_inert, report_of, with_file_named
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import SAMPLES, healthy_h100

Labels = dict[str, str]
Series = dict[str, list[tuple[Labels, float]]]


def rendered(name: str, charset: Charset = Charset.UNICODE) -> str:
    return RENDERERS["prometheus"](report_of(name), RenderOptions(charset=charset))


def series(report: Report) -> Series:
    families = text_string_to_metric_families(RENDERERS["prometheus"](report, RenderOptions()))
    return {family.name: [(sample.labels, sample.value) for sample in family.samples] for family in families}


def value(samples: list[tuple[Labels, float]], **labels: str) -> float:
    (found,) = [value for of_sample, value in samples if labels.items() <= of_sample.items()]
    return found


@pytest.mark.parametrize("name", SAMPLES)
def test_golden(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}/report.prom", rendered(name))


@pytest.mark.parametrize("name", NAMES)
def test_every_metric_is_documented_and_every_series_is_there_once(name: str) -> None:
    families = list(text_string_to_metric_families(rendered(name)))
    assert all(family.name.startswith("cudadoctor_") and family.documentation and family.type == "gauge" for family in families)
    seen = Counter((sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples)
    assert set(seen.values()) == {1}


def test_a_healthy_machine_has_the_same_metrics_as_a_sick_one() -> None:
    assert series(healthy_h100()).keys() == series(report_of("undetermined")).keys()


@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_makes_a_line_or_hides(name: str) -> None:
    plain = RENDERERS["prometheus"](with_file_named(hostile_report("word"), "word"), RenderOptions())
    missing = 0 if HOSTILE[name] else 2  # an empty release is no driver_info, an empty version no matrix
    assert abs(rendered(name).count("\n") - plain.count("\n")) <= missing
    assert is_inert(rendered(name))
    assert rendered(name, Charset.ASCII).isascii()


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\\", 'a\\"', "a,b}c", "{x=1}", "a\\nb"])
def test_label_values_read_back_exactly(text: str) -> None:
    report = structs.replace(healthy_h100(), node=text)
    assert series(report)["cudadoctor_info"][0][0]["node"] == text


def test_the_verdict_is_one_of_three() -> None:
    verdicts = series(report_of("undetermined"))["cudadoctor_verdict"]
    assert {labels["verdict"]: value for labels, value in verdicts} == {"healthy": 0, "problems": 0, "undetermined": 1}


def test_findings_are_counted_by_severity_and_by_rule() -> None:
    found = series(report_of("sick_node"))
    assert value(found["cudadoctor_findings"], severity="error") == 2
    assert value(found["cudadoctor_findings"], severity="warning") == 0
    assert value(found["cudadoctor_finding"], name="benign-persistence-off") == 7
    assert value(found["cudadoctor_finding"], name="gpu-lost", root="true") == 1
    assert value(series(report_of("no_gpu"))["cudadoctor_unknown_rules"]) == 2


def test_proofs_have_outcome_time_and_rate() -> None:
    found = series(healthy_h100())
    gemm = {"layer": "driver-jit", "gpu": "0", "kernel": "gemm_f32_naive_sm50", "target": "compute_50"}
    assert value(found["cudadoctor_proof_outcome"], **gemm, outcome="passed") == 1
    assert value(found["cudadoctor_proof_run_seconds"], **gemm) == pytest.approx(0.31e-3)
    assert value(found["cudadoctor_proof_tflops"], **gemm) == pytest.approx(8.4 / 0.31)


def test_of_two_proofs_with_the_same_labels_the_worse_counts() -> None:
    good = healthy_h100().proofs[0]
    bad = structs.replace(good, outcome=ProofOutcome.FAILED)
    for proofs in ((good, bad), (bad, good)):
        found = series(structs.replace(healthy_h100(), proofs=proofs))["cudadoctor_proof_outcome"]
        assert [labels["outcome"] for labels, _ in found] == ["failed"]


def test_driver_gpus_and_torch_are_labels() -> None:
    found = series(report_of("sick_node"))
    assert value(found["cudadoctor_driver_info"], driver_release="550.144.03", driver_cuda_version="12.4") == 1
    assert value(found["cudadoctor_gpu_info"], gpu="7", name="NVIDIA H100 80GB HBM3", compute_capability="9.0") == 1
    assert value(found["cudadoctor_gpu_info"], gpu="3", name="", compute_capability="") == 1
    assert value(found["cudadoctor_torch_info"], torch_version="2.5.1+cu124", torch_cuda_version="12.4") == 1
    assert series(report_of("no_gpu"))["cudadoctor_torch_info"] == []


def test_a_date_that_is_none_gives_no_time() -> None:
    assert series(structs.replace(healthy_h100(), created="yesterday"))["cudadoctor_report_timestamp_seconds"] == []
    assert value(series(healthy_h100())["cudadoctor_report_timestamp_seconds"]) == 1796040000
