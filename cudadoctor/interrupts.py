"""Ctrl-C, also where Python loses it."""

from __future__ import annotations

import signal
from types import FrameType


def remembered_interrupts() -> list[int]:
    """Grows with each Ctrl-C: one that arrives while an object is cleaned up is printed by Python and forgotten.

    Empty for ever where the parent said to ignore it, as a shell does for a script's background jobs.
    """
    seen: list[int] = []
    usual = signal.getsignal(signal.SIGINT)

    def remember(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        if callable(usual):
            usual(number, frame)

    if callable(usual):
        signal.signal(signal.SIGINT, remember)
    return seen
