"""Runs the assemblers that a triton wheel bundles, and prints the [[triton]] row for matrices/ecosystem.toml.

    python tools/refresh_triton.py 3.10.0
    python tools/refresh_triton.py 3.8.0 --check

Needs pip and Linux x86-64, no GPU. With --check nothing is printed but differences; exit code 1 says that there are some.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

from packaging.version import Version
from wheel_files import download, members, read_text, toml_row, unpack

from cudadoctor.matrices import Matrices
from cudadoctor.model.versions import SmTarget

RELEASE = re.compile(r"release [\d.]+, V([\d.]+)")
TARGET = re.compile(r"'(sm_\d+[af]?)'")
NEWEST_FROM = SmTarget.parse("sm_89")
"""Targets from here on are listed; older ones follow from the lowest."""


def run(program: Path, option: str) -> str:
    program.chmod(0o755)
    return subprocess.run([str(program), option], capture_output=True, text=True, check=True).stdout


def row_of(version: str) -> dict[str, object]:
    """The fields of the row for a release."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = download(f"triton=={version}", folder)
        names = [member for ending in ("/ptxas", "/ptxas-blackwell") for member in members(wheel, ending)]
        programs = {path.name: path for path in unpack(wheel, names, folder)}
        versions = {key: RELEASE.search(run(path, "--version")) for key, path in programs.items()}
        targets = sorted({SmTarget.parse(text) for text in TARGET.findall(run(programs["ptxas"], "--help"))})
        python = re.search(r"^Requires-Python: (.*)$", read_text(wheel, next(members(wheel, "METADATA"))), re.MULTILINE)
    found = {key: match[1] for key, match in versions.items() if match is not None}
    return {
        "version": version,
        "python": python[1] if python else None,
        "ptxas": found["ptxas"],
        "ptxas_blackwell": found.get("ptxas-blackwell"),
        "ptxas_lowest": str(targets[0]),
        "ptxas_newest": [str(target) for target in targets if target >= NEWEST_FROM],
        "min_cc": "7.0",
        "verified": "mechanical",
        "verified_min_cc": "inferred",
        "as_of": date.today().isoformat(),
    }


def differences(found: dict[str, object], matrices: Matrices) -> list[str]:
    """What the wheel says otherwise than the matrix."""
    version = Version(str(found["version"]))
    row = matrices.ecosystem.triton_release(version)
    if row is None or row.version != version:
        return [f"triton {version} is not in the matrix"]
    have = {
        "ptxas": str(row.ptxas),
        "ptxas_blackwell": str(row.ptxas_blackwell) if row.ptxas_blackwell else None,
        "ptxas_lowest": str(row.ptxas_lowest),
        "ptxas_newest": [str(target) for target in row.ptxas_newest],
    }
    return [
        f"triton {version}: {name} {found[name]}, the matrix has {value}" for name, value in have.items() if found[name] != value
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", nargs="+", help="releases of triton")
    parser.add_argument("--check", action="store_true", help="print only what differs from the matrix")
    options = parser.parse_args()
    said: list[str] = []
    for version in options.version:
        found = row_of(version)
        said += differences(found, Matrices.load())
        if not options.check:
            print(toml_row("triton", found))
    print("\n".join(said) or "the matrix agrees", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
