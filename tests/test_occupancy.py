"""Occupancy against known launches and against answers of NVIDIA's own header."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.capabilities import Limits
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.occupancy import KernelNeeds, Limiter, Violation, block_occupancy

MATRICES = Matrices.load()
ALL = MATRICES.capabilities.all_ccs()


def limits(text: str) -> Limits:
    found = MATRICES.capabilities.limits(ComputeCapability.parse(text))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("gpu", "needs", "blocks", "limiters"),
    [
        ("9.0", KernelNeeds(1024, 32), 2, {Limiter.WARPS, Limiter.REGISTERS}),
        ("9.0", KernelNeeds(32, 16), 32, {Limiter.BLOCKS}),
        ("8.6", KernelNeeds(128, 64), 8, {Limiter.REGISTERS}),
        ("8.9", KernelNeeds(256, 32, dynamic_smem=48 * 1024), 2, {Limiter.SHARED_MEMORY}),
        ("9.0", KernelNeeds(384, 168, dynamic_smem=212_992), 1, {Limiter.REGISTERS, Limiter.SHARED_MEMORY}),
        ("7.5", KernelNeeds(1024, 32), 1, {Limiter.WARPS}),
        ("6.0", KernelNeeds(96, 40), 16, {Limiter.REGISTERS}),
        ("9.0", KernelNeeds(96, 255), 2, {Limiter.REGISTERS}),
    ],
)
def test_what_fits(gpu: str, needs: KernelNeeds, blocks: int, limiters: set[Limiter]) -> None:
    answer = block_occupancy(limits(gpu), needs)
    assert answer.fits
    assert (answer.blocks_per_sm, set(answer.limiters)) == (blocks, limiters)
    assert answer.warps_per_sm == blocks * -(-needs.threads_per_block // 32)
    assert 0 < answer.fraction <= 1


@pytest.mark.parametrize(
    ("gpu", "needs", "violation"),
    [
        ("9.0", KernelNeeds(0), Violation.NO_THREADS),
        ("9.0", KernelNeeds(1025), Violation.TOO_MANY_THREADS),
        ("9.0", KernelNeeds(32, 256), Violation.TOO_MANY_REGISTERS_PER_THREAD),
        ("3.0", KernelNeeds(32, 64), Violation.TOO_MANY_REGISTERS_PER_THREAD),
        ("9.0", KernelNeeds(1024, 65), Violation.TOO_MANY_REGISTERS_PER_BLOCK),
        ("5.3", KernelNeeds(1024, 33), Violation.TOO_MANY_REGISTERS_PER_BLOCK),
        ("9.0", KernelNeeds(128, dynamic_smem=49_153, opt_in=False), Violation.NEEDS_OPT_IN),
        ("9.0", KernelNeeds(128, dynamic_smem=232_449), Violation.TOO_MUCH_SHARED_MEMORY),
        ("8.6", KernelNeeds(128, dynamic_smem=100 * 1024), Violation.TOO_MUCH_SHARED_MEMORY),
        ("9.0", KernelNeeds(128, static_smem=49_153), Violation.TOO_MUCH_SHARED_MEMORY),
    ],
)
def test_what_does_not_fit(gpu: str, needs: KernelNeeds, violation: Violation) -> None:
    answer = block_occupancy(limits(gpu), needs)
    assert answer.violations == (violation,)
    assert (answer.blocks_per_sm, answer.limiters, answer.fits) == (0, (), False)


@pytest.mark.parametrize("gpu", [str(cc) for cc in ALL])
def test_the_largest_legal_launches_fit_everywhere(gpu: str) -> None:
    have = limits(gpu)
    for needs in (
        KernelNeeds(1024, 32),
        KernelNeeds(have.max_registers_per_block // 256 // 32 * 32, have.max_registers_per_thread),
        KernelNeeds(32, 32, dynamic_smem=have.smem_per_block_optin),
        KernelNeeds(32, 32, static_smem=have.smem_per_block, opt_in=False),
    ):
        assert block_occupancy(have, needs).blocks_per_sm >= 1, needs


@pytest.mark.parametrize("gpu", [str(cc) for cc in ALL])
def test_more_of_anything_never_gives_more_blocks(gpu: str) -> None:
    have = limits(gpu)
    for threads in (32, 64, 128, 256, 512, 1024):
        blocks = [block_occupancy(have, KernelNeeds(threads, registers)).blocks_per_sm for registers in range(1, 256)]
        assert blocks == sorted(blocks, reverse=True)
        sizes = range(0, have.smem_per_block_optin + 2048, 1024)
        blocks = [block_occupancy(have, KernelNeeds(threads, 16, dynamic_smem=size)).blocks_per_sm for size in sizes]
        assert blocks == sorted(blocks, reverse=True)


LIMITER_BITS = {1: Limiter.WARPS, 2: Limiter.REGISTERS, 4: Limiter.SHARED_MEMORY, 8: Limiter.BLOCKS}
REFERENCE = Path(__file__).parent / "reference" / "occupancy.txt"


def test_nvidias_own_header_says_the_same() -> None:
    """tools/refresh_occupancy.py compiled cuda_occupancy.h and asked it about these launches."""
    rows = [line.split() for line in REFERENCE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    assert len({row[0] for row in rows}) >= len(ALL) - 1
    for gpu, *numbers in rows:
        threads, registers, smem, blocks, bits = (int(number) for number in numbers)
        answer = block_occupancy(limits(gpu), KernelNeeds(threads, registers, dynamic_smem=smem))
        assert answer.blocks_per_sm == blocks, (gpu, numbers)
        if blocks:
            assert set(answer.limiters) == {limiter for bit, limiter in LIMITER_BITS.items() if bits & bit}, (gpu, numbers)
