"""Makes kernels/ptx/*.ptx, which the layer driver-jit gives to the driver, with an old NVRTC.

    pip download --no-deps nvidia-cuda-nvrtc-cu11==11.7.99   # unpack it, then:
    python tools/make_ptx.py PATH/TO/libnvrtc.so.11.2

The kernels use nothing newer than PTX ISA 6.0 (`shfl.sync`, of CUDA 9.0), so `.version` is set back to that: drivers from 384 on
accept it. `ptxas` and every driver check that the code really needs no more.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from cudadoctor.gpu.catalog import PORTABLE, KernelSpec
from cudadoctor.gpu.child import Child, child_argv
from cudadoctor.gpu.shipped_ptx import PTX_VERSION, source_digest
from cudadoctor.gpu.sources import inlined_source
from cudadoctor.resources import kernels_folder

TIMEOUT_S = 120.0
COMMENT = re.compile(r"^//.*\n|^\s*\.loc .*\n|^\s*\.file .*\n", re.MULTILINE)


def make_ptx(child: Child, kernel: KernelSpec, work: Path) -> str:
    """The PTX of `kernel` for its lowest target, headed by the digest of its source; ends the program on an error."""
    source = inlined_source(kernels_folder(), kernel.file)
    output = work / "kernel.ptx"
    options = [
        f"--gpu-architecture=compute_{kernel.lowest_target.number}",
        "-std=c++17",
        *(f"-D{define}" for define in kernel.defines),
    ]
    request = {"do": "compile", "source": source, "name": kernel.file, "options": options, "kind": "ptx", "output": str(output)}
    answer = child.ask(request, TIMEOUT_S)
    if "compile_s" not in answer:
        sys.exit(f"{kernel.name}: {answer}")
    text = COMMENT.sub("", output.read_text(encoding="ascii")).strip()
    text = re.sub(r"^\.version .*$", f".version {PTX_VERSION}", text, count=1, flags=re.MULTILINE)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return f"// source sha256 {source_digest(kernels_folder(), kernel)}\n{text}\n"


def main() -> None:
    """Write one file for each portable kernel of the catalogue."""
    folder = kernels_folder()
    with Child(child_argv("nvrtc_child"), os.environ) as child, tempfile.TemporaryDirectory() as work:
        loaded = child.ask({"do": "load", "library": sys.argv[1]}, TIMEOUT_S)
        print(f"NVRTC {loaded['version']}")
        for kernel in PORTABLE:
            text = make_ptx(child, kernel, Path(work))
            (folder / kernel.ptx_file).write_text(text, encoding="ascii")
            print(f"{kernel.ptx_file}: {len(text)} bytes")


if __name__ == "__main__":
    main()
