"""Rules about programs: what their own code or the generation of the GPU forbids, told apart from faults of the stack."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from cudadoctor.matrices.capabilities import Feature
from cudadoctor.model.finding import Confidence, Evidence, Fix, Severity, Where
from cudadoctor.model.snapshot import ErrorSeen
from cudadoctor.model.versions import ComputeCapability, VersionError
from cudadoctor.rules.engine import Case, Problem, Remedy, Rule
from cudadoctor.rules.evidence import as_evidence, seen
from cudadoctor.rules.questions import GpuWithCapability, gpus_with_capability
from cudadoctor.rules.torch_questions import cpu_build


@dataclass(frozen=True)
class Demand:
    """What a text says that a GPU must have: a feature and the lowest (or only) compute capability with it."""

    error: ErrorSeen
    feature: str
    lowest: ComputeCapability | None
    only_major: int | None
    actual: ComputeCapability | None
    """The GPU's capability, where the text itself names it."""

    def lacks(self, cc: ComputeCapability) -> bool:
        """Does a GPU of this capability lack it?"""
        if self.only_major is not None:
            return cc.major != self.only_major
        return self.lowest is not None and cc < self.lowest


HOPPER_ONLY = (
    "only supported on hopper devices",
    "only supports hopper gpus",
    "only supported on hopper gpus",
    "flashattention-3",
    "flashattention only supports hopper",
    "fa3 requires",
    "flash attention 3",
)
NUMBER = re.compile(r"\d{1,3}")


