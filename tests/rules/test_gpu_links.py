"""What connects GPUs: missing access, lost NVLinks, slow copies, an all-reduce that goes another way."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import pytest
from msgspec import structs

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import Proof, ProofLayer
from cudadoctor.model.snapshot import GpuPair, Snapshot
from cudadoctor.rules.engine import Case, Outcome, Results, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import ABSENT, FAIL, MATRICES, NOT_APPLICABLE, PASS, UNKNOWN, known, names, with_environment
from tests.rules.test_peers import P, copies, machine

NAMES = ("peer-access-missing", "nvlink-inactive", "peer-copy-slow", "all-reduce-slow")


def linked(count: int, links: int = 18, active: Callable[[int], int] = lambda gpu: 18, **pair: object) -> Snapshot:
    """A machine of H200 on a switch, or on PCIe where it has no links."""
    snapshot = machine(count)
    listed = tuple(
        structs.replace(
            gpu, nvlinks_total=known(links), nvlinks_active=known(active(gpu.index) if links else 0), nvlink_version=known("4.0"),
            pcie_generation_max=known(5), pcie_width=known(16),
        )
        for gpu in maybe(snapshot.gpus) or ()
    )  # fmt: skip
    facts = {"topology": known("PIX"), "access": known(True), "peer_status": known("OK"), "nvlinks": known(links), **pair}
    pairs = tuple(GpuPair(first=a, second=b, **facts) for a, b in combinations(range(count), 2))  # type: ignore[arg-type]  # facts by name
    return structs.replace(snapshot, gpus=known(listed), gpu_pairs=known(pairs))


def at(rate: Callable[[int, int], float], count: int) -> tuple[Proof, ...]:
    return tuple(structs.replace(proof, gb_s=rate(proof.gpu or 0, proof.peer or 0)) for proof in copies(count))


def judged(snapshot: Snapshot, proofs: tuple[Proof, ...] = ()) -> Results:
    return evaluate(Case(snapshot, MATRICES, proofs), RULES)


def finding(results: Results, name: str) -> Finding:
    (found,) = [each for each in results.findings if each.name == name]
    return found


def all_reduce(count: int, gb_s: float) -> tuple[Proof, ...]:
    return tuple(Proof(ProofLayer.NCCL, gpu, "all-reduce", None, P, gb_s=gb_s) for gpu in range(count))


@pytest.mark.parametrize(("count", "links", "rate"), [(2, 18, 360.0), (8, 18, 360.0), (4, 0, 40.0)])
def test_a_healthy_set_gives_no_finding(count: int, links: int, rate: float) -> None:
    results = judged(linked(count, links), (*at(lambda a, b: rate, count), *all_reduce(count, rate / 2)))
    assert [name for name in NAMES if results.outcome_of(name) not in (PASS, NOT_APPLICABLE)] == []
    assert names(results, Severity.WARNING) == []


def test_one_gpu_has_no_links_to_judge() -> None:
    results = judged(machine(1))
    assert {results.outcome_of(name) for name in NAMES} == {NOT_APPLICABLE}


def test_without_access_over_pcie_it_is_a_note_with_nvmls_reason() -> None:
    results = judged(linked(2, 0, access=known(False), peer_status=known("chipset not supported")))
    found = finding(results, "peer-access-missing")
    assert (found.severity, found.subject) == (Severity.NOTE, "GPU 0 and GPU 1")
    assert found.what == "No two GPUs have access to each other's memory. NVML: chipset not supported."


def test_without_access_over_nvlink_it_is_a_warning() -> None:
    found = finding(judged(linked(4, access=known(False))), "peer-access-missing")
    assert found.severity is Severity.WARNING
    assert "systemctl status nvidia-fabricmanager" in found.fixes[0].commands


@pytest.mark.parametrize(("fact", "rule"), [("access", "peer-access-missing")])
def test_a_missing_fact_is_no_pass(fact: str, rule: str) -> None:
    assert judged(linked(2, **{fact: ABSENT})).outcome_of(rule) is UNKNOWN  # type: ignore[arg-type]  # a fact by name


def test_missing_links_are_unknown_or_idle() -> None:
    assert judged(machine(4)).outcome_of("nvlink-inactive") is UNKNOWN
    assert judged(linked(4, 0)).outcome_of("nvlink-inactive") is Outcome.NOT_APPLICABLE


def test_the_gpu_that_lost_links_is_named() -> None:
    results = judged(linked(8, active=lambda gpu: 16 if gpu == 5 else 18))
    assert results.outcome_of("nvlink-inactive") is FAIL
    found = finding(results, "nvlink-inactive")
    assert found.subject == "GPU 5"
    assert "has 16 active NVLinks; 7 others of its model have 18" in found.what


def test_of_two_gpus_none_is_the_usual_one() -> None:
    assert judged(linked(2, active=lambda gpu: 16 + 2 * gpu)).outcome_of("nvlink-inactive") is PASS


@pytest.mark.parametrize(
    ("links", "slow", "words"), [(18, 100, "18 NVLinks 4.0 carries 450"), (0, 10, "the PCIe link carries 63")]
)
def test_slower_than_the_link(links: int, slow: float, words: str) -> None:
    found = finding(judged(linked(2, links), at(lambda a, b: slow, 2)), "peer-copy-slow")
    assert found.subject == "GPU 0 and GPU 1"
    assert f"are slow: {slow} GB/s, where {words}" in found.what


def test_the_slow_gpu_among_many_is_named_where_no_rate_is_known() -> None:
    snapshot = linked(8, nvlinks=ABSENT, topology=ABSENT)
    found = finding(judged(snapshot, at(lambda a, b: 90 if 3 in (a, b) else 300, 8)), "peer-copy-slow")
    assert found.subject == "GPU 3"
    assert "90 GB/s, where alike pairs reach 300" in found.what


def test_pairs_of_another_kind_are_not_compared() -> None:
    snapshot = linked(4)
    pairs = tuple(
        structs.replace(pair, nvlinks=known(0), topology=known("SYS")) if pair.first < 2 <= pair.second else pair
        for pair in maybe(snapshot.gpu_pairs) or ()
    )
    snapshot = structs.replace(snapshot, gpu_pairs=known(pairs))
    results = judged(snapshot, at(lambda a, b: 20 if (a < 2) != (b < 2) else 300, 4))
    assert results.outcome_of("peer-copy-slow") is PASS


def test_an_all_reduce_that_goes_another_way() -> None:
    snapshot = with_environment(linked(4), NCCL_P2P_DISABLE="1")
    found = finding(judged(snapshot, (*at(lambda a, b: 300, 4), *all_reduce(4, 9))), "all-reduce-slow")
    assert found.what.endswith("the slowest copy between two GPUs 300. NCCL_P2P_DISABLE is set.")


def test_lost_links_explain_slow_copies() -> None:
    results = judged(linked(4, active=lambda gpu: 2 if gpu == 1 else 18), at(lambda a, b: 40 if 1 in (a, b) else 300, 4))
    assert not finding(results, "peer-copy-slow").root
    assert finding(results, "nvlink-inactive").root
