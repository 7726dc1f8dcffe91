"""Speed of the GEMM kernels against torch's library call (cuBLAS), correctness first.

    python benchmarks/gemm_ladder.py [--rounds 25] [--only NAME ...] [--sizes 1024 4096 8192] [--json FILE]

Needs a GPU, torch and an NVRTC (torch's own). Every kernel is compiled by NVRTC without its cache and launched through the
driver API on torch's memory. Before any timing: odd shapes and large magnitudes against float64, error at most twice the
library's of the same precision, outputs filled with NaN, guard elements behind them, two runs equal to the bit. Timing: random
normal data, CUDA events, kernels and library interleaved in rotating order, L2 flushed before each launch, median of the rounds.
Then a build of each kernel that reads clock64 and globaltimer tells the SM clock inside it, which power sets; of the library only
the time can be known.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from cudadoctor.gpu.cases import cdiv
from cudadoctor.gpu.catalog import (
    CATALOG,
    GEMM_F32_BLOCKED_NN,
    TRANSPOSE_U32_PADDED,
    DataType,
    Grid,
    KernelSpec,
    LayoutOfB,
    Operands,
    Operation,
)
from cudadoctor.gpu.device import Device, Function, Module
from cudadoctor.gpu.driver_api import Driver
from cudadoctor.gpu.numbers import PRECISIONS
from cudadoctor.gpu.nvrtc_child import Nvrtc
from cudadoctor.gpu.sources import inlined_source
from cudadoctor.gpu.tensor_map import Box
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.resources import kernels_folder

TYPES = {DataType.F32: torch.float32, DataType.F16: torch.float16, DataType.BF16: torch.bfloat16}
GUARD_ELEMS = 4096
FLUSH_BYTES = 256 << 20
"""Over four times the L2 of an H200."""
ERROR_FACTOR = 2.0
"""Largest error allowed, in units of the library's of the same precision (style: kernels)."""
FEW_SUMS = 64
CHECKED = ((1, 8, 8), (300, 264, 136), (1000, 2056, 520), (4096, 4096, 4096))
CHECKED_ODD = ((1, 1, 1), (77, 5, 37), (333, 517, 259), (1, 4, 4), (4096, 4096, 4096))
LARGE = 2.0**6
"""Factor of the inputs in the check of large magnitudes: sums stay below fp16's 65,504."""
CLOCK_LAUNCHES = 7
ENTRY_BODY = re.compile(r"^    (?:(?:Gemm|Attention)::run|gemm_naive<\w+>)\([^;]*\);$", re.MULTILINE)
CLOCK_VARIABLE = "ladder_clock"
CLOCK_AROUND = """
    const long long cycles = clock64();
    unsigned long long start, end;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
{body}
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
    if (blockIdx.x + blockIdx.y + threadIdx.x + threadIdx.y == 0) {{
        ladder_clock[0] = clock64() - cycles;
        ladder_clock[1] = end - start;
    }}
"""


