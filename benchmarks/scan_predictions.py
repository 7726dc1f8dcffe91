"""Checks the predictions of `cudadoctor scan` on a real GPU: builds libraries for many sets of targets, launches their kernels.

    python benchmarks/scan_predictions.py build FOLDER     # needs nvcc 13, no GPU
    python benchmarks/scan_predictions.py run FOLDER       # needs a GPU with its driver, no toolkit

`run` scans each library for the GPU that is there, then calls its kernels in a child of its own, and prints both answers.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudadoctor.binary.contents import read_contents  # noqa: E402 - after the path
from cudadoctor.binary.coverage import Gpu, Judgement, judge  # noqa: E402
from cudadoctor.binary.source import FileSource  # noqa: E402
from cudadoctor.matrices.catalog import Matrices  # noqa: E402
from cudadoctor.model.versions import ComputeCapability, CudaVersion  # noqa: E402
from cudadoctor.scan import gpu_of  # noqa: E402

LAUNCHER = """
#include <cuda_runtime.h>
{device}
extern "C" int {name}(void) {{
    int *a = nullptr, host[32] = {{0}};
    cudaError_t error = cudaMalloc(&a, sizeof host);
    if (error != cudaSuccess) return 10000 + error;
    kernel_{name}<<<1, 32>>>(a);
    error = cudaGetLastError();
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    if (error == cudaSuccess) error = cudaMemcpy(host, a, sizeof host, cudaMemcpyDeviceToHost);
    if (error == cudaSuccess && host[7] != 21) return 9999;
    return error;
}}
"""
KERNEL = "__global__ void kernel_{name}(int *a) {{ a[threadIdx.x] = threadIdx.x * 3; }}"
CALLING_KERNEL = (
    "extern __device__ int triple(int);\n__global__ void kernel_{name}(int *a) {{ a[threadIdx.x] = triple(threadIdx.x); }}"
)
CALLEE = "__device__ int triple(int x) { return x * 3; }\n"
NEWER_PTX = (9, 9)
"""A PTX version that no driver knows yet, written over that of nvcc 13.0."""


@dataclass(frozen=True)
class Case:
    """A library: the targets of its first and second module, or of the inputs of its device link."""

    name: str
    first: str
    second: str = ""
    link: bool = False
    options: tuple[str, ...] = ()
    newer_ptx: bool = False


CASES = (
    *(Case(f"sass_{arch}", f"sm_{arch}") for arch in ("75", "80", "86", "89", "90", "90a", "100", "100f", "103", "120", "121a")),
    *(Case(f"ptx_{arch}", f"compute_{arch}") for arch in ("75", "80", "86", "89", "90", "90a", "100", "100f", "120")),
    Case("sass_80_ptx_80", "sm_80 compute_80"),
    Case("sass_80_ptx_100", "sm_80 compute_100"),
    Case("sass_all_zstd", "sm_75 sm_80 sm_90 sm_120", options=("-Xfatbin=-compress-all",)),
    Case("sass_others_zstd", "sm_75 sm_80 sm_120", options=("-Xfatbin=-compress-all",)),
    Case("sass_others_lz4", "sm_75 sm_80 sm_120", options=("-Xfatbin=-compress-all", "-Xfatbin=-compress-mode=speed")),
    Case("mixed_90_80", "sm_90", "sm_80"),
    Case("mixed_jit_80", "compute_80", "sm_80"),
    Case("ptx_too_new", "compute_80", newer_ptx=True),
    Case("ptx_too_new_sass_90", "sm_90 compute_80", newer_ptx=True),
    Case("ptx_too_new_sass_80", "sm_80 compute_80", newer_ptx=True),
    Case("link_sass_80", "sm_80", "sm_80", link=True),
    Case("link_sass_90", "sm_90", "sm_90", link=True),
    Case("link_sass_80_ptx_80", "sm_80 compute_80", "sm_80 compute_80", link=True),
    Case("link_one_ptx", "sm_80 compute_80", "sm_80", link=True),
    Case("link_ptx_100", "sm_80 compute_100", "sm_80 compute_100", link=True),
    Case("link_lto_80", "sm_80 lto_80", "sm_80 lto_80", link=True),
    Case("link_ptx_too_new", "sm_80 compute_80", "sm_80 compute_80", link=True, newer_ptx=True),
)


def gencode(targets: str) -> list[str]:
    """The options for `sm_80 compute_80`."""
    return [f"-gencode=arch=compute_{target.split('_')[1]},code={target}" for target in targets.split()]


def build(case: Case, folder: Path) -> Path:
    """The library of a case."""
    work = folder / case.name
    work.mkdir(parents=True, exist_ok=True)
    options = [*case.options, "-Xcompiler=-fPIC", *(["-rdc=true"] if case.link else [])]
    if case.newer_ptx:
        options.append("-Xfatbin=-compress-mode=none")
    objects = []
    for name, targets in (("first", case.first), ("second", case.second)):
        if targets:
            source = CALLEE if case.link and name == "second" else launcher(name, case)
            (work / f"{name}.cu").write_text(source)
            nvcc(work, "-c", *options, *gencode(targets), "-o", f"{name}.o", f"{name}.cu")
            objects.append(f"{name}.o")
    if case.newer_ptx:
        for name in objects:
            make_ptx_newer(work / name)
    library = folder / f"{case.name}.so"
    sass = [target for target in case.first.split() if target.startswith("sm_")]
    nvcc(
        work, "-shared", "-Xlinker=-s", *(gencode(" ".join(sass)) if sass else gencode(case.first)), "-o", str(library), *objects
    )
    return library


def launcher(name: str, case: Case) -> str:
    """The source of a module that launches its own kernel."""
    device = (CALLING_KERNEL if case.link else KERNEL).format(name=name)
    return LAUNCHER.format(device=device, name=name)


def nvcc(folder: Path, *argv: str) -> None:
    """Run nvcc in a folder."""
    done = subprocess.run(("nvcc", *argv), cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"nvcc {' '.join(argv)}: {done.stderr}")


def make_ptx_newer(path: Path) -> None:
    """Write a newer PTX version over that in the entry header and in the uncompressed text."""
    data = bytearray(path.read_bytes())
    major, minor = NEWER_PTX
    text = data.find(b".version 9.0")
    if text < 0:
        raise SystemExit(f"{path}: no uncompressed PTX of version 9.0")
    while text >= 0:
        data[text : text + 12] = f".version {major}.{minor}".encode()
        text = data.find(b".version 9.0", text)
    header = data.find(b"\x01\x00\x01\x01")
    while header >= 0:
        if data[header + 24 : header + 28] == b"\0\0\x09\0":
            data[header + 24 : header + 28] = minor.to_bytes(2, "little") + major.to_bytes(2, "little")
        header = data.find(b"\x01\x00\x01\x01", header + 1)
    path.write_bytes(data)


def predict(library: Path, gpu: Gpu) -> Judgement:
    """What the scanner says."""
    with FileSource(library) as source:
        contents = read_contents(source)
    if contents is None:
        raise SystemExit(f"{library}: not a library")
    return judge(contents.groups, gpu)


def predicted_codes(judgement: Judgement) -> set[int]:
    """The error codes that launches should give; 0 for success."""
    usable = any(judgement.modules.get(name) for name in ("sass", "jit", "uncertain"))
    return {*judgement.errors, *((0,) if usable else ())}


CHILD = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
print(json.dumps([getattr(library, name)() for name in ("first", "second") if hasattr(library, name)]))
"""


