"""Builds what faults are made of in folders of their own: toolkits of links, compilers that say otherwise, small libraries."""

from __future__ import annotations

import base64
import csv
import hashlib
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path

from tests.fakes.fakebin import python_program
from tests.fakes.stub_torch import add_distribution, make_environment
from tests.real_faults.machine import PROGRAM_LIMIT_S, Machine, NotHereError

COPIED = ("bin/nvcc", "bin/nvcc.profile")
"""What a toolkit of links has copies of: nvcc looks for the rest from where it lies itself."""


def toolkit_without(machine: Machine, root: Path, lacking: Collection[str]) -> Path:
    """The machine's toolkit again at `root`, of links, without the files of these paths below it."""
    _mirror(machine.toolkit, root, Path(), frozenset(lacking))
    return root


def _mirror(source: Path, root: Path, below: Path, lacking: frozenset[str]) -> None:
    """Link what lies in a folder; folders in which something is left out or copied are made anew."""
    (root / below).mkdir(parents=True, exist_ok=True)
    for entry in sorted((source / below).iterdir()):
        path = below / entry.name
        if str(path) in lacking:
            continue
        inside = [name for name in (*lacking, *COPIED) if Path(name).is_relative_to(path) and name != str(path)]
        if str(path) in COPIED:
            (root / path).write_bytes(entry.read_bytes())
            (root / path).chmod(0o755)
        elif inside and entry.is_dir():
            _mirror(source, root, path, lacking)
        else:
            (root / path).symlink_to(entry)


def wrapped_nvcc(machine: Machine, root: Path, when_compiling: str, targets: str = "") -> Path:
    """A toolkit whose nvcc is the real one, except for what Python statements do with `argv` when it compiles a cubin.

    Where `targets` is given, that is what it says it can compile for.
    """
    body = f"import shutil\nargv = [{str(machine.toolkit / 'bin/nvcc')!r}, *sys.argv[1:]]\n"
    body += f"if {targets!r} and '--list-gpu-code' in argv:\n    print({targets!r})\n    raise SystemExit(0)\n"
    body += "if '-cubin' in argv:\n" + "\n".join(f"    {line}" for line in when_compiling.splitlines())
    toolkit_without(machine, root, ("bin/nvcc",))
    python_program(root / "bin" / "nvcc", body + "\nos.execv(argv[0], argv)\n")
    return root


def newer_gcc(machine: Machine, folder: Path, major: int) -> Path:
    """A g++ that is the machine's and says, to people and to the preprocessor, that it is of a newer release."""
    real = machine.program("g++")
    body = f"if '--version' in sys.argv:\n    print('g++ (GCC) {major}.1.0')\n    raise SystemExit(0)\n"
    body += f"os.execv({real!r}, [{real!r}, '-U__GNUC__', '-D__GNUC__={major}', *sys.argv[1:]])\n"
    return python_program(folder / "g++", body)


def small_library(machine: Machine, path: Path, source: str = "", needs: Sequence[Path] = ()) -> Path:
    """A shared library whose soname is its file name, of C++ source; raises NotHereError without a compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    code = path.with_name(f"{path.name}.cpp")
    code.write_text(source)
    options = ["-shared", "-fPIC", f"-Wl,-soname,{path.name}", "-Wl,--no-as-needed"]
    run_tool(machine, [machine.program("g++"), *options, str(code), *map(str, needs), "-o", str(path)])
    return path


def compiled_program(machine: Machine, folder: Path, source: str, *options: str) -> Path:
    """An executable of CUDA C++, by the machine's own nvcc."""
    code = folder / "program.cu"
    code.write_text(source)
    nvcc = str(machine.toolkit / "bin" / "nvcc")
    run_tool(machine, [nvcc, *options, "-o", str(folder / "program"), str(code)])
    return folder / "program"


def run_tool(machine: Machine, argv: Sequence[str]) -> None:
    """Run a compiler; raises NotHereError with its words where it fails."""
    done = subprocess.run(argv, env=dict(machine.env), capture_output=True, text=True, timeout=PROGRAM_LIMIT_S)
    if done.returncode:
        raise NotHereError(f"{Path(argv[0]).name} failed: {done.stderr.strip()[-300:]}")


def layered_environment(machine: Machine, folder: Path, packages: Sequence[str] = ()) -> tuple[str, Path]:
    """A virtual environment on top of the machine's, so with its torch, and further packages by name and version.

    Gives its interpreter and its site-packages.
    """
    below = machine.site_packages
    python = make_environment(folder / "venv", packages=packages)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (site / "below.pth").write_text(f"{below}\n")
    return str(python), site


def add_extension(site: Path, name: str, library: Path) -> Path:
    """A package `name` 1.0 with this library as its only module, recorded as pip does it; gives the library's new path."""
    add_distribution(site, name, "1.0")
    target = site / name / library.name
    target.parent.mkdir()
    target.write_bytes(library.read_bytes())
    digest = base64.urlsafe_b64encode(hashlib.sha256(target.read_bytes()).digest()).rstrip(b"=").decode()
    with (site / f"{name}-1.0.dist-info" / "RECORD").open("w", newline="") as record:
        csv.writer(record).writerow((f"{name}/{target.name}", f"sha256={digest}", target.stat().st_size))
    return target
