"""Real NVRTC libraries from NVIDIA's wheels, downloaded once and kept between runs of the tests."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

CACHE = Path.home() / ".cache" / "cudadoctor-tests"
NVRTC_12_4 = "nvidia-cuda-nvrtc-cu12==12.4.127"
"""sm_50 to sm_90, 24 MB."""
NVRTC_13_0 = "nvidia-cuda-nvrtc==13.0.88"
"""sm_75 to sm_121, 90 MB."""


def nvrtc_library(requirement: str) -> Path:
    """The libnvrtc of a wheel; skips the test where the wheel cannot be downloaded."""
    folder = CACHE / requirement
    if not folder.is_dir():
        _download(requirement, folder)
    libraries = [path for path in folder.rglob("libnvrtc.so.*") if "alt" not in path.name]
    return libraries[0]


def _download(requirement: str, folder: Path) -> None:
    """Unpack the wheel beside `folder`, then rename: two runs at once do not meet."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--dest",
            work,
            requirement,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        wheels = list(Path(work).glob("*.whl"))
        if done.returncode or not wheels:
            pytest.skip(f"{requirement} cannot be downloaded: {done.stderr.strip()[-200:]}")
        unpacked = Path(work) / "unpacked"
        with zipfile.ZipFile(wheels[0]) as archive:
            archive.extractall(unpacked, [name for name in archive.namelist() if "/lib/libnvrtc" in name])
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
