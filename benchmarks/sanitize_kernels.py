"""compute-sanitizer over every kernel that runs on this GPU, at the odd shapes of the proofs.

    python benchmarks/sanitize_kernels.py [--tools memcheck racecheck synccheck] [--only TEXT ...] [--jobs 6]

Needs a GPU, a libnvrtc and compute-sanitizer; no torch. Each kernel runs in a process of its own, which launches and checks it as
`check` does. Before them two kernels with planted faults show that the tools see one; a tool that does not is not believed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from cudadoctor.gpu.catalog import CATALOG, KernelSpec
from cudadoctor.gpu.device import Device
from cudadoctor.gpu.driver_api import Driver
from cudadoctor.gpu.driver_session import describe_driver
from cudadoctor.gpu.nvrtc_child import Nvrtc
from cudadoctor.gpu.run_proof import prove
from cudadoctor.gpu.sources import inlined_source
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.resources import kernels_folder

TOOLS = ("memcheck", "racecheck", "synccheck")
SEED = 7
FOUND = 9
"""Exit code of compute-sanitizer where it found something."""
LIMIT_S = 90.0
PLANTED = {
    "memcheck": 'extern "C" __global__ void planted(int* out) { out[threadIdx.x + (1 << 28)] = 1; }',
    "racecheck": 'extern "C" __global__ void planted(int* out) { __shared__ int cell[128];'
    " cell[threadIdx.x] = threadIdx.x; out[threadIdx.x] = cell[(threadIdx.x + 64) % 128]; }",
}
"""A write far behind the buffer; a read of what another warp writes without a barrier."""


def libnvrtc() -> Path:
    """A libnvrtc of this Python's wheels or of a toolkit; raises SystemExit."""
    roots = [*(Path(entry) / "nvidia" for entry in sys.path if entry), *Path("/usr/local").glob("cuda*")]
    found = (path for root in roots for path in root.rglob("libnvrtc.so.*") if "alt" not in path.name)
    path = next(found, None)
    if path is None:
        raise SystemExit("no libnvrtc here")
    return path


def compiled(folder: Path, capability: ComputeCapability, wanted: Sequence[str]) -> list[KernelSpec]:
    """The kernels for this GPU, compiled into `folder` as NAME.cubin, and the planted ones."""
    nvrtc = Nvrtc(str(libnvrtc()))
    for tool, source in PLANTED.items():
        image, _ = nvrtc.compile(source, "planted.cu", [f"--gpu-architecture={capability.sm}"], "cubin")
        (folder / f"planted-{tool}.cubin").write_bytes(image)
    kernels = [spec for spec in CATALOG if spec.runs_on(capability) and any(text in spec.name for text in wanted or ("",))]
    for spec in kernels:
        options = [f"--gpu-architecture={capability.sm}{spec.target_suffix}", "-std=c++17", "-lineinfo"]
        options += [f"-D{define}" for define in spec.defines]
        image, _ = nvrtc.compile(inlined_source(kernels_folder(), spec.file), spec.file, options, "cubin")
        (folder / f"{spec.name}.cubin").write_bytes(image)
    return kernels


def launch(image: Path) -> int:
    """In the sanitised process: run the kernel as a proof does; 1 where its numbers are wrong."""
    driver = Driver.load(None)
    driver.call("cuInit", ctypes.c_uint(0))
    device = Device(driver, 0)
    code = image.read_bytes()
    if image.stem.startswith("planted"):
        with device.buffer(4 * 128) as out:
            device.load(code).function("planted").launch((1, 1, 1), (128, 1, 1), (out.address,))
            device.synchronize()
        return 0
    spec = next(spec for spec in CATALOG if spec.name == image.stem)
    answer = prove(device, code, spec.request(), SEED)
    print(msgspec.json.encode(answer).decode())
    return 0 if answer["outcome"] == "passed" else 1


def sanitised(tool: str, image: Path) -> tuple[str, str]:
    """`clean`, `found`, `wrong` or `no answer` for a kernel under a tool, and what was printed."""
    argv = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, __file__, "--launch", str(image)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return "no answer", f"not within {LIMIT_S:.0f} s"
    words = {0: "clean", FOUND: "found"}
    clean = "ERROR SUMMARY: 0 errors" in done.stdout or "RACECHECK SUMMARY: 0 hazards" in done.stdout
    word = words.get(done.returncode, "wrong")
    return ("no answer" if word == "clean" and not clean else word), done.stdout + done.stderr


def blind(tools: Iterable[str], folder: Path) -> list[str]:
    """The tools that see nothing wrong with the planted fault; synccheck has none of its own and stands by the others."""
    return [tool for tool in tools if tool in PLANTED and sanitised(tool, folder / f"planted-{tool}.cubin")[0] != "found"]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tools", nargs="*", default=list(TOOLS))
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of kernels; default: all")
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """A line a kernel; 1 where a tool found something, a kernel is wrong or a tool is blind."""
    options = parse(arguments)
    if options.launch is not None:
        return launch(options.launch)
    if shutil.which("compute-sanitizer") is None:
        raise SystemExit("no compute-sanitizer on the PATH")
    gpu = next(iter(describe_driver(os.environ, timeout_s=LIMIT_S).devices), None)
    if gpu is None or gpu.compute_capability is None:
        raise SystemExit("no GPU answers here")
    with tempfile.TemporaryDirectory() as folder:
        kernels = compiled(Path(folder), gpu.compute_capability, options.only)
        unseen = blind(options.tools, Path(folder))
        print(f"planted faults unseen by: {', '.join(unseen) or 'none of the tools'}", flush=True)
        bad = len(unseen)
        with ThreadPoolExecutor(options.jobs) as pool:
            for tool in options.tools:
                results = pool.map(lambda spec, tool=tool: sanitised(tool, Path(folder) / f"{spec.name}.cubin"), kernels)
                for spec, (word, text) in zip(kernels, results, strict=True):
                    bad += word != "clean"
                    print(f"{tool:10} {spec.name:40} {word}", *([] if word == "clean" else [text[-3000:]]), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
