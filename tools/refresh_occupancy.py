"""Writes tests/reference/occupancy.txt: what NVIDIA's own cuda_occupancy.h says about sampled launches.

    python tools/refresh_occupancy.py 13.0.88

Needs pip and g++. Downloads nvidia-cuda-runtime of that version, compiles its header with the limits of
matrices/compute_capabilities.toml, and samples launches of every compute capability that the header knows.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.capabilities import Capability

PROGRAM = r"""
#include <climits>
#include <cstdio>
#include <cstring>
#include "cuda_occupancy.h"
int main() {
    int major, minor, threads_sm, regs_sm, regs_block, threads, regs;
    size_t smem_sm, smem_block, smem_optin, reserved, smem;
    while (scanf("%d %d %d %d %d %zu %zu %zu %zu %d %d %zu", &major, &minor, &threads_sm, &regs_sm, &regs_block, &smem_sm,
                 &smem_block, &smem_optin, &reserved, &threads, &regs, &smem) == 12) {
        cudaOccDeviceProp device;
        device.computeMajor = major;
        device.computeMinor = minor;
        device.maxThreadsPerBlock = 1024;
        device.maxThreadsPerMultiprocessor = threads_sm;
        device.regsPerBlock = regs_block;
        device.regsPerMultiprocessor = regs_sm;
        device.warpSize = 32;
        device.sharedMemPerBlock = smem_block;
        device.sharedMemPerMultiprocessor = smem_sm;
        device.numSms = 1;
        device.sharedMemPerBlockOptin = smem_optin;
        device.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = INT_MAX;
        kernel.numRegs = regs;
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = smem;
        kernel.numBlockBarriers = 1;
        cudaOccDeviceState state;
        cudaOccResult result;
        if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, threads, smem)) continue;
        printf("%d.%d %d %d %zu %d %u\n", major, minor, threads, regs, smem, result.activeBlocksPerMultiprocessor,
               result.limitingFactors);
    }
}
"""
THREADS = (1, 32, 33, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768, 1000, 1024)
REGISTERS = (0, 16, 24, 32, 33, 40, 48, 56, 63, 64, 65, 80, 96, 128, 160, 168, 192, 224, 255)
SHARED = (
    0,
    1,
    128,
    1000,
    4096,
    16000,
    16384,
    24576,
    32768,
    49152,
    49153,
    65536,
    98304,
    101376,
    101377,
    166912,
    200000,
    232448,
    232449,
)
SAMPLES = 40
HEADER = """# cuda_occupancy.h of nvidia-cuda-runtime {version}: capability, threads per block, registers per thread, dynamic
# shared memory in bytes, blocks per SM, limiting factors (1 warps, 2 registers, 4 shared memory, 8 blocks; bit field).
# Written by tools/refresh_occupancy.py.
"""


def header_folder(version: str, folder: Path) -> Path:
    """The folder of cuda_occupancy.h, unpacked from the wheel of the runtime."""
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder), f"nvidia-cuda-runtime=={version}"]
    subprocess.run(command, check=True)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("/cuda_occupancy.h"))
        return (folder / wheel.extract(name, folder)).parent


def launches(row: Capability, rng: random.Random) -> list[str]:
    """Input lines for one capability: its limits and sampled launches."""
    have = row.limits
    device = (
        f"{row.cc.major} {row.cc.minor} {have.max_threads_per_sm} {have.registers_per_sm} {have.max_registers_per_block} "
        f"{have.smem_per_sm} {have.smem_per_block} {have.smem_per_block_optin} {have.smem_reserved_per_block}"
    )
    registers = [number for number in REGISTERS if number <= have.max_registers_per_thread]
    shared = [0, *(size for size in SHARED if size <= have.smem_per_block_optin + 1)]
    picks = {(rng.choice(THREADS), rng.choice(registers), rng.choice(shared)) for _ in range(SAMPLES)}
    return [f"{device} {threads} {regs} {smem}" for threads, regs, smem in sorted(picks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="of nvidia-cuda-runtime, e.g. 13.0.88")
    parser.add_argument("--output", type=Path, default=Path(__file__).parents[1] / "tests/reference/occupancy.txt")
    options = parser.parse_args()
    rng = random.Random(options.version)  # noqa: S311 # a sample, not a secret
    lines = [line for row in Matrices.load().capabilities.rows for line in launches(row, rng)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "reference.cpp"
        source.write_text(PROGRAM, encoding="utf-8")
        include = header_folder(options.version, folder)
        subprocess.run(["g++", "-w", f"-I{include}", str(source), "-o", str(folder / "reference")], check=True)
        answer = subprocess.run([str(folder / "reference")], input="\n".join(lines), capture_output=True, text=True, check=True)
    options.output.write_text(HEADER.format(version=options.version) + answer.stdout, encoding="utf-8")


if __name__ == "__main__":
    main()
