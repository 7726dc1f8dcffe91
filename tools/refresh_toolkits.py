"""Asks NVRTC of a toolkit what it can target, and prints the [[toolkit]] row for matrices/toolkit_arch.toml.

    python tools/refresh_toolkits.py nvidia-cuda-nvrtc==13.6.10
    python tools/refresh_toolkits.py nvidia-cuda-nvrtc-cu12==12.6.85 --check

Needs pip and Linux x86-64 or aarch64, no GPU. Every candidate target, plain and with suffix `a` and `f`, is compiled, so that the
answer does not rest on what NVRTC lists. With --check nothing is printed but differences; exit code 1 says that there are some.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from wheel_files import download, members, toml_row, unpack

from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import CudaVersion, SmTarget

KERNEL = b'extern "C" __global__ void probe(float *x) { x[threadIdx.x] *= 2.0f; }\n'
CANDIDATES = [*range(20, 100), *range(100, 160)]
"""Runs past the highest number that any toolkit knows today."""


def probe(library: str) -> dict[str, object]:
    """What the NVRTC in this file targets; runs in a child, because its helper library is found through LD_LIBRARY_PATH."""
    nvrtc = ctypes.CDLL(library)
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    names = [f"{number}{suffix}" for number in CANDIDATES for suffix in ("", "a", "f")]
    accepted = [name for name in names if compile_for(nvrtc, f"compute_{name}") is not None]
    ptx = compile_for(nvrtc, f"compute_{accepted[-1]}") or b""
    isa = next(line.split()[1].decode() for line in ptx.splitlines() if line.startswith(b".version"))
    return {"cuda": f"{major.value}.{minor.value}", "targets": [f"sm_{name}" for name in accepted], "ptx_isa": isa}


def compile_for(nvrtc: ctypes.CDLL, architecture: str) -> bytes | None:
    """The PTX of the probe kernel for an architecture; None where NVRTC refuses it."""
    program = ctypes.c_void_p()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), KERNEL, b"probe.cu", 0, None, None)
    options = (ctypes.c_char_p * 1)(f"--gpu-architecture={architecture}".encode())
    try:
        if nvrtc.nvrtcCompileProgram(program, 1, options) != 0:
            return None
        size = ctypes.c_size_t()
        nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetPTX(program, text)
        return text.value
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def ask(requirement: str) -> dict[str, object]:
    """Unpacks the wheel and probes its NVRTC in a child process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = download(requirement, folder)
        libraries = unpack(wheel, [member for member in members(wheel, "") if "/lib/libnvrtc" in member], folder)
        main_library = next(path for path in libraries if "builtins" not in path.name and ".alt." not in path.name)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(main_library.parent)}
        command = [sys.executable, __file__, "--probe", str(main_library)]
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, object] = json.loads(answer.stdout)
    return found


def differences(found: dict[str, object], matrices: Matrices) -> list[str]:
    """What the probe says otherwise than the matrix."""
    cuda = CudaVersion.parse(str(found["cuda"]))
    row = matrices.toolkits.toolkit(cuda)
    if row is None:
        return [f"CUDA {cuda} is not in the matrix"]
    targets = sorted(SmTarget.parse(str(text)) for text in found["targets"])  # type: ignore[attr-defined] # a list in our own JSON
    said = []
    if tuple(targets) != row.targets:
        odd = {str(target) for target in targets} ^ {str(target) for target in row.targets}
        said.append(f"CUDA {cuda}: targets differ: {' '.join(sorted(odd))}")
    if str(row.ptx_isa) != found["ptx_isa"]:
        said.append(f"CUDA {cuda}: PTX ISA {found['ptx_isa']}, the matrix has {row.ptx_isa}")
    return said


def row_text(requirement: str, found: dict[str, object]) -> str:
    build = requirement.split("==")[1]
    fields = {
        "cuda": found["cuda"],
        "ptx_isa": found["ptx_isa"],
        "targets": found["targets"],
        "probed": [build],
        "verified": "mechanical",
        "source": f"compile attempt per target with NVRTC {build}",
        "as_of": date.today().isoformat(),
    }
    return toml_row("toolkit", fields)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", nargs="*", help="wheels of NVRTC, as name==version")
    parser.add_argument("--check", action="store_true", help="print only what differs from the matrix")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.probe:
        print(json.dumps(probe(options.probe)))
        return 0
    said: list[str] = []
    for requirement in options.requirement:
        found = ask(requirement)
        said += differences(found, Matrices.load())
        if not options.check:
            print(row_text(requirement, found))
    print("\n".join(said) or "the matrix agrees", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
