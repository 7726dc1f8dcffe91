"""Lists the GPU code and the needed libraries of a wheel, and prints the [[binary]] row for matrices/ecosystem.toml.

    python tools/refresh_wheels.py onnxruntime-gpu==1.32.0
    python tools/refresh_wheels.py torch==2.16.0 --platform manylinux_2_28_aarch64 --python-version 3.12
    python tools/refresh_wheels.py path/to/torch-2.16.0-cp312-cp312-manylinux_2_28_x86_64.whl

Needs pip for a name. For a wheel of torch it prints the list that get_arch_list() will return as well, which is a string in
libtorch_python. Nothing of the wheel is loaded or run.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import zipfile
from collections import Counter
from datetime import date
from pathlib import Path

from wheel_files import download, toml_row

from cudadoctor.binary.contents import Contents, read_contents
from cudadoctor.binary.source import FileSource
from cudadoctor.model.versions import CodeKind, SmTarget

LIBRARY = re.compile(r"\.(so(\.[\w.]+)?|pyd|dll)$")
ARCH_STRING = re.compile(rb"(?:sm_\d{2,3}[af]? )+(?:(?:sm|compute)_\d{2,3}[af]?)(?= |\0)(?: compute_\d{2,3}[af]?)?")


def libraries(wheel: Path, folder: Path) -> dict[str, Contents]:
    """What each shared library in a wheel holds; one at a time is on disk."""
    found = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if LIBRARY.search(name):
                path = Path(archive.extract(name, folder))
                with FileSource(path) as source:
                    contents = read_contents(source)
                path.unlink()
                if contents is not None:
                    found[name] = contents
    return found


def targets_of(contents: Contents) -> Counter[SmTarget]:
    """How many modules carry code for each target."""
    counts: Counter[SmTarget] = Counter()
    for group in contents.groups:
        for code in group.code:
            if code.target is not None:
                counts[code.target] += group.count
    return counts


def arch_string(wheel: Path) -> str | None:
    """The list that torch.cuda.get_arch_list() returns, from the string in libtorch_python; None where there is none."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if re.search(r"torch_python\.(so|dll)$", name):
                match = ARCH_STRING.search(archive.read(name))
                return match[0].decode() if match else None
    return None


FEW = 0.1
"""Targets in fewer modules than this part of the commonest one's are exceptions, and named in the note only."""


def row_text(wheel: Path, found: dict[str, Contents]) -> str:
    """The [[binary]] row: what most modules of all libraries carry."""
    name, version = wheel.name.split("-")[:2]
    counts = sum((targets_of(contents) for contents in found.values()), Counter[SmTarget]())
    most = max(counts.values(), default=0)
    code = sorted(target for target, count in counts.items() if count >= most * FEW)
    few = " ".join(f"{target} ({counts[target]})" for target in sorted(counts) if target not in code)
    needed = {library for contents in found.values() for library in contents.needed if re.match(r"lib(cu|nv|nccl)", library)}
    fields = {
        "package": name.replace("_", "-"),
        "version": version,
        "sm": [str(target) for target in code if target.kind is CodeKind.SASS],
        "ptx": [str(target) for target in code if target.kind is CodeKind.PTX] or None,
        "needed": sorted(needed),
        "verified": "mechanical",
        "as_of": date.today().isoformat(),
        "note": f"in few modules only: {few}" if few else None,
    }
    return toml_row("binary", fields)


def pip_options(options: argparse.Namespace) -> list[str]:
    """What makes pip fetch the wheel of another machine."""
    found = [text for tag in options.platform for text in ("--platform", tag)]
    return [*found, "--python-version", options.python_version] if options.python_version else found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", help="a wheel file, or name==version")
    parser.add_argument("--platform", action="append", default=[], help="platform tag of the wheel to fetch; repeatable")
    parser.add_argument("--python-version", help="of the wheel to fetch")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = Path(options.wheel) if options.wheel.endswith(".whl") else download(options.wheel, folder, *pip_options(options))
        found = libraries(wheel, folder)
        for library, contents in found.items():
            counts = targets_of(contents)
            if counts or contents.problem:
                text = " ".join(f"{target}:{counts[target]}" for target in sorted(counts))
                print(f"# {library}: {text} {contents.problem}".rstrip(), file=sys.stderr)
        print(row_text(wheel, found))
        listed = arch_string(wheel)
        if listed is not None:
            print(f"# get_arch_list(): {listed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
