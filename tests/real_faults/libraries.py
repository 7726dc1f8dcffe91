"""Faults of run-time libraries and of what Python has installed: shadowed, of another major, broken, absent."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.fakes.fakebin import python_program
from tests.fakes.stub_torch import StubTorch, make_environment
from tests.real_faults.fault import Check, Expected, Fault
from tests.real_faults.machine import Machine
from tests.real_faults.stand_ins import add_extension, layered_environment, run_tool, small_library

KERNEL = "__global__ void twice(float *x) { x[threadIdx.x] *= 2; }\nvoid run(float *x) { twice<<<1, 32>>>(x); }\n"
IMPATIENT = ("--timeout", "12")
"""Less than the thirty seconds for which `check` waits by itself."""
DRIVER_WORKS = {"driver-jit": "passed"}


def empty_library_first(soname: str) -> Callable[[Machine, Path], Check]:
    """A library of that soname without one function, in front of torch's."""

    def make(machine: Machine, folder: Path) -> Check:
        machine.library(soname)
        small_library(machine, folder / "lib" / soname)
        return Check(machine.in_front("LD_LIBRARY_PATH", folder / "lib"))

    return make


def copies_first(*sonames: str) -> Callable[[Machine, Path], Check]:
    """Copies of torch's own libraries in front of them."""

    def make(machine: Machine, folder: Path) -> Check:
        for soname in sonames:
            shutil.copyfile(machine.library(soname), folder / soname)
        return Check(machine.in_front("LD_LIBRARY_PATH", folder))

    return make


def wheels_of_two_majors(machine: Machine, folder: Path) -> Check:
    python, _ = layered_environment(machine, folder, ("nvidia-cudnn-cu12==9.8.0.87", "nvidia-cudnn-cu13==9.12.0.46"))
    return Check(options=("--python", python))


def extension_without_this_architecture(machine: Machine, folder: Path) -> Check:
    """A library with machine code of another major only, as a package above torch."""
    major = 8 if machine.capability.major != 8 else 9
    (folder / "ext.cu").write_text(KERNEL)
    target = f"arch=compute_{major}0,code=sm_{major}0"
    nvcc = [str(machine.toolkit / "bin" / "nvcc"), "-shared", "-Xcompiler", "-fPIC", "-gencode", target]
    run_tool(machine, [*nvcc, "-o", str(folder / "_C.so"), str(folder / "ext.cu")])
    python, site = layered_environment(machine, folder)
    add_extension(site, "fastkernels", folder / "_C.so")
    return Check(options=("--python", python))


def extension_of_another_major(machine: Machine, folder: Path) -> Check:
    """A library with GPU code that is linked against the runtime of CUDA 11."""
    runtime = small_library(machine, folder / "libcudart.so.11.0")
    cc = machine.capability
    (folder / "ext.cu").write_text(KERNEL)
    target = f"arch=compute_{cc.major}{cc.minor},code=sm_{cc.major}{cc.minor}"
    nvcc = [str(machine.toolkit / "bin" / "nvcc"), "-shared", "-Xcompiler", "-fPIC", "-gencode", target]
    needs = ["-Xlinker", "--no-as-needed", "-Xlinker", str(runtime)]
    run_tool(machine, [*nvcc, *needs, "-o", str(folder / "_C.so"), str(folder / "ext.cu")])
    python, site = layered_environment(machine, folder)
    add_extension(site, "fastkernels", folder / "_C.so")
    return Check(options=("--python", python))


def with_torch(torch: StubTorch, *options: str) -> Callable[[Machine, Path], Check]:
    """Another interpreter, with a torch that says and does what it is told."""
    return lambda machine, folder: Check(options=("--python", str(make_environment(folder / "venv", torch)), *options))


def python_that_hangs(machine: Machine, folder: Path) -> Check:
    program = python_program(folder / "python3", "import time\ntime.sleep(600)\n")
    return Check(options=("--python", str(program), *IMPATIENT))


CPU_TORCH = StubTorch("2.9.1+cpu", is_available=False, cuda_error="Torch not compiled with CUDA enabled", cudnn=None)
FAULTS = (
    Fault(
        "copies of cuBLAS first",
        copies_first("libcublas.so.13", "libcublasLt.so.13"),
        Expected("ld-library-path-shadow", "LD_LIBRARY_PATH"),
    ),
    Fault("an empty cuBLAS first", empty_library_first("libcublas.so.13"), Expected("ld-library-path-shadow", "LD_LIBRARY_PATH")),
    Fault(
        "an empty part of cuDNN first",
        empty_library_first("libcudnn_graph.so.9"),
        Expected("ld-library-path-shadow", "LD_LIBRARY_PATH"),
    ),
    Fault(
        "an empty nvJitLink first",
        empty_library_first("libnvJitLink.so.13"),
        Expected("ld-library-path-shadow", "LD_LIBRARY_PATH"),
    ),
    Fault("an empty NVRTC first", empty_library_first("libnvrtc.so.13"), Expected("ld-library-path-shadow", "LD_LIBRARY_PATH")),
    Fault("cuDNN wheels of two majors", wheels_of_two_majors, Expected("wheels-mix-cuda-majors", "pip", layers=DRIVER_WORKS)),
    Fault(
        "an extension without this architecture",
        extension_without_this_architecture,
        Expected("extension-arch-missing", "fastkernels", layers=DRIVER_WORKS),
    ),
    Fault(
        "an extension of another CUDA major",
        extension_of_another_major,
        Expected("extension-cuda-major-mismatch", "fastkernels|nvidia-cuda-runtime", layers=DRIVER_WORKS),
    ),
    Fault(
        "a CPU build of torch",
        with_torch(CPU_TORCH),
        Expected("cpu-only-torch", "--index-url", layers=DRIVER_WORKS, exit_codes=(1,)),
    ),
    Fault(
        "a torch that dies at import",
        with_torch(StubTorch("2.9.1+cu130", "13.0", on_import="segfault")),
        Expected("torch-import-fails", "", layers=DRIVER_WORKS, exit_codes=(1,)),
    ),
    Fault(
        "a torch whose import hangs",
        with_torch(StubTorch("2.9.1+cu130", "13.0", on_import="hang"), *IMPATIENT),
        Expected("torch-import-fails", "", layers=DRIVER_WORKS),
    ),
    Fault(
        "a Python that hangs",
        python_that_hangs,
        Expected("proof-undetermined", "--timeout", layers=DRIVER_WORKS, exit_codes=(4,)),
    ),
)
