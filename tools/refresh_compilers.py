"""Reads the host compiler bounds out of an nvcc wheel, and prints the [[nvcc]] row for matrices/host_compiler.toml.

    python tools/refresh_compilers.py nvidia-cuda-crt==13.6.10
    python tools/refresh_compilers.py nvidia-cuda-nvcc-cu12==12.6.85 --check

Needs pip. From CUDA 13 on the headers are in nvidia-cuda-crt, before that in nvidia-cuda-nvcc-cu12 or -cu11. With --check
nothing is printed but differences; exit code 1 says that there are some.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from datetime import date
from pathlib import Path

from wheel_files import download, members, read_text, toml_row

from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import CudaVersion

GCC = re.compile(r"#if __GNUC__ > (\d+)")
CLANG = re.compile(r"unsupported clang version! clang version must be less than (\d+)")
MSVC = re.compile(r"#if _MSC_VER < (\d+) \|\| _MSC_VER >= (\d+)")
VISUAL_STUDIO = re.compile(r"versions between (\d{4}) and (\d{4})")
GRACE = re.compile(r"unsupported Grace clang version! The version must be (\d+)\.x to (\d+)\.x")


def bounds_of(text: str) -> dict[str, object]:
    """The bounds in the `#error` conditions of crt/host_config.h; raises ValueError where one is not found."""
    found = {"gcc": GCC.search(text), "clang": CLANG.search(text), "msvc": MSVC.search(text), "years": VISUAL_STUDIO.search(text)}
    missing = [name for name, match in found.items() if match is None]
    if missing:
        raise ValueError(f"host_config.h has another form than expected, no bound for {', '.join(missing)}")
    gcc, clang, msvc, years = (match for match in found.values() if match is not None)
    grace = GRACE.search(text)
    return {
        "gcc_max": int(gcc[1]),
        "clang_max": int(clang[1]) - 1,
        "msc_ver_min": int(msvc[1]),
        "msc_ver_below": int(msvc[2]),
        "visual_studio": f"{years[1]}-{years[2]}",
        "grace_clang": [int(grace[1]), int(grace[2])] if grace else None,
        "icc": "rejected" if "ICC is not supported as a host compiler" in text else None,
        "icx": "rejected" if "unsupported Intel ICX compiler" in text else "not checked",
    }


def glibc_state(text: str) -> dict[str, bool]:
    """Whether crt/math_functions.h is prepared for the functions that glibc 2.41 and 2.42 declare."""
    return {"2.41": "__NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER" in text, "2.42": "_NV_RSQRT_SPECIFIER" in text}


def differences(build: CudaVersion, bounds: dict[str, object], glibc: dict[str, bool], matrices: Matrices) -> list[str]:
    """What the headers say otherwise than the matrix."""
    row = matrices.compilers.bounds(build)
    if row is None or row.build is None or row.build.text != build.text:
        return [f"nvcc {build} is not in the matrix"]
    have = {name: getattr(row, name) for name in ("gcc_max", "clang_max", "msc_ver_min", "msc_ver_below")}
    said = [
        f"nvcc {build}: {name} {bounds[name]}, the matrix has {value}" for name, value in have.items() if bounds[name] != value
    ]
    for clash in matrices.compilers.clashes:
        clashes = build < clash.cuda_below
        if clashes is glibc[str(clash.glibc_from)]:
            said.append(
                f"nvcc {build}: glibc {clash.glibc_from} {'clashes' if clashes else 'is fine'} by the matrix, not by the header"
            )
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("requirement", nargs="+", help="wheels with crt/host_config.h, as name==version")
    parser.add_argument("--check", action="store_true", help="print only what differs from the matrix")
    options = parser.parse_args()
    said: list[str] = []
    for requirement in options.requirement:
        build = CudaVersion.parse(requirement.split("==")[1])
        with tempfile.TemporaryDirectory() as name:
            wheel = download(requirement, Path(name))
            bounds = bounds_of(read_text(wheel, next(members(wheel, "crt/host_config.h"))))
            glibc = glibc_state(read_text(wheel, next(members(wheel, "crt/math_functions.h"))))
        said += differences(build, bounds, glibc, Matrices.load())
        if not options.check:
            head = {"cuda": build.release, "build": build.text}
            print(toml_row("nvcc", {**head, **bounds, "verified": "mechanical", "as_of": date.today().isoformat()}))
    print("\n".join(said) or "the matrix agrees", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
