"""Rules about what connects GPUs: peer access, NVLinks, and the rate of copies (CD516, CD517, CD806, CD807)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from cudadoctor.gpu.copy_names import DIRECT
from cudadoctor.matrices.expected_speed import Figure
from cudadoctor.model.fact import known, maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.snapshot import Gpu, GpuPair
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.nccl import ranks
from cudadoctor.rules.peers import IOMMU_GUIDE, NCCL_GUIDE, between, by_culprit, copies, copy_evidence
from cudadoctor.rules.questions import environment, gpu_name, gpus, identity

OF_THE_USUAL = 0.5
"""Share of the median of alike pairs below which a copy is slow, whatever the link."""
ALIKE_TO_COMPARE = 6
"""Copies over alike links from which their median says what is usual."""
OF_THE_COPIES = 0.1
"""Share of the slowest copy below which an all-reduce is slow: a ring reaches most of it."""
THROUGH_ONE_HOST = ("PIX", "PXB", "PHB")
"""Ways between GPUs for which the rate of a PCIe link means something; between sockets it does not."""
LOOK_AT_LINKS = ("nvidia-smi topo -m", "nvidia-smi nvlink -s")


def several(case: Case) -> tuple[Gpu, ...]:
    """The GPUs; ends the rule where there are not several."""
    listed = gpus(case.snapshot)
    if len(listed) < 2:
        known(case.snapshot.gpus)
        raise NotApplicableError("there are not several GPUs")
    return listed


def peer_access_missing(case: Case) -> Iterable[Problem]:
    """GPUs have no access to each other's memory, so that copies go through the host.

    What it checks: cuDeviceCanAccessPeer for every two GPUs, and what NVML gives as the reason.

    Why it matters: programs over several GPUs work, at a fraction of the speed; NCCL uses shared memory instead. Where NVLink
    connects the two, access is expected, and its absence is a fault.

    How to fix: over NVLink start the fabric manager, or mend the links. Over PCIe the chipset, the board or the kind of GPU decides;
    in a virtual machine its host.

    When it is wrong: many GeForce GPUs and virtual machines have no peer access by design.

    Sources: CUDA driver API, peer context memory access; NVML API, nvmlDeviceGetP2PStatus; NCCL User Guide, GPU troubleshooting.
    """
    several(case)
    pairs = known(case.snapshot.gpu_pairs)
    far = [pair for pair in pairs if maybe(pair.access) is False]
    linked = [pair for pair in far if maybe(pair.nvlinks)]
    for group, severity in ((linked, Severity.WARNING), ([pair for pair in far if pair not in linked], Severity.NOTE)):
        if group:
            yield _no_access(case, group, pairs, severity)
    if not far:
        for pair in pairs:
            known(pair.access)


def _no_access(case: Case, group: Sequence[GpuPair], pairs: Sequence[GpuPair], severity: Severity) -> Problem:
    which = "No two GPUs have" if len(group) == len(pairs) else f"{_named_pairs(case, group)} have no"
    reasons = sorted({status for pair in group if (status := maybe(pair.peer_status)) not in (None, "OK")} - {None})
    said = f" NVML: {', '.join(map(str, reasons))}." if reasons else ""
    fabric = Remedy(Fix(title="See links and fabric", commands=(*LOOK_AT_LINKS, "systemctl status nvidia-fabricmanager")))
    look = Remedy(Fix(title="See which pairs can reach each other", commands=("nvidia-smi topo -p2p r", "nvidia-smi topo -m")))
    return Problem(
        subject="GPUs" if len(group) > 1 else f"GPU {group[0].first} and GPU {group[0].second}",
        what=f"{which} access to each other's memory.{said}",
        why="NVLink connects them, so access is expected." if severity is Severity.WARNING else "Copies go through the host.",
        evidence=tuple(
            item
            for pair in group[:4]
            for fact, value in (("access", pair.access), ("peer_status", pair.peer_status), ("nvlinks", pair.nvlinks))
            for item in evidence(f"gpu_pairs[{pair.first}-{pair.second}].{fact}", value)
        ),
        remedies=(fabric,) if severity is Severity.WARNING else (look,),
        severity=severity,
        references=(NCCL_GUIDE,),
    )


def _named_pairs(case: Case, group: Sequence[GpuPair]) -> str:
    if len(group) == 1:
        return f"{identity(case, group[0].first)} and {identity(case, group[0].second)}"
    return f"The GPUs {', '.join(f'{pair.first}-{pair.second}' for pair in group)}"


def nvlink_inactive(case: Case) -> Iterable[Problem]:
    """A GPU has fewer active NVLinks than the other GPUs of its model in this machine.

    What it checks: the state of all NVLinks of each GPU, where at least two others of the same model have more that are active.

    Why it matters: copies from and to that GPU are slower, or cannot use NVLink at all; collective operations go at its pace.

    How to fix: read the link states and errors, then reset the GPU; a link that stays down is a matter for the vendor.

    When it is wrong: three GPUs of which a bridge joins two.

    Sources: NVML API, nvmlDeviceGetNvLinkState.
    """
    listed = several(case)
    with_links = [gpu for gpu in listed if maybe(gpu.nvlinks_total)]
    if not with_links:
        for gpu in listed:
            known(gpu.nvlinks_total)
        raise NotApplicableError("no GPU has NVLink")
    for gpu in with_links:
        active = maybe(gpu.nvlinks_active) or 0
        more = [maybe(other.nvlinks_active) or 0 for other in with_links if maybe(other.name) == maybe(gpu.name)]
        usual = max(more)
        if active < usual and more.count(usual) > 1:
            yield Problem(
                subject=f"GPU {gpu.index}",
                what=f"{identity(case, gpu.index)} has {active} active NVLinks; {more.count(usual)} others of its model have {usual}.",
                why="Copies from and to it are slower, and every collective operation waits for it.",
                evidence=(
                    *evidence(f"gpus[{gpu.index}].nvlinks_active", gpu.nvlinks_active),
                    *evidence(f"gpus[{gpu.index}].nvlinks_total", gpu.nvlinks_total),
                ),
                remedies=(
                    Remedy(
                        Fix(
                            title="See the state and the errors of each link",
                            commands=(f"nvidia-smi nvlink -s -i {gpu.index}", f"nvidia-smi nvlink -e -i {gpu.index}"),
                        )
                    ),
                ),
                confidence=Confidence.LIKELY,
            )


def peer_copy_slow(case: Case) -> Iterable[Problem]:
    """Copies between GPUs are right and much slower than their link, or than those of the other GPUs.

    What it checks: the rate of direct copies against what the NVLinks, or the PCIe link, between the two carry, and against the
    median of all pairs that are connected alike.

    Why it matters: training over several GPUs waits for the slowest link.

    How to fix: a GPU that is slow with all others has lost links or PCIe lanes, or does other work. On PCIe, Access Control Services
    send peer traffic the long way through the root complex.

    When it is wrong: other programs use the link at the same time. The limits are cautious, as no rate of a set was measured here.

    Sources: matrices/expected_speed.toml; NCCL User Guide, GPU troubleshooting.
    """
    tried = [proof for proof in copies(case) if proof.kernel == DIRECT and proof.gb_s is not None]
    tried = [proof for proof in tried if proof.outcome is ProofOutcome.PASSED]
    limits = {(proof.gpu, proof.peer): _limit(case, proof, tried) for proof in tried}
    slow = [proof for proof in tried if (proof.gb_s or 0) < limits[proof.gpu, proof.peer][0]]
    for subject, numbers, group in by_culprit(slow, tried):
        words = [(proof, f"{proof.gb_s:.3g} GB/s, {limits[proof.gpu, proof.peer][1]}") for proof in group]
        yield Problem(
            subject=subject,
            what=f"Copies {between(case, numbers, group)} are slow: {words[0][1]}.",
            why="Programs over several GPUs go at the pace of the slowest link.",
            evidence=copy_evidence(case, numbers, words),
            remedies=(
                Remedy(Fix(title="See the links and who uses the GPUs", commands=(*LOOK_AT_LINKS, "nvidia-smi pmon -c 1"))),
                Remedy(
                    Fix(
                        title="See whether Access Control Services redirect PCIe traffic, and the lanes of each link",
                        commands=("sudo lspci -vvv | grep ACSCtl", "sudo lspci -vv -d 10de: | grep -E 'LnkCap:|LnkSta:'"),
                        needs_root=True,
                    )
                ),
            ),
            confidence=Confidence.LIKELY,
            references=(IOMMU_GUIDE, NCCL_GUIDE),
        )


def _limit(case: Case, proof: Proof, tried: Sequence[Proof]) -> tuple[float, str]:
    """The rate below which a copy is slow, the higher one of link and neighbours; and the comparison in words."""
    limits = [(0.0, ""), *_against_link(case, proof), *_against_others(case, proof, tried)]
    return max(limits)


def _against_link(case: Case, proof: Proof) -> Iterable[tuple[float, str]]:
    pair, speeds = _pair(case, proof), case.matrices.speeds
    ends = [gpu for gpu in gpus(case.snapshot) if gpu.index in (proof.gpu, proof.peer)]
    links, versions = (maybe(pair.nvlinks) if pair else None), [maybe(gpu.nvlink_version) for gpu in ends]
    rate, figure, name = None, Figure.PEER_NVLINK, ""
    if links and versions and versions[0]:
        rate, name = speeds.nvlink_gb_s(versions[0], links), f"{links} NVLinks {versions[0]}"
    elif pair and links == 0 and maybe(pair.topology) in THROUGH_ONE_HOST:
        figure, name = Figure.PEER_PCIE, "the PCIe link"
        found = [
            speeds.link_gb_s(generation, width)
            for gpu in ends
            if (generation := maybe(gpu.pcie_generation_max)) and (width := maybe(gpu.pcie_width))
        ]
        rate = min((each for each in found if each is not None), default=None)
    share = speeds.share(figure)
    if rate is not None and share is not None:
        yield share.low * rate, f"where {name} carries {rate:.3g}"


def _against_others(case: Case, proof: Proof, tried: Sequence[Proof]) -> Iterable[tuple[float, str]]:
    kind = _kind(case, proof)
    alike = [other.gb_s for other in tried if other.gb_s is not None and _kind(case, other) == kind]
    if len(alike) >= ALIKE_TO_COMPARE:
        usual = median(alike)
        yield OF_THE_USUAL * usual, f"where alike pairs reach {usual:.3g}"


def _kind(case: Case, proof: Proof) -> tuple[object, ...]:
    """What makes two pairs alike: the way between them and the models at both ends."""
    pair = _pair(case, proof)
    names = sorted(gpu_name(gpu) for gpu in gpus(case.snapshot) if gpu.index in (proof.gpu, proof.peer))
    way = (None, None) if pair is None else (maybe(pair.nvlinks), None if maybe(pair.nvlinks) else maybe(pair.topology))
    return (*way, *names)


def _pair(case: Case, proof: Proof) -> GpuPair | None:
    ends = {proof.gpu, proof.peer}
    return next((pair for pair in maybe(case.snapshot.gpu_pairs) or () if {pair.first, pair.second} == ends), None)


def all_reduce_slow(case: Case) -> Iterable[Problem]:
    """An all-reduce over all GPUs is much slower than the copies between them.

    What it checks: the bus bandwidth of the all-reduce against the slowest copy of any pair, both measured here.

    Why it matters: NCCL does not use the links that are there.

    How to fix: unset variables that switch peer access or shared memory off; else see which way NCCL takes.

    When it is wrong: pairs that copies reach over different ways; other programs on the GPUs.

    Sources: NCCL tests, PERFORMANCE.md (bus bandwidth); NCCL documentation, environment variables.
    """
    rates = [proof.gb_s for proof in ranks(case) if proof.outcome is ProofOutcome.PASSED and proof.gb_s is not None]
    reached = [proof.gb_s for proof in copies(case) if proof.outcome is ProofOutcome.PASSED and proof.gb_s is not None]
    if not rates or not reached:
        raise NotApplicableError("no rate was measured")
    bus, slowest = min(rates), min(reached)
    if bus < OF_THE_COPIES * slowest:
        switches = [name for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE") if environment(case.snapshot).get(name) == "1"]
        because = f" {' and '.join(switches)} {'is' if len(switches) == 1 else 'are'} set." if switches else ""
        yield Problem(
            subject="NCCL",
            what=f"An all-reduce moves {bus:.3g} GB/s over each link, and the slowest copy between two GPUs {slowest:.3g}.{because}",
            why="NCCL takes another way than the links between the GPUs.",
            evidence=(
                Evidence(fact="proofs.nccl.all-reduce", value=f"{bus:.3g} GB/s", source="NCCL rank"),
                Evidence(fact=f"proofs.peer.{DIRECT}", value=f"{slowest:.3g} GB/s", source="peer"),
            ),
            remedies=(Remedy(Fix(title="See which variables bind NCCL", commands=("env | grep NCCL_",))),),
            confidence=Confidence.LIKELY,
        )


RULES = (
    Rule(
        "CD516",
        "peer-access-missing",
        Severity.NOTE,
        "GPUs cannot reach each other's memory",
        peer_access_missing,
        needs_gpu=True,
    ),
    Rule("CD517", "nvlink-inactive", Severity.WARNING, "A GPU has lost NVLinks", nvlink_inactive, needs_gpu=True),
    Rule(
        "CD806",
        "peer-copy-slow",
        Severity.WARNING,
        "Copies between GPUs are slow",
        peer_copy_slow,
        explained_by=("nvlink-inactive", "pcie-link-degraded"),
    ),
    Rule(
        "CD807",
        "all-reduce-slow",
        Severity.WARNING,
        "An all-reduce does not use the links",
        all_reduce_slow,
        explained_by=("peer-copy-slow",),
    ),
)
