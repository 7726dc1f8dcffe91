"""The progress line: on a terminal only, gone at the end, and never in the way of the work."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cudadoctor.report import progress as module
from cudadoctor.report.progress import Progress, progress

pty = pytest.importorskip("pty", reason="needs pseudo-terminals")


class Terminal(io.StringIO):
    """A stream that says that it is a terminal, and tells when something was drawn."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        written = super().write(text)
        if "waiting" in text:
            self.drawn.set()
        return written


def test_a_pipe_gets_nothing() -> None:
    stream = io.StringIO()
    with progress(stream) as state, state.waiting_for("nvidia-smi"):
        assert state.line(0.0) == "waiting for nvidia-smi"
    assert stream.getvalue() == ""


def test_a_terminal_is_told_and_left_clean() -> None:
    stream = Terminal()
    with progress(stream) as state, state.waiting_for("nvidia-smi"), state.waiting_for("torch\x1b[31m"):
        assert stream.drawn.wait(10)
    text = stream.getvalue()
    assert "waiting for nvidia-smi, torch\\x1b[31m" in text
    assert text.endswith("\r\x1b[2K")
    assert "\n" not in text


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SHOWN_AFTER_S", 3_600)
    stream = Terminal()
    with progress(stream) as state, state.waiting_for("nvidia-smi"):
        pass
    assert stream.getvalue() == ""


def test_the_line_names_what_is_awaited_and_how_long() -> None:
    state = Progress()
    assert state.line(0.0) == ""
    with state.waiting_for("torch"):
        now = state._waiting["torch"]
        assert state.line(now + 0.4) == "waiting for torch"
        assert state.line(now + 3.2) == "waiting for torch (3 s)"
        with state.waiting_for("nvcc"):
            assert state.line(now).endswith("torch, nvcc")
    assert state.line(0.0) == ""


def test_an_exception_ends_the_line_and_passes() -> None:
    stream = Terminal()
    with pytest.raises(RuntimeError), progress(stream) as state, state.waiting_for("x"):
        stream.drawn.wait(10)
        raise RuntimeError
    assert stream.getvalue().endswith("\r\x1b[2K")
    assert state.line(0.0) == ""


def test_a_real_terminal(tmp_path: Path) -> None:
    script = tmp_path / "work.py"
    script.write_text(
        "import time\n"
        "from cudadoctor.report.progress import progress\n"
        "with progress() as state, state.waiting_for('the driver'):\n"
        "    time.sleep(0.8)\n"
        "print('report')\n",
        encoding="utf-8",
    )
    terminal, its_end = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=its_end, env=environment) as child:
        os.close(its_end)
        err = b"".join(iter(lambda: _read(terminal), b""))
        out = child.communicate()[0]
    os.close(terminal)
    assert b"waiting for the driver" in err
    assert err.endswith(b"\r\x1b[2K")
    assert out == b"report\n"


def _read(terminal: int) -> bytes:
    """The next output of the child; nothing at its end, which Linux tells by EIO."""
    try:
        return os.read(terminal, 4096)
    except OSError:
        return b""
