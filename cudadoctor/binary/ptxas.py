"""The targets whose names stand in the text of a ptxas: what is not named there it certainly does not know.

How known: a name is compared with what `--gpu-name` is given (ptxas --help lists them); ptxas of CUDA 12.4 to 13.0 have the names
of all that they accept, and of some long removed ones, so a name that is there proves nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cudadoctor.model.versions import SmTarget

if TYPE_CHECKING:
    from cudadoctor.binary.source import ByteSource

_CHUNK, _LONGEST = 1 << 20, 16
_START = b"sm_"
_NAME = re.compile(rb"sm_\d{2,3}[af]?(?![0-9A-Za-z])")


def named_targets(source: ByteSource) -> tuple[SmTarget, ...]:
    """The targets named anywhere in the file, lowest first. Raises BinaryError."""
    names: set[bytes] = set()
    for at in range(0, source.size, _CHUNK):
        chunk = source.read(at, _CHUNK + _LONGEST)
        hit = chunk.find(_START)
        while hit >= 0:
            found = _NAME.match(chunk, hit)
            if found is not None:
                names.add(found[0])
            hit = chunk.find(_START, hit + 1)
    return tuple(sorted(SmTarget.parse(name.decode("ascii")) for name in names))
