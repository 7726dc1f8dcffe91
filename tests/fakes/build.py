"""Builds the stand-ins for NVIDIA's libraries with the C compiler of this machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

FAKES = Path(__file__).resolve().parent


def build_fake_libcuda(folder: Path) -> Path:
    """`folder`/libcuda.so.1, made from fake_libcuda.c (its head lists the variables); skips the test without a C compiler."""
    return build_shared_library(FAKES / "fake_libcuda.c", folder / "libcuda.so.1")


def build_shared_library(source: Path, target: Path) -> Path:
    """`target`, a shared library whose soname is its file name, compiled from `source`; skips the test without a C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler to build the fake libraries with")
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-O3", "-ffast-math", "-fno-finite-math-only", "-shared", "-fPIC", f"-Wl,-soname,{target.name}"]
    subprocess.run([compiler, *flags, str(source), "-o", str(target), "-lm"], check=True, timeout=60)
    return target
