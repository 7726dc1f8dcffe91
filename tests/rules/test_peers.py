"""Copies between GPUs that fail: one sick GPU, one pair, all of them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import permutations

import pytest
from msgspec import structs

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.engine import Case, Results, evaluate
from cudadoctor.rules.peers import culprits
from cudadoctor.rules.registry import RULES
from tests.rules.builders import FAIL, MATRICES, NOT_APPLICABLE, PASS, healthy, known, names

P, F, U = ProofOutcome.PASSED, ProofOutcome.FAILED, ProofOutcome.UNKNOWN
WRONG = "wrong data: 1 of 4096 pages differ, the first at byte 8388608 (seed 7)"


def machine(count: int) -> Snapshot:
    snapshot = healthy("NVIDIA H200", "9.0", count=count, pci_id="2335")
    named = (
        structs.replace(gpu, uuid=known(uuid(gpu.index)), pci_bus_id=known(address(gpu.index)))
        for gpu in maybe(snapshot.gpus) or ()
    )
    return structs.replace(snapshot, gpus=known(tuple(named)))


def uuid(index: int) -> str:
    return f"GPU-0000000{index}-1111-2222-3333-444444444444"


def address(index: int) -> str:
    return f"0000:0{index + 1}:00.0"


def copies(count: int, bad: Callable[[int, int], bool] = lambda a, b: False) -> tuple[Proof, ...]:
    return tuple(
        Proof(ProofLayer.PEER, a, "peer-copy", None, F if bad(a, b) else P, because=WRONG if bad(a, b) else None, peer=b)
        for a, b in permutations(range(count), 2)
    )


def judged(count: int, proofs: tuple[Proof, ...]) -> Results:
    return evaluate(Case(machine(count), MATRICES, proofs), RULES)


def findings(results: Results, name: str = "peer-copy-fails") -> list[Finding]:
    return [finding for finding in results.findings if finding.name == name]


@pytest.mark.parametrize("count", [2, 4, 8])
def test_right_copies_give_no_finding(count: int) -> None:
    results = judged(count, copies(count))
    assert results.outcome_of("peer-copy-fails") is PASS
    assert names(results, Severity.ERROR) == []


def test_without_copies_the_question_does_not_arise() -> None:
    skipped = Proof(ProofLayer.PEER, None, "all", None, ProofOutcome.SKIPPED, because="not applicable: one GPU")
    for proofs in ((), (skipped,)):
        assert judged(1, proofs).outcome_of("peer-copy-fails") is NOT_APPLICABLE


@pytest.mark.parametrize("count", [4, 8])
def test_one_sick_gpu_among_many_is_named_alone(count: int) -> None:
    results = judged(count, copies(count, lambda a, b: 2 in (a, b)))
    assert results.outcome_of("peer-copy-fails") is FAIL
    (finding,) = findings(results)
    assert finding.subject == "GPU 2" and finding.root
    assert f"GPU 2 (NVIDIA H200, {uuid(2)}, {address(2)}) and every other GPU fail: {WRONG}" in finding.what
    assert f"That is so of {2 * (count - 1)} of {count * (count - 1)} copies" in finding.why
    assert {item.fact for item in finding.evidence} == {"proofs.peer.peer-copy", "gpus[2].uuid", "gpus[2].pci_bus_id"}


def test_two_sick_gpus_are_named_each() -> None:
    assert [each.subject for each in findings(judged(8, copies(8, lambda a, b: bool({a, b} & {2, 5}))))] == ["GPU 2", "GPU 5"]


def test_one_pair_is_named_as_a_pair() -> None:
    (finding,) = findings(judged(8, copies(8, lambda a, b: {a, b} == {1, 6})))
    assert finding.subject == "GPU 1 and GPU 6"
    assert finding.what.count("NVIDIA H200") == 2


def test_one_direction_is_enough() -> None:
    (finding,) = findings(judged(4, copies(4, lambda a, b: (a, b) == (3, 0))))
    assert finding.subject == "GPU 0 and GPU 3"
    assert finding.evidence[0].value == f"GPU 3 to GPU 0: {WRONG}"


def test_where_all_fail_no_gpu_is_blamed() -> None:
    (finding,) = findings(judged(4, copies(4, lambda a, b: True)))
    assert finding.subject == "GPUs"
    assert "between the GPUs 0-1, 0-2, 0-3, 1-2, 1-3, 2-3 fail" in finding.what
    assert "IOMMU" in finding.why


def test_of_two_gpus_the_pair_is_named() -> None:
    (finding,) = findings(judged(2, copies(2, lambda a, b: True)))
    assert finding.subject == "GPU 0 and GPU 1"


@pytest.mark.parametrize(
    ("count", "sick", "named"), [(4, {0}, (0,)), (3, {0, 1}, ()), (8, {1, 7}, (1, 7)), (2, {0}, ()), (4, set(), ())]
)
def test_culprits(count: int, sick: Collection[int], named: tuple[int, ...]) -> None:
    tried = copies(count, lambda a, b: a in sick or b in sick)
    assert culprits([proof for proof in tried if proof.outcome is F], tried) == named


def test_copies_that_hang_leave_the_verdict_open_and_are_no_error() -> None:
    hung = tuple(
        Proof(ProofLayer.PEER, p.gpu, p.kernel, None, U, because="gave no answer within 5.0 s", peer=p.peer) for p in copies(2)
    )
    results = judged(2, hung)
    assert names(results, Severity.ERROR) == []
    assert names(results, Severity.WARNING) == ["peer-copy-fails"]
    assert "did not come to an end: gave no answer within 5.0 s" in findings(results)[0].what


def test_the_gpu_that_hangs_is_named_alone() -> None:
    hung = tuple(structs.replace(p, outcome=U, because="hung") if 3 in (p.gpu, p.peer) else p for p in copies(8))
    (finding,) = findings(judged(8, hung))
    assert (finding.subject, finding.severity) == ("GPU 3", Severity.WARNING)


def test_a_target_that_others_fill_is_no_fault_of_the_copies() -> None:
    snapshot = machine(2)
    listed = tuple(
        structs.replace(gpu, memory_total_bytes=known(100), memory_used_bytes=known(97 if gpu.index else 3))
        for gpu in maybe(snapshot.gpus) or ()
    )
    full = ApiError(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
    starved = tuple(structs.replace(proof, error=full, because="cuMemAlloc_v2 failed") for proof in copies(2, lambda a, b: True))
    results = evaluate(Case(structs.replace(snapshot, gpus=known(listed)), MATRICES, starved), RULES)
    assert names(results, Severity.ERROR) == []
    assert names(evaluate(Case(machine(2), MATRICES, starved), RULES), Severity.ERROR) == ["peer-copy-fails"]