def _capability(text: str | None) -> ComputeCapability | None:
    """8.0 of `8.0`, `80`, `(8, 0)`, `8, 0` or `sm_80`."""
    if not text:
        return None
    word = text.strip()
    try:
        return ComputeCapability.from_number(int(word)) if word.isdigit() else ComputeCapability.parse(word)
    except VersionError:
        numbers = NUMBER.findall(word)
        return ComputeCapability(int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else None


def _demand(case: Case, error: ErrorSeen) -> Demand:
    words, values = error.text.lower(), error.values
    lowest = next(
        (
            cc
            for key in ("minimum", "minimum_number", "arch_number", "minimum_pair", "arch")
            if (cc := _capability(values.get(key)))
        ),
        None,
    )
    only = 9 if any(phrase in words for phrase in HOPPER_ONLY) else None
    feature = _feature(words)
    actual = next((cc for key in ("cc", "number", "pair") if (cc := _capability(values.get(key)))), None)
    return Demand(error, feature, lowest or _lowest_with(case, feature), only, actual)


_FEATURES = (
    ("FP8", ("fp8", "float8", "_scaled_mm")),
    ("FlashAttention", ("flashattention", "flash attention", "flash_attn", "fa3")),
    ("bfloat16", ("bf16", "bfloat16", "cutlassf: no kernel")),
    ("Triton", ("triton",)),
    ("FP4", ("fp4", "nvfp4", "mxfp4")),
)


def _feature(words: str) -> str:
    return next((name for name, signs in _FEATURES if any(sign in words for sign in signs)), "a feature of newer GPUs")


def _lowest_with(case: Case, feature: str) -> ComputeCapability | None:
    """The lowest compute capability that has a feature, from the tables."""
    ecosystem, rows = case.matrices.ecosystem, case.matrices.capabilities.rows
    of_hardware = {"bfloat16": Feature.BF16, "FP8": Feature.FP8, "FP4": Feature.FP6_FP4}.get(feature)
    if of_hardware is not None:
        return min((row.cc for row in rows if of_hardware in row.features), default=None)
    if feature == "Triton":
        return max((row.min_cc for row in ecosystem.triton), default=None)
    if feature == "FlashAttention":
        return next(
            (row.min_cc for row in ecosystem.flash_attention if row.package == "flash-attn" and row.first.major == 2), None
        )
    return None


def gpu_lacks_feature(case: Case) -> Iterable[Problem]:
    """The GPU's generation lacks what the code needs.

    What it checks: programs' own words about bfloat16 (8.0), FP8 (8.9), FlashAttention-2 (8.0), FlashAttention-3 (9.0 only) and
    Triton (7.0), against the compute capability of the GPUs, which for a name such as Quadro RTX 5000 is looked up.

    Why it matters: no driver, toolkit or wheel gives the hardware what it has not.

    How to fix: choose another data type or backend (float16 in place of bfloat16, SDPA in place of FlashAttention), or another
    GPU.

    When it is wrong: on a GPU newer than a check knows the same words are misleading; then an extension lacks code for it
    (extension-arch-missing), and this rule is silent.

    Sources: matrices/compute_capabilities.toml, features; matrices/ecosystem.toml, flash_attn and triton.
    """
    errors = case.errors("gpu-lacks-feature", "flash-attention-ampere-only")
    if not errors:
        return
    listed = gpus_with_capability(case)
    for error in errors:
        demand = _demand(case, error)
        verdict = _judged(case, demand, listed)
        if verdict is not None:
            yield verdict
            return


def _judged(case: Case, demand: Demand, listed: tuple[GpuWithCapability, ...]) -> Problem | None:
    """The problem where the GPU lacks what is demanded, or may; None where a GPU of this text has it."""
    if demand.actual is not None:
        lacking = demand.lacks(demand.actual) or (demand.lowest is None and demand.only_major is None)
        shown = demand.error.values.get("gpu") or "The GPU"
        return _lacks(demand, f"{shown} (compute capability {demand.actual})", (), Confidence.CERTAIN) if lacking else None
    lacking_gpus = tuple(gpu for gpu in listed if demand.lacks(gpu.compute_capability))
    if lacking_gpus:
        first = lacking_gpus[0]
        return _lacks(demand, first.title, first.evidence, Confidence.CERTAIN)
    knows_minimum = demand.lowest is not None or demand.only_major is not None
    if (listed and knows_minimum) or cpu_build(case) or case.saw("torch-no-gpu-visible", "torch-no-nvidia-driver"):
        return None
    return _lacks(demand, "The GPU", (), Confidence.LIKELY)


def _lacks(demand: Demand, shown: str, proof: tuple[Evidence, ...], confidence: Confidence) -> Problem:
    if demand.only_major is not None:
        needs = f"compute capability {demand.only_major}.x"
    else:
        needs = f"compute capability {demand.lowest} or newer" if demand.lowest is not None else "a newer generation"
    return Problem(
        subject="GPU",
        what=f"{shown} lacks what the program needs: {demand.feature} takes {needs}.",
        why="This is a property of the hardware: no driver, toolkit or package changes it.",
        evidence=(*as_evidence((demand.error,)), *proof),
        remedies=(
            Remedy(
                Fix(title=_INSTEAD.get(demand.feature, "Choose code that this generation runs, or another GPU"), where=Where.VENV)
            ),
        ),
        confidence=confidence,
    )


_INSTEAD = {
    "bfloat16": "Use float16 in place of bfloat16 (vLLM: --dtype half; Transformers: dtype=torch.float16, fp16=True)",
    "FP8": "Use a BF16, FP16 or integer-quantised version of the model, or a GPU with FP8 (8.9 or newer)",
    "FlashAttention": "Use another attention backend (SDPA, xFormers or the math path) on this GPU",
    "Triton": "Switch the compiler off (TORCHDYNAMO_DISABLE=1) or use a GPU of 7.0 or newer",
}


def _device_asserts(case: Case) -> tuple[ErrorSeen, ...]:
    """Assertions on the device; those of host programs are not meant."""
    signs = ("device-side assert", "thread: [", "cudaerrorassert", "cuda_error_assert", "(59)", "710")
    return tuple(error for error in case.errors("app-device-assert") if any(sign in error.text.lower() for sign in signs))


def app_device_assert(case: Case) -> Iterable[Problem]:
    """A device-side assert of the program's own data: an index or label out of range.

    What it checks: "device-side assert triggered" (error 710) and the assertion that the kernel printed.

    Why it matters: the data asks for an element that does not exist: a label outside the classes, a token outside the
    vocabulary. The context is lost, so that later errors (NCCL, other CUDA calls) are consequences.

    How to fix: run once with CUDA_LAUNCH_BLOCKING=1, or on the CPU, which names the line; then check the range of the indices.

    When it is wrong: rarely, memory that a faulty kernel overwrote.

    Sources: cuda.h, CUDA_ERROR_ASSERT (710); PyTorch, CUDA semantics, asynchronous execution.
    """
    errors = _device_asserts(case)
    if not errors:
        return
    assertion = next((error.values["assertion"] for error in errors if error.values.get("assertion")), None)
    yield Problem(
        subject="program",
        what=f"A kernel's assertion failed on the program's data{f': {assertion}' if assertion else ''}.",
        why="An index or label is out of range; the stack is not at fault, and errors that follow are consequences.",
        evidence=as_evidence(errors),
        remedies=(_locate(),),
    )


def _locate() -> Remedy:
    return Remedy(
        Fix(
            title="Find the line: launches one by one, or on the CPU",
            commands=("CUDA_LAUNCH_BLOCKING=1 python PROGRAM",),
            where=Where.VENV,
        )
    )


def app_illegal_address(case: Case) -> Iterable[Problem]:
    """A kernel of the program reads or writes where it must not, or dies.

    What it checks: "an illegal memory access was encountered" (error 700), "unspecified launch failure" (719), misaligned
    addresses and illegal instructions.

    Why it matters: a kernel of the program, or of a library it uses, is faulty; everything after it in the process fails.

    How to fix: compute-sanitizer names the kernel and the access; CUDA_LAUNCH_BLOCKING=1 the line.

    When it is wrong: on one GPU only, with programs that are sound elsewhere, the hardware or overclocking is suspect.

    Sources: cuda.h, CUDA_ERROR_ILLEGAL_ADDRESS (700), CUDA_ERROR_LAUNCH_FAILED (719); Compute Sanitizer.
    """
    errors = case.errors("app-illegal-address", "cuda-launch-failure")
    if not errors:
        return
    yield Problem(
        subject="program",
        what="A kernel accessed memory that it must not, or was aborted.",
        why="The fault is in the program or a library that it calls; the driver and CUDA versions are not the cause.",
        evidence=as_evidence(errors),
        remedies=(
            Remedy(Fix(title="Name the kernel and the access", commands=("compute-sanitizer python PROGRAM",), where=Where.VENV)),
            _locate(),
        ),
        confidence=Confidence.LIKELY,
    )


_LIMIT = "an SM gives one block at most 65,536 registers and a limited amount of shared memory"


def launch_config(case: Case) -> Iterable[Problem]:
    """The launch asks for more registers, threads or shared memory than a block may have.

    What it checks: "too many resources requested for launch" (error 701), "invalid configuration argument" (error 9), Triton's
    "out of resource: shared memory".

    Why it matters: the GPU cannot start such a block: threads times registers exceed the 65,536 registers of a block, or the
    shared memory exceeds the GPU's. A configuration that was tuned for a larger GPU fails on a smaller one.

    How to fix: fewer threads, __launch_bounds__, smaller tiles or fewer stages.

    When it is wrong: never for these codes; they come from the launch itself.

    Sources: cuda.h, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (701); matrices/compute_capabilities.toml, limits.
    """
    nine = tuple(error for error in case.errors("cuda-invalid-device-function") if "invalid configuration" in error.text.lower())
    errors = (*case.errors("launch-config"), *nine)
    if not errors:
        return
    values = next((error.values for error in errors if error.values.get("required")), {})
    numbers = f" It asks for {values['required']} bytes of shared memory" if values else ""
    numbers += f"; the GPU gives {values['limit']}" if values.get("limit") else ""
    yield Problem(
        subject="program",
        what=f"The program's launch asks for more than one block may have.{numbers}{'.' if numbers else ''}",
        why=f"This is a launch configuration of the program: {_LIMIT}.",
        evidence=as_evidence(errors),
        remedies=(
            Remedy(
                Fix(title="Use fewer threads for each block, __launch_bounds__, smaller tiles or fewer stages", where=Where.VENV)
            ),
        ),
    )


def launch_timeout(case: Case) -> Iterable[Problem]:
    """A kernel ran longer than the watchdog of a display GPU allows.

    What it checks: "the launch timed out and was terminated" (error 702).

    Why it matters: a GPU that drives a display may not be busy for more than a few seconds with one kernel.

    How to fix: split the kernel, use a GPU without a display, or (Windows) raise the TDR delay.

    When it is wrong: a kernel that never ends is ended on such a GPU only; elsewhere it hangs.

    Sources: cuda.h, CUDA_ERROR_LAUNCH_TIMEOUT (702); Microsoft, TDR registry keys.
    """
    texts = seen(case, "launch-timeout")
    if texts:
        yield Problem(
            subject="program",
            what="A kernel ran longer than the display's watchdog allows.",
            why="A GPU that drives a display ends kernels that take more than a few seconds.",
            evidence=texts,
            remedies=(Remedy(Fix(title="Split the kernel, or run it on a GPU without a display", where=Where.VENV)),),
        )


def fork_after_cuda_init(case: Case) -> Iterable[Problem]:
    """CUDA was initialised before the process forked; workers have to be spawned.

    What it checks: "Cannot re-initialize CUDA in forked subprocess" and its kin; "initialization error" (3) in a worker that
    multiprocessing started.

    Why it matters: a CUDA context does not survive fork: the child can use no GPU.

    How to fix: choose the start method spawn, or touch CUDA in the workers only.

    When it is wrong: never; torch says it itself.

    Sources: PyTorch, Multiprocessing best practices; vLLM, VLLM_WORKER_MULTIPROC_METHOD.
    """
    errors = case.errors("fork-after-cuda-init")
    if case.saw("shown-forked-worker") and not errors:
        errors = tuple(error for error in case.errors("cuda-not-initialized") if "initialization error" in error.text.lower())
    if not errors:
        return
    jax_only = all("jax" in error.text.lower() for error in errors)
    vllm = "vllm" in " ".join(error.text for error in errors).lower()
    yield Problem(
        subject="program",
        what="The process forked after CUDA had been initialised in it."
        if not jax_only
        else "The process forks beside JAX's threads.",
        why="A CUDA context does not survive fork; the children can use no GPU. The stack is not at fault.",
        evidence=as_evidence(errors),
        remedies=(
            Remedy(
                Fix(
                    title="Spawn the workers instead",
                    commands=(
                        "export VLLM_WORKER_MULTIPROC_METHOD=spawn",
                        *(() if vllm else ("python -c \"import multiprocessing; multiprocessing.set_start_method('spawn')\"",)),
                    ),
                    where=Where.VENV,
                )
            ),
        ),
        severity=Severity.WARNING if jax_only else None,
        confidence=Confidence.CERTAIN if case.saw("fork-after-cuda-init") else Confidence.LIKELY,
    )


def nccl_fails(case: Case) -> Iterable[Problem]:
    """NCCL reports an error; it is mostly the consequence of another.

    What it checks: NCCL's own error texts.

    Why it matters: the collective operations of a program over several GPUs stop. "unhandled cuda error" repeats an error that
    CUDA had before; "unhandled system error" is one of the network or of shared memory.

    How to fix: mend the first error of the log; alone, NCCL_DEBUG=INFO says what NCCL met.

    When it is wrong: NCCL works around much that it warns of; its warnings alone are not named.

    Sources: NCCL User Guide, Troubleshooting.
    """
    errors = tuple(error for error in case.errors("nccl-error") if "warning" not in error.values)
    if errors:
        yield Problem(
            subject="NCCL",
            what="NCCL reports an error: " + errors[0].text.strip().splitlines()[-1][:160] + ".",
            why="It mostly repeats an error that happened before, on this or another rank.",
            evidence=as_evidence(errors),
            remedies=(
                Remedy(Fix(title="See what NCCL met first", commands=("NCCL_DEBUG=INFO python PROGRAM",), where=Where.VENV)),
            ),
            confidence=Confidence.LIKELY,
        )


LOST_CONTEXT = ("app-device-assert", "app-illegal-address", "gpu-oom", "memory-fragmentation", "launch-config")

RULES = (
    Rule(
        "CD530",
        "gpu-lacks-feature",
        Severity.ERROR,
        "The GPU's generation lacks what the code needs",
        gpu_lacks_feature,
    ),
    Rule("CD533", "app-device-assert", Severity.ERROR, "An assertion failed on the program's data", app_device_assert),
    Rule(
        "CD534",
        "app-illegal-address",
        Severity.ERROR,
        "A kernel of the program is faulty",
        app_illegal_address,
        explained_by=("app-device-assert", "xid-bus-error", "ecc-uncorrected"),
    ),
    Rule("CD535", "launch-config", Severity.ERROR, "A block asks for more than it may have", launch_config),
    Rule("CD536", "launch-timeout", Severity.ERROR, "A kernel ran into the display's watchdog", launch_timeout),
    Rule("CD537", "fork-after-cuda-init", Severity.ERROR, "CUDA was initialised before fork", fork_after_cuda_init),
    Rule(
        "CD538",
        "nccl-fails",
        Severity.WARNING,
        "NCCL reports an error",
        nccl_fails,
        explained_by=(
            *LOST_CONTEXT,
            "xid-bus-error",
            "shm-too-small",
            "arch-missing-in-wheel",
            "extension-arch-missing",
            "driver-too-old",
            "nccl-proof-fails",
        ),
    ),
)
