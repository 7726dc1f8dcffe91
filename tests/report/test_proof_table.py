"""Proofs in rows: the worst outcome is what a cell shows, and a skipped or unknown proof never looks passed."""

from __future__ import annotations

import pytest

from cudadoctor.model.finding import Evidence, Finding, Severity
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.report.marks import Mark
from cudadoctor.report.proof_table import KernelKind, proof_reason, proof_rows

P, F, S, U = ProofOutcome.PASSED, ProofOutcome.FAILED, ProofOutcome.SKIPPED, ProofOutcome.UNKNOWN


def proof(outcome: ProofOutcome, kernel: str = "gemm_f32", gpu: int | None = 0, because: str | None = None) -> Proof:
    return Proof(ProofLayer.NVRTC, gpu, kernel, "sm_90", outcome, because=because)


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("gemm_f32_naive_sm50", KernelKind.GEMM),
        ("matmul", KernelKind.GEMM),
        ("attn_fwd_f16_fused_sm50", KernelKind.ATTENTION),
        ("attention_f32", KernelKind.ATTENTION),
        ("SDPA", KernelKind.ATTENTION),
        ("all-reduce", KernelKind.OTHER),
        ("all", KernelKind.EVERY),
    ],
)
def test_kind_of_kernel(kernel: str, kind: KernelKind) -> None:
    assert KernelKind.of(kernel) is kind


@pytest.mark.parametrize(
    ("outcomes", "mark", "words"),
    [
        ((P,), Mark.OK, "right"),
        ((S,), Mark.ABSENT, "skipped"),
        ((U,), Mark.UNKNOWN, "unknown"),
        ((F,), Mark.ERROR, "failed"),
        ((P, F), Mark.ERROR, "1 of 2: failed"),
        ((P, U), Mark.UNKNOWN, "1 of 2: unknown"),
        ((U, F, P), Mark.ERROR, "1 of 3: failed"),
        ((P, S), Mark.OK, "1 of 2: right"),
    ],
)
def test_worst_outcome_wins(outcomes: tuple[ProofOutcome, ...], mark: Mark, words: str) -> None:
    (row,) = proof_rows([proof(outcome, f"gemm_{n}") for n, outcome in enumerate(outcomes)])
    assert row.gemm is not None
    assert (row.gemm.mark, row.gemm.words) == (mark, words)
    assert row.attention is None


def test_times_are_a_range_and_the_rate_is_the_best() -> None:
    proofs = [
        Proof(ProofLayer.NVCC, 0, "gemm_a", "sm_90", P, run_ms=0.314, tflops=4.2),
        Proof(ProofLayer.NVCC, 0, "gemm_b", "sm_90", P, run_ms=0.1, tflops=61.4),
    ]
    (row,) = proof_rows(proofs)
    assert row.gemm is not None
    assert (row.gemm.words, row.gemm.rate) == ("0.10 to 0.31 ms", "61 TFLOPS")


def test_reasons_are_said_once() -> None:
    (row,) = proof_rows([proof(S, "gemm", because="no nvcc"), proof(S, "attention", because="no nvcc")])
    assert row.note == "no nvcc"


def test_the_sick_gpu_has_a_row_of_its_own() -> None:
    rows = proof_rows([proof(F if gpu == 3 else P, gpu=gpu) for gpu in range(8)])
    assert [(row.gpus, row.gemm.mark) for row in rows if row.gemm] == [("GPU 0..2, 4..7", Mark.OK), ("GPU 3", Mark.ERROR)]


def test_layers_are_in_order_from_the_driver_up() -> None:
    proofs = [Proof(layer, 0, "gemm", None, P) for layer in reversed(ProofLayer)]
    assert [row.layer for row in proof_rows(proofs)] == ["driver", "NVRTC", "nvcc", "torch", "extension", "peer", "NCCL"]


def test_kernels_without_a_column_are_in_the_note() -> None:
    rows = proof_rows([proof(P, "conv"), proof(F, "allocation", because="out of memory"), proof(P, "matmul")])
    assert rows[0].note == "also right: conv; allocation failed; out of memory"


def test_the_reason_names_the_error() -> None:
    error = ApiError(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image")
    failed = Proof(ProofLayer.NVRTC, 0, "gemm", "sm_90", F, error=error)
    assert proof_reason(failed) == "CUDA_ERROR_NO_BINARY_FOR_GPU (209): no kernel image"
    assert proof_reason(proof(P)) == ""
    (row,) = proof_rows([failed])
    assert row.gemm is not None
    assert row.gemm.words == "error 209"


def test_a_layer_that_could_not_be_tried_shows_in_both_columns() -> None:
    (row,) = proof_rows([proof(S, "all", because="no torch")])
    assert [cell and cell.words for cell in (row.gemm, row.attention)] == ["skipped", "skipped"]
    assert row.note == "no torch"


def failing(layer: ProofLayer = ProofLayer.TORCH, gpu: int = 0) -> Proof:
    error = ApiError(209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image")
    return Proof(layer, gpu, "matmul", "sm_120", F, error=error)


def finding(code: str, *, root: bool, explains: tuple[str, ...] = (), proof_of: str = "", subject: str = "GPU 0") -> Finding:
    evidence = (Evidence(fact=proof_of, value="", source=""),) if proof_of else ()
    name = "a-problem"
    return Finding(
        code=code, name=name, severity=Severity.ERROR, subject=subject, what="", root=root, explains=explains, evidence=evidence
    )


@pytest.mark.parametrize(
    ("findings", "note"),
    [
        ((), "no kernel image"),
        ((finding("CD802", root=True, proof_of="proofs.torch.matmul"),), "explained by CD802"),
        (
            (finding("CD412", root=True, explains=("CD802",)), finding("CD802", root=False, proof_of="proofs.torch.matmul")),
            "explained by CD412",
        ),
        ((finding("CD802", root=True, proof_of="proofs.nvcc.matmul"),), "no kernel image"),
        ((finding("CD802", root=True, proof_of="proofs.torch.matmul", subject="GPU 1"),), "no kernel image"),
    ],
)
def test_a_failure_refers_to_the_finding_that_explains_it(findings: tuple[Finding, ...], note: str) -> None:
    (row,) = proof_rows([failing()], findings)
    assert row.note == note
