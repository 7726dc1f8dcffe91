"""A fleet that never was: varied nodes, a known few of them sick, their reports made by the engine and streamed.

The engine judges each kind of node once; the nodes of a kind then differ in name, time, GPU serials and kernel times.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from msgspec import structs

from cudadoctor.diagnosis import diagnose
from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.proof import ApiError, Proof, ProofLayer, ProofOutcome
from cudadoctor.model.report import Report
from cudadoctor.model.snapshot import (
    Gpu,
    Libraries,
    LibraryCopy,
    LibraryOrigin,
    Package,
    Snapshot,
    Toolkit,
    Torch,
    TorchBuild,
)
from cudadoctor.model.versions import CudaVersion, DottedVersion, DriverRelease, SmTarget
from tests.rules.builders import ABSENT, MATRICES, TIMED_OUT, healthy, known, with_driver

KERNELS = (
    "gemm_f32_blocked_sm80",
    "gemm_f16_mma_sm80",
    "gemm_bf16_wgmma_sm90a",
    "attn_fwd_f32_fused_sm50",
    "attn_fwd_f16_mma_sm80",
    "attn_fwd_bf16_wgmma_sm90a",
)
LAYERS = (ProofLayer.DRIVER_JIT, ProofLayer.NVRTC, ProofLayer.NVCC)
NOISE = 0.02
"""Relative spread of a kernel's time from GPU to GPU."""
SLOW = 1.35
"""How much longer a straggler's kernels take."""
SICK_IN_A_HUNDRED = 1


@dataclass(frozen=True)
class Partition:
    """Nodes of one make: their share of the fleet and what they are."""

    name: str
    share: float
    snapshot: Snapshot
    times_ms: Mapping[str, float]


def _partition(name: str, share: float, snapshot: Snapshot, speed: float) -> Partition:
    return Partition(name, share, with_software(snapshot), {kernel: speed * (1 + at) for at, kernel in enumerate(KERNELS)})


def with_software(snapshot: Snapshot) -> Snapshot:
    """The machine with a toolkit, and as many packages and libraries as a real one has."""
    toolkit = Toolkit(
        root="/usr/local/cuda-13.0",
        nvcc=known("/usr/local/cuda-13.0/bin/nvcc"),
        toolkit_version=known(CudaVersion.parse("13.0.88")),
        targets=known(tuple(SmTarget.parse(f"sm_{number}") for number in (75, 80, 86, 89, 90, 100, 103, 110, 120, 121))),
        chosen_for_builds=True,
        nvrtc=ABSENT,
    )
    packages = tuple(Package(name=f"a-package-{number}", package_version=f"1.{number}.0") for number in range(30))
    copies = tuple(
        LibraryCopy(
            soname=f"libsome{number}.so.1",
            path=f"/usr/lib/x86_64-linux-gnu/libsome{number}.so.1",
            real_path=f"/usr/lib/x86_64-linux-gnu/libsome{number}.so.1.{number}",
            origin=LibraryOrigin.SYSTEM,
            library_version=known(DottedVersion.parse(f"1.{number}")),
            via="ld.so.cache",
            wins=True,
        )
        for number in range(100)
    )
    return structs.replace(
        snapshot,
        toolkits=known((toolkit,)),
        python=structs.replace(snapshot.python, packages=known(packages)),
        libraries=Libraries(copies=known(copies), cudnn_headers=known(()), ld_library_path=known(())),
    )


PARTITIONS = (
    _partition("h200", 0.6, healthy("NVIDIA H200", "9.0", "580.95.05", "13.0", "2.9.1+cu130", pci_id="2335", count=8), 0.05),
    _partition(
        "a100", 0.3, healthy("NVIDIA A100-SXM4-80GB", "8.0", "580.95.05", "13.0", "2.9.1+cu128", pci_id="20b2", count=4), 0.1
    ),
    _partition("l4", 0.1, healthy("NVIDIA L4", "8.9", "580.95.05", "13.0", "2.9.1+cu128", pci_id="27b8"), 0.2),
)


# The ways of being sick: each changes the snapshot or the proofs of one node


def lost_gpu(snapshot: Snapshot) -> Snapshot:
    """The first GPU fell off the bus."""
    gpus = maybe(snapshot.gpus) or ()
    return structs.replace(snapshot, gpus=known((Gpu(index=0, error="GPU is lost"), *gpus[1:])))


def bad_memory(snapshot: Snapshot) -> Snapshot:
    """The first GPU counts memory errors."""
    first, *others = maybe(snapshot.gpus) or ()
    return structs.replace(snapshot, gpus=known((structs.replace(first, ecc_uncorrected=known(7)), *others)))


def old_driver(snapshot: Snapshot) -> Snapshot:
    """Someone forgot to update the driver, and torch cannot use it."""
    torch = maybe(snapshot.python.torch)
    assert torch is not None
    said = "The NVIDIA driver on your system is too old (found version 12000)"
    unusable = structs.replace(torch, is_available=known(False), cuda_error=known(said), devices=known(()))
    old = with_driver(
        snapshot,
        driver_release=known(DriverRelease.parse("525.60.13")),
        driver_cuda_version=known(CudaVersion.parse("12.0")),
        kernel_module=ABSENT,
    )
    return structs.replace(old, python=structs.replace(snapshot.python, torch=known(unusable)))


def cpu_torch(snapshot: Snapshot) -> Snapshot:
    """A torch without CUDA was installed over the right one."""
    torch = Torch(
        imports=known(True),
        torch_version=known("2.9.1+cpu"),
        build=known(TorchBuild.CPU),
        torch_cuda_version=ABSENT,
        is_available=known(False),
        devices=known(()),
    )
    return structs.replace(snapshot, python=structs.replace(snapshot.python, torch=known(torch)))


