"""Builds the stand-ins for NVIDIA's libraries, and our kernels for the CPU, with the compilers of this machine."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import KernelSpec
from cudadoctor.resources import kernels_folder

FAKES = Path(__file__).resolve().parent
ON_CPU = FAKES / "cuda_on_cpu"


def build_fake_libcuda(folder: Path) -> Path:
    """`folder`/libcuda.so.1, made from fake_libcuda.c (its head lists the variables); skips the test without a C compiler."""
    return build_shared_library(FAKES / "fake_libcuda.c", folder / "libcuda.so.1")


def build_shared_library(source: Path, target: Path) -> Path:
    """`target`, a shared library whose soname is its file name, compiled from `source`; skips the test without a C compiler."""
    fast = ["-O3", "-ffast-math", "-fno-finite-math-only"]
    return _build(("cc", "gcc", "clang"), [*fast, f"-Wl,-soname,{target.name}", str(source)], target)


def build_kernel_on_cpu(kernel: KernelSpec, folder: Path, kernels: Path | None = None) -> None:
    """`folder`/ENTRY.so for each entry, the kernel's source compiled for the CPU; skips the test without a C++ compiler."""
    includes = [f"-I{ON_CPU}", f"-I{FAKES}", f"-I{kernels or kernels_folder()}"]
    flags = ["-std=c++17", "-O2", "-U_FORTIFY_SOURCE", "-Wno-unknown-pragmas", *includes, f'-DKERNEL_FILE="{kernel.file}"']
    for entry in kernel.entries:
        defines = [f"-DKERNEL={entry}", *(f"-D{define}" for define in kernel.defines)]
        _build(("c++", "g++", "clang++"), [*flags, *defines, str(ON_CPU / "run_kernel.cpp")], folder / f"{entry}.so")


def _build(compilers: Sequence[str], arguments: Sequence[str], target: Path) -> Path:
    found = [path for path in map(shutil.which, compilers) if path]
    if not found:
        pytest.skip(f"none of {', '.join(compilers)} to build the stand-ins with")
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([found[0], "-shared", "-fPIC", *arguments, "-o", str(target), "-lm"], check=True, timeout=120)
    return target
