"""One line on a terminal's stderr that says what is being waited for; silent in a pipe, gone when the work is done."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from cudadoctor.background import started
from cudadoctor.report import inert
from cudadoctor.report.options import Charset

FIRST_SHOWN_AFTER_S = 0.3
"""Work that is quicker than this shows no line at all."""
REDRAWN_EVERY_S = 0.25
_TO_LINE_START_AND_CLEAR = "\r\x1b[2K"


class Progress:
    """What is being waited for; several threads may begin and end things at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, float] = {}
        self._doing = ""

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Names `what` in the line for as long as the block runs."""
        with self._lock:
            self._waiting.setdefault(what, time.monotonic())
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(what, None)

    def now(self, what: str) -> None:
        """Names what is being worked on, in place of what was named so before."""
        with self._lock:
            self._doing = what

    def line(self, now: float) -> str:
        """`waiting for nvidia-smi (2 s), torch`: seconds from the first whole second on; empty where nothing is awaited."""
        with self._lock:
            waits, doing = list(self._waiting.items()), self._doing
        parts = [f"{what} ({now - since:.0f} s)" if now - since >= 1 else what for what, since in waits]
        return f"waiting for {', '.join(parts)}" if parts else doing


@contextmanager
def progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """A Progress, drawn on `stream` (stderr) while the block runs if that is a terminal, and wiped off at the end."""
    target = sys.stderr if stream is None else stream
    state = Progress()
    done = threading.Event()
    drawer = threading.Thread(target=_draw, args=(state, target, done), name="progress", daemon=True)
    if target is None or not target.isatty() or started(drawer) is not None:
        yield state
        return
    try:
        yield state
    finally:
        done.set()
        drawer.join()


def _draw(state: Progress, stream: TextIO, done: threading.Event) -> None:
    """Redraws the line until `done`; leaves the stream as it was. A terminal that goes away ends it."""
    with suppress(OSError):
        _redraw(state, stream, done)


def _redraw(state: Progress, stream: TextIO, done: threading.Event) -> None:
    charset = Charset.of_encoding(getattr(stream, "encoding", None))
    drawn = False
    pause = FIRST_SHOWN_AFTER_S
    while not done.wait(pause):
        pause = REDRAWN_EVERY_S
        room = max(shutil.get_terminal_size().columns - 1, 10)
        line = inert.escaped(state.line(time.monotonic()), charset)[:room]
        stream.write(_TO_LINE_START_AND_CLEAR + line)
        stream.flush()
        drawn = True
    if drawn:
        stream.write(_TO_LINE_START_AND_CLEAR)
        stream.flush()
