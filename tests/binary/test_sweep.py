from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.binary import sweep as module_under_test
from cudadoctor.binary.fatbin import CONTAINER_MAGIC
from cudadoctor.binary.source import BinaryError, BytesSource
from cudadoctor.binary.sweep import find_start, sweep, walk
from cudadoctor.model.binaries import Place
from tests.binary.test_fatbin import container, entry


@pytest.mark.parametrize("gap", [0, 8, 64, 248, 4096, 300_000])
def test_walk_skips_gaps(gap: int) -> None:
    data = b"".join(container(entry(2, number)) + bytes(gap) for number in (80, 90, 120))
    found = list(walk(BytesSource(data), 0, len(data), Place.REGISTERED, ".nv_fatbin"))
    assert [item.entries[0].label for item in found] == ["sm_80", "sm_90", "sm_120"]


@pytest.mark.parametrize("start", [0, 8, 256 - 8, 256, 4096 + 256 - 8, (1 << 18) - 8, 1_000_000])
def test_finds_a_container_at_every_chunk_border(start: int) -> None:
    data = bytes(start) + container(entry()) + bytes(1000)
    assert find_start(BytesSource(data), 0, len(data), (CONTAINER_MAGIC[:5],)) == start


def test_unaligned_magic_is_skipped() -> None:
    data = b"\0" * 4 + container(entry()) + bytes(4) + container(entry(2, 90))
    found = list(walk(BytesSource(data), 0, len(data), Place.REGISTERED, ""))
    assert [item.entries[0].label for item in found] == ["sm_90"]


def test_section_end_is_respected() -> None:
    data = container(entry()) + container(entry(2, 90))
    half = len(data) // 2
    assert len(list(walk(BytesSource(data), 0, half, Place.REGISTERED, ""))) == 1


def test_sweep_tells_containers_and_loose_cubins(samples: Path) -> None:
    cubin = (samples / "specific.cubin").read_bytes()
    data = b"text" * 100 + container(entry()) + b"more" * 99 + b"\0" * 4 + cubin + bytes(200)
    found = list(sweep(BytesSource(data), 0, len(data), ".rodata"))
    assert [(item.place, item.entries[0].label) for item in found] == [(Place.DATA, "sm_80"), (Place.LOOSE, "sm_90a")]
    assert found[1].size == len(cubin)


def test_cubin_inside_a_container_is_not_counted_again(samples: Path) -> None:
    data = (samples / "family.fatbin").read_bytes()
    assert data.count(b"\x7fELF") >= 2
    assert len(list(sweep(BytesSource(data), 0, len(data), ".data"))) == 1


def test_too_many_candidates_end_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "MAX_CANDIDATES", 10)
    data = container(entry()) * 11
    with pytest.raises(BinaryError, match="more than 10"):
        list(walk(BytesSource(data), 0, len(data), Place.REGISTERED, ""))
