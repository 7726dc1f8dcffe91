"""Which processes are another's, and which samples were taken when."""

from __future__ import annotations

import pytest

from cudadoctor.bench.model import Phase
from cudadoctor.bench.sampling import Line, samples_of

OURS, THEIRS = 4000, 17


def line(at: float, processes: list[int] | None, **values: int) -> Line:
    answers = {"processes": processes, **values}
    return Line(at, {key: {"value": value} if value is not None else {"error": {"code": 3}} for key, value in answers.items()})


@pytest.mark.parametrize(
    ("before", "during", "others"),
    [
        ([], [OURS], (0, 0)),
        ([THEIRS], [THEIRS, OURS], (1, 1)),
        ([], [OURS, THEIRS], (0, 1)),
        ([], [90001], (0, 0)),  # a container: ours has another number on the host
        ([THEIRS], [THEIRS, 90001], (1, 1)),
        (None, None, (None, None)),
    ],
)
def test_others_are_counted_as_far_as_they_can_be_told_apart(
    before: list[int] | None, during: list[int] | None, others: tuple[int | None, int | None]
) -> None:
    found = samples_of([line(10.0, before), line(11.0, during)], 10.5, 10.9, 12.0, {OURS})
    assert (found[0].others, found[1].others) == others


def test_phases_and_units() -> None:
    lines = [line(each, [], power_mw=650_500, utilization_percent=3) for each in (1.0, 2.0, 3.0, 4.0)]
    found = samples_of(lines, 1.5, 2.5, 3.5, ())
    assert [(each.at, each.phase) for each in found] == [(0.0, Phase.IDLE), (1.0, Phase.STARTING), (2.0, Phase.MEASURING)]
    assert found[0].power_w == 650.5
    assert found[0].sm_clock_mhz is None
    assert samples_of([], 0.0, 0.0, 0.0, ()) == ()
