"""Rules about the proofs: what the project's own kernels showed, layer by layer (CD8xx)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import maybe
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity
from cudadoctor.model.proof import Proof, ProofLayer, ProofOutcome
from cudadoctor.model.snapshot import ApiStatus
from cudadoctor.rules.driver_answers import BREAKS_CUINIT
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule
from cudadoctor.rules.gpu_state import starved_by_others
from cudadoctor.rules.questions import gpus, identity

ORDER = (
    ProofLayer.DRIVER_JIT,
    ProofLayer.NVRTC,
    ProofLayer.NVCC,
    ProofLayer.TORCH,
    ProofLayer.TORCH_EXTENSION,
    ProofLayer.PEER,
    ProofLayer.NCCL,
)
TITLES = {
    ProofLayer.DRIVER_JIT: "the driver's own compiler",
    ProofLayer.NVRTC: "NVRTC",
    ProofLayer.NVCC: "nvcc",
    ProofLayer.TORCH: "torch",
    ProofLayer.TORCH_EXTENSION: "a CUDA extension built through torch",
    ProofLayer.PEER: "copies between GPUs",
    ProofLayer.NCCL: "NCCL",
}
NO_KERNEL = "all"
"""Stands in the place of a kernel's name where a layer could not run any."""


def _by_layer(case: Case) -> dict[tuple[ProofLayer, int | None], list[Proof]]:
    grouped: dict[tuple[ProofLayer, int | None], list[Proof]] = {}
    for proof in case.proofs:
        grouped.setdefault((proof.layer, proof.gpu), []).append(proof)
    return grouped


def _never_launched(proof: Proof, init: ApiStatus | None) -> bool:
    """Did cuInit refuse, so that the failure says nothing about this layer?"""
    return init is not None and init.code != 0 and proof.error is not None and proof.error.code == init.code


def proof_words(proof: Proof) -> str:
    """The API's own error, else the reason that stands in the proof."""
    if proof.error is not None:
        return f"error {proof.error.code} {proof.error.name}: {proof.error.message}".rstrip(".")
    return (proof.because or "no reason given").rstrip(".")


def _subject(gpu: int | None) -> str:
    return f"GPU {gpu}" if gpu is not None else "GPU"


def _passed_below(case: Case, layer: ProofLayer, gpu: int | None) -> list[str]:
    return [
        TITLES[lower]
        for lower in ORDER[: ORDER.index(layer)]
        if any(proof.outcome is ProofOutcome.PASSED for proof in _by_layer(case).get((lower, gpu), ()))
    ]


def _problem(case: Case, layer: ProofLayer, gpu: int | None, failed: list[Proof]) -> Problem:
    below = _passed_below(case, layer, gpu)
    proven = (
        f" {', '.join(below).capitalize()} {'is' if len(below) == 1 else 'are'} proven to work, so the fault is in this layer."
        if below
        else ""
    )
    code = next((proof.error.code for proof in failed if proof.error is not None), None)
    explain = (
        (Remedy(Fix(title="See the known causes of this error", commands=(f"cudadoctor explain {code}",))),)
        if code is not None
        else ()
    )
    place = f" on {identity(case, gpu)}" if gpu is not None and len(gpus(case.snapshot)) > 1 else ""
    return Problem(
        subject=_subject(gpu),
        what=f"A kernel run through {TITLES[layer]} failed{place}: {proof_words(failed[0])}.",
        why=f"{', '.join(sorted({proof.kernel for proof in failed}))} did not give right results.{proven}",
        evidence=tuple(
            Evidence(
                fact=f"proofs.{proof.layer.value}.{proof.kernel}", value=proof_words(proof), source=proof.target or layer.value
            )
            for proof in failed
        ),
        remedies=explain,
    )


def _failed(case: Case, layers: tuple[ProofLayer, ...]) -> Iterable[Problem]:
    if not any(proof.layer in layers for proof in case.proofs):
        raise NotApplicableError("no kernel was run in this layer")
    init = maybe(case.snapshot.driver.cu_init)
    for (layer, gpu), proofs in _by_layer(case).items():
        failed = [
            proof
            for proof in proofs
            if proof.outcome is ProofOutcome.FAILED
            and proof.kernel != NO_KERNEL
            and not _never_launched(proof, init)
            and not starved_by_others(case, proof)
        ]
        if layer in layers and failed:
            yield _problem(case, layer, gpu, failed)


