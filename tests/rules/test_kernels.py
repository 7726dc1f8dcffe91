"""What proofs that failed or did not end say, what explains them, and that they are never a pass."""

from __future__ import annotations

import pytest

from cudadoctor.model.finding import Severity
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.engine import Case, evaluate
from cudadoctor.rules.registry import RULES
from tests.rules.build_machines import compiler, compilers, glibc, kit, machine, toolkits, variables
from tests.rules.builders import FAIL, GENERATIONS, MATRICES, names, roots, with_environment

MACHINE = next(iter(GENERATIONS.values()))
PROVEN = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.PASSED)
UNENDED = Proof(ProofLayer.NVRTC, 0, "attention", "sm_89", ProofOutcome.UNKNOWN, because="no answer within 10 s")
NOT_COMPILED = Proof(ProofLayer.NVCC, 0, "gemm", None, ProofOutcome.FAILED, because="nvcc ended with exit code 1: not found")
REFUTED = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.FAILED, ApiError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", ""))


def test_a_proof_without_an_end_is_a_warning_and_no_error() -> None:
    results = evaluate(Case(MACHINE, MATRICES, (PROVEN, UNENDED)), RULES)
    assert names(results, Severity.WARNING) == ["proof-undetermined"]
    assert names(results, Severity.ERROR) == []


def test_what_a_failed_proof_took_down_with_it_is_not_undetermined_besides() -> None:
    crash = "computing allocation on torch device 0: died of SIGSEGV"
    first = Proof(ProofLayer.TORCH, 0, "allocation", "sm_89", ProofOutcome.FAILED, because=crash)
    then = Proof(ProofLayer.TORCH, 0, "matmul", "sm_89", ProofOutcome.UNKNOWN, because=crash)
    results = evaluate(Case(MACHINE, MATRICES, (PROVEN, first, then)), RULES)
    assert names(results, Severity.WARNING) == []
    assert roots(results) == ["torch-proof-fails"]


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


@pytest.mark.parametrize(
    ("snapshot", "cause"),
    [
        (machine(toolkits(kit("12.8", missing=("cicc",)))), "toolkit-incomplete"),
        (machine(toolkits(kit("12.4")), compilers(compiler("14.2.0"))), "host-compiler-too-new"),
        (machine(glibc("2.41")), "glibc-too-new"),
        (
            machine(compilers(compiler("", chosen_by="NVCC_CCBIN", path="/opt/gone/g++")), variables(NVCC_CCBIN="/opt/gone/g++")),
            "host-compiler-path-broken",
        ),
    ],
)
def test_why_nvcc_makes_no_code_is_the_root(snapshot: Snapshot, cause: str) -> None:
    results = evaluate(Case(snapshot, MATRICES, (PROVEN, NOT_COMPILED)), RULES)
    assert [(found.name, found.severity) for found in results.findings if found.root][:1] == [(cause, Severity.ERROR)]
    assert next(found for found in results.findings if found.name == "kernel-proof-fails").root is False


def test_a_kernel_that_fails_at_run_time_is_not_laid_to_the_compiler() -> None:
    incomplete = machine(toolkits(kit("12.8", missing=("cicc",))))
    results = evaluate(Case(incomplete, MATRICES, (REFUTED, NOT_COMPILED)), RULES)
    assert {(found.name, found.severity) for found in results.findings if found.root} >= {
        ("kernel-proof-fails", Severity.ERROR),
        ("toolkit-incomplete", Severity.WARNING),
    }


@pytest.mark.parametrize(
    ("variable", "layer", "error", "cause"),
    [
        ("CUDA_FORCE_PTX_JIT", ProofLayer.TORCH, None, "ptx-jit-forced"),
        (
            "CUDA_DISABLE_PTX_JIT",
            ProofLayer.DRIVER_JIT,
            ApiError(223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", ""),
            "ptx-jit-disabled",
        ),
    ],
)
def test_a_switch_that_breaks_kernels_is_the_root(variable: str, layer: ProofLayer, error: ApiError | None, cause: str) -> None:
    failed = Proof(layer, 0, "gemm", "sm_89", ProofOutcome.FAILED, error)
    switched = with_environment(MACHINE, **{variable: "1"})
    results = evaluate(Case(switched, MATRICES, (failed,)), RULES)
    assert [(found.name, found.severity) for found in results.findings if found.root][:1] == [(cause, Severity.ERROR)]
    assert not any(found.root for found in results.findings if found.name.endswith("-proof-fails"))
    other = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_89", ProofOutcome.FAILED, ApiError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", ""))
    assert roots(evaluate(Case(switched, MATRICES, (other,)), RULES)) == ["kernel-proof-fails"]
