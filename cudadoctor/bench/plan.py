"""What to measure on a GPU: kernels of the catalogue with their problems, fitted to its kind and its free memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cudadoctor.bench.model import Section
from cudadoctor.gpu import catalog
from cudadoctor.gpu.catalog import DataType, KernelSpec, LayoutOfB, Method
from cudadoctor.model.versions import ComputeCapability

MEMORY_SHARE = 0.5
"""Of the free memory, what one problem may take."""
WORD_BYTES = 4
GEMM_SIZES = (8192, 4096, 2048, 1024, 512)
ORACLE_SIZE = 1024
"""The naive kernels take too long at more."""
ATTENTION_HEADS, ATTENTION_WIDTH = 32, 128
TRANSFER_BYTES = {True: 64 << 20, False: 256 << 20}
TRANSPOSE_ROUNDS = 33
BRANCH_STEPS = 1024
CHASE_STEPS = {True: 1000, False: 4000}


@dataclass(frozen=True)
class Job:
    """One kernel with one problem; jobs of one group are timed in turns, with the library's call for that problem."""

    section: Section
    kernel: KernelSpec
    problem: str
    shape: Mapping[str, Any]
    group: str
    reference: Mapping[str, Any] = field(default_factory=dict)
    """What to ask of torch; empty where there is nothing to compare with."""

    @property
    def name(self) -> str:
        return f"{self.kernel.name} {self.problem}"


def jobs(
    sections: Iterable[Section], device: ComputeCapability, multiprocessors: int, free: int, *, quick: bool
) -> tuple[Job, ...]:
    """All jobs of these sections, in the order in which they are shown."""
    makers = {Section.GEMM: _gemms, Section.ATTENTION: _attentions}
    found: list[Job] = []
    for section in sections:
        if section is Section.MEMORY:
            found += _memory(multiprocessors, free, quick=quick)
        else:
            found += makers[section](device, free, quick=quick)
    return tuple(found)


def _best(kernels: Iterable[KernelSpec], device: ComputeCapability) -> KernelSpec | None:
    """The last of them that runs here: the catalogue goes up the ladder."""
    return next((kernel for kernel in reversed(tuple(kernels)) if kernel.runs_on(device)), None)


BLOCKED = (catalog.GEMM_F32_BLOCKED_SM50, catalog.GEMM_F32_BLOCKED)
HALVES = (catalog.GEMM_F16_TILED, catalog.GEMM_F16_MMA_SM75, catalog.GEMM_BF16_MMA_SM80, catalog.GEMM_BF16_WGMMA)
ATTENTION = (catalog.ATTN_F16_FUSED_D128, catalog.ATTN_F16_MMA_D128, catalog.ATTN_F16_WGMMA_D128)


def _gemms(device: ComputeCapability, free: int, *, quick: bool) -> list[Job]:
    blocked = _best(BLOCKED, device) or catalog.GEMM_F32_TILED
    half = _best(HALVES, device) or catalog.GEMM_F16_TILED
    if quick:
        return [_gemm(blocked, 4096, free), _gemm(half, 4096, free)]
    ladder = [
        _gemm(catalog.GEMM_F32_NAIVE, ORACLE_SIZE, free),
        _gemm(catalog.GEMM_F32_TILED, 4096, free),
        _gemm(blocked, 4096, free),
    ]
    with_tensor_cores = [kernel for kernel in HALVES[1:] if kernel.runs_on(device)]
    ladder += [_gemm(kernel, 4096, free) for kernel in with_tensor_cores or HALVES[:1]]
    largest = [_gemm(half, 8192, free)] if half.method in (Method.MMA, Method.WGMMA) else []
    return [*ladder, *(job for job in largest if job not in ladder)]


