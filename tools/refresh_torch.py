"""Reads the metadata of a torch release from the default index, and prints the [[release]] row for matrices/torch_builds.toml.

    python tools/refresh_torch.py 2.16.0
    python tools/refresh_torch.py 2.14.1 --check

Needs pip; no wheel is downloaded whole. It finds Python versions, pins and file tags; what other CUDA variants exist must be
read on pytorch.org (the variants field is left to fill in). With --check nothing is printed but differences.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import date
from typing import Any

from wheel_files import metadata, toml_row

from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import DottedVersion

X86 = ("manylinux_2_28_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64")
ARM = ("manylinux_2_28_aarch64", "manylinux2014_aarch64")
PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15", "3.16")
_VERSION = r"\s*\(?[=~]=([\d.]+)"
"""As index pages spell it over the years: `==2.3.1`, `~=3.8.0`, ` (==9.1.0.70) `."""
PINS = {
    "cudnn": re.compile(rf"nvidia-cudnn-cu\d+{_VERSION}"),
    "nccl": re.compile(rf"nvidia-nccl-cu\d+{_VERSION}"),
    "nvshmem": re.compile(rf"nvidia-nvshmem-cu\d+{_VERSION}"),
    "triton": re.compile(rf"triton{_VERSION}"),
    "toolkit_pin": re.compile(rf"(?:cuda-toolkit(?:\[[^\]]*\])?|nvidia-cuda-runtime-cu\d+){_VERSION}"),
}


def first_wheel(version: str, python: str, platforms: tuple[str, ...]) -> dict[str, Any] | None:
    """Metadata of the wheel for the first of the platforms that has one."""
    found = (metadata(f"torch=={version}", python, platform) for platform in platforms)
    return next((item for item in found if item is not None), None)


def pins_of(requires: list[str]) -> dict[str, str]:
    """The pinned components among the requirements of a wheel."""
    found = {}
    for name, pattern in PINS.items():
        match = next((match for text in requires if (match := pattern.search(text))), None)
        if match is not None:
            found[name] = match[1]
    return found


def release_of(version: str) -> dict[str, object]:
    """The fields of the row that the index tells; raises LookupError where it has no Linux x86-64 wheel."""
    wheels = {python: first_wheel(version, python, X86) for python in PYTHONS}
    pythons = [python for python, wheel in wheels.items() if wheel is not None]
    if not pythons:
        raise LookupError(f"the index has no Linux x86-64 wheel of torch {version}")
    newest = wheels[pythons[-1]] or {}
    arm = first_wheel(version, pythons[-1], ARM)
    return {
        "torch": version,
        "python": pythons,
        "requires_python": newest.get("requires_python"),
        **pins_of(newest.get("requires_dist", [])),
        "x86_64_tag": _tag(newest["file"], X86),
        "aarch64_tag": _tag(arm["file"], ARM) if arm else None,
        "verified": "mechanical",
        "as_of": date.today().isoformat(),
    }


def _tag(name: str, tags: tuple[str, ...]) -> str | None:
    return next((tag for tag in tags if tag in name), None)


def differences(found: dict[str, object], matrices: Matrices) -> list[str]:
    """What the index says otherwise than the matrix; free-threaded Pythons are not compared."""
    version = DottedVersion.parse(str(found["torch"]))
    row = matrices.torch.release(version)
    if row is None:
        return [f"torch {version} is not in the matrix"]
    have: dict[str, object] = {name: str(value) for name in PINS if (value := getattr(row, name)) is not None}
    have["python"] = [python for python in row.pythons if not python.endswith("t") and python in PYTHONS]
    have["requires_python"] = row.requires_python
    return [
        f"torch {version}: {name} {found.get(name)}, the matrix has {have.get(name)}"
        for name in (*PINS, "python", "requires_python")
        if found.get(name) != have.get(name)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="+", help="releases of torch")
    parser.add_argument("--check", action="store_true", help="print only what differs from the matrix")
    options = parser.parse_args()
    said: list[str] = []
    for version in options.version:
        found = release_of(version)
        said += differences(found, Matrices.load())
        if not options.check:
            print(toml_row("release", found))
    print("\n".join(said) or "the matrix agrees", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
