"""What a summary says: classes, newest reports, drift, missing GPUs, stragglers, names."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from cudadoctor.commands.fleet_summary import exit_code
from cudadoctor.exit_codes import ExitCode
from cudadoctor.fleet.documents import Item
from cudadoctor.fleet.gathering import Gathered
from cudadoctor.fleet.summarising import summarise
from cudadoctor.fleet.summary import FleetSummary, SilentNode
from cudadoctor.fleet.timings import LEAST_GPUS
from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.proof import ProofLayer
from cudadoctor.model.report import Report
from cudadoctor.model.versions import DriverRelease
from tests.fleet.small import NOISY, SLOW, found, no_report, small_summary, timed
from tests.report.sample_reports import SAMPLES, healthy_h100


def summary_of(*reports: Report, expected: Sequence[str] = ()) -> FleetSummary:
    gathered = Gathered()
    gathered.add_all(found(report) for report in reports)
    return summarise(gathered, expected)


def node(name: str, sample: str = "healthy_h100", created: str = "2026-11-30T12:00:00Z") -> Report:
    return structs.replace(SAMPLES[sample](), node=name, created=created)


def with_driver(report: Report, release: str) -> Report:
    driver = structs.replace(report.snapshot.driver, driver_release=Known(DriverRelease.parse(release), "NVML"))
    return structs.replace(report, snapshot=structs.replace(report.snapshot, driver=driver))


def with_gpus(report: Report, count: int) -> Report:
    (gpu,) = maybe(report.snapshot.gpus) or ()
    gpus = tuple(structs.replace(gpu, index=index) for index in range(count))
    return structs.replace(report, snapshot=structs.replace(report.snapshot, gpus=Known(gpus, "NVML")))


def test_equal_nodes_are_one_class_and_odd_ones_come_first() -> None:
    summary = summary_of(node("b"), node("sick", "sick_node"), node("a"), node("hung", "undetermined"))
    assert [(row.nodes, row.verdict, row.is_usual) for row in summary.classes] == [
        (("sick",), "problems", False),
        (("hung",), "undetermined", False),
        (("a", "b"), "healthy", True),
    ]
    assert [finding.name for finding in summary.classes[0].findings] == ["gpu-lost"]
    assert summary.classes[0].about[0].subjects == ("CD510 GPU 3",)


def test_a_node_that_was_asked_in_vain_is_named_with_the_reason() -> None:
    gathered = Gathered()
    gathered.add_all([found(node("a")), no_report("b", "is down"), no_report("b", "is draining")])
    summary = summarise(gathered, ("a", "b", "c"))
    assert summary.no_report == (SilentNode("b", "is draining"),)
    assert summary.not_reported == ("c",)
    assert exit_code(summary, "error") is ExitCode.UNDETERMINED
    assert summary.summary == "No problem was found on 1 node. 1 node gave no report; 1 node never reported."


@pytest.mark.parametrize(("created", "silent"), [("2026-11-30T11:00:00Z", False), ("2026-11-30T13:00:00Z", True)])
def test_a_report_counts_where_it_is_newer_than_the_silence(created: str, silent: bool) -> None:
    items: list[Item] = [found(node("a")), no_report("a", "is down", created)]
    for stream in (items, items[::-1]):
        gathered = Gathered()
        gathered.add_all(stream)
        summary = summarise(gathered)
        assert [each.node for each in summary.no_report] == ["a"] * silent
        assert summary.counts.nodes == 1


def test_where_all_nodes_are_silent_nothing_was_unreadable() -> None:
    gathered = Gathered()
    gathered.add_all([no_report("a", "is down")])
    assert exit_code(summarise(gathered), "error") is ExitCode.UNDETERMINED


@pytest.mark.parametrize("newer_first", [True, False])
def test_of_two_reports_of_one_node_the_newer_counts(newer_first: bool) -> None:
    older, newer = node("a", "sick_node", "2026-11-29T23:00:00Z"), node("a", created="2026-11-30T00:00:00+00:00")
    summary = summary_of(*((newer, older) if newer_first else (older, newer)))
    assert [row.verdict for row in summary.classes] == ["healthy"]
    assert (summary.counts.reports, summary.counts.nodes, summary.counts.superseded) == (2, 1, 1)


def test_a_time_that_is_none_is_older_than_any() -> None:
    summary = summary_of(node("a"), node("a", "sick_node", "yesterday"))
    assert [row.verdict for row in summary.classes] == ["healthy"]


def test_nodes_are_named_by_report_file_and_line() -> None:
    gathered = Gathered()
    nameless = structs.replace(healthy_h100(), node=None)
    for file, line in (("x/n1.json.gz", 1), ("x/many.jsonl", 3), ("", 9), ("y/n1.json", 1)):
        gathered.add_all([found(nameless, file, line)])
    assert list(gathered.rows) == ["n1", "many line 3", "line 9", "y/n1.json"]


def test_drift_is_told_within_one_model_of_gpu() -> None:
    summary = summary_of(node("a"), node("b"), with_driver(node("c"), "575.57.08"), node("other", "rtx_5090_old_wheel"))
    (drift,) = summary.drift
    assert drift.part == "driver"
    assert [(share.version, share.nodes) for share in drift.shares] == [("580.95.05", ("a", "b")), ("575.57.08", ("c",))]


def test_fewer_gpus_than_most_have() -> None:
    summary = summary_of(*(with_gpus(node(name), 8) for name in "abc"), with_gpus(node("d"), 7))
    (fewer,) = summary.fewer_gpus
    assert (fewer.node, fewer.count, fewer.usual, fewer.nodes_with_usual) == ("d", 7, 8, 3)


@pytest.mark.parametrize("counts", [(8, 8, 4, 4), (8, 7), (4, 8)])
def test_no_gpu_is_missing_where_no_number_is_usual(counts: tuple[int, ...]) -> None:
    assert summary_of(*(with_gpus(node(f"n{at}"), count) for at, count in enumerate(counts))).fewer_gpus == ()


def test_a_straggler_is_slow_in_most_kernels_and_a_noisy_value_is_none() -> None:
    usual = [timed(f"n{number}") for number in range(LEAST_GPUS)]
    summary = summary_of(*usual, timed("slow", (SLOW,) * 100), timed("noisy", (NOISY,)))
    (straggler,) = summary.stragglers
    assert (straggler.node, straggler.slow_kernels) == ("slow", straggler.judged_kernels)
    assert straggler.ratio == pytest.approx(SLOW, rel=1e-3)
    assert summary.kernels[0].slowest_node == "noisy"


def test_a_spread_that_is_usual_makes_no_straggler() -> None:
    reports = [timed(f"n{number}", (1 + number / 50,) * 100) for number in range(20)]
    assert summary_of(*reports).stragglers == ()


def test_times_of_links_are_not_compared_as_those_of_kernels() -> None:
    def between_gpus(report: Report) -> Report:
        proofs = tuple(structs.replace(proof, layer=ProofLayer.PEER, peer=1) for proof in report.proofs)
        return structs.replace(report, proofs=proofs)

    usual = [between_gpus(timed(f"n{number}")) for number in range(LEAST_GPUS)]
    summary = summary_of(*usual, between_gpus(timed("slow", (SLOW,) * 100)))
    assert (summary.stragglers, summary.kernels) == ((), ())


def test_few_gpus_have_no_usual_time() -> None:
    reports = [timed(f"n{number}") for number in range(LEAST_GPUS - 2)]
    summary = summary_of(*reports, timed("slow", (SLOW,) * 100))
    assert (summary.stragglers, summary.kernels) == ((), ())


def test_an_older_report_lends_no_times() -> None:
    usual = [timed(f"n{number}") for number in range(LEAST_GPUS)]
    older = structs.replace(timed("n0", (SLOW,) * 100), created="2026-11-01T00:00:00Z")
    assert summary_of(older, *usual).stragglers == ()


def test_silent_and_unexpected_nodes() -> None:
    summary = summary_of(node("a"), node("stranger"), expected=("a", "b"))
    assert (summary.not_reported, summary.not_listed) == (("b",), ("stranger",))
    assert summary_of(node("a")).not_listed == ()


@pytest.mark.parametrize(
    ("summary", "fail_on", "code"),
    [
        (summary_of(node("a")), "error", ExitCode.OK),
        (summary_of(node("a", "sick_node"), node("b")), "error", ExitCode.PROBLEMS),
        (summary_of(node("a", "sick_node"), node("b")), "never", ExitCode.OK),
        (summary_of(node("a"), with_driver(node("b"), "575.57.08")), "error", ExitCode.OK),
        (summary_of(node("a"), with_driver(node("b"), "575.57.08")), "warning", ExitCode.PROBLEMS),
        (summary_of(node("a"), node("b", "undetermined")), "error", ExitCode.UNDETERMINED),
        (summary_of(node("a"), expected=("a", "b")), "error", ExitCode.UNDETERMINED),
        (summary_of(), "error", ExitCode.USAGE),
        (small_summary(), "error", ExitCode.USAGE),
        (small_summary(), "never", ExitCode.USAGE),
    ],
)
def test_exit_codes(summary: FleetSummary, fail_on: str, code: ExitCode) -> None:
    assert exit_code(summary, fail_on) is code