def _gemm(kernel: KernelSpec, size: int, free: int) -> Job:
    element = 4 if kernel.dtype is DataType.F32 else 2
    fitting = [each for each in GEMM_SIZES if each <= size and 3 * element * each * each <= MEMORY_SHARE * free]
    size = fitting[0] if fitting else GEMM_SIZES[-1]
    reference = {"op": "gemm", "dtype": kernel.dtype.value, "size": size}
    stored = "" if kernel.layout_of_b is LayoutOfB.NK else ", B [K,N]"
    problem = f"{size}^3 {kernel.dtype.value}{stored}"
    return Job(Section.GEMM, kernel, problem, {"m": size, "n": size, "k": size}, problem, reference)


def _attentions(device: ComputeCapability, free: int, *, quick: bool) -> list[Job]:
    best = _best(ATTENTION, device) or catalog.ATTN_F16_FUSED_D128
    if quick:
        return [_attention(best, 2048, free, causal=True)]
    ladder = [_attention(kernel, 2048, free, causal=True) for kernel in ATTENTION if kernel.runs_on(device)]
    return [*ladder, _attention(best, 4096, free, causal=False)]


def _attention(kernel: KernelSpec, length: int, free: int, *, causal: bool) -> Job:
    heads = ATTENTION_HEADS
    while heads > 1 and 4 * 2 * heads * length * ATTENTION_WIDTH > MEMORY_SHARE * free:
        heads //= 2
    shape = {
        "heads": heads,
        "kv_heads": heads,
        "queries": length,
        "keys": length,
        "kv_lengths": [length],
        "causal": int(causal),
        "scale": ATTENTION_WIDTH**-0.5,
    }
    fewer = "" if heads == ATTENTION_HEADS else f", {heads} heads"
    problem = f"S{length} {'causal' if causal else 'full'} {kernel.dtype.value}{fewer}"
    reference = {"op": "attention", "dtype": kernel.dtype.value, "heads": heads, "length": length, "causal": causal}
    return Job(Section.ATTENTION, kernel, problem, shape, problem, {**reference, "width": ATTENTION_WIDTH})


def _memory(multiprocessors: int, free: int, *, quick: bool) -> list[Job]:
    words = power_of_two(min((1 << 27 if quick else 1 << 28), int(MEMORY_SHARE * free) // (2 * WORD_BYTES)))
    side = 1 << (words.bit_length() - 1) // 2
    warps = (1, 32) if quick else (1, 2, 4, 8, 16, 32)
    steps = CHASE_STEPS[quick]
    return [
        _moving(catalog.COPY_U32_VECTORS, f"{size_text(WORD_BYTES * words)} copied", words),
        *(
            _moving(catalog.GATHER_U32_STRIDED, f"stride {stride}", words, stride)
            for stride in ((32, 1) if quick else (32, 8, 4, 2, 1))
        ),
        *(
            _moving(kernel, f"{TRANSPOSE_ROUNDS} turns", side * side // 4, side // 2, TRANSPOSE_ROUNDS)
            for kernel in (catalog.TRANSPOSE_U32_CONFLICTED, catalog.TRANSPOSE_U32_PADDED)
        ),
        *(_moving(catalog.BRANCH_U32_PATHS, f"{group} agree", min(words, 1 << 22), group, BRANCH_STEPS) for group in (1, 32)),
        _moving(catalog.CHASE_U32_CYCLE, "1 load in flight", words, steps, 1, 1),
        *(
            _moving(
                catalog.CHASE_U32_CYCLE, f"{count} warp{'s' * (count > 1)} an SM", words, steps // 4, 32, multiprocessors * count
            )
            for count in warps
        ),
    ]


def _moving(kernel: KernelSpec, problem: str, elems: int, *numbers: int) -> Job:
    shape = dict(zip(("elems", "first", "second", "third"), (elems, *numbers), strict=False))
    return Job(Section.MEMORY, kernel, problem, shape, f"{kernel.name} {problem}")


def power_of_two(number: int) -> int:
    """The largest power of two that is not above `number`, at least 65,536."""
    return max(1 << max(number, 1).bit_length() - 1, 65536)


def size_text(size: int) -> str:
    """`256 MiB` or `1 GiB`."""
    return f"{size >> 30} GiB" if size >= 1 << 30 and size % (1 << 30) == 0 else f"{size >> 20} MiB"
