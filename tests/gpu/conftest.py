"""What the tests of gpu/ share: the stand-in for libcuda and environments for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.build import build_fake_libcuda
from tests.fakes.nvrtc_wheels import NVRTC_12_4, nvrtc_library


@pytest.fixture(scope="session")
def fake_libcuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build_fake_libcuda(tmp_path_factory.mktemp("driver")))


@pytest.fixture(scope="session")
def nvrtc_12_4() -> str:
    return str(nvrtc_library(NVRTC_12_4))


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Environments: machine(FAKE_CUDA_INIT=803) is ours without CUDA variables, a cache of its own, and that."""
    base = {name: value for name, value in os.environ.items() if "CUDA" not in name}

    def environment(**variables: object) -> dict[str, str]:
        return {**base, "XDG_CACHE_HOME": str(tmp_path / "cache"), **{name: str(value) for name, value in variables.items()}}

    return environment
