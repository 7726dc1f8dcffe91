"""Wheels for the refresh scripts: fetched with pip, unpacked member by member, never installed."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


def download(requirement: str, folder: Path, *options: str) -> Path:
    """The wheel of `name==version`, in `folder`; raises CalledProcessError where pip cannot get it.

    `options` go to pip, e.g. `--platform` and `--python-version` for a machine that is not this one.
    """
    before = set(folder.glob("*.whl"))
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
    subprocess.run([*command, *options, requirement], check=True)
    return next(iter(set(folder.glob("*.whl")) - before))


def members(wheel: Path, ending: str) -> Iterator[str]:
    """The names of a wheel's files that end so."""
    with zipfile.ZipFile(wheel) as archive:
        yield from (name for name in archive.namelist() if name.endswith(ending))


def read_text(wheel: Path, name: str) -> str:
    """The text of one file in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode("utf-8", "replace")


def unpack(wheel: Path, names: list[str], folder: Path) -> list[Path]:
    """Some files of a wheel on disk, in the order of `names`."""
    with zipfile.ZipFile(wheel) as archive:
        return [Path(archive.extract(name, folder)) for name in names]


def metadata(requirement: str, python: str, platform: str) -> dict[str, Any] | None:
    """A wheel's metadata for another Python and platform, without downloading it whole; None where there is no such wheel."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-"]
    command += ["--only-binary=:all:", "--use-feature=fast-deps", "--target", "unused", "--platform", platform]
    command += ["--python-version", python, requirement]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        return None
    items = json.loads(answer.stdout)["install"]
    return {**items[0]["metadata"], "file": items[0]["download_info"]["url"].rsplit("/", 1)[-1]} if items else None


def toml_row(table: str, fields: Mapping[str, object]) -> str:
    """A `[[table]]` block as the matrices are written: one field a line, fields without a value left out."""
    lines = [f"{name} = {_toml(value)}" for name, value in fields.items() if value is not None]
    return "\n".join([f"[[{table}]]", *lines]) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return str(value) if isinstance(value, int) else json.dumps(str(value), ensure_ascii=False)
