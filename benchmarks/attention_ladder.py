"""Speed of the attention kernels against torch's library calls (cuDNN, FlashAttention-2, unfused), correctness first.

    python benchmarks/attention_ladder.py [--seconds 3] [--only NAME ...] [--cases NAME ...] [--json FILE]

Needs a GPU, torch and an NVRTC (torch's own). Every kernel is compiled by NVRTC and launched through the driver API on torch's
memory. Before any timing: odd shapes, padding, grouped heads, queries without a key and large magnitudes against float64, error
at most twice the library's of the same precision, NaN in padding and in outputs before the run, guard elements behind them, two
runs equal to the bit. Timing: random normal data, CUDA events, kernels and libraries in bursts of some 8 ms in rotating
order, L2 replaced by other data before each launch, median of all. After each burst a probe reads the SM clock; a build of each
fused kernel that reads clock64 and globaltimer tells the clock inside it, which power sets.
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gemm_ladder import CLOCK_VARIABLE, with_clock
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from cudadoctor.gpu.cases import cdiv
from cudadoctor.gpu.catalog import CATALOG, DataType, Grid, KernelSpec, Method, Operands, Operation
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
FLUSH_FLOATS = 64 << 20
"""256 MB, over four times the L2 of an H200: read, so that what it leaves in the L2 need not be written back."""
BURST_MS = 8.0
CLOCK_LAUNCHES = 20
HEAD_START_CYCLES = 1_000_000
"""How long the GPU waits before a burst, while the host fills the queue: no launch waits for the host."""
ERROR_FACTOR = 2.0
"""Largest error allowed, in units of the library's of the same precision (style: kernels)."""
MAX_ERROR_FACTOR = 2.5
"""The same for the largest error of a single value, which varies more."""
CLOCK_PROBE = """
extern "C" __global__ void clock_probe(long long* out) {
    unsigned long long start, now;
    const long long cycles = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < 20000);
    out[0] = clock64() - cycles;
    out[1] = now - start;
}
"""


class Shape(NamedTuple):
    """One attention problem; without lengths there is no padding."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    causal: bool
    lengths: tuple[int, ...] = ()
    scale: float = 0.0
    magnitude: float = 1.0


def square(heads: int, kv_heads: int, length: int, causal: bool) -> Shape:
    """A timed shape."""
    return Shape(1, heads, kv_heads, length, length, causal)


TIMED = {
    "S2048 causal": square(32, 32, 2048, True),
    "S4096 full": square(32, 32, 4096, False),
    "S8192 causal": square(16, 16, 8192, True),
    "S16384 causal": square(16, 16, 16384, True),
    "S2048 causal, 8 KV heads": square(32, 8, 2048, True),
    "S4096 full, 8 KV heads": square(32, 8, 4096, False),
}
CHECKED = (
    Shape(1, 4, 4, 256, 256, True),
    Shape(1, 4, 2, 512, 512, False),
    Shape(2, 4, 2, 197, 197, True, (197, 61), 0.5),
    Shape(2, 2, 1, 130, 97, True, (97, 0), 1.0, 30.0),
    Shape(1, 2, 2, 65, 211, False, (190,)),
    Shape(1, 1, 1, 33, 130, True, (130,), 1.0),
    Shape(1, 8, 2, 1000, 1536, True, (1500,), 0.0, 4.0),
    Shape(1, 3, 3, 77, 77, True),
    Shape(3, 2, 2, 1, 333, False, (333, 1, 128)),
    Shape(1, 40, 40, 640, 640, True),
    Shape(2, 6, 6, 385, 1025, True, (1025, 700), 0.0, 60.0),
    Shape(1, 2, 2, 1, 1, True),
)


class Tensors(NamedTuple):
    """The operands of one launch."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    o: torch.Tensor
    lengths: torch.Tensor


@dataclass
class Candidate:
    """A way to compute O, and what was measured of it."""

    name: str
    run: Callable[[], object]
    launches: int = 1
    milliseconds: list[float] = field(default_factory=list)
    megahertz: list[float] = field(default_factory=list)
    inside: Callable[[], float] | None = None
    """The SM clock inside the kernel in MHz, where it can be read."""


