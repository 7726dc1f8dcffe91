"""Rules about the all-reduce over all GPUs (CD805)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cudadoctor.model.finding import Evidence, Fix, Severity
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.kernels import NO_DEVICE_CAUSES, proof_words
from cudadoctor.rules.questions import identity

NCCL_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
BELOW = {ProofLayer.TORCH: "each GPU computes by itself", ProofLayer.PEER: "copies between them are right"}


def ranks(case: Case) -> list[Proof]:
    """The proofs of the ranks; ends the rule as not applicable where no all-reduce was tried."""
    tried = [proof for proof in case.proofs if proof.layer is ProofLayer.NCCL and proof.gpu is not None]
    if not tried:
        raise NotApplicableError("no all-reduce over several GPUs was tried")
    return tried


def nccl_proof_fails(case: Case) -> Iterable[Problem]:
    """An all-reduce over the GPUs of this machine fails, or its sums are wrong.

    What it checks: torch.distributed with NCCL, one process a GPU, over the loopback; every sum is compared with the one computed
    on the CPU. NVLink multicast (NVLS) is not tried.

    Why it matters: it is what training and inference over several GPUs do all the time.

    How to fix: a finding about one GPU or about copies between them comes first. Else try without peer access, then without
    shared memory: what makes it work is at fault.

    When it is wrong: a GPU that another process has filled up, or a container with little shared memory.

    Sources: NCCL User Guide, Troubleshooting.
    """
    tried = ranks(case)
    failed = [proof for proof in tried if proof.outcome is ProofOutcome.FAILED]
    if failed:
        first = failed[0]
        alone = len(failed) == 1
        where = f" on {identity(case, first.gpu)}" if alone and first.gpu is not None else f" on {len(failed)} of them"
        yield Problem(
            subject=f"GPU {first.gpu}" if alone else "GPUs",
            what=f"An all-reduce over {len(tried)} GPUs fails{where}: {proof_words(first)}.",
            why=_why(case),
            evidence=tuple(
                Evidence(fact="proofs.nccl.all-reduce", value=f"GPU {proof.gpu}: {proof_words(proof)}", source="NCCL rank")
                for proof in failed
            ),
            remedies=_remedies(),
            references=(NCCL_GUIDE,),
        )


def _why(case: Case) -> str:
    proven = [words for layer, words in BELOW.items() if _all_passed([p for p in case.proofs if p.layer is layer])]
    if not proven:
        return "Collective operations of every program over these GPUs stop or give wrong numbers."
    words = " and ".join(proven)
    return f"{words[0].upper()}{words[1:]}, so the fault is in NCCL or in what only it uses, such as shared memory."


def _all_passed(proofs: Sequence[Proof]) -> bool:
    return bool(proofs) and all(proof.outcome is ProofOutcome.PASSED for proof in proofs)


def _remedies() -> tuple[Remedy, ...]:
    trials = (
        ("Try without peer access: if that works, copies between GPUs are at fault", "NCCL_P2P_DISABLE=1 cudadoctor check"),
        ("Try without shared memory: if that works, /dev/shm is too small or not shared", "NCCL_SHM_DISABLE=1 cudadoctor check"),
    )
    return tuple(Remedy(Fix(title=title, commands=(command,))) for title, command in trials)


RULES = (
    Rule(
        "CD805",
        "nccl-proof-fails",
        Severity.ERROR,
        "An all-reduce over the GPUs fails or gives wrong sums",
        nccl_proof_fails,
        explained_by=(
            *NO_DEVICE_CAUSES,
            "peer-copy-fails",
            "kernel-proof-fails",
            "torch-proof-fails",
            "shm-too-small",
            "arch-missing-in-wheel",
            "driver-too-old",
        ),
    ),
)
