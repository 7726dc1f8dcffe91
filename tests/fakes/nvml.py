"""Builds the stand-in for NVML and writes the file that says what it answers."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.fakes.build import FAKES, build_fake_libcuda, build_shared_library

CACHE = Path.home() / ".cache" / "cudadoctor-tests"
SONAME = "libnvidia-ml.so.1"

Answers = Mapping[str, object]

RTX_4090: Answers = {
    "driver": "535.104.05",
    "cuda": 12020,
    "count": 1,
    "0.name": "NVIDIA GeForce RTX 4090",
    "0.uuid": "GPU-11111111-1111-1111-1111-111111111111",
    "0.pci": "00000000:01:00.0",
    "0.cc": "8.9",
    "0.total": 24564 << 20,
    "0.used": 412 << 20,
    "0.compute_mode": 0,
    "0.persistence": 1,
    "0.processes": 2,
    "0.pcie_gen": 1,
    "0.pcie_gen_max": 4,
    "0.pcie_width": 16,
    "0.pcie_width_max": 16,
    "0.sm_clock": 210,
    "0.sm_clock_max": 3120,
    "0.throttle": 1,
    "0.temperature": 41,
    "0.power": 22500,
    "0.limit": 450000,
    "0.utilization": 3,
}
"""A healthy desktop GPU: no ECC, no MIG."""


def install_fake_nvml(folder: Path, answers: Answers, file_name: str = SONAME) -> dict[str, str]:
    """Put the stand-in and its answers into `folder`; gives the variables with which a process finds and obeys it."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(built("fake_nvml.c", SONAME), folder / file_name)
    if file_name != SONAME:
        (folder / SONAME).symlink_to(file_name)
    config = folder / "fake_nvml.txt"
    config.write_text("".join(f"{key}={value}\n" for key, value in answers.items()))
    return {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(config)}


def install_fake_libcuda(folder: Path, file_name: str = "libcuda.so.1") -> None:
    """Put the stand-in for libcuda into `folder`, under the loader's name or with a version that the loader's name links to."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(built("fake_libcuda.c", "libcuda.so.1"), folder / file_name)
    if file_name != "libcuda.so.1":
        (folder / "libcuda.so.1").symlink_to(file_name)


@cache
def built(source: str, soname: str) -> Path:
    """A compiled stand-in, kept between runs of the tests as long as its sources stay the same."""
    text = b"".join((FAKES / name).read_bytes() for name in sorted((source, "half.h")))
    built = CACHE / hashlib.sha256(text).hexdigest()[:16] / soname
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        scratch = built.parent / str(os.getpid())
        build = (
            build_fake_libcuda(scratch) if source == "fake_libcuda.c" else build_shared_library(FAKES / source, scratch / soname)
        )
        build.replace(built)
        scratch.rmdir()
    return built
