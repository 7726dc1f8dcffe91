"""Counts equal to NVIDIA's cuobjdump on the samples and on a small real library; benchmarks/ does it on dozens of large ones."""

from __future__ import annotations

import platform
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.model.binaries import Place
from tests.binary.cuobjdump import REQUIREMENT, cuobjdump_counts, our_counts, unseen_modules

SAMPLES = (
    "plain.so",
    "compressed.so",
    "lz4.so",
    "constants.so",
    "linked.so",
    "linked_sass.so",
    "linked_lld.so",
    "family.fatbin",
    "lto.o",
)


@pytest.fixture(scope="session")
def cuobjdump(wheel: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program out of its wheel."""
    if platform.machine() != "x86_64":
        pytest.skip("the cuobjdump of the tests is for x86-64")
    folder = tmp_path_factory.mktemp("cuobjdump")
    with zipfile.ZipFile(wheel(REQUIREMENT)) as file:
        file.extract("nvidia/cu13/bin/cuobjdump", folder)
    program = folder / "nvidia/cu13/bin/cuobjdump"
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str, samples: Path, cuobjdump: Path) -> None:
    theirs = cuobjdump_counts(cuobjdump, samples / name)
    assert theirs
    assert our_counts(samples / name) == theirs


def test_real_library(wheel: Callable[..., Path], cuobjdump: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel("nvidia-cufile==1.15.1.6")) as file:
        path = Path(file.extract("nvidia/cu13/lib/libcufile.so.0", tmp_path))
    assert our_counts(path) == cuobjdump_counts(cuobjdump, path) == {"sm_75": 1, "sm_80": 1, "sm_86": 1, "compute_86": 1}


def test_cuobjdump_is_blind_to_other_sections(samples: Path, cuobjdump: Path) -> None:
    assert not cuobjdump_counts(cuobjdump, samples / "loose.so")
    assert unseen_modules(samples / "loose.so") == {Place.LOOSE: 1, Place.DATA: 1}