@dataclass(frozen=True)
class Loaded:
    """A kernel on the device."""

    spec: KernelSpec
    module: Module
    functions: tuple[Function, ...]
    device: Device
    target: str
    compile_s: float
    log: str

    def launcher(self, shape: Shape, tensors: Tensors) -> Callable[[], None]:
        """Launches it on these tensors."""
        scores = self._scores(shape)
        grids = self._grids(shape)
        parameters = self._parameters(shape, tensors, scores)

        def run(_alive: tuple[object, ...] = (*tensors, scores)) -> None:
            for function, grid in zip(self.functions, grids, strict=True):
                function.launch(grid, self.spec.block, parameters)

        return run

    def _scores(self, shape: Shape) -> torch.Tensor | None:
        if self.spec.method is not Method.NAIVE:
            return None
        return torch.empty(shape.batch, shape.heads, shape.queries, shape.keys, device="cuda")

    def _grids(self, shape: Shape) -> list[tuple[int, int, int]]:
        heads = shape.batch * shape.heads
        tiles = cdiv(shape.queries, self.spec.tile[0])
        if self.spec.method is Method.NAIVE:
            width = self.spec.head_dim or 0
            return [
                (cdiv(shape.keys, 256), shape.queries, heads),
                (tiles, 1, heads),
                (cdiv(shape.queries * width, 256), 1, heads),
            ]
        if self.spec.grid is Grid.PLANE:
            return [(tiles, shape.heads, shape.batch)]
        ctas = tiles * heads
        return [(min(ctas, self.device.multiprocessors()) if self.spec.grid is Grid.PERSISTENT else ctas, 1, 1)]

    def _parameters(self, shape: Shape, tensors: Tensors, scores: torch.Tensor | None) -> list[Any]:
        matrices: list[Any] = [ctypes.c_uint64(tensor.data_ptr()) for tensor in tensors[:4]]
        if self.spec.operands is Operands.TENSOR_MAPS:
            precision = PRECISIONS[self.spec.dtype.value]
            rows = (self.spec.tile[0], self.spec.tile[1], self.spec.tile[1], 64)
            boxes = [
                Box(tensor.shape[2], tensor.shape[3], box_rows, 64, tensor.shape[0] * tensor.shape[1])
                for tensor, box_rows in zip(tensors[:4], rows, strict=True)
            ]
            matrices = [self.device.tensor_map(*pair, precision) for pair in zip(matrices, boxes, strict=True)]
        sizes = map(ctypes.c_int, (shape.heads, shape.kv_heads, shape.queries, shape.keys))
        lengths = ctypes.c_uint64(tensors.lengths.data_ptr())
        parameters = [*matrices, lengths, *sizes, ctypes.c_float(scale_of(shape, tensors.q)), ctypes.c_int(shape.causal)]
        if self.spec.grid is not Grid.PLANE:
            parameters.append(ctypes.c_int(shape.batch))
        if self.spec.grid is Grid.PERSISTENT:
            parameters.append(ctypes.c_int(head_group(shape)))
        return parameters if scores is None else [*parameters, ctypes.c_uint64(scores.data_ptr())]


def head_group(shape: Shape) -> int:
    """How many heads take turns: causal tiles go longest first over all heads, equal ones head by head, for the L2."""
    return shape.batch * shape.heads if shape.causal else 1


