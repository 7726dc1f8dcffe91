"""Two runs compared: only what is beyond the noise of both counts."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.bench.changes import changes, differences_of_machine
from tests.bench.runs import H200, copy, gemm, report


@pytest.mark.parametrize(
    ("then", "now", "counts"),
    [
        (gemm(780, 0.01), gemm(700, 0.01), True),
        (gemm(700, 0.01), gemm(780, 0.01), True),
        (gemm(780, 0.01), gemm(772, 0.01), False),
        (gemm(780, 0.15), gemm(700, 0.01), False),
        (gemm(780, 0.01), gemm(700, 0.15), False),
        (gemm(780, 0.08), gemm(712, 0.08), False),
        (gemm(780, 0.0), gemm(778, 0.0), False),
    ],
)
def test_a_change_counts_beyond_the_noise_of_both(then: object, now: object, counts: bool) -> None:
    (found,) = changes(report(then), report(now))  # type: ignore[arg-type]  # parametrised rows
    assert found.counts is counts


def test_positive_is_faster() -> None:
    (found,) = changes(report(copy(4000)), report(copy(4400)))
    assert found.faster == pytest.approx(0.1)


def test_rows_of_one_run_alone_are_left_out() -> None:
    gone = structs.replace(copy(), timing=None, because="no memory")
    assert [each.kernel for each in changes(report(gemm(), copy()), report(gemm()))] == ["gemm_bf16_wgmma_sm90a"]
    assert list(changes(report(copy()), report(gone))) == []


def test_another_size_under_the_same_name_is_not_compared() -> None:
    assert list(changes(report(copy()), report(structs.replace(copy(), bytes_moved=1 << 26)))) == []


def test_another_machine_is_told() -> None:
    other = report(gpu=structs.replace(H200, name="NVIDIA H100", power_limit_w=350.0))
    assert list(differences_of_machine(other, report())) == [
        "GPU: NVIDIA H100 then, NVIDIA H200 now",
        "power limit: 350.0 then, 700.0 now",
    ]
