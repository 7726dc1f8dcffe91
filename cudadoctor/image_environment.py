"""The environment that an unpacked image would start with, as far as files beside or below its root folder say it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cudadoctor.paths import is_file, is_folder

MAX_BYTES = 4 * 1024 * 1024
BUNDLE_ROOT = "rootfs"
EXPORT = re.compile(r"^\s*(?:export\s+)?([A-Za-z_]\w*)=(.*)$")
SINGULARITY_DEFAULT = re.compile(r"^\"?\$\{\w+:-(.*)\}\"?$")


def root_folder(folder: Path) -> Path:
    """The folder that stands for `/`: `rootfs` of an OCI bundle (config.json beside it), else the folder itself."""
    inner = folder / BUNDLE_ROOT
    return inner if is_folder(inner) and not inner.is_symlink() and is_file(folder / "config.json") else folder


def image_environment(folder: Path) -> dict[str, str]:
    """Variables of an OCI bundle's config.json, of /etc/environment, or of a Singularity sandbox; empty where none says any."""
    root = root_folder(folder)
    found: dict[str, str] = {}
    found.update(_assignments(_text(root / "etc" / "environment")))
    scripts = root / ".singularity.d" / "env"
    if is_folder(scripts) and not scripts.is_symlink():
        for script in sorted(scripts.glob("*.sh")):
            found.update(_assignments(_text(script)))
    if root != folder:
        found.update(_of_bundle(_text(folder / "config.json")))
    return found


def _of_bundle(text: str) -> dict[str, str]:
    """`process.env` of a runtime configuration (OCI runtime specification).

    Sample: {"ociVersion": "1.0.2", "process": {"env": ["PATH=/usr/bin", "CUDA_VERSION=12.4.1"]}}
    """
    try:
        document: Any = json.loads(text)
        pairs = [entry.partition("=") for entry in document["process"]["env"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: value for name, _, value in pairs if name}


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    """`NAME="value"` of a line each; values that a shell would compute are left out, defaults as Singularity writes them kept."""
    for line in text.splitlines():
        match = EXPORT.match(line)
        if match is None:
            continue
        value = match[2].strip()
        default = SINGULARITY_DEFAULT.match(value)
        plain = (default[1] if default is not None else value).strip().strip("\"'")
        if "$" not in plain and "`" not in plain:
            yield match[1], plain


def _text(path: Path) -> str:
    """The text of a regular file that is no link; empty where it cannot be read."""
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_BYTES:
            return ""
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