def scale_of(shape: Shape, q: torch.Tensor) -> float:
    """The shape's own scale, else the usual one."""
    return shape.scale or float(q.shape[-1]) ** -0.5


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
        kind = "ptx" if arch.startswith("compute") else "cubin"
        options = [f"--gpu-architecture={arch}", "-std=c++17", *(f"-D{define}" for define in spec.defines)]
        options += ["--no-cache"] if self.nvrtc.version() >= [12, 9] else []
        options += ["--ptxas-options=-v"] if kind == "cubin" else []
        started = time.perf_counter()
        code, log = self.nvrtc.compile(edit(inlined_source(kernels_folder(), spec.file)), spec.file, options, kind)
        compile_s = time.perf_counter() - started
        module = self.device.load(code)
        functions = tuple(module.function(entry) for entry in spec.entries)
        for function in functions if spec.dynamic_smem_bytes else ():
            function.use_dynamic_smem(spec.dynamic_smem_bytes)
        return Loaded(spec, module, functions, self.device, arch, compile_s, log)

    def clock_probe(self) -> Function:
        """A kernel of one thread that counts cycles and nanoseconds for 20 us."""
        code, _ = self.nvrtc.compile(CLOCK_PROBE, "clock_probe.cu", [f"--gpu-architecture={self.own}"], "cubin")
        return self.device.load(code).function("clock_probe")


def random_tensors(shape: Shape, width: int, dtype: torch.dtype) -> Tensors:
    """Normal data; V has a mean, so that errors do not cancel."""
    q = (torch.randn(shape.batch, shape.heads, shape.queries, width, device="cuda") * shape.magnitude).to(dtype)
    k, v = (torch.randn(shape.batch, shape.kv_heads, shape.keys, width, device="cuda") for _ in range(2))
    lengths = torch.tensor(shape.lengths or (shape.keys,) * shape.batch, device="cuda", dtype=torch.int32)
    return Tensors(q, k.to(dtype), (v + 0.25).to(dtype), torch.empty_like(q), lengths)


def seen_keys(shape: Shape, lengths: torch.Tensor) -> torch.Tensor:
    """[batch, 1, queries, keys]: True where a query may see a key."""
    key = torch.arange(shape.keys, device="cuda")
    query = torch.arange(shape.queries, device="cuda")
    seen = key < lengths[:, None, None, None]
    causal = key <= query[:, None] + shape.keys - shape.queries
    return seen & causal if shape.causal else seen.expand(-1, -1, shape.queries, -1)


