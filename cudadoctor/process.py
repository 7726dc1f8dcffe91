"""Programs that are started, listened to and, with everything they started, stopped at a deadline."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cudadoctor.background import started

MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""Longest output taken from one stream of a program; one that prints more is stopped."""
GRACE_SECONDS = 0.5
"""How long a killed program, or one that left its pipes to a child, is waited for. A process inside a wedged driver cannot be
killed at all (uninterruptible sleep), so it is left behind after that."""
_CHUNK_BYTES = 65536


@dataclass(frozen=True)
class Completed:
    """A program that was started and ended by itself or by its deadline; output decoded with replacement."""

    argv: tuple[str, ...]
    exit_code: int | None
    """Negative: died of that signal. None: did not end within its time and was killed."""
    stdout: str
    stderr: str
    seconds: float
    truncated: bool = False
    """True where it printed more than MAX_OUTPUT_BYTES and was stopped for that."""

    @property
    def timed_out(self) -> bool:
        return self.exit_code is None

    @property
    def signal_name(self) -> str:
        """`SIGSEGV` where the program died of one, else empty."""
        if self.exit_code is None or self.exit_code >= 0:
            return ""
        try:
            return signal.Signals(-self.exit_code).name
        except ValueError:
            return f"signal {-self.exit_code}"


ABSENT = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP})


class ProgramNotFoundError(Exception):
    """There is no such program, or it cannot be executed; the text says which and why."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self.is_absent = not isinstance(cause, (OSError, RuntimeError)) or getattr(cause, "errno", None) in ABSENT
        """False where the program may well be there: the machine allows no further process, thread, descriptor or memory."""


class RunningProgram:
    """A started program without stdin, in a process group of its own, whose two streams are collected by threads.

    The threads are daemons: a pipe that some escaped grandchild keeps open never keeps this process alive.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        """Start `argv`; raises ProgramNotFoundError."""
        self.argv = tuple(argv)
        self._started = time.monotonic()
        try:
            self._process = subprocess.Popen(
                self.argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:  # ValueError: a NUL byte inside an argument or a variable
            raise ProgramNotFoundError(f"cannot run {self.argv[0]}: {_words(error)}", error) from error
        self._changed = threading.Condition()
        self._streams = {"stdout": bytearray(), "stderr": bytearray()}
        self._open = set(self._streams)
        self._truncated = False
        self._stopped = False
        self._taken = 0
        for name, pipe in (("stdout", self._process.stdout), ("stderr", self._process.stderr)):
            thread = threading.Thread(target=self._collect, args=(name, pipe), name=f"{argv[0]} {name}", daemon=True)
            refused = started(thread)
            if refused is not None:
                self.kill()
                raise ProgramNotFoundError(f"cannot run {self.argv[0]}: {refused}", refused)

    def read_line(self, deadline: float) -> str | None:
        """The next whole line of stdout without its end; None at the end of the output or at `deadline` (time.monotonic())."""
        output = self._streams["stdout"]
        with self._changed:
            while (end := output.find(b"\n", self._taken)) < 0:
                rest = deadline - time.monotonic()
                if "stdout" not in self._open or rest <= 0:
                    return None
                self._changed.wait(rest)
            line = bytes(output[self._taken : end])
            self._taken = end + 1
        return line.decode("utf-8", "replace").rstrip("\r")

    @property
    def output_ended(self) -> bool:
        """Has the program closed its stdout?"""
        with self._changed:
            return "stdout" not in self._open

    def finish(self, deadline: float) -> Completed:
        """The end of the program; at `deadline` (time.monotonic()) it and all that it started are killed."""
        with self._changed:
            while self._open and not self._truncated and self._process.poll() is None and deadline > time.monotonic():
                # Woken by the readers; looks by itself too, as a child of the program may hold the pipes open after its end.
                self._changed.wait(min(deadline - time.monotonic(), 0.05))
        exit_code = self._wait(0 if self._truncated else deadline - time.monotonic())
        drained = exit_code is not None and self._drained()
        self.kill()  # one that ended may have left children behind, with or without its pipes
        if not drained:
            self._drained()
        return self._completed(self._wait(0) if self._truncated else exit_code)

    @property
    def stopped(self) -> bool:
        """Have it and all that it started been brought to an end?"""
        return self._stopped

    def ask_to_end(self) -> None:
        """Send the program's process group a SIGTERM, so that it can clean up; `finish` or `kill` has to follow."""
        try:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGTERM)
            else:
                self._process.terminate()
        except (ProcessLookupError, PermissionError):
            pass  # all ended already, as in `kill`

    def kill(self) -> None:
        """Kill the program's process group, grandchildren included."""
        self._stopped = True
        try:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        except (ProcessLookupError, PermissionError):
            pass  # all ended already, or macOS's answer for a group of zombies
        self._wait(GRACE_SECONDS)

    def _wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            return None

    def _drained(self) -> bool:
        """Have both streams come to their end, within the grace time?"""
        with self._changed:
            return self._changed.wait_for(lambda: not self._open, GRACE_SECONDS)

    def _completed(self, exit_code: int | None) -> Completed:
        with self._changed:
            stdout, stderr = (bytes(self._streams[name]).decode("utf-8", "replace") for name in ("stdout", "stderr"))
        return Completed(self.argv, exit_code, stdout, stderr, time.monotonic() - self._started, self._truncated)

    def _collect(self, name: str, pipe: object) -> None:
        with pipe:  # type: ignore[attr-defined]  # a BufferedReader; Popen's attribute is optional for mypy
            while data := pipe.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # as above
                with self._changed:
                    stream = self._streams[name]
                    stream += data[: MAX_OUTPUT_BYTES - len(stream)]
                    self._truncated = self._truncated or len(stream) >= MAX_OUTPUT_BYTES
                    self._changed.notify_all()
                    if self._truncated:
                        break
        with self._changed:
            self._open.discard(name)
            self._changed.notify_all()


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
