"""Faults of programs: real ones are run on the GPU, and what they print is diagnosed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.real_faults.fault import Expected, Fault, Program
from tests.real_faults.machine import Machine
from tests.real_faults.stand_ins import compiled_program, newer_gcc, small_library, toolkit_without
from tests.real_faults.toolkits import FUTURE_GCC, NEWER_PTX

CHECKED = r"""
#include <cstdio>
#include <cuda_runtime.h>
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { \
    std::fprintf(stderr, "%s:%d: CUDA error %d: %s\n", __FILE__, __LINE__, e, cudaGetErrorString(e)); return 1; } } while (0)
extern "C" __global__ void twice(float *x) { extern __shared__ float s[]; s[threadIdx.x % 32] = x[0]; x[0] = 2 * s[0]; }
int main() {
    float *x;
    CHECK(cudaMalloc(&x, 4));
    LAUNCH
    cudaError_t launched = cudaGetLastError();
    if (launched == cudaErrorInvalidValue) {
        std::fprintf(stderr, "Failed to launch twice kernel (error code %s)!\\n", cudaGetErrorString(launched));
        return 1;
    }
    CHECK(launched);
    CHECK(cudaDeviceSynchronize());
}
"""
MANY_REGISTERS = r"""
extern "C" __global__ void many(float *x) {
    float kept[192];
    _Pragma("unroll") for (int i = 0; i < 192; ++i) kept[i] = x[i * blockDim.x + threadIdx.x];
    __syncthreads();
    _Pragma("unroll") for (int i = 0; i < 192; ++i) x[(191 - i) * blockDim.x + threadIdx.x] = kept[i] * kept[(i * 7) % 192];
}
"""
FORK = """
import os, torch
torch.ones(1).cuda()
def work():
    torch.ones(1).cuda()
if os.fork() == 0:
    work()
    os._exit(0)
os.wait()
"""
WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.ones(2, device="cuda") * index
torch.ones(1).cuda()
print(list(DataLoader(Numbers(), num_workers=1, multiprocessing_context="fork")))
"""
EXHAUSTED = """
import torch
torch.cuda.set_per_process_memory_fraction(0.004)
kept = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(64)]
"""
ABSENT_DEVICE = "import torch\ntorch.ones(1, device=f'cuda:{torch.cuda.device_count()}')\n"
ASSERTION = """
import torch
torch.nn.Embedding(4, 2).cuda()(torch.tensor([7]).cuda())
torch.cuda.synchronize()
"""
TOO_MUCH_SHARED = """
import torch, triton, triton.language as tl
@triton.jit
def product(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(a + i[:, None] * N + i[None, :])
    y = tl.load(b + i[:, None] * N + i[None, :])
    tl.store(c + i[:, None] * N + i[None, :], tl.dot(x, y))
a, b, c = (torch.ones(512, 512, device="cuda", dtype=torch.float32) for _ in range(3))
product[(1,)](a, b, c, 512, num_warps=8)
"""
NEWER_PTX_MODULE = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
import torch
torch.ones(1).cuda()
module = ctypes.c_void_p()
code = cuda.cuModuleLoad(ctypes.byref(module), sys.argv[1].encode())
text = ctypes.c_char_p()
cuda.cuGetErrorString(code, ctypes.byref(text))
raise SystemExit(f"cuModuleLoad failed: error {code}: {text.value.decode()}" if code else 0)
"""
BUILD = """
import torch.utils.cpp_extension as ext
ext.load_inline(
    name="tiny", cpp_sources="int one();", cuda_sources="int one() { return 1; }", functions=["one"],
    build_directory=__import__("sys").argv[1])
"""


def torch_program(code: str, **env: str | None) -> Callable[[Machine, Path], Program]:
    """A Python program that uses torch."""

    def make(machine: Machine, folder: Path) -> Program:
        machine.require_torch()
        (folder / "program.py").write_text(code.lstrip("\n"))
        return Program([machine.python, str(folder / "program.py"), str(folder)], env)

    return make


def launches(statement: str, *options: str, kernel: str = "") -> Callable[[Machine, Path], Program]:
    """A CUDA C++ program with this launch in it; a launch with wrong arguments is told in the words of NVIDIA's samples."""

    def make(machine: Machine, folder: Path) -> Program:
        exact = f"-arch=sm_{machine.capability.major}{machine.capability.minor}"
        source = CHECKED.replace("LAUNCH", statement).replace("int main", f"{kernel}int main")
        return Program([str(compiled_program(machine, folder, source, *(options or (exact,))))])

    return make


def other_architecture(machine: Machine, folder: Path) -> Program:
    major = 8 if machine.capability.major != 8 else 9
    target = f"arch=compute_{major}0,code=sm_{major}0"
    return launches("twice<<<1, 32, 128>>>(x);", "-gencode", target)(machine, folder)


def newer_ptx(machine: Machine, folder: Path) -> Program:
    argv = torch_program(NEWER_PTX_MODULE)(machine, folder).argv
    return Program([*argv[:2], str(NEWER_PTX)])


def extension_with_an_undefined_symbol(machine: Machine, folder: Path) -> Program:
    """An extension that calls a function of torch by the name that an older compiler ABI gave it."""
    source = (
        'extern "C" void _ZN3c106detail14torchCheckFailEPKcS2_jRKSs(void *);\n'
        'extern "C" void *PyInit_broken() { _ZN3c106detail14torchCheckFailEPKcS2_jRKSs(nullptr); return nullptr; }\n'
    )
    small_library(machine, folder / "broken.so", source)
    code = "import sys\nsys.path.insert(0, sys.argv[1])\nimport torch\nimport broken\n"
    return torch_program(code)(machine, folder)


