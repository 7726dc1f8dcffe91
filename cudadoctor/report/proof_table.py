"""Proofs as a table: one row per layer and group of GPUs that behave alike, one column per kind of kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from cudadoctor.model.finding import Finding
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.report.marks import OF_OUTCOME, Mark
from cudadoctor.report.ranges import number_ranges


class KernelKind(Enum):
    """The columns of the table."""

    GEMM = "GEMM"
    ATTENTION = "attention"
    OTHER = "other"
    EVERY = "every"
    """Not one kernel but the whole layer, which could not be tried."""

    @classmethod
    def of(cls, kernel: str) -> KernelKind:
        """The kind, from the kernel's name."""
        name = kernel.lower()
        if name in ("all", ""):
            return cls.EVERY
        if any(word in name for word in ("gemm", "matmul")):
            return cls.GEMM
        return cls.ATTENTION if any(word in name for word in ("attention", "attn", "sdpa")) else cls.OTHER


LAYER_NAMES = {
    ProofLayer.DRIVER_JIT: "driver",
    ProofLayer.NVRTC: "NVRTC",
    ProofLayer.NVCC: "nvcc",
    ProofLayer.TORCH: "torch",
    ProofLayer.TORCH_EXTENSION: "extension",
    ProofLayer.PEER: "peer",
    ProofLayer.NCCL: "NCCL",
}

WORST_FIRST = (ProofOutcome.FAILED, ProofOutcome.UNKNOWN, ProofOutcome.PASSED, ProofOutcome.SKIPPED)


BETWEEN_GPUS = (ProofLayer.PEER, ProofLayer.NCCL)
SET_NAMES = {"peer-copy": "copies", "staged-copy": "copies through the host", "all-reduce": "ranks of an all-reduce"}
MOST_REASONS = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """All proofs of one kind of kernel in one row: the worst outcome, and figures or an error in words; raw text."""

    mark: Mark
    words: str
    rate: str = ""
    """The best rate, `70 TFLOPS`; empty where it is not known or below 1."""


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One layer on one group of GPUs; `gpus` is empty where it makes no difference."""

    layer: str
    gpus: str
    gemm: Cell | None
    attention: Cell | None
    note: str


def proof_rows(proofs: Sequence[Proof], findings: Sequence[Finding] = ()) -> tuple[ProofRow, ...]:
    """The rows in the order of the layers, lowest first; a failure that a finding is about refers to it."""
    several = len({proof.gpu for proof in proofs if proof.gpu is not None}) > 1
    rows: list[ProofRow] = []
    for layer in ProofLayer:
        of_layer = [proof for proof in proofs if proof.layer is layer]
        if layer in BETWEEN_GPUS:
            rows.extend(_row_of_set(of_layer, findings))
        else:
            rows.extend(_row(group, findings, several=several) for group in _alike(of_layer))
    return tuple(rows)


def _row_of_set(proofs: Sequence[Proof], findings: Sequence[Finding]) -> Iterator[ProofRow]:
    """One row for what needs several GPUs; none where there are not several, which is nobody's problem."""
    if any(KernelKind.of(proof.kernel) is not KernelKind.EVERY or proof.outcome is not ProofOutcome.SKIPPED for proof in proofs):
        counts = [_count(kernel, proofs) for kernel in dict.fromkeys(proof.kernel for proof in proofs)]
        note = "; ".join([*counts, *_explanations(proofs, findings)[:MOST_REASONS]])
        yield ProofRow(LAYER_NAMES[proofs[0].layer], "", None, None, note)


def _count(kernel: str, proofs: Sequence[Proof]) -> str:
    """`56 copies right, 350 to 380 GB/s`; `12 of 56 copies right, 14 failed`."""
    of_kernel = [proof for proof in proofs if proof.kernel == kernel]
    tally = Counter(proof.outcome for proof in of_kernel)
    right, total = tally.pop(ProofOutcome.PASSED, 0), len(of_kernel)
    rates = [proof.gb_s for proof in of_kernel if proof.outcome is ProofOutcome.PASSED and proof.gb_s is not None]
    low, high = (_rate(min(rates)), _rate(max(rates))) if rates else ("", "")
    speed = [f"{low} GB/s" if low == high else f"{low} to {high} GB/s"] if rates else []
    rest = [f"{tally[outcome]} {outcome.value}" for outcome in WORST_FIRST if outcome in tally]
    name = SET_NAMES.get(kernel, kernel)
    if not right:
        return f"{name}: {', '.join(rest)}"
    return ", ".join([f"{right} of {total} {name} right" if rest else f"{total} {name} right", *speed, *rest])


