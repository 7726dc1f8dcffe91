from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.binary.contents import Contents, read_contents
from cudadoctor.binary.source import BytesSource, FileSource
from cudadoctor.model import codec
from cudadoctor.model.binaries import Code, ModuleGroup, Place
from cudadoctor.model.versions import PtxIsa, SmTarget
from tests.binary.test_fatbin import container, entry
from tests.binary.test_formats import EXPECTED


def contents(path: Path) -> Contents:
    with FileSource(path) as source:
        found = read_contents(source)
    assert found is not None
    return found


def test_groups_of_equal_modules() -> None:
    data = container(entry(2, 80), entry(1, 90, version=(8, 4))) * 3 + container(entry(2, 75))
    found = read_contents(BytesSource(data))
    assert found is not None
    assert [(group.count, group.code) for group in found.groups] == [
        (3, (Code(SmTarget.parse("sm_80")), Code(SmTarget.parse("compute_90"), PtxIsa(8, 4)))),
        (1, (Code(SmTarget.parse("sm_75")),)),
    ]


def test_libraries_are_kept(samples: Path) -> None:
    found = contents(samples / "plain.so")
    assert found.needed[0] == "libcudart.so.13"
    assert found.has_cuda_sections


@pytest.mark.parametrize("name", EXPECTED)
def test_travels_through_json(name: str, samples: Path) -> None:
    found = contents(samples / name)
    assert codec.from_json(codec.to_json(found), Contents) == found


def test_what_was_read_before_damage_is_kept() -> None:
    data = container(entry(2, 80)) + container(entry(2, 90), size=1 << 40)
    found = read_contents(BytesSource(data))
    assert found is not None
    assert found.groups == (
        ModuleGroup(Place.FILE, (Code(SmTarget.parse("sm_80")),), is_tiny=True),
        ModuleGroup(Place.FILE, (Code(SmTarget.parse("sm_90")),), is_tiny=True, is_complete=False),
    )