def hung_driver(snapshot: Snapshot) -> Snapshot:
    """nvidia-smi never returned."""
    return with_driver(snapshot, nvidia_smi=TIMED_OUT)


def drifted_driver(snapshot: Snapshot) -> Snapshot:
    """Another driver than the rest, with which everything works."""
    return with_driver(snapshot, driver_release=known(DriverRelease.parse("580.65.06")))


def fewer_gpus(snapshot: Snapshot) -> Snapshot:
    """One GPU was pulled out; what is left is in order."""
    gpus = (maybe(snapshot.gpus) or ())[:-1]
    devices = (maybe(snapshot.driver.pci_devices) or ())[:-1]
    torch = maybe(snapshot.python.torch)
    assert torch is not None
    fewer = structs.replace(torch, devices=known((maybe(torch.devices) or ())[:-1]))
    return structs.replace(
        with_driver(snapshot, visible_device_count=known(len(gpus)), pci_devices=known(devices)),
        gpus=known(gpus),
        python=structs.replace(snapshot.python, torch=known(fewer)),
    )


def unchanged(snapshot: Snapshot) -> Snapshot:
    """The machine as it is."""
    return snapshot


CHANGES = {
    "gpu lost": lost_gpu,
    "memory errors": bad_memory,
    "old driver": old_driver,
    "cpu torch": cpu_torch,
    "undetermined": hung_driver,
    "wrong numbers": unchanged,
    "drifted": drifted_driver,
    "fewer gpus": fewer_gpus,
    "straggler": unchanged,
    "silent": unchanged,
    "cut short": unchanged,
}
"""Every way of being sick."""
WITH_PROBLEMS = ("gpu lost", "memory errors", "old driver", "cpu torch", "wrong numbers")
"""Those that the node's own report calls problems."""
HEALTHY = "healthy"


@dataclass
class Fleet:
    """What was generated: every node's name, and the sick ones by what ails them."""

    nodes: list[str] = field(default_factory=list)
    sick: dict[str, set[str]] = field(default_factory=lambda: {ailment: set() for ailment in CHANGES})


def generate(count: int, fleet: Fleet, seed: int = 1) -> Iterator[tuple[str, Report | None, str]]:
    """Node, report (None where it never comes) and ailment, one after another; `fleet` is filled on the way.

    One node in a hundred is sick, all ailments in turn. One healthy node in fifty has a single noisy time.
    """
    chance = random.Random(seed)
    ailments = list(CHANGES)
    for number in range(count):
        sick_number, is_sick = divmod(number, 100 // SICK_IN_A_HUNDRED)[0], number % (100 // SICK_IN_A_HUNDRED) == 50
        ailment = ailments[sick_number % len(ailments)] if is_sick else HEALTHY
        partition = PARTITIONS[0] if is_sick else chance.choices(PARTITIONS, [each.share for each in PARTITIONS])[0]
        name = f"{partition.name}-{number:05d}"
        fleet.nodes.append(name)
        if is_sick:
            fleet.sick[ailment].add(name)
        yield name, None if ailment == "silent" else _report(name, partition, ailment, chance), ailment


def _report(name: str, partition: Partition, ailment: str, chance: random.Random) -> Report:
    judged = _judged(partition.name, ailment)
    slow_gpu = chance.randrange(partition_gpus(judged)) if ailment == "straggler" else -1
    noisy = chance.randrange(len(judged.proofs)) if judged.proofs and ailment == HEALTHY and chance.random() < 0.02 else -1
    proofs = tuple(
        structs.replace(
            proof, run_ms=_time(proof, partition, chance) * (SLOW if proof.gpu == slow_gpu else 3.0 if at == noisy else 1.0)
        )
        if proof.run_ms is not None
        else proof
        for at, proof in enumerate(judged.proofs)
    )
    created = f"2026-11-30T12:{chance.randrange(60):02d}:{chance.randrange(60):02d}Z"
    return structs.replace(judged, node=name, created=created, proofs=proofs)


def partition_gpus(report: Report) -> int:
    """How many GPUs a report tells of."""
    return len(maybe(report.snapshot.gpus) or ())


def _time(proof: Proof, partition: Partition, chance: random.Random) -> float:
    usual = partition.times_ms[proof.kernel] * (1 + LAYERS.index(proof.layer) / 10)
    return usual * max(0.5, chance.gauss(1, NOISE))


@cache
def _judged(partition: str, ailment: str) -> Report:
    """What the engine says of a kind of node."""
    base = next(each for each in PARTITIONS if each.name == partition)
    snapshot = CHANGES.get(ailment, unchanged)(base.snapshot)
    return diagnose(snapshot, tuple(_proofs(snapshot, ailment)), MATRICES).report


def _proofs(snapshot: Snapshot, ailment: str) -> Iterator[Proof]:
    for gpu in maybe(snapshot.gpus) or ():
        if not isinstance(gpu.name, Known) or ailment == "old driver":
            continue
        for layer in LAYERS:
            for kernel in KERNELS:
                wrong = ailment == "wrong numbers" and gpu.index == 0 and kernel == KERNELS[0]
                yield Proof(
                    layer,
                    gpu.index,
                    kernel,
                    "sm_90",
                    ProofOutcome.FAILED if wrong else ProofOutcome.PASSED,
                    error=ApiError(700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access") if wrong else None,
                    max_error=None if wrong else 2.1e-6,
                    tolerance=1.2e-4,
                    run_ms=None if wrong else 1.0,
                )