def kernel_proof_fails(case: Case) -> Iterable[Problem]:
    """One of the project's own kernels failed to load, launch or compute right results.

    What it checks: GEMM and attention kernels compiled by the driver, NVRTC and nvcc for this GPU, run on fresh random data and
    compared with a float64 reference.

    Why it matters: unlike version tables this is what the machine really does. The lowest layer that fails names the culprit.

    How to fix: the error's name leads to its causes (`cudadoctor explain CODE`); where another finding explains it, that one is
    the root.

    When it is wrong: a GPU that another process has filled up cannot give the small memory that the kernels need.

    Sources: kernels/ of this project; CUDA driver API error codes.
    """
    return _failed(case, (ProofLayer.DRIVER_JIT, ProofLayer.NVRTC, ProofLayer.NVCC))


def torch_proof_fails(case: Case) -> Iterable[Problem]:
    """torch fails to compute on the GPU, or computes wrong results.

    What it checks: allocation, matrix product, attention and convolution on the GPU against the CPU, in the user's Python.

    Why it matters: it is what the user's programs do.

    How to fix: mend the cause that another finding names; where the layers below are proven, torch or its libraries are at
    fault.

    When it is wrong: a GPU that another process has filled up.

    Sources: the child's own error text.
    """
    return _failed(case, (ProofLayer.TORCH, ProofLayer.TORCH_EXTENSION))


def proof_undetermined(case: Case) -> Iterable[Problem]:
    """A proof could not be brought to an end: its process hung or died.

    What it checks: proofs that neither passed, failed nor were skipped, apart from those that a failed one took down with it.

    Why it matters: the layer is neither proven nor refuted; the verdict stays undetermined.

    How to fix: run `cudadoctor check --timeout 60 -vv`, which shows what each child did.

    When it is wrong: a very busy machine can pass the deadline.

    Sources: the child's exit status.
    """
    failed = {(proof.layer, proof.gpu, proof.because) for proof in case.proofs if proof.outcome is ProofOutcome.FAILED}
    copies = ProofLayer.PEER  # peer-copy-fails says which GPU they have in common
    unended = [proof for proof in case.proofs if proof.outcome is ProofOutcome.UNKNOWN and proof.layer is not copies]
    group_failed = any(layer is ProofLayer.NCCL for layer, _, _ in failed)
    unknown = [
        proof
        for proof in unended
        if (proof.layer, proof.gpu, proof.because) not in failed and not (group_failed and proof.layer is ProofLayer.NCCL)
    ]
    for proof in unknown[:1]:
        layers = ", ".join(sorted({TITLES[each.layer] for each in unknown}))
        yield Problem(
            subject=_subject(proof.gpu),
            what=f"Kernels could not be brought to an end through {layers}: {proof_words(proof)}.",
            why="These layers are neither proven nor refuted.",
            confidence=Confidence.POSSIBLE,
            evidence=tuple(
                Evidence(fact=f"proofs.{each.layer.value}.{each.kernel}", value=proof_words(each), source=each.target or "")
                for each in unknown
            ),
            remedies=(
                Remedy(
                    Fix(title="Give it more time and see what each step did", commands=("cudadoctor check --timeout 60 -vv",))
                ),
            ),
        )


COMPILING_CAUSES = (
    "toolkit-incomplete",
    "nvcc-fails",
    "host-compiler-too-new",
    "host-compiler-too-old",
    "host-compiler-path-broken",
    "msvc-too-new",
    "glibc-too-new",
)
"""Errors only where nothing else than compiling by nvcc fails (toolkit_questions.compiling_fault)."""
SWITCHES = ("ptx-jit-forced", "ptx-jit-disabled")
"""Errors only where a proof fails as these variables make it."""
NO_DEVICE_CAUSES = (
    *BREAKS_CUINIT,
    "libcuda-missing",
    "no-nvidia-gpu",
    "no-device-visible",
    "cuda-init-fails",
    "driver-call-hangs",
)

RULES = (
    Rule(
        "CD801",
        "kernel-proof-fails",
        Severity.ERROR,
        "A kernel fails or computes wrong results",
        kernel_proof_fails,
        explained_by=(*NO_DEVICE_CAUSES, *COMPILING_CAUSES, *SWITCHES, "ptx-newer-than-driver"),
    ),
    Rule(
        "CD802",
        "torch-proof-fails",
        Severity.ERROR,
        "torch fails or computes wrong results on the GPU",
        torch_proof_fails,
        explained_by=(
            *NO_DEVICE_CAUSES,
            *SWITCHES,
            "cudnn-sublibrary-mix",
            "alloc-conf-malformed",
            "arch-missing-in-wheel",
            "torch-import-fails",
            "torch-cannot-use-gpu",
            "kernel-proof-fails",
            "cpu-only-torch",
        ),
    ),
    Rule(
        "CD803",
        "proof-undetermined",
        Severity.WARNING,
        "A proof could not be brought to an end",
        proof_undetermined,
        explained_by=("driver-call-hangs", "torch-import-fails"),
    ),
)
