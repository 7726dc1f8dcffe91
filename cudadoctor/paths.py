"""Questions about paths to which a folder that may not be searched is a no; those of pathlib raise before Python 3.14."""

from __future__ import annotations

import os
from pathlib import Path


def is_folder(path: str | Path) -> bool:
    """Is it a folder, links followed, as far as this user can see?"""
    return os.path.isdir(path)  # noqa: PTH112 - see the module's docstring


def is_file(path: str | Path) -> bool:
    """Is it a regular file, links followed, as far as this user can see?"""
    return os.path.isfile(path)  # noqa: PTH113 - see the module's docstring


def exists(path: str | Path) -> bool:
    """Is anything there, links followed, as far as this user can see?"""
    return os.path.exists(path)  # noqa: PTH110 - see the module's docstring
