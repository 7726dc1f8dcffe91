"""Rules about copies between GPUs (CD804): which GPU or pair is at fault, for any number of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import structs

from cudadoctor.gpu.copy_names import DIRECT
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.gpu_state import starved_by_others
from cudadoctor.rules.kernels import NO_DEVICE_CAUSES, proof_words
from cudadoctor.rules.questions import gpus, identity

SHOWN = 4
"""Copies that stand as evidence; the others are among the proofs."""
IOMMU_GUIDE = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#iommu-on-linux"
NCCL_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/gpu_troubleshooting.html"


def copies(case: Case) -> list[Proof]:
    """The proofs of copies between two GPUs; ends the rule as not applicable where none was tried."""
    tried = [proof for proof in case.proofs if proof.layer is ProofLayer.PEER and proof.peer is not None]
    if not tried:
        raise NotApplicableError("no copy between two GPUs was tried")
    return tried


def culprits(bad: Sequence[Proof], tried: Sequence[Proof]) -> tuple[int, ...]:
    """The GPUs whose copies with every other GPU are bad; none where that is true of all, which is a fault of the machine."""
    numbers = sorted({number for number, _ in _ends(tried)})
    named = tuple(gpu for gpu in numbers if len(_partners(gpu, bad)) > 1 and _partners(gpu, bad) == _partners(gpu, tried))
    return named if len(named) < len(numbers) else ()


def _ends(proofs: Iterable[Proof]) -> set[tuple[int, int]]:
    """Each GPU with each of its partners."""
    pairs = {(proof.gpu, proof.peer) for proof in proofs if proof.gpu is not None and proof.peer is not None}
    return {end for one, other in pairs for end in ((one, other), (other, one))}


def _partners(gpu: int, proofs: Iterable[Proof]) -> set[int]:
    return {other for one, other in _ends(proofs) if one == gpu}


def by_culprit(bad: Sequence[Proof], tried: Sequence[Proof]) -> list[tuple[str, tuple[int, ...], list[Proof]]]:
    """What is at fault, as a subject and its GPUs, with its copies: each GPU that is bad with all others, then the rest at once."""
    named = culprits(bad, tried)
    groups: list[tuple[str, tuple[int, ...], list[Proof]]] = [
        (f"GPU {gpu}", (gpu,), [proof for proof in bad if gpu in (proof.gpu, proof.peer)]) for gpu in named
    ]
    rest = [proof for proof in bad if proof.gpu not in named and proof.peer not in named]
    pairs = sorted({(one, other) for one, other in _ends(rest) if one < other})
    if len(pairs) == 1:
        groups.append((f"GPU {pairs[0][0]} and GPU {pairs[0][1]}", pairs[0], rest))
    elif pairs:
        groups.append(("GPUs", tuple(sorted({number for pair in pairs for number in pair})), rest))
    return groups


def pairs_in_words(proofs: Iterable[Proof]) -> str:
    """`0-3, 1-3`: the pairs, each once."""
    return ", ".join(f"{one}-{other}" for one, other in sorted(_ends(proofs)) if one < other)


def copy_evidence(case: Case, numbers: Iterable[int], shown: Sequence[tuple[Proof, str]]) -> tuple[Evidence, ...]:
    """Some copies with what came of them, then UUID and PCI address of the GPUs at fault."""
    listed = {gpu.index: gpu for gpu in gpus(case.snapshot)}
    named = [listed[number] for number in numbers if number in listed]
    return (
        *(
            Evidence(fact=f"proofs.peer.{proof.kernel}", value=f"GPU {proof.gpu} to GPU {proof.peer}: {words}", source="peer")
            for proof, words in shown[:SHOWN]
        ),
        *(item for gpu in named for item in evidence(f"gpus[{gpu.index}].uuid", gpu.uuid)),
        *(item for gpu in named for item in evidence(f"gpus[{gpu.index}].pci_bus_id", gpu.pci_bus_id)),
    )


def peer_copy_fails(case: Case) -> Iterable[Problem]:
    """Data copied from one GPU to another arrive wrong, or the copy is refused or never ends.

    What it checks: a copy between every two GPUs, in both directions, over peer access where the driver grants it; every byte is
    compared. A GPU that fails with all others is named alone.

    Why it matters: training and inference over several GPUs compute with what such copies bring. A chipset that drops them gives
    wrong numbers without any error.

    How to fix: on PCIe an IOMMU that translates, or PCI Access Control Services, is the usual cause; over NVLink a link or the
    fabric. Until it is mended, NCCL_P2P_DISABLE=1 makes NCCL copy through the host.

    When it is wrong: a virtual machine may grant peer access that its host does not carry out.

    Sources: CUDA C++ Programming Guide, IOMMU on Linux; NCCL User Guide, GPU troubleshooting.
    """
    tried = copies(case)
    failed = [proof for proof in tried if proof.outcome is ProofOutcome.FAILED and not _starved(case, proof)]
    unended = [proof for proof in tried if proof.outcome is ProofOutcome.UNKNOWN]
    for bad, verb, severity in ((failed, "fail", Severity.ERROR), (unended, "did not come to an end", Severity.WARNING)):
        for subject, numbers, group in by_culprit(bad, tried):
            yield Problem(
                subject=subject,
                what=f"Copies {between(case, numbers, group)} {verb}: {proof_words(group[0])}.",
                why=_why(tried, group),
                evidence=copy_evidence(case, numbers, [(proof, proof_words(proof)) for proof in group]),
                remedies=_remedies(group),
                severity=severity,
                confidence=Confidence.CERTAIN if bad is failed else Confidence.POSSIBLE,
                references=(IOMMU_GUIDE, NCCL_GUIDE),
            )


def _starved(case: Case, proof: Proof) -> bool:
    """Did a copy find no memory on a GPU, at either end, that other programs fill?"""
    return starved_by_others(case, proof) or starved_by_others(case, structs.replace(proof, gpu=proof.peer))


def between(case: Case, numbers: Sequence[int], group: Sequence[Proof]) -> str:
    """`between GPU 3 (name, UUID, PCI address) and every other GPU`, and its like for a pair and for several pairs."""
    if len(numbers) > 2:
        return f"between the GPUs {pairs_in_words(group)}"
    named = [identity(case, number) for number in numbers]
    return f"between {' and '.join([*named, 'every other GPU'][:2])}"


def _why(tried: Sequence[Proof], group: Sequence[Proof]) -> str:
    if len(group) == len(tried):
        return "That is so of all copies between GPUs, so the fault is not in one GPU: look at the IOMMU, the firmware and the fabric."
    right = sum(proof.outcome is ProofOutcome.PASSED for proof in tried)
    return (
        f"That is so of {len(group)} of {len(tried)} copies, and {right} are right: the fault is where these GPUs are attached."
    )


def _remedies(group: Sequence[Proof]) -> tuple[Remedy, ...]:
    looks = Fix(
        title="See which pairs the driver takes for usable, and whether an IOMMU or Access Control Services redirect PCIe traffic",
        commands=(
            "nvidia-smi topo -p2p n",
            "nvidia-smi topo -p2p p",
            "sudo dmesg | grep -e DMAR -e IOMMU",
            "sudo lspci -vvv | grep ACSCtl",
        ),
        needs_root=True,
    )
    around = Fix(title="Until it is mended, let NCCL copy through the host", commands=("export NCCL_P2P_DISABLE=1",))
    direct = any(proof.kernel == DIRECT for proof in group)
    return (Remedy(looks), *((Remedy(around),) if direct else ()))


RULES = (
    Rule(
        "CD804",
        "peer-copy-fails",
        Severity.ERROR,
        "Copies between GPUs fail or arrive wrong",
        peer_copy_fails,
        explained_by=(*NO_DEVICE_CAUSES, "kernel-proof-fails"),
    ),
)
