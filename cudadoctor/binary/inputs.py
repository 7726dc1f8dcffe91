"""Turns what the user names (file, folder, wheel, package, process) into the files that are scanned, one after the other."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from cudadoctor.paths import exists, is_folder
from cudadoctor.process import ProgramNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cudadoctor.system import System

INTERPRETER_TIMEOUT = 10.0
"""Seconds that the examined interpreter has to print its sys.path."""
_MAX_RECORD = 1 << 26
_TEXT_SUFFIXES = frozenset(
    f".{suffix}"
    for words in (
        "py pyi pyc pyx pxd typed mod f90 h hpp hh hxx cuh inl inc ipp tcc c cc cpp cu go rs java class jar rb pl js ts sh bat",
        "txt md rst json yaml yml toml cfg ini html css map xml csv tsv cmake pc la mo po svg png jpg jpeg gif ico ttf woff",
        "ps1 woff2 npy npz gz xz bz2 zst safetensors gguf pt pth onnx parquet",
    )
    for suffix in words.split()
)
"""Endings of files that are not opened inside folders, wheels and packages; a file named by itself is always opened."""


class InputError(ValueError):
    """What the user named does not exist or cannot be asked; the text says what was looked for."""


class InputKind(Enum):
    """What an argument turned out to be."""

    FILE = "file"
    FOLDER = "folder"
    WHEEL = "wheel"
    PACKAGE = "package"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class ScanInput:
    """One argument. `name` is how it was given; `path` is a file, folder or wheel; `files` those of a package or process."""

    kind: InputKind
    name: str
    path: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The Python whose packages are meant by name."""

    executable: str
    system: System

    def folders(self) -> tuple[str, ...]:
        """Its sys.path, asked in a child with a deadline; raises InputError where it does not answer."""
        code = "import json, sys; print(json.dumps([p for p in sys.path if p]))"
        try:
            done = self.system.run((self.executable, "-c", code), INTERPRETER_TIMEOUT)
        except ProgramNotFoundError as error:
            raise InputError(str(error)) from error
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError) as error:
            words = (
                "it did not answer in time" if done.timed_out else (done.stderr.strip()[-200:] or f"exit code {done.exit_code}")
            )
            raise InputError(f"cannot ask {self.executable} for its packages: {words}") from error
        return tuple(str(folder) for folder in answer)


def locate(argument: str, interpreter: Interpreter) -> ScanInput:
    """What an argument names: an existing path, else a package of the interpreter. Raises InputError."""
    path = Path(argument)
    try:
        path.stat()
    except PermissionError as error:
        raise InputError(f"cannot read {argument}: {error.strerror}") from error
    except (OSError, ValueError):
        pass  # not there: perhaps a package's name
    if is_folder(path):
        return ScanInput(InputKind.FOLDER, argument, argument)
    if exists(path):
        kind = InputKind.WHEEL if path.suffix in {".whl", ".zip"} else InputKind.FILE
        return ScanInput(kind, argument, argument)
    if os.sep in argument or argument.endswith((".so", ".whl", ".dll")):
        raise InputError(f"no such file: {argument}")
    return ScanInput(InputKind.PACKAGE, argument, files=_package_files(argument, interpreter))


def process(pid: int) -> ScanInput:
    """The executable and libraries that a process has mapped; raises InputError where there is none or it may not be read."""
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError as error:
        raise InputError(f"no process {pid}") from error
    except OSError as error:
        raise InputError(f"cannot read the map of process {pid}: {error.strerror}") from error
    return ScanInput(InputKind.PROCESS, f"pid {pid}", files=mapped_files(maps, f"/proc/{pid}/root"))


def mapped_files(maps: str, root: str) -> tuple[str, ...]:
    """The files that /proc/PID/maps shows as code, in order; below `root` where the process lives in another root folder.

    A file that was replaced since has ` (deleted)` behind its path and is left out: what is on disk is not what runs.
    """
    same_root = not is_folder(root) or os.path.realpath(root) == "/"
    files: dict[str, None] = {}
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and "x" in fields[1] and fields[5].startswith("/") and not fields[5].endswith(" (deleted)"):
            files.setdefault(fields[5] if same_root else root + fields[5])
    return tuple(files)


def folder_files(folder: str) -> Iterator[str]:
    """The files of a tree that may be binaries, links not followed, in a stable order; unreadable folders are left out."""
    pending = [folder]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as listing:
                entries = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            continue
        pending += [entry.path for entry in reversed(entries) if entry.is_dir(follow_symlinks=False)]
        yield from (entry.path for entry in entries if may_be_binary(entry.name) and entry.is_file(follow_symlinks=False))


def may_be_binary(name: str) -> bool:
    """False for names whose ending says text, picture or model weights."""
    return os.path.splitext(name)[1].lower() not in _TEXT_SUFFIXES


def _package_files(name: str, interpreter: Interpreter) -> tuple[str, ...]:
    folders = interpreter.folders()
    found = find_package(name, folders)
    if found is None:
        looked = ", ".join(folders) or "no folder"
        raise InputError(f"no file, and no package of {interpreter.executable}, is named {name} (looked in {looked})")
    return found


def find_package(name: str, folders: Sequence[str]) -> tuple[str, ...] | None:
    """The files of an installed package that may be binaries, by its RECORD or else its folder; None where there is none.

    Raises InputError where its RECORD cannot be read.
    """
    for folder in folders:
        record = _record_of(name, folder)
        if record is not None:
            return tuple(recorded_files(record, folder))
    for folder in folders:
        module = Path(folder, name.replace("-", "_"))
        if is_folder(module):
            return tuple(folder_files(str(module)))
    return None


def _record_of(name: str, folder: str) -> Path | None:
    wanted = normalised(name)
    try:
        names = os.listdir(folder)
    except OSError:
        return None
    for entry in names:
        if entry.endswith(".dist-info") and normalised(entry.removesuffix(".dist-info").rsplit("-", 1)[0]) == wanted:
            return Path(folder, entry, "RECORD")
    return None


def normalised(name: str) -> str:
    """A package's name as the index spells it: lower case, hyphens."""
    return re.sub(r"[-_.]+", "-", name).lower()


def recorded_files(record: Path, folder: str) -> Iterator[str]:
    """The files that RECORD lists and that may be binaries; raises InputError where it cannot be read."""
    try:
        with record.open(encoding="utf-8", errors="surrogateescape") as file:
            lines = file.read(_MAX_RECORD).splitlines()
    except OSError as error:
        raise InputError(f"cannot read {record}: {error.strerror}") from error
    for line in lines:
        path = line.split('"')[1] if line.startswith('"') else line.split(",")[0]
        if path and may_be_binary(path):
            yield os.path.normpath(os.path.join(folder, path))  # entries may climb out of the folder with ..
