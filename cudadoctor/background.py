"""Work beside this thread, also on a machine that allows no further thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def in_background(work: Callable[[], T], name: str) -> Future[T]:
    """The result to come of `work`, done in a daemon thread; done at once where no thread can be started (a tight limit)."""
    future: Future[T] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again where the result is asked for; else that waits for ever
            future.set_exception(error)

    if started(threading.Thread(target=do, name=name, daemon=True)) is not None:
        do()
    return future


def started(thread: threading.Thread) -> RuntimeError | None:
    """Start a thread; the error where the system refuses one (limits of processes or memory)."""
    try:
        thread.start()
    except RuntimeError as refused:
        return refused
    return None
