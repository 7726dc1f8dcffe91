"""Rules about machines that have no NVIDIA GPU for CUDA: macOS, AMD, none at all (CD1xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import known
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.snapshot import Platform, TorchBuild
from cudadoctor.rules.circumstances import NO_DRIVER_IN_REACH, cpu_is_meant, remarks_without_gpu
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule, evidence
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.questions import AMD_VENDOR, Presence, pci_gpus, platform, torch, torch_build

WANTS_CUDA = (*NO_DRIVER_IN_REACH, "torch-not-compiled-with-cuda", "smi-cannot-communicate", "cpu-only-tensorflow")
"""Errors of programs that took a CUDA code path."""


def no_cuda_platform(case: Case) -> Iterable[Problem]:
    """This platform (macOS) has no CUDA at all.

    What it checks: the platform.

    Why it matters: NVIDIA ended CUDA for macOS with toolkit 10.2; no driver, wheel or toolkit for it exists. A program that asks
    for a CUDA device cannot work there.

    How to fix: use the device "mps" on Apple silicon, or the CPU; or run on a machine with an NVIDIA GPU.

    When it is wrong: a paste that mixes the texts of two machines.

    Sources: CUDA toolkit release notes, 10.2 and 11.0.
    """
    texts = seen(case, "no-cuda-platform")
    if not texts and platform(case.snapshot) is not Platform.MACOS:
        known(case.snapshot.host.platform)
        return
    yield Problem(
        subject="machine",
        severity=Severity.NOTE if case.snapshot.readings and not case.snapshot.errors else None,
        what="macOS has no CUDA: there is no driver, toolkit or CUDA build of any framework for it.",
        why='Programs have to use the device "mps" (Apple silicon) or the CPU there.',
        evidence=(
            *texts,
            *evidence("host.platform", case.snapshot.host.platform, value="macOS"),
            *seen(case, "torch-not-compiled-with-cuda"),
        ),
        remedies=(
            Remedy(
                Fix(
                    title="Choose the device that exists",
                    commands=("python3 -c \"import torch; print('mps' if torch.backends.mps.is_available() else 'cpu')\"",),
                )
            ),
        ),
    )


def amd_gpu_no_cuda(case: Case) -> Iterable[Problem]:
    """The machine has an AMD GPU and no NVIDIA one, and a program took a CUDA code path.

    What it checks: the GPUs on the bus or in the text, with errors of a CUDA program or a CUDA build of torch.

    Why it matters: CUDA runs on NVIDIA GPUs only. AMD GPUs have ROCm (Linux, some under Windows) or DirectML.

    How to fix: install the ROCm build of the framework, where it supports the GPU.

    When it is wrong: a machine with both kinds has NVIDIA's driver to mend instead; the rule speaks only where nothing shows
    an NVIDIA GPU.

    Sources: PCI vendor ids 1002 and 10de; PyTorch's table of builds.
    """
    presence = case.gpu_presence
    if presence is Presence.YES:
        return
    shown = seen(case, "shown-amd-gpu")
    on_bus = pci_gpus(case.snapshot, AMD_VENDOR)
    if not shown and not (on_bus and presence is Presence.NO):
        if presence is Presence.UNKNOWN and not on_bus:
            known(case.snapshot.driver.pci_devices)
        return
    errors = case.errors(*WANTS_CUDA)
    build = torch(case.snapshot)
    cuda_build = build is not None and torch_build(build) is TorchBuild.CUDA
    if not errors and not cuda_build:
        raise NotApplicableError("nothing asks for CUDA here")
    yield Problem(
        subject="machine",
        what="The machine has an AMD GPU and no NVIDIA one, so CUDA cannot work.",
        why="CUDA runs on NVIDIA GPUs only; AMD GPUs have ROCm builds of the frameworks.",
        evidence=(
            *shown[:2],
            *(Evidence(fact="driver.pci_devices", value=f"{device.bus_id} vendor 1002", source="sysfs") for device in on_bus),
            *as_evidence(errors),
        ),
        confidence=Confidence.CERTAIN if on_bus else Confidence.LIKELY,
        remedies=(
            Remedy(Fix(title="Install the framework's ROCm build (Linux, supported AMD GPUs), or use DirectML under Windows")),
        ),
    )


def benign_no_gpu_machine(case: Case) -> Iterable[Problem]:
    """A framework remarks that it found no GPU or driver, on a machine that shows no NVIDIA GPU: harmless.

    What it checks: lines such as TensorFlow's "Could not find cuda drivers on your machine, GPU will not be used" and JAX's "No
    GPU/TPU found, falling back to CPU", or a CPU build of torch beside another vendor's display controller, where nothing in
    the text speaks of an NVIDIA GPU or asks for CUDA.

    Why it matters: it does not, as long as the CPU is meant to do the work.

    How to fix: nothing; install the CPU build (tensorflow-cpu) to be rid of the line.

    When it is wrong: if the machine has an NVIDIA GPU after all, its driver is missing: `cudadoctor check` tells.

    Sources: TensorFlow, cuda_diagnostics.
    """
    texts = remarks_without_gpu(case) or cpu_is_meant(case)
    if not texts:
        return
    yield Problem(
        subject="machine",
        what="The program works on the CPU; nothing here shows an NVIDIA GPU.",
        why="That is no fault. It matters only on a machine whose GPU is meant to be used.",
        evidence=as_evidence(texts),
    )


RULES = (
    Rule("CD133", "no-cuda-platform", Severity.ERROR, "The platform has no CUDA", no_cuda_platform),
    Rule(
        "CD134",
        "amd-gpu-no-cuda",
        Severity.ERROR,
        "An AMD GPU and no NVIDIA one",
        amd_gpu_no_cuda,
        explained_by=("no-cuda-platform",),
    ),
    Rule("CD135", "benign-no-gpu-machine", Severity.NOTE, "No NVIDIA GPU, and none needed", benign_no_gpu_machine),
)
