"""What the commands say on standard error."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """`cudadoctor: message`, with control characters spelled out: file names, keys and values in it come from anywhere."""
    from cudadoctor.report.inert import escaped

    print("\n".join(map(escaped, f"cudadoctor: {message}".split("\n"))), file=sys.stderr)