def _alike(proofs: Sequence[Proof]) -> list[list[Proof]]:
    """The proofs of one layer, split by GPU and put together again where outcomes and errors are the same."""
    by_gpu: dict[int | None, list[Proof]] = {}
    for proof in proofs:
        by_gpu.setdefault(proof.gpu, []).append(proof)
    groups: dict[tuple[object, ...], list[Proof]] = {}
    for of_gpu in by_gpu.values():
        signature = tuple((p.kernel, p.target, p.outcome, p.error, p.because) for p in of_gpu)
        groups.setdefault(signature, []).extend(of_gpu)
    return list(groups.values())


def _row(proofs: Sequence[Proof], findings: Sequence[Finding], *, several: bool) -> ProofRow:
    kinds = {kind: [proof for proof in proofs if KernelKind.of(proof.kernel) is kind] for kind in KernelKind}
    every = kinds[KernelKind.EVERY]
    numbers = [proof.gpu for proof in proofs if proof.gpu is not None]
    return ProofRow(
        LAYER_NAMES[proofs[0].layer],
        f"GPU {number_ranges(numbers)}" if several and numbers else "",
        _cell([*kinds[KernelKind.GEMM], *every]),
        _cell([*kinds[KernelKind.ATTENTION], *every]),
        "; ".join([*_other(kinds[KernelKind.OTHER]), *_explanations(proofs, findings)]),
    )


def _rate(gb_s: float) -> str:
    return f"{gb_s:.0f}" if gb_s >= 100 else f"{gb_s:.3g}"


def _explanations(proofs: Sequence[Proof], findings: Sequence[Finding]) -> list[str]:
    """The finding that explains the failures, else why proofs did not pass, each reason once."""
    failed = [proof for proof in proofs if proof.outcome is ProofOutcome.FAILED]
    codes = list(dict.fromkeys(code for proof in failed for code in _explained_by(proof, findings)))
    if codes:
        return [f"explained by {', '.join(codes)}"]
    return list(dict.fromkeys(reason for proof in proofs if (reason := _reason(proof))))


def _explained_by(proof: Proof, findings: Sequence[Finding]) -> list[str]:
    """Codes of the causes of the finding that has this proof as evidence; of that finding itself where it is a root."""
    fact = f"proofs.{proof.layer.value}.{proof.kernel}"
    ends = {f"GPU {proof.gpu}", "GPU"}
    if proof.peer is not None:
        low, high = sorted((proof.gpu or 0, proof.peer))
        ends |= {f"GPU {proof.peer}", f"GPU {low} and GPU {high}", "GPUs"}
    about = [f for f in findings if f.subject in ends and any(item.fact == fact for item in f.evidence)]
    causes = [cause.code for finding in about for cause in findings if finding.code in cause.explains and cause.root]
    return causes or [finding.code for finding in about]


def _cell(proofs: Sequence[Proof]) -> Cell | None:
    if not proofs:
        return None
    worst = min((proof.outcome for proof in proofs), key=WORST_FIRST.index)
    alike = [proof for proof in proofs if proof.outcome is worst]
    words = _times(alike) if worst is ProofOutcome.PASSED else _failure(alike[0])
    if len(alike) < len(proofs):
        words = f"{len(alike)} of {len(proofs)}: {words}"
    return Cell(OF_OUTCOME[worst], words, _best_rate(alike))


def _times(proofs: Sequence[Proof]) -> str:
    times = [proof.run_ms for proof in proofs if proof.run_ms is not None]
    if not times:
        return "right"
    low, high = f"{min(times):.2f}", f"{max(times):.2f}"
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def _best_rate(proofs: Sequence[Proof]) -> str:
    best = max((proof.tflops for proof in proofs if proof.tflops is not None), default=0.0)
    if best < 1:
        return ""
    return f"{best:.0f} TFLOPS" if best >= 10 else f"{best:.1f} TFLOPS"


def _failure(proof: Proof) -> str:
    if proof.outcome is ProofOutcome.FAILED:
        return f"error {proof.error.code}" if proof.error else "failed"
    return str(proof.outcome.value)


def _other(proofs: Sequence[Proof]) -> list[str]:
    """The kernels without a column of their own, by outcome."""
    passed = list(dict.fromkeys(proof.kernel for proof in proofs if proof.outcome is ProofOutcome.PASSED))
    rest = dict.fromkeys(f"{p.kernel} {_failure(p)}" for p in proofs if p.outcome is not ProofOutcome.PASSED)
    return [*([f"also right: {', '.join(passed)}"] if passed else []), *rest]


def _reason(proof: Proof) -> str:
    if proof.outcome is ProofOutcome.PASSED:
        return ""
    if proof.because:
        return proof.because
    return (proof.error.message or proof.error.name) if proof.error else ""


def proof_reason(proof: Proof) -> str:
    """Why a proof did not pass, the API's own name for it first; empty for one that passed."""
    name = f"{proof.error.name} ({proof.error.code})" if proof.error else ""
    return ": ".join(part for part in (name, _reason(proof)) if part)
