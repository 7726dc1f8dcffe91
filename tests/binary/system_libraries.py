"""Real libraries of the machine that runs the tests."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")


def system_libraries(count: int) -> list[str]:
    """Up to `count` shared libraries, evenly picked, plus the running Python; the same on every call."""
    found = sorted(
        {str(path.resolve()) for folder in FOLDERS for path in Path(folder).glob("lib*.so.*") if _is_elf64(path)}
    )  # fmt: skip
    step = max(len(found) // count, 1)
    return [str(Path(sys.executable).resolve()), *found[::step][: count - 1]]


def _is_elf64(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(5) == b"\x7fELF\x02"
    except OSError:
        return False
