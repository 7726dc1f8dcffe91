"""Short spellings of sets."""

from __future__ import annotations

import pytest

from cudadoctor.model.versions import SmTarget
from cudadoctor.report.ranges import number_ranges, target_span


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([0], "0"),
        ([1, 0], "0, 1"),
        ([2, 1, 0], "0..2"),
        ([0, 1, 2, 3, 5], "0..3, 5"),
        ([3, 3, 3], "3"),
        ([], ""),
        ([0, 2, 4], "0, 2, 4"),
    ],
)
def test_number_ranges(numbers: list[int], text: str) -> None:
    assert number_ranges(numbers) == text


@pytest.mark.parametrize(
    ("targets", "text"),
    [
        ("sm_90 sm_50 sm_70", "sm_50 to sm_90"),
        ("sm_50 sm_120 sm_90", "sm_50 to sm_120"),
        ("sm_80 sm_90", "sm_80, sm_90"),
        ("sm_80 sm_90 sm_90a compute_90", "sm_80 to sm_90a, PTX compute_90"),
        ("compute_50", "PTX compute_50"),
        ("", "nothing"),
    ],
)
def test_target_span(targets: str, text: str) -> None:
    assert target_span([SmTarget.parse(word) for word in targets.split()]) == text
