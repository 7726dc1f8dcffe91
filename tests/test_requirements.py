"""Conditions: read, refused, judged."""

import pytest

from cudadoctor.model.fact import Known, Missing
from cudadoctor.model.snapshot import Driver, Gpu, Snapshot
from cudadoctor.model.versions import ComputeCapability, DriverRelease
from cudadoctor.requirements import RequirementError, parse_requirements


def test_a_list_of_conditions() -> None:
    conditions = parse_requirements("cc>=8.0, driver >= 550 ,torch!=2.6")
    assert [condition.text for condition in conditions] == ["cc>=8.0", "driver>=550", "torch!=2.6"]
    assert parse_requirements("") == ()


@pytest.mark.parametrize(
    "text", ["cc", "cc>8.x.y", "driver>=new", "gpus>=two", "colour>=1", "cc=>8", "cc>=8.0;driver>=5", "=" * 1000]
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(RequirementError):
        parse_requirements(text)


def test_versions_are_compared_as_numbers() -> None:
    (condition,) = parse_requirements("driver>=550.54")
    assert condition.holds(DriverRelease.parse("550.144.03"))
    assert not condition.holds(DriverRelease.parse("550.9"))


def test_the_lowest_capability_of_all_gpus_counts() -> None:
    gpus = tuple(
        Gpu(index=index, compute_capability=Known(ComputeCapability(*cc), "test")) for index, cc in enumerate([(9, 0), (7, 5)])
    )
    (condition,) = parse_requirements("cc>=8.0")
    fact = condition.fact(Snapshot(gpus=Known(gpus, "test")))
    assert isinstance(fact, Known) and fact.value == ComputeCapability(7, 5)
    with_unknown = Snapshot(gpus=Known((*gpus, Gpu(index=2)), "test"))
    assert isinstance(condition.fact(with_unknown), Missing)


def test_what_was_not_read_is_missing() -> None:
    for condition in parse_requirements(
        "cc>=1.0,gpus>=1,driver>=1,driver_cuda>=1.0,toolkit>=1.0,python>=3,torch>=1,cudnn>=1,glibc>=1"
    ):
        assert isinstance(condition.fact(Snapshot(driver=Driver())), Missing), condition.text