@dataclass
class Candidate:
    """A way to compute D, and what was measured of it."""

    name: str
    run: Callable[[], object]
    milliseconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Loaded:
    """A kernel on the device."""

    spec: KernelSpec
    module: Module
    function: Function
    device: Device
    target: str
    compile_s: float
    transpose: Loaded | None = None
    """What turns B [N, K] into the B [K, N] that the kernel reads, launched and timed with it."""

    @property
    def name(self) -> str:
        """The kernel's name, what runs before it, and the target where the driver compiles it."""
        before = f"{self.transpose.spec.entry} + " if self.transpose is not None else ""
        return before + self.spec.name + (f" ({self.target})" if self.target.startswith("compute") else "")

    @property
    def layout_of_b(self) -> LayoutOfB:
        """How the launcher wants B stored."""
        return LayoutOfB.NK if self.transpose is not None else self.spec.layout_of_b

    def launcher(self, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> Callable[[], None]:
        """Launches it on these matrices. b is as `layout_of_b` says."""
        if self.transpose is not None:
            return self._after_transpose(self.transpose, a, b, d)
        m, k = a.shape
        n = d.shape[1]
        tile_m, tile_n = self.spec.tile
        addresses: list[Any] = [ctypes.c_uint64(tensor.data_ptr()) for tensor in (a, b, d)]
        if self.spec.operands is Operands.TENSOR_MAPS:
            precision = PRECISIONS[self.spec.dtype.value]
            boxes = (Box(m, k, tile_m, 64), Box(n, k, tile_n, 64), Box(m, n, 64, 64))
            addresses = [self.device.tensor_map(*pair, precision) for pair in zip(addresses, boxes, strict=True)]
        parameters = (*addresses, ctypes.c_int(m), ctypes.c_int(n), ctypes.c_int(k))
        tiles = cdiv(m, tile_m) * cdiv(n, tile_n)
        grids = {
            Grid.PLANE: (cdiv(n, tile_n), cdiv(m, tile_m), 1),
            Grid.LINE: (tiles, 1, 1),
            Grid.PERSISTENT: (min(tiles, self.device.multiprocessors()), 1, 1),
        }
        grid = grids[self.spec.grid]
        return lambda: self.function.launch(grid, self.spec.block, parameters)

    def _after_transpose(self, transpose: Loaded, a: torch.Tensor, b: torch.Tensor, d: torch.Tensor) -> Callable[[], None]:
        """Both launches; the workspace of N * K elements is made once, as a library's is."""
        rows, columns = b.shape
        turned = torch.empty(columns, rows, device="cuda", dtype=b.dtype)
        addresses = [ctypes.c_uint64(tensor.data_ptr()) for tensor in (b, turned)]
        parameters = (*addresses, ctypes.c_int(rows), ctypes.c_int(columns), ctypes.c_int(1))
        grid = (cdiv(columns, transpose.spec.tile[1]), cdiv(rows, transpose.spec.tile[0]), 1)
        multiply = replace(self, transpose=None).launcher(a, turned, d)

        def run() -> None:
            transpose.function.launch(grid, transpose.spec.block, parameters)
            multiply()

        return run


class Builder:
    """Compiles with torch's NVRTC and loads into torch's context."""

    def __init__(self) -> None:
        torch.zeros(1, device="cuda")
        found = [
            path for entry in map(Path, sys.path) for path in entry.glob("nvidia/**/libnvrtc.so.*") if "alt" not in path.name
        ]
        found += Path("/usr/local").glob("cuda*/lib64/libnvrtc.so")
        self.nvrtc = Nvrtc(str(found[0]))
        self.device = Device(Driver.load(None), 0)
        major, minor = torch.cuda.get_device_capability()
        self.own = f"sm_{major}{minor}"

    def load(self, spec: KernelSpec, target: str | None = None, edit: Callable[[str], str] = str) -> Loaded:
        """The kernel for this GPU, or as PTX of `target` (compute_NN) that the driver compiles; `edit` changes its source."""
        arch = target or self.own + spec.target_suffix
        source = edit(inlined_source(kernels_folder(), spec.file))
        kind = "ptx" if arch.startswith("compute") else "cubin"
        options = [f"--gpu-architecture={arch}", "-std=c++17", *(f"-D{define}" for define in spec.defines)]
        options += ["--no-cache"] if self.nvrtc.version() >= [12, 9] else []
        started = time.perf_counter()
        code, _ = self.nvrtc.compile(source, spec.file, options, kind)
        compile_s = time.perf_counter() - started
        module = self.device.load(code)
        function = module.function(spec.entry)
        if spec.dynamic_smem_bytes:
            function.use_dynamic_smem(spec.dynamic_smem_bytes)
        return Loaded(spec, module, function, self.device, arch, compile_s)


def with_clock(source: str) -> str:
    """The source with the first CTA's cycles and nanoseconds left in a variable."""
    body = ENTRY_BODY.findall(source)[-1]
    return f"__device__ unsigned long long {CLOCK_VARIABLE}[2];\n" + source.replace(body, CLOCK_AROUND.format(body=body))


def stored_b(kernel: Loaded, b: torch.Tensor) -> torch.Tensor:
    """b [N, K] as the kernel wants it."""
    return b.t().contiguous() if kernel.layout_of_b is LayoutOfB.KN else b


def error_of(d: torch.Tensor, exact: torch.Tensor) -> float:
    """Norm of the difference relative to the norm of the exact result; NaN where d has any."""
    return float((d.double() - exact).norm() / exact.norm())


def check(kernel: Loaded, shape: tuple[int, int, int], scale: float) -> str:
    """'' where the kernel is right for this shape, else what is wrong."""
    m, n, k = shape
    dtype = TYPES[kernel.spec.dtype]
    a = (torch.randn(m, k, device="cuda") * scale + 0.25).to(dtype)
    b = torch.randn(n, k, device="cuda").to(dtype)
    exact = a.double() @ b.double().t()
    library = error_of(a @ b.t(), exact)
    outputs = []
    for _ in range(2):
        memory = torch.full((m * n + GUARD_ELEMS,), float("nan"), device="cuda", dtype=dtype)
        d = memory[: m * n].view(m, n)
        kernel.launcher(a, stored_b(kernel, b), d)()
        torch.cuda.synchronize()
        if not bool(memory[m * n :].isnan().all()):
            return "wrote behind the output"
        outputs.append(d)
    error = error_of(outputs[0], exact)
    # A handful of sums has no typical error: there one rounding more is allowed.
    floor = PRECISIONS[kernel.spec.dtype.value].unit_roundoff if m * n < FEW_SUMS else 0.0
    if not error <= ERROR_FACTOR * library + floor:
        return f"error {error:.3g}, library {library:.3g}"
    return "" if torch.equal(*outputs) else "two runs differ"


def check_all(kernel: Loaded) -> list[str]:
    """What is wrong with the kernel, over all shapes and magnitudes."""
    odd = kernel.spec.row_multiple == 1
    shapes = CHECKED_ODD if odd else CHECKED
    cases = [(shape, 1.0) for shape in shapes] + [(shapes[2], LARGE)]
    found = [(shape, scale, check(kernel, shape, scale)) for shape, scale in cases]
    return [f"{shape} x{scale:g}: {text}" for shape, scale, text in found if text]


def measure(candidates: Sequence[Candidate], rounds: int) -> None:
    """Time each candidate once a round, each round beginning one further; two rounds to warm up do not count."""
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for number in range(-2, rounds):
        for place in range(len(candidates)):
            candidate = candidates[(place + number) % len(candidates)]
            flush.fill_(number & 1)
            begin.record()
            candidate.run()
            end.record()
            end.synchronize()
            if number >= 0:
                candidate.milliseconds.append(begin.elapsed_time(end))


def read_words(build: Loaded, count: int) -> list[int]:
    """What the kernel left in its variable for the clock."""
    host = (ctypes.c_uint64 * count)()
    address = ctypes.c_uint64(build.module.variable(CLOCK_VARIABLE))
    build.device.driver.call("cuMemcpyDtoH_v2", host, address, ctypes.c_size_t(ctypes.sizeof(host)))
    return list(host)


def megahertz(builder: Builder, kernel: Loaded, operands: Sequence[torch.Tensor]) -> float:
    """The SM clock inside the kernel, median of some launches under the conditions of `measure`."""
    build = builder.load(kernel.spec, None, with_clock)
    launch = build.launcher(*operands)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    found = []
    for number in range(CLOCK_LAUNCHES):
        flush.fill_(number)
        launch()
        torch.cuda.synchronize()
        cycles, nanoseconds = read_words(build, 2)
        found.append(1e3 * cycles / max(nanoseconds, 1))
    return statistics.median(found)


def ladder_at(builder: Builder, size: int, dtype: DataType, kernels: Sequence[Loaded], rounds: int) -> list[dict[str, Any]]:
    """A row of figures for the library and each kernel at size^3."""
    kind = TYPES[dtype]
    a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
    b_kn = b.t().contiguous()
    d = torch.empty(size, size, device="cuda", dtype=kind)
    candidates = [
        Candidate("torch.mm NT", lambda: torch.mm(a, b.t(), out=d)),
        Candidate("torch.mm NN", lambda: torch.mm(a, b_kn, out=d)),
    ]
    operands = [(a, b_kn if kernel.layout_of_b is LayoutOfB.KN else b, d) for kernel in kernels]
    for kernel, matrices in zip(kernels, operands, strict=True):
        candidates.append(Candidate(kernel.name, kernel.launcher(*matrices)))
    measure(candidates, rounds)
    clocks = [megahertz(builder, *pair) if pair[0].transpose is None else 0.0 for pair in zip(kernels, operands, strict=True)]
    medians = [statistics.median(candidate.milliseconds) for candidate in candidates]
    rows = []
    for candidate, middle, clock in zip(candidates, medians, (0.0, 0.0, *clocks), strict=True):
        tenths = statistics.quantiles(candidate.milliseconds, n=10)
        rows.append(
            {
                "dtype": dtype.value,
                "size": size,
                "name": candidate.name,
                "ms": middle,
                "spread": (tenths[-1] - tenths[0]) / middle,
                "tflops": 2e-9 * size**3 / middle,
                "ratio": min(medians[:2]) / middle,
                "ratio_nt": medians[0] / middle,
                "ratio_nn": medians[1] / middle,
                "mhz": clock,
            }
        )
    return rows


def line_of(row: dict[str, Any]) -> str:
    """One line of the table; ratios are to the faster library call, to its NT and to its NN."""
    return (
        f"{row['dtype']:5}{row['size']:5} {row['name']:40}{row['ms']:9.4f} ms {row['tflops']:6.1f} TFLOPS {row['ratio']:6.3f} "
        f"nt {row['ratio_nt']:.3f} nn {row['ratio_nn']:.3f} spread {row['spread']:.1%}"
        + (f" {row['mhz']:.0f} MHz" if row["mhz"] else "")
    )


def conditions() -> dict[str, str]:
    """The machine, as nvidia-smi and torch tell it."""
    fields = "name,driver_version,clocks.max.sm,power.limit,clocks.sm,power.draw,temperature.gpu"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    return {**dict(zip(fields.split(","), done.stdout.strip().split(", "), strict=False)), "torch": torch.__version__}


def fast_enough(spec: KernelSpec, size: int) -> bool:
    """The oracle takes too long at large sizes."""
    return spec.method.value != "naive" or size <= 1024


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--only", nargs="*", help="names of kernels; default: all")
    parser.add_argument("--sizes", type=int, nargs="*", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def wanted(options: argparse.Namespace) -> list[KernelSpec]:
    """The GEMM kernels to measure that this GPU can run."""
    own = ComputeCapability(*torch.cuda.get_device_capability())
    chosen = [spec for spec in CATALOG if not options.only or spec.name in options.only]
    return [spec for spec in chosen if spec.op is Operation.GEMM and spec.runs_on(own)]


def ways(builder: Builder, kernel: Loaded) -> Sequence[Loaded]:
    """The kernel; the fp32 kernel for B [K, N] also after a transpose, which makes it one for B [N, K]."""
    if kernel.spec is not GEMM_F32_BLOCKED_NN:
        return (kernel,)
    return kernel, replace(kernel, transpose=builder.load(TRANSPOSE_U32_PADDED))


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then measure; 1 where a kernel is wrong."""
    options = parse(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.manual_seed(int(time.time()))
    builder = Builder()
    print(conditions(), f"NVRTC {builder.nvrtc.version()}")
    kernels, wrong = [], 0
    for spec in wanted(options):
        targets = [None] if spec.target_suffix else [None, f"compute_{max(75, spec.lowest_target.number)}"]
        for target in targets:
            for kernel in ways(builder, builder.load(spec, target)):
                problems = check_all(kernel)
                wrong += bool(problems)
                print(f"{kernel.name} {kernel.target} compile {kernel.compile_s:.2f} s {problems or 'right'}", flush=True)
                if not problems:
                    kernels.append(kernel)
    rows: list[dict[str, Any]] = []
    for dtype in DataType:
        of_type = [kernel for kernel in kernels if kernel.spec.dtype is dtype]
        for size in options.sizes if of_type else ():
            chosen = [kernel for kernel in of_type if fast_enough(kernel.spec, size)]
            rows += ladder_at(builder, size, dtype, chosen, options.rounds)
            for row in rows[-len(chosen) - 2 :]:
                print(line_of(row), flush=True)
    after = conditions()
    print(after)
    if options.json:
        options.json.write_text(json.dumps({"conditions": after, "rows": rows}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