def library_of_another_major(machine: Machine, folder: Path) -> Program:
    """An extension linked against the runtime of CUDA 11, which is nowhere."""
    (folder / "build").mkdir()
    runtime = small_library(machine, folder / "build" / "libcudart.so.11.0")
    small_library(machine, folder / "broken.so", 'extern "C" void *PyInit_broken() { return nullptr; }\n', [runtime])
    return torch_program("import sys\nsys.path.insert(0, sys.argv[1])\nimport broken\n")(machine, folder)


def nvcc_says(source: str, *options: str, without: tuple[str, ...] = ()) -> Callable[[Machine, Path], Program]:
    """What nvcc says of a source file, or of options; the toolkit may lack files."""

    def make(machine: Machine, folder: Path) -> Program:
        root = toolkit_without(machine, folder / "cuda", without) if without else machine.toolkit
        (folder / "kernel.cu").write_text(source)
        return Program([str(root / "bin" / "nvcc"), *options, "-c", "-o", str(folder / "kernel.o"), str(folder / "kernel.cu")])

    return make


def build_with(*, without_ninja: bool = False, **env: str | None) -> Callable[[Machine, Path], Program]:
    """An extension built through torch, in this environment."""

    def make(machine: Machine, folder: Path) -> Program:
        program = torch_program(BUILD)(machine, folder)
        if not without_ninja:
            return Program(program.argv, env)
        (folder / "bin").mkdir()
        for name in ("g++", "gcc", "c++", "cc", "sh"):
            (folder / "bin" / name).symlink_to(machine.program(name))
        return Program(program.argv, {**env, "PATH": str(folder / "bin")})

    return make


def home_without_a_toolkit(machine: Machine, folder: Path) -> Program:
    """The text alone does not tell that there is another toolkit."""
    program = torch_program(BUILD)(machine, folder)
    return Program(program.argv, {"CUDA_HOME": str(folder / "nothing")})


def refused_gcc(machine: Machine, folder: Path) -> Program:
    program = nvcc_says("int main() {}\n")(machine, folder)
    return Program(program.argv, {"NVCC_CCBIN": str(newer_gcc(machine, folder, FUTURE_GCC))})


FAULTS = (
    Fault("program: fork after CUDA was used", torch_program(FORK), Expected("fork-after-cuda-init", "spawn")),
    Fault("program: CUDA in a data loader's workers", torch_program(WORKERS), Expected("fork-after-cuda-init", "spawn")),
    Fault("program: memory exhausted", torch_program(EXHAUSTED), Expected("gpu-oom", "nvidia-smi|alloc|batch")),
    Fault(
        "program: a GPU that it does not have", torch_program(ABSENT_DEVICE), Expected("device-ordinal-absent", "device_count")
    ),
    Fault("program: an index out of range", torch_program(ASSERTION), Expected("app-device-assert", "CUDA_LAUNCH_BLOCKING=1")),
    Fault("program: 2048 threads in a block", launches("twice<<<1, 2048, 128>>>(x);"), Expected("launch-config")),
    Fault("program: 1 MiB of shared memory", launches("twice<<<1, 32, 1 << 20>>>(x);"), Expected("launch-config")),
    Fault(
        "program: 1024 threads of too many registers",
        launches("many<<<1, 1024>>>(x);", kernel=MANY_REGISTERS),
        Expected("launch-config"),
    ),
    Fault("program: Triton, too much shared memory", torch_program(TOO_MUCH_SHARED), Expected("launch-config")),
    Fault("program: code for another architecture", other_architecture, Expected("arch-missing-in-wheel")),
    Fault("program: PTX newer than the driver", newer_ptx, Expected("ptx-newer-than-driver", "cudadoctor archs")),
    Fault(
        "program: an extension with an undefined symbol",
        extension_with_an_undefined_symbol,
        Expected("extension-abi-mismatch", "--no-build-isolation"),
    ),
    Fault("program: an extension of CUDA 11", library_of_another_major, Expected("libcudart-missing", "cu11|LD_LIBRARY_PATH")),
    Fault(
        "program: torch's allocator misconfigured",
        torch_program("import torch\ntorch.ones(1).cuda()\n", PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb=512"),
        Expected("alloc-conf-malformed", "unset PYTORCH_CUDA_ALLOC_CONF"),
    ),
    Fault(
        "build: an architecture that nvcc dropped",
        nvcc_says("int main() {}\n", "-arch=sm_52"),
        Expected("nvcc-arch-removed", "grep"),
    ),
    Fault("build: a gcc that nvcc refuses", refused_gcc, Expected("host-compiler-too-new", "NVCC_CCBIN")),
    Fault(
        "build: nvcc without cicc",
        nvcc_says("__global__ void k() {}\n", without=("nvvm/bin/cicc",)),
        Expected("toolkit-incomplete", "cuda-toolkit|CUDA_HOME"),
    ),
    Fault(
        "build: nvcc without its headers",
        nvcc_says("__global__ void k() {}\n", without=("include", "targets/x86_64-linux/include", "targets/sbsa-linux/include")),
        Expected("toolkit-headers-missing", "cuda-toolkit|CUDA_HOME"),
    ),
    Fault("build: no ninja", build_with(without_ninja=True), Expected("ninja-missing", "install ninja")),
    Fault("build: CUDA_HOME leads nowhere", home_without_a_toolkit, Expected("nvcc-missing", "CUDA_HOME=")),
    Fault(
        "build: an arch list that torch cannot read",
        build_with(TORCH_CUDA_ARCH_LIST="sm_90"),
        Expected("arch-list-unknown", "TORCH_CUDA_ARCH_LIST"),
    ),
)