def exact_output(shape: Shape, tensors: Tensors, seen: torch.Tensor) -> torch.Tensor:
    """O in float64; zero for a query that sees no key."""
    k, v = (tensor.double().repeat_interleave(shape.heads // shape.kv_heads, 1) for tensor in (tensors.k, tensors.v))
    scores = tensors.q.double() @ k.transpose(-1, -2) * scale_of(shape, tensors.q)
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1).nan_to_num(0.0) @ v


def library_output(shape: Shape, tensors: Tensors, seen: torch.Tensor) -> torch.Tensor:
    """O by torch in the same precision: its fused kernel, in fp32 its unfused one (the other splits fp32 for tensor cores)."""
    k, v = (tensor.repeat_interleave(shape.heads // shape.kv_heads, 1) for tensor in (tensors.k, tensors.v))
    mask = seen.expand(-1, shape.heads, -1, -1)
    backend = SDPBackend.MATH if tensors.q.dtype is torch.float32 else SDPBackend.EFFICIENT_ATTENTION
    with sdpa_kernel([backend, SDPBackend.MATH]):
        return scaled_dot_product_attention(tensors.q, k, v, attn_mask=mask, scale=scale_of(shape, tensors.q))


def spoil_padding(tensors: Tensors) -> None:
    """Keys and values in the padding become NaN: a kernel that lets them in gives NaN."""
    for entry, length in enumerate(tensors.lengths.tolist()):
        tensors.k[entry, :, length:] = torch.nan
        tensors.v[entry, :, length:] = torch.nan


def run_guarded(kernel: Loaded, shape: Shape, tensors: Tensors) -> torch.Tensor | None:
    """The output, NaN before the run; None where the kernel wrote behind it."""
    elems = tensors.q.numel()
    memory = torch.full((elems + GUARD_ELEMS,), torch.nan, device="cuda", dtype=tensors.q.dtype)
    o = memory[:elems].view(tensors.q.shape)
    kernel.launcher(shape, tensors._replace(o=o))()
    torch.cuda.synchronize()
    return o if bool(memory[elems:].isnan().all()) else None


def check(kernel: Loaded, shape: Shape) -> str:
    """'' where the kernel is right for this shape, else what is wrong."""
    tensors = random_tensors(shape, kernel.spec.head_dim or 0, TYPES[kernel.spec.dtype])
    seen = seen_keys(shape, tensors.lengths)
    exact = exact_output(shape, tensors, seen)
    blind = ~seen.any(-1).expand(exact.shape[:-1])
    library = (library_output(shape, tensors, seen).double() - exact).masked_fill(blind[..., None], 0.0)
    spoil_padding(tensors)
    outputs = [run_guarded(kernel, shape, tensors) for _ in range(2)]
    if outputs[0] is None or outputs[1] is None:
        return "wrote behind the output"
    error = outputs[0].double() - exact
    if not float(error.norm() / exact.norm()) <= ERROR_FACTOR * float(library.norm() / exact.norm()) + score_rounding(
        shape, tensors
    ):
        return f"error {error.norm() / exact.norm():.3g}, library {library.norm() / exact.norm():.3g}"
    floor = (PRECISIONS[kernel.spec.dtype.value].unit_roundoff + score_rounding(shape, tensors)) * float(exact.abs().max())
    if not float(error.abs().max()) <= MAX_ERROR_FACTOR * float(library.abs().max()) + floor:
        return f"largest error {error.abs().max():.3g}, library {library.abs().max():.3g}"
    if not bool((outputs[0][blind] == 0).all()):
        return "a query that sees no key did not give zero"
    return "" if torch.equal(outputs[0], outputs[1]) else "two runs differ"


def score_rounding(shape: Shape, tensors: Tensors) -> float:
    """What one fp32 rounding of a typical score and of the result does: a floor for problems so small that sums are in luck."""
    typical = shape.magnitude * scale_of(shape, tensors.q) * float(tensors.q.shape[-1]) ** 0.5
    return PRECISIONS["f32"].unit_roundoff * (1.0 + typical)


def check_all(kernel: Loaded) -> list[str]:
    """What is wrong with the kernel, over all shapes."""
    return [f"{shape}: {text}" for shape in CHECKED if (text := check(kernel, shape))]


def library_candidates(shape: Shape, tensors: Tensors) -> list[Candidate]:
    """torch's own ways for this problem; the fused ones know no fp32."""
    q, k, v = tensors[:3]
    small = shape.keys <= 2048 and shape.heads == shape.kv_heads
    unfused = [Candidate("unfused torch", unfused_runner(shape, tensors))] if small else []
    if q.dtype is torch.float32:
        return unfused

    def run(backend: SDPBackend) -> torch.Tensor:
        with sdpa_kernel(backend):
            return scaled_dot_product_attention(q, k, v, is_causal=shape.causal, enable_gqa=shape.heads != shape.kv_heads)

    fused = [
        Candidate("cuDNN", lambda: run(SDPBackend.CUDNN_ATTENTION)),
        Candidate("FlashAttention-2", lambda: run(SDPBackend.FLASH_ATTENTION)),
    ]
    return [*fused, *unfused]


def unfused_runner(shape: Shape, tensors: Tensors) -> Callable[[], torch.Tensor]:
    """Two matrix products and a softmax, the whole matrix of scores between them."""
    q, k, v = tensors[:3]
    mask = torch.zeros(shape.queries, shape.keys, device="cuda", dtype=q.dtype)
    if shape.causal:
        mask.masked_fill_(~torch.ones_like(mask, dtype=torch.bool).tril(), -torch.inf)
    scale = scale_of(shape, q)
    return lambda: torch.softmax(q @ k.transpose(-1, -2) * scale + mask, -1) @ v


def measure(candidates: Sequence[Candidate], seconds: float, probe: Function) -> None:
    """Bursts of each candidate in rotating order until the time is over, at least three of each; the first does not count."""
    flush = torch.ones(FLUSH_FLOATS, device="cuda")
    ticks = torch.zeros(2, dtype=torch.int64, device="cuda")
    deadline = time.monotonic() + seconds
    number = -1
    while number < 3 or time.monotonic() < deadline:
        for place in range(len(candidates)):
            candidate = candidates[(place + number) % len(candidates)]
            times = burst(candidate, flush, probe, ticks)
            if number >= 0:
                candidate.milliseconds += times
                candidate.megahertz.append(1e3 * int(ticks[0]) / int(ticks[1]))
            candidate.launches = max(1, min(40, int(BURST_MS / (statistics.median(times) + 0.08))))
        number += 1


def burst(candidate: Candidate, flush: torch.Tensor, probe: Function, ticks: torch.Tensor) -> list[float]:
    """Milliseconds of each launch of one burst."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(candidate.launches)]
    torch.cuda.synchronize()
    torch.cuda._sleep(HEAD_START_CYCLES)
    for begin, end in events:
        torch.amax(flush, 0)
        begin.record()
        candidate.run()
        end.record()
    probe.launch((1, 1, 1), (1, 1, 1), (ctypes.c_uint64(ticks.data_ptr()),))
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in events]


def clock_inside(build: Loaded, shape: Shape, tensors: Tensors) -> float:
    """MHz while a build with its own clock runs, the last of a burst."""
    launch = build.launcher(shape, tensors)
    flush = torch.ones(FLUSH_FLOATS, device="cuda")
    for _ in range(CLOCK_LAUNCHES):
        torch.amax(flush, 0)
        launch()
    torch.cuda.synchronize()
    host = (ctypes.c_uint64 * 2)()
    address = ctypes.c_uint64(build.module.variable(CLOCK_VARIABLE))
    build.device.driver.call("cuMemcpyDtoH_v2", host, address, ctypes.c_size_t(ctypes.sizeof(host)))
    return float(1e3 * host[0] / host[1])


def candidate_of(kernel: Loaded, clocked: Mapping[str, Loaded], shape: Shape, tensors: Tensors) -> Candidate:
    """The kernel as a candidate."""
    jit = kernel.target.startswith("compute")
    name = kernel.spec.name + (f" ({kernel.target})" if jit else "")
    build = None if jit else clocked.get(kernel.spec.name)
    inside = None if build is None else lambda: clock_inside(build, shape, tensors)
    return Candidate(name, kernel.launcher(shape, tensors), inside=inside)


def ladder_at(
    name: str,
    width: int,
    dtype: DataType,
    kernels: Sequence[Loaded],
    clocked: Mapping[str, Loaded],
    seconds: float,
    probe: Function,
) -> list[dict[str, Any]]:
    """A row of figures for each library and each kernel."""
    shape = TIMED[name]
    tensors = random_tensors(shape, width, TYPES[dtype])
    libraries = library_candidates(shape, tensors)
    candidates = [*libraries, *(candidate_of(kernel, clocked, shape, tensors) for kernel in kernels)]
    measure(candidates, seconds, probe)
    medians = {candidate.name: statistics.median(candidate.milliseconds) for candidate in candidates}
    flops = 4.0 * shape.batch * shape.heads * shape.queries * shape.keys * width * (0.5 if shape.causal else 1.0)
    rows = []
    for candidate in candidates:
        middle = medians[candidate.name]
        tenths = statistics.quantiles(candidate.milliseconds, n=10)
        rows.append(
            {
                "case": name,
                "head_dim": width,
                "dtype": dtype.value,
                "name": candidate.name,
                "ms": middle,
                "spread": (tenths[-1] - tenths[0]) / middle,
                "launches": len(candidate.milliseconds),
                "tflops": 1e-9 * flops / middle,
                "ratios": {library.name: medians[library.name] / middle for library in libraries},
                "mhz": statistics.median(candidate.megahertz),
                "inside_mhz": candidate.inside() if candidate.inside else None,
            }
        )
    return rows


def line_of(row: dict[str, Any]) -> str:
    """One line of the table; FLOP are 4 B H Lq Lk D, half of it if causal."""
    ratios = "  ".join(f"{ratio:.3f}x {name}" for name, ratio in row["ratios"].items())
    problem = f"{row['case']:25} D{row['head_dim']:<3} {row['dtype']:4}"
    speed = f"{row['ms'] * 1e3:9.1f} us {row['tflops']:6.1f} TFLOPS"
    inside = f" inside {row['inside_mhz']:.0f}" if row["inside_mhz"] else ""
    sample = f"spread {row['spread']:.1%} n {row['launches']} {row['mhz']:.0f} MHz{inside}"
    return f"{problem} {row['name']:48} {speed}  {ratios}  {sample}"


def conditions() -> dict[str, str]:
    """The machine, as nvidia-smi and torch tell it."""
    fields = "name,driver_version,clocks.max.sm,power.limit,clocks.sm,power.draw,temperature.gpu"
    done = subprocess.run(
        ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"], capture_output=True, text=True, check=True
    )
    versions = {"torch": torch.__version__, "cuDNN": str(torch.backends.cudnn.version())}
    return {**dict(zip(fields.split(","), done.stdout.strip().split(", "), strict=False)), **versions}


def fast_enough(spec: KernelSpec, shape: Shape) -> bool:
    """The oracle and the portable rung take too long, or too much memory, for long texts."""
    longest = {Method.NAIVE: 2048, Method.FUSED: 4096}.get(spec.method)
    return longest is None or shape.keys <= longest


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each case and type")
    parser.add_argument("--only", nargs="*", help="names of kernels; default: all")
    parser.add_argument("--cases", nargs="*", default=list(TIMED), choices=list(TIMED))
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def wanted(options: argparse.Namespace) -> list[KernelSpec]:
    """The attention kernels to measure that this GPU can run."""
    own = ComputeCapability(*torch.cuda.get_device_capability())
    chosen = [spec for spec in CATALOG if not options.only or spec.name in options.only]
    return [spec for spec in chosen if spec.op is Operation.ATTENTION and spec.runs_on(own)]


def load_and_check(builder: Builder, spec: KernelSpec) -> tuple[list[Loaded], int]:
    """The kernel as machine code and as PTX of its own architecture, as far as right; how many were wrong."""
    targets = [None] if spec.target_suffix else [None, f"compute_{max(75, spec.lowest_target.number)}"]
    right = []
    for target in targets:
        kernel = builder.load(spec, target)
        problems = check_all(kernel)
        used = [int(number) for number in re.findall(r"Used (\d+) registers", kernel.log)]
        spills = [int(number) for number in re.findall(r"(\d+) bytes spill stores", kernel.log)]
        remarks = [line for line in kernel.log.splitlines() if "C75" in line]
        print(
            f"{spec.name} {kernel.target} compile {kernel.compile_s:.2f} s registers {used} spills {spills} {remarks} "
            f"{problems or 'right'}",
            flush=True,
        )
        right += [] if problems else [kernel]
    return right, len(targets) - len(right)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then measure; 1 where a kernel is wrong."""
    options = parse(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(int(time.time()))
    builder = Builder()
    print(conditions(), f"NVRTC {builder.nvrtc.version()}")
    kernels: list[Loaded] = []
    wrong = 0
    for spec in wanted(options):
        right, failed = load_and_check(builder, spec)
        kernels += right
        wrong += failed
    own_code = [
        kernel.spec for kernel in kernels if not kernel.target.startswith("compute") and kernel.spec.method is not Method.NAIVE
    ]
    clocked = {spec.name: builder.load(spec, None, with_clock) for spec in own_code}
    probe = builder.clock_probe()
    rows: list[dict[str, Any]] = []
    for name in options.cases:
        for width, dtype in ((128, DataType.F16), (128, DataType.BF16), (64, DataType.F16), (128, DataType.F32)):
            chosen = [
                kernel
                for kernel in kernels
                if kernel.spec.dtype is dtype and kernel.spec.head_dim == width and fast_enough(kernel.spec, TIMED[name])
            ]
            found = ladder_at(name, width, dtype, chosen, clocked, options.seconds, probe) if chosen else []
            rows += found
            print("\n".join(map(line_of, found)), flush=True)
    after = conditions()
    print(after)
    if options.json:
        options.json.write_text(json.dumps({"conditions": after, "rows": rows}, indent=1))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
