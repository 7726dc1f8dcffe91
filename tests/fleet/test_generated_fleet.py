"""A generated fleet: exactly the sick nodes are named, each for what ails it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cudadoctor.fleet.documents import read_all
from cudadoctor.fleet.gathering import Gathered
from cudadoctor.fleet.summarising import summarise
from cudadoctor.fleet.summary import FleetSummary
from cudadoctor.model.codec import to_compact_json
from tests.fleet import generated
from tests.fleet.named_sick import named_sick


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[generated.Fleet, FleetSummary]]:
    folder = tmp_path_factory.mktemp("fleet")
    fleet = generated.Fleet()
    for name, report, ailment in generated.generate(1100, fleet):
        if report is not None:
            text = to_compact_json(report)
            (folder / f"{name}.json").write_bytes(text[: len(text) // 2] if ailment == "cut short" else text)
    gathered = Gathered()
    gathered.add_all(read_all([str(folder)]))
    yield fleet, summarise(gathered, fleet.nodes)


def test_every_ailment_is_there(fleet: tuple[generated.Fleet, FleetSummary]) -> None:
    assert all(len(nodes) == 1 for nodes in fleet[0].sick.values())


def test_exactly_the_sick_nodes_are_named(fleet: tuple[generated.Fleet, FleetSummary]) -> None:
    assert named_sick(fleet[1]) == fleet[0].sick
