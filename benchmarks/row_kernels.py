"""Speed of the softmax and rotary kernels against torch and against a copy, correctness first.

    python benchmarks/row_kernels.py [--seconds 1]

Needs a GPU, torch and an NVRTC (torch's own). Both only move memory: figures are GB/s of one read of X and one write of Y, and
the ratio to torch's expression and to torch's copy of as many bytes. Checks and timing are those of attention_ladder.py: float64
reference, error at most twice torch's of the same precision plus one rounding, outputs NaN before the run, guard elements behind
them, two runs equal to the bit; odd and unaligned rows, large magnitudes, rows of minus infinity.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from attention_ladder import GUARD_ELEMS, Builder, Candidate, Loaded, conditions, measure

from cudadoctor.gpu.cases import cdiv
from cudadoctor.gpu.catalog import ROTARY_F32_HALVES, SOFTMAX_F32_ONLINE
from cudadoctor.gpu.numbers import PRECISIONS

LARGE = 4e36
"""Factor of the inputs in the check of large magnitudes: eight deviations of the largest are near the end of fp32."""
U32 = PRECISIONS["f32"].unit_roundoff
SOFTMAX_CHECKED = ((7, 1000), (5, 33), (3, 1), (1, 100_003), (300, 4096), (4097, 257))
SOFTMAX_TIMED = ((65536, 1000), (16384, 4096), (2048, 32768), (1024, 131072))
ROTARY_CHECKED = ((70, 64, 35), (9, 130, 3), (1, 2, 1), (1001, 126, 77), (4096, 256, 4096))
ROTARY_TIMED = ((65536, 64, 2048), (65536, 128, 2048), (524288, 128, 16384))


class Problem(NamedTuple):
    """Inputs of a launch, its grid, and the same by torch in any precision."""

    inputs: tuple[torch.Tensor, ...]
    extents: tuple[int, ...]
    ctas: int
    library: Callable[..., torch.Tensor]


def softmax_of(x: torch.Tensor) -> torch.Tensor:
    """By torch; a row of minus infinity alone gives zero, as the kernel has it."""
    return torch.softmax(x, -1).nan_to_num(0.0)


def rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    """As one writes it with torch: positions repeat every len(cosines) rows."""
    first, second = x.view(-1, *cosines.shape[:1], x.shape[-1]).chunk(2, -1)
    return torch.cat((first * cosines - second * sines, second * cosines + first * sines), -1).view(x.shape)


def softmax_problem(rows: int, columns: int, shift: int = 0) -> Problem:
    """Normal data times 8; `shift` elements off the alignment of 16 bytes."""
    x = (torch.randn(rows * columns + shift, device="cuda") * 8.0)[shift:].view(rows, columns)
    return Problem((x,), (rows, columns), rows, lambda x: torch.softmax(x, -1))


def rotary_problem(rows: int, columns: int, length: int, shift: int = 0) -> Problem:
    """Normal data, the usual angles."""
    half = columns // 2
    x = torch.randn(rows * columns + shift, device="cuda")[shift:].view(rows, columns)
    frequencies = 10000.0 ** (-torch.arange(half, device="cuda", dtype=torch.float64) / half)
    angles = torch.arange(length, device="cuda", dtype=torch.float64)[:, None] * frequencies
    tables = (angles.cos().float(), angles.sin().float())
    return Problem((x, *tables), (rows, columns, length), cdiv(rows * cdiv(half, 4), 256), rotated)


def runner(kernel: Loaded, problem: Problem, y: torch.Tensor) -> Callable[[], None]:
    """Launches the kernel on the problem, into `y`."""
    pointers = [ctypes.c_uint64(tensor.data_ptr()) for tensor in (*problem.inputs, y)]
    parameters = [*pointers, *map(ctypes.c_int, problem.extents)]
    return lambda: kernel.functions[0].launch((problem.ctas, 1, 1), kernel.spec.block, parameters)


def wrong(kernel: Loaded, problem: Problem, library: Callable[..., torch.Tensor]) -> str:
    """'' where the kernel is right for this problem, else what is wrong."""
    x = problem.inputs[0]
    outputs = []
    for _ in range(2):
        memory = torch.full((x.numel() + GUARD_ELEMS,), torch.nan, device="cuda")
        runner(kernel, problem, memory)()
        torch.cuda.synchronize()
        if not bool(memory[x.numel() :].isnan().all()):
            return "wrote behind the output"
        outputs.append(memory[: x.numel()].view(x.shape))
    exact = library(*(tensor.double() for tensor in problem.inputs))
    torch_error = float((library(*problem.inputs).double() - exact).abs().max())
    error = float((outputs[0].double() - exact).abs().max())
    if not error <= 2.0 * torch_error + U32 * float(exact.abs().max()):
        return f"largest error {error:.3g}, torch's {torch_error:.3g}"
    return "" if torch.equal(*outputs) else "two runs differ"


def softmax_faults(kernel: Loaded) -> list[str]:
    """What is wrong with the softmax kernel, over all checked problems."""
    found = []
    for rows, columns in SOFTMAX_CHECKED:
        for shift, magnitude in ((0, 1.0), (1, 1.0), (0, LARGE)):
            problem = softmax_problem(rows, columns, shift)
            problem.inputs[0].mul_(magnitude)
            problem.inputs[0][: rows // 2] = -torch.inf
            problem.inputs[0][-1, ::3] = -torch.inf
            text = wrong(kernel, problem, softmax_of)
            found += [f"{rows} x {columns}, shift {shift}, times {magnitude:g}: {text}"] if text else []
    return found


def rotary_faults(kernel: Loaded) -> list[str]:
    """What is wrong with the rotary kernel, over all checked problems."""
    found = []
    for rows, columns, length in ROTARY_CHECKED:
        for shift, magnitude in ((0, 1.0), (1, 1.0), (0, LARGE)):
            problem = rotary_problem(rows, columns, length, shift)
            problem.inputs[0].mul_(magnitude)
            padded = torch.arange(rows, device="cuda") % length  # rows need not be whole texts here

            def library(
                x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, padded: torch.Tensor = padded
            ) -> torch.Tensor:
                return rotated(x[None], cosines[padded], sines[padded])[0]

            text = wrong(kernel, problem, library)
            found += [f"{rows} x {columns} of {length}, shift {shift}, times {magnitude:g}: {text}"] if text else []
    return found


def figures(kernel: Loaded, problem: Problem, seconds: float, builder: Builder) -> list[str]:
    """A line for torch, for torch's copy, and for the kernel."""
    x = problem.inputs[0]
    y = torch.empty_like(x)
    candidates = [
        Candidate("torch", lambda: problem.library(*problem.inputs)),
        Candidate("copy", lambda: y.copy_(x)),
        Candidate(kernel.spec.name, runner(kernel, problem, y)),
    ]
    measure(candidates, seconds, builder.clock_probe())
    medians = [statistics.median(candidate.milliseconds) for candidate in candidates]
    lines = []
    for candidate, middle in zip(candidates, medians, strict=True):
        tenths = statistics.quantiles(candidate.milliseconds, n=10)
        lines.append(
            f"{problem.extents!s:22} {candidate.name:24} {middle * 1e3:8.1f} us {8e-6 * x.numel() / middle:7.0f} GB/s  "
            f"{medians[0] / middle:.2f}x torch  {medians[1] / middle:.2f}x copy  spread {(tenths[-1] - tenths[0]) / middle:.1%} "
            f"n {len(candidate.milliseconds)} {statistics.median(candidate.megahertz):.0f} MHz"
        )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, then measure; 1 where a kernel is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="for each problem")
    options = parser.parse_args(arguments)
    builder = Builder()
    print(conditions(), f"NVRTC {builder.nvrtc.version()}")
    faults = []
    for spec, faults_of, problems in (
        (SOFTMAX_F32_ONLINE, softmax_faults, [softmax_problem(*shape) for shape in SOFTMAX_TIMED]),
        (ROTARY_F32_HALVES, rotary_faults, [rotary_problem(*shape) for shape in ROTARY_TIMED]),
    ):
        for target in (None, "compute_75"):
            kernel = builder.load(spec, target)
            found = faults_of(kernel)
            faults += found
            print(f"{spec.name} {kernel.target} compile {kernel.compile_s:.2f} s {found or 'right'}", flush=True)
        kernel = builder.load(spec)
        for problem in problems:
            print("\n".join(figures(kernel, problem, options.seconds, builder)), flush=True)
    print(conditions())
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
