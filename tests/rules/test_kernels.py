"""What proofs that did not end say, and that they are never a pass."""

from __future__ import annotations

from cudadoctor.model.finding import Severity
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.rules.engine import Case, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.builders import FAIL, GENERATIONS, MATRICES, names

MACHINE = next(iter(GENERATIONS.values()))
PROVEN = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.PASSED)
UNENDED = Proof(ProofLayer.NVRTC, 0, "attention", "sm_89", ProofOutcome.UNKNOWN, because="no answer within 10 s")
REFUTED = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.FAILED, ApiError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", ""))


def test_a_proof_without_an_end_is_a_warning_and_no_error() -> None:
    results = evaluate(Case(MACHINE, MATRICES, (PROVEN, UNENDED)), RULES)
    assert names(results, Severity.WARNING) == ["proof-undetermined"]
    assert names(results, Severity.ERROR) == []


def test_proofs_that_ended_leave_nothing_undetermined() -> None:
    for proofs in ((PROVEN,), (REFUTED,)):
        results = evaluate(Case(MACHINE, MATRICES, proofs), RULES)
        assert "proof-undetermined" not in names(results, Severity.WARNING)


def test_one_finding_names_every_unended_layer() -> None:
    other = Proof(ProofLayer.NVCC, 0, "gemm", "sm_89", ProofOutcome.UNKNOWN, because="the child was killed")
    results = evaluate(Case(MACHINE, MATRICES, (UNENDED, other)), RULES)
    (finding,) = [each for each in results.findings if each.name == "proof-undetermined"]
    assert results.outcome_of("proof-undetermined") is FAIL
    assert [each.fact for each in finding.evidence] == ["proofs.nvrtc.attention", "proofs.nvcc.gemm"]