def launch(library: Path) -> list[int]:
    """The error code of each kernel, in a process of its own."""
    done = subprocess.run((sys.executable, "-c", CHILD, str(library)), capture_output=True, text=True, timeout=120)
    return [int(code) for code in json.loads(done.stdout)] if done.returncode == 0 else [-1]


def this_gpu() -> tuple[Gpu, str]:
    """The first GPU and the driver's CUDA version, asked through the driver API."""
    cuda = ctypes.CDLL("libcuda.so.1")
    version, major, minor = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    cuda.cuInit(0)
    cuda.cuDriverGetVersion(ctypes.byref(version))
    cuda.cuDeviceGetAttribute(ctypes.byref(major), 75, 0)
    cuda.cuDeviceGetAttribute(ctypes.byref(minor), 76, 0)
    driver = CudaVersion.from_int(version.value)
    gpu = gpu_of(ComputeCapability(major.value, minor.value), driver, Matrices.load().toolkits)
    return gpu, f"CC {gpu.compute_capability}, driver CUDA {driver}"


def run(folder: Path) -> int:
    """Compare all libraries; the number of wrong predictions."""
    gpu, words = this_gpu()
    print(f"{words}\n\n| library | predicted | codes predicted | codes seen | right |\n|---|---|---|---|---|")
    wrong = 0
    for library in sorted(folder.glob("*.so")):
        judgement = predict(library, gpu)
        wanted, seen = predicted_codes(judgement), launch(library)
        right = wanted == set(seen)
        wrong += not right
        print(
            f"| {library.stem} | {judgement.verdict.value} | {sorted(wanted)} | {seen} | {'yes' if right else 'NO'} |", flush=True
        )
    print(f"\n{len(list(folder.glob('*.so')))} libraries, {wrong} wrong predictions")
    return wrong


def main() -> int:
    """Build, or run."""
    action, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    if action == "build":
        for case in CASES:
            print(build(case, folder))
        return 0
    return run(folder)


if __name__ == "__main__":
    sys.exit(main())
