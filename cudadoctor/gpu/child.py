"""A child process that answers JSON lines, with a deadline for each answer and words for how it failed."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from cudadoctor.background import started

KILL_WAIT_S = 0.5
"""How long a killed child is waited for; one that the kernel holds (state D) is left behind."""
STDERR_TAIL_CHARS = 2000
PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])
"""The folder that contains the package: the child finds it there without any site initialisation."""

_BOOTSTRAP = "import sys; sys.path.append(sys.argv[1]); from cudadoctor.gpu.{module} import main; main()"


class ChildFailure(Enum):
    """How a child failed to answer."""

    HUNG = "hung"
    CRASHED = "crashed"
    GARBLED = "garbled"
    """It answered with something that is not the agreed JSON."""
    NOT_STARTED = "not started"


class ChildError(Exception):
    """The child did not answer; the text is a clause such as `died of SIGSEGV` or `gave no answer within 5.0 s`."""

    def __init__(self, failure: ChildFailure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


def child_argv(module: str) -> tuple[str, ...]:
    """The command for `cudadoctor.gpu.<module>` under our own interpreter, isolated (-I) and without site packages (-S)."""
    return (sys.executable, "-I", "-S", "-c", _BOOTSTRAP.format(module=module), PACKAGE_PARENT)


class Child:
    """A running child. Use it as a context manager: it is ended, by force if need be, at the end."""

    def __init__(self, argv: tuple[str, ...], env: Mapping[str, str]) -> None:
        """Start `argv` with exactly `env`; raises ChildError."""
        self._stderr = _scratch_file()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr or subprocess.DEVNULL,
                env=dict(env),
                start_new_session=True,
            )
        except OSError as error:
            self._close_stderr()
            raise ChildError(ChildFailure.NOT_STARTED, f"could not be started: {error}") from error
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        refused = started(self._reader)
        if refused is not None:
            self.kill()
            self._close_stderr()
            raise ChildError(ChildFailure.NOT_STARTED, f"could not be started: {refused}")

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def _read(self) -> None:
        """Pass lines on; an empty one says that the stream ended. A thread, as pipes have no deadline on Windows."""
        if self._process.stdout is not None:
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(b"")

    def ask(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """The answer to `request`; raises ChildError. After a failure the child is of no more use."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                self._process.stdin.flush()
            line = self._answers.get(timeout=max(timeout_s, 0.001))
        except OSError:
            line = b""
        except queue.Empty:
            self.kill()
            raise ChildError(ChildFailure.HUNG, f"gave no answer within {timeout_s:.1f} s") from None
        if not line:
            raise ChildError(ChildFailure.CRASHED, self._epitaph())
        return self._decoded(line)

    @staticmethod
    def _decoded(line: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise ChildError(ChildFailure.GARBLED, f"answered with garbage: {line[:80]!r}")
        return answer

    def _epitaph(self) -> str:
        """How the process ended, in words."""
        try:
            code = self._process.wait(timeout=KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return "closed its output without an answer"
        last = self.stderr_tail().strip().rsplit("\n", 1)[-1]
        if code < 0:
            return f"died of {_signal_name(-code)}"
        return f"ended with exit code {code}" + (f": {last}" if last else "")

    def stderr_tail(self) -> str:
        """The end of what the child wrote to stderr; empty where no temporary file can be made to keep it."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - STDERR_TAIL_CHARS))
        return self._stderr.read().decode("utf-8", "replace")

    def kill(self) -> None:
        """End the child and all that it started at once; harmless where they have ended already."""
        self._process.kill()
        if os.name == "posix":
            with suppress(ProcessLookupError, PermissionError):  # all ended, or macOS's answer for a group of zombies
                os.killpg(self._process.pid, signal.SIGKILL)
        try:
            self._process.wait(timeout=KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            return

    def close(self) -> None:
        """Let the child end by itself (its stdin closes), else kill it, and free what belongs to it."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait(timeout=KILL_WAIT_S)
        except (OSError, subprocess.TimeoutExpired):
            pass
        self.kill()  # a library that was loaded may have started processes
        if self._process.poll() is not None:
            self._reader.join(KILL_WAIT_S)
            if self._process.stdout is not None:
                self._process.stdout.close()
        self._close_stderr()

    def _close_stderr(self) -> None:
        if self._stderr is not None:
            self._stderr.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _scratch_file() -> IO[bytes] | None:
    """A file for stderr, or None on a machine without space or a folder for one."""
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
