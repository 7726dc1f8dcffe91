"""Small real binaries: those checked in, those that an nvcc builds here, and wheels from the package index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.binary.build_data import build

SAMPLES = Path(__file__).parent / "data" / "samples.zip"
DOWNLOADS = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "cudadoctor-tests"


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the checked-in binaries (tests/binary/build_data.py says how they were built)."""
    folder = tmp_path_factory.mktemp("samples")
    with zipfile.ZipFile(SAMPLES) as file:
        file.extractall(folder)
    return folder


@pytest.fixture(scope="session")
def built_samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same binaries, built now."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    folder = tmp_path_factory.mktemp("built")
    build(nvcc, folder)
    return folder


@pytest.fixture(scope="session")
def wheel() -> Callable[..., Path]:
    """Downloads a wheel by requirement into a cache that later runs use; skips where the index does not answer."""

    def download(requirement: str, *options: str) -> Path:
        folder = DOWNLOADS / re.sub(r"[^A-Za-z0-9._]+", "-", " ".join((requirement, *options)))
        found = list(folder.glob("*.whl"))
        if not found:
            argv = (sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", str(folder), *options, requirement)
            done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
            found = list(folder.glob("*.whl"))
            if not found:
                pytest.skip(f"pip could not download {requirement}: {done.stderr.strip()[-200:]}")
        return found[0]

    return download


@pytest.fixture(scope="session")
def compile_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Builds a tiny shared library with gcc: `compile_library(path, "-Wl,-rpath,/x", source="int f;")`."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc on PATH")
    sources = tmp_path_factory.mktemp("sources")

    def compile_it(path: Path, *options: str, source: str = "int marker;") -> Path:
        text = sources / "library.c"
        text.write_text(source)
        path.parent.mkdir(parents=True, exist_ok=True)
        argv = ("gcc", "-shared", "-fPIC", "-nostdlib", "-o", str(path), str(text), *options)
        subprocess.run(argv, check=True, capture_output=True, timeout=60)
        return path

    return compile_it
