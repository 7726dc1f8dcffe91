"""Builds the small binaries that the scanner's tests read: `python tests/binary/build_data.py FOLDER` (needs nvcc 13 and gcc).

Those in tests/binary/data were built by it with nvcc 13.0.88; with an nvcc at hand the tests build them again and expect
the same.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

KERNEL = """
extern "C" __global__ void add(float *a, const float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] += b[i];
}
extern "C" void launch(float *a, const float *b, int n) { add<<<n / 256 + 1, 256>>>(a, b, n); }
"""
CONSTANTS = "__constant__ float table[4] = {1, 2, 3, 4};\n"
CALLER = """
extern __device__ float twice(float);
__global__ void all(float *a) { a[threadIdx.x] = twice(a[threadIdx.x]); }
extern "C" void launch(float *a) { all<<<1, 32>>>(a); }
"""
CALLEE = "__device__ float twice(float x) { return x * 2; }\n"
LOOSE = """
.section .rodata
.balign 16
.quad 1
.incbin "{cubin}"
.balign 8
.section .ldata, "aw"
.balign 64
.quad 2
.incbin "{fatbin}"
.balign 8
.quad 3
"""


def gencode(*codes: str) -> list[str]:
    """The -gencode options for targets such as sm_90a and compute_90."""
    return [f"-gencode=arch=compute_{code.split('_')[1]},code={code}" for code in codes]


class Builder:
    """Writes sources and runs the compiler in one folder."""

    def __init__(self, nvcc: str, folder: Path) -> None:
        self.nvcc, self.folder = nvcc, folder

    def source(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return name

    def run(self, *argv: str) -> None:
        subprocess.run(argv, cwd=self.folder, check=True, capture_output=True, timeout=300)

    def library(self, name: str, *argv: str) -> None:
        """A stripped shared library that needs libcudart (with -cudart=none, nvcc 13.0 leaves out the device link)."""
        self.run(self.nvcc, "-shared", "-cudart=shared", "-Xcompiler=-fPIC", "-Xlinker=-s", "-o", name, *argv)


def build(nvcc: str, folder: Path) -> None:
    """All binaries, into `folder`."""
    builder = Builder(nvcc, folder)
    kernel = builder.source("kernel.cu", KERNEL)
    constants = builder.source("constants.cu", CONSTANTS)
    parts = (builder.source("caller.cu", CALLER), builder.source("callee.cu", CALLEE))
    builder.library("plain.so", *gencode("sm_80", "sm_90a", "compute_90"), kernel)
    builder.library("compressed.so", "-Xfatbin=-compress-all", *gencode("sm_75", "sm_120", "compute_120"), kernel)
    builder.library("lz4.so", "-Xfatbin=-compress-all", "-Xfatbin=-compress-mode=speed", *gencode("sm_89"), kernel)
    builder.library("constants.so", *gencode("sm_86"), constants)
    builder.library("linked.so", "-rdc=true", *gencode("sm_80", "compute_80"), *parts)
    builder.library("linked_sass.so", "-rdc=true", *gencode("sm_80"), *parts)
    if shutil.which("ld.lld"):
        builder.library("linked_lld.so", "-rdc=true", "-Xcompiler=-fuse-ld=lld", *gencode("sm_80"), *parts)
    builder.run(nvcc, "-fatbin", *gencode("sm_100f", "sm_103a", "compute_120f", "compute_100a"), "-o", "family.fatbin", kernel)
    builder.run(nvcc, "-cubin", "-arch=sm_90a", "-o", "specific.cubin", kernel)
    builder.run(nvcc, "-ptx", "-arch=compute_90a", "-o", "specific.ptx", kernel)
    builder.run(nvcc, "-c", "-dc", *gencode("sm_80"), "-gencode=arch=compute_90,code=lto_90", "-o", "lto.o", kernel)
    builder.run(nvcc, "-c", *gencode("sm_80"), "-o", "one.o", kernel)
    builder.run(nvcc, "-dc", *gencode("sm_80"), "-o", "two.o", parts[1])
    builder.run("ar", "rcD", "objects.a", "one.o", "two.o", "kernel.cu")
    loose = builder.source("loose.s", LOOSE.format(cubin="specific.cubin", fatbin="family.fatbin"))
    builder.run("gcc", "-shared", "-nostdlib", "-Wl,-s", "-o", "loose.so", loose)


SAMPLES = """plain.so compressed.so lz4.so constants.so linked.so linked_sass.so linked_lld.so family.fatbin
specific.cubin specific.ptx lto.o objects.a loose.so"""


def pack(folder: Path, archive: Path) -> None:
    """The samples of a folder in one deflated zip without times, which doubles as a small wheel."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name in SAMPLES.split():
            file.writestr(zipfile.ZipInfo(name, (2026, 11, 30, 0, 0, 0)), (folder / name).read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    build("nvcc", Path(sys.argv[1]))
    pack(Path(sys.argv[1]), Path(sys.argv[1]) / "samples.zip")
