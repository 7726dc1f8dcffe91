"""An all-reduce that fails: on one rank, on all, beside what explains it."""

from __future__ import annotations

import pytest

from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.rules.engine import Case, Results, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import FAIL, MATRICES, NOT_APPLICABLE, PASS, names, roots
from tests.rules.test_peers import F, P, U, address, copies, machine, uuid


def rank(gpu: int, outcome: ProofOutcome, because: str = "", error: ApiError | None = None) -> Proof:
    return Proof(ProofLayer.NCCL, gpu, "all-reduce", None, outcome, error, because or None)


def judged(*proofs: Proof, count: int = 4) -> Results:
    return evaluate(Case(machine(count), MATRICES, proofs), RULES)


def finding(results: Results) -> Finding:
    (found,) = [each for each in results.findings if each.name == "nccl-proof-fails"]
    return found


def test_right_sums_give_no_finding() -> None:
    results = judged(*(rank(gpu, P) for gpu in range(4)))
    assert results.outcome_of("nccl-proof-fails") is PASS
    assert names(results, Severity.ERROR) == []


@pytest.mark.parametrize("proofs", [(), (Proof(ProofLayer.NCCL, None, "all", None, ProofOutcome.SKIPPED, because="one GPU"),)])
def test_without_ranks_the_question_does_not_arise(proofs: tuple[Proof, ...]) -> None:
    assert judged(*proofs).outcome_of("nccl-proof-fails") is NOT_APPLICABLE


def test_the_rank_that_fails_is_named_and_those_it_took_along_are_not_undetermined() -> None:
    ended = "ended, as the rank on GPU 2 failed"
    results = judged(rank(0, U, ended), rank(1, U, ended), rank(2, F, "timing: died of SIGSEGV"), rank(3, U, ended))
    assert results.outcome_of("nccl-proof-fails") is FAIL
    assert finding(results).subject == "GPU 2"
    assert f"fails on GPU 2 (NVIDIA H200, {uuid(2)}, {address(2)}): timing: died of SIGSEGV" in finding(results).what
    assert names(results, Severity.WARNING) == []


def test_where_all_ranks_fail_no_gpu_is_blamed() -> None:
    results = judged(*(rank(gpu, F, "9 of 1000003 sums are wrong (seed 1)") for gpu in range(4)))
    assert finding(results).subject == "GPUs"
    assert "over 4 GPUs fails on 4 of them" in finding(results).what


def test_what_is_proven_below_puts_the_fault_into_nccl() -> None:
    torch = tuple(Proof(ProofLayer.TORCH, gpu, "matmul", "sm_90", P) for gpu in range(4))
    results = judged(*torch, *copies(4), rank(0, F, "unhandled system error"))
    assert finding(results).why.startswith(
        "Each GPU computes by itself and copies between them are right, so the fault is in NCCL"
    )


def test_wrong_copies_explain_a_failing_all_reduce() -> None:
    results = judged(*copies(4, lambda a, b: 1 in (a, b)), rank(0, F, "sums are wrong"))
    assert roots(results) == ["peer-copy-fails"]


def test_ranks_that_hang_leave_the_verdict_open() -> None:
    results = judged(*(rank(gpu, U, "the first all-reduce: no answer within 20 s") for gpu in range(2)))
    assert names(results, Severity.ERROR) == []
    assert names(results, Severity.WARNING) == ["proof-undetermined"]
