"""What NVIDIA's own cuobjdump says of a file, and ours in the same form: how many ELF and PTX entries there are per target."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from pathlib import Path

from cudadoctor.binary.device_code import LTO_KIND, PTX_KIND, SASS_KIND
from cudadoctor.binary.formats import open_binary
from cudadoctor.binary.source import FileSource
from cudadoctor.model.binaries import Place

REQUIREMENT = "nvidia-cuda-cuobjdump==13.5.37"
_LINE = re.compile(r"^(ELF|PTX) file +\d+: .*?(?:\.|^)sm_(\d+[af]?)\.(?:cubin|ptx)$", re.MULTILINE)


def cuobjdump_counts(program: Path, path: Path) -> Counter[str] | None:
    """Entries per `sm_` and `compute_` target as cuobjdump lists them, relocatable ones included; None where it refuses.

    The one of CUDA 13 refuses files with sm_35 ("Support for 'sm_35' has been removed") and calls some older cubins invalid.
    """
    argv = (str(program), "-all", "--list-elf", "--list-ptx", str(path))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=600)
    if "cuobjdump fatal" in done.stdout + done.stderr:
        return None
    found = _LINE.findall(done.stdout + done.stderr)
    return Counter(f"{'sm' if kind == 'ELF' else 'compute'}_{target}" for kind, target in found)


def our_counts(path: Path) -> Counter[str]:
    """The same from our reader, limited to what cuobjdump sees: containers in its own sections.

    A cubin for a family is written without its suffix there (`sm_100` for sm_100f): cuobjdump reads it from the cubin,
    where it is not recorded. LTO-IR is not listed by it.
    """
    counts: Counter[str] = Counter()
    with FileSource(path) as source:
        opened = open_binary(source)
        for module in () if opened is None else opened.modules:
            if module.place in {Place.DATA, Place.LOOSE}:
                continue
            for entry in module.entries:
                name = "unknown" if entry.target is None else str(entry.target)
                if entry.kind_number == SASS_KIND:
                    counts[name.removesuffix("f")] += 1
                elif entry.kind_number == PTX_KIND:
                    counts[name] += 1
                elif entry.kind_number != LTO_KIND:
                    counts["unknown"] += 1
    return counts


def unseen_modules(path: Path) -> Counter[Place]:
    """Modules in places where cuobjdump does not look."""
    with FileSource(path) as source:
        opened = open_binary(source)
        modules = () if opened is None else tuple(opened.modules)
    return Counter(module.place for module in modules if module.place in {Place.DATA, Place.LOOSE})
