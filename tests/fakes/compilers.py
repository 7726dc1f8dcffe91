"""Stand-ins for compilers: an nvcc that is a shell script, a cubin that the stand-in for libcuda takes."""

from __future__ import annotations

import struct
from pathlib import Path


def fake_cubin(entry: str, sm: int) -> bytes:
    """An ELF header for `sm` (e.g. 90) followed by the name of a kernel: what fake_libcuda.c looks at, and no more."""
    name = entry.encode() + b"\0"
    identification = b"\x7fELF\x02\x01\x01\x33\x07" + bytes(7)
    return struct.pack("<16sHHIQQQIHHHHHH", identification, 2, 190, 124, 0, 0, 64 + len(name), sm, 64, 0, 0, 64, 0, 0) + name


def fake_nvcc(folder: Path, body: str) -> Path:
    """An executable `folder`/nvcc that runs the lines of shell in `body`; $out is the value of its `-o`."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "nvcc"
    find_out = 'out=; previous=; for word in "$@"; do [ "$previous" = -o ] && out=$word; previous=$word; done'
    script.write_text(f"#!/bin/sh\n{find_out}\n{body}\n")
    script.chmod(0o755)
    return script


def compiling_nvcc(folder: Path, entries: tuple[str, ...], sm: int) -> Path:
    """A fake nvcc whose result holds all of `entries` for `sm`; it appends a line to `folder`/runs each time it is run."""
    folder.mkdir(parents=True, exist_ok=True)
    cubin = folder / "all.cubin"
    cubin.write_bytes(fake_cubin(" ".join(entries), sm))
    return fake_nvcc(folder, f'echo run >> "{folder}/runs"; cp "{cubin}" "$out"')
