"""What ties the PTX files that ship to the sources that they were made from."""

from __future__ import annotations

import hashlib
from pathlib import Path

from cudadoctor.gpu.catalog import KernelSpec
from cudadoctor.gpu.sources import inlined_source

PTX_VERSION = "6.0"
"""PTX ISA of the shipped files, that of CUDA 9.0: the first with `shfl.sync` (PTX ISA manual, release notes)."""


def source_digest(folder: Path, kernel: KernelSpec) -> str:
    """SHA-256 of the kernel's whole source and its macros: the first line of its PTX file carries it."""
    text = "\n".join((*kernel.defines, inlined_source(folder, kernel.file)))
    return hashlib.sha256(text.encode()).hexdigest()
