"""Kernel sources as one text each: our own includes are put in place, so that a compiler needs no include path."""

from __future__ import annotations

import re
from pathlib import Path

_INCLUDE = re.compile(r'^#include "([^"]+)"$')
_PRAGMA_ONCE = "#pragma once"


def inlined_source(folder: Path, file: str) -> str:
    """The text of `file` (relative to `folder`) with each `#include "..."` replaced, once, by that file of `folder`.

    `#line` directives keep the compiler's messages pointing at the original files. Raises OSError for a missing file.
    """
    return "\n".join(_lines(folder, file, set())) + "\n"


def _lines(folder: Path, file: str, seen: set[str]) -> list[str]:
    seen.add(file)
    result = [f'#line 1 "{file}"']
    for number, line in enumerate((folder / file).read_text(encoding="utf-8").splitlines(), start=1):
        include = _INCLUDE.match(line)
        if include is not None:
            if include[1] not in seen:
                result += [*_lines(folder, include[1], seen), f'#line {number + 1} "{file}"']
        elif line != _PRAGMA_ONCE:
            result.append(line)
    return result
