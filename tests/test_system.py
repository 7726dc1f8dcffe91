from __future__ import annotations

import errno
import os
import sys
import time
from pathlib import Path

import pytest

from cudadoctor.system import MAX_FILE_BYTES, ProgramNotFoundError, RealSystem
from tests.fakes.fakebin import Says, fake_program


@pytest.fixture
def here(tmp_path: Path) -> RealSystem:
    """This machine, with nothing but a folder of the test on its PATH."""
    return RealSystem({"PATH": str(tmp_path / "bin")})


def test_files_are_read_and_bytes_that_are_no_text_replaced(here: RealSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"caf\xe9 \xf0\x9f\x98\x80\n")
    assert here.read_text(str(tmp_path / "file")) == "caf� 😀\n"


def test_a_file_of_procfs_is_read_although_its_size_is_zero(here: RealSystem) -> None:
    assert "Name:" in here.read_text("/proc/self/status")


def test_a_long_file_is_cut(here: RealSystem, tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 10)
    assert len(here.read_text(str(tmp_path / "long"))) == MAX_FILE_BYTES


def test_what_is_no_regular_file_is_an_error_and_never_waits(here: RealSystem, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    wanted = {"pipe": errno.EINVAL, ".": errno.EISDIR, "loop": errno.ELOOP, "dangling": errno.ENOENT, "no\0name": errno.ENOENT}
    for name, code in wanted.items():
        with pytest.raises(OSError) as caught:  # the code is looked at
            here.read_text(str(tmp_path / name))
        assert caught.value.errno == code, name
    with pytest.raises(OSError):  # a device is refused, whatever its number
        here.read_text("/dev/zero")


def test_a_forbidden_file_is_a_permission_error(here: RealSystem, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(PermissionError):
        here.read_text(str(path))


def test_links_that_go_in_circles_have_no_real_path(here: RealSystem, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError):  # Python versions differ in the code
        here.real_path(str(tmp_path / "a"))
    assert not here.exists(str(tmp_path / "a"))
    assert not here.is_folder(str(tmp_path / "a"))


def test_which_names_every_match_in_the_order_of_the_path(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        fake_program(tmp_path / folder / "nvcc")
    (tmp_path / "three").mkdir()
    (tmp_path / "three" / "nvcc").write_text("not executable")
    (tmp_path / "four" / "nvcc").mkdir(parents=True)
    folders = [tmp_path / name for name in ("three", "two", "four", "one", "two", "absent")]
    system = RealSystem({"PATH": os.pathsep.join(map(str, [*folders, ""]))})
    assert system.which("nvcc") == (str(tmp_path / "two" / "nvcc"), str(tmp_path / "one" / "nvcc"))
    assert system.which(str(tmp_path / "one" / "nvcc")) == (str(tmp_path / "one" / "nvcc"),)
    assert system.which("absent") == ()


def test_a_program_is_run_without_a_shell_and_in_english(here: RealSystem, tmp_path: Path) -> None:
    show = "import os, sys; print(sys.argv[1], os.environ['LC_ALL'], sys.stdin.read() == '')"
    done = here.run([sys.executable, "-c", show, "$HOME; *"], 10)
    assert (done.exit_code, done.stdout) == (0, "$HOME; * C True\n")


def test_both_streams_the_exit_code_and_odd_bytes_are_kept(here: RealSystem, tmp_path: Path) -> None:
    fake_program(tmp_path / "bin" / "tool", Says(b"out\xff", "err", exit_code=7))
    done = here.run(["tool"], 10)
    assert (done.exit_code, done.stdout, done.stderr, done.timed_out, done.truncated) == (7, "out�", "err", False, False)
    assert done.argv == (str(tmp_path / "bin" / "tool"),)


def test_a_program_that_dies_of_a_signal_is_told_from_one_that_fails(here: RealSystem, tmp_path: Path) -> None:
    fake_program(tmp_path / "bin" / "tool", Says(signal=11))
    done = here.run(["tool"], 10)
    assert (done.exit_code, done.signal_name) == (-11, "SIGSEGV")


def test_a_program_that_hangs_is_killed_and_its_words_kept(here: RealSystem, tmp_path: Path) -> None:
    fake_program(tmp_path / "bin" / "tool", Says("so far", hangs=True))
    done = here.run(["tool"], 0.5)
    assert (done.exit_code, done.timed_out, done.stdout) == (None, True, "so far")


def test_grandchildren_die_with_a_program_that_hangs(here: RealSystem, tmp_path: Path) -> None:
    script = "import os, time; os.fork(); time.sleep(60)"
    marker = f"cudadoctor-test-{tmp_path.name}-{os.getpid()}"
    here.run([sys.executable, "-c", script, marker], 1)
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if _command(pid).find(marker) >= 0]


@pytest.mark.parametrize("then", ["", "os.close(0); os.close(1); os.close(2);"], ids=["with the pipes", "without the pipes"])
def test_what_a_program_leaves_behind_is_ended_too(here: RealSystem, tmp_path: Path, then: str) -> None:
    script = f"import os, time\nif os.fork() == 0:\n    {then or 'pass'}\n    time.sleep(60)"
    marker = f"cudadoctor-test-{tmp_path.name}-{os.getpid()}"
    assert here.run([sys.executable, "-c", script, marker], 20).exit_code == 0
    give_up = _in(10)
    while [pid for pid in Path("/proc").glob("[0-9]*") if _command(pid).find(marker) >= 0]:  # a killed one may take a moment
        assert time.monotonic() < give_up


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def test_a_grandchild_that_keeps_the_pipes_does_not_delay_the_answer(here: RealSystem, tmp_path: Path) -> None:
    fake_program(tmp_path / "bin" / "tool", Says("done", child_hangs=True))
    done = here.run(["tool"], 30)
    assert (done.exit_code, done.stdout, done.timed_out) == (0, "done", False)
    assert done.seconds < 10


def test_a_program_that_never_stops_printing_is_stopped(here: RealSystem, tmp_path: Path) -> None:
    fake_program(tmp_path / "bin" / "tool", Says(megabytes=10_000))
    done = here.run(["tool"], 60)
    assert done.truncated
    assert not done.timed_out
    assert len(done.stdout) == 4 * 1024 * 1024


def test_what_cannot_be_run_is_named_with_the_reason(here: RealSystem, tmp_path: Path) -> None:
    with pytest.raises(ProgramNotFoundError, match="absent is not on the PATH"):
        here.run(["absent"], 1)
    with pytest.raises(ProgramNotFoundError, match="No such file"):
        here.run(["/nowhere/tool"], 1)
    broken = tmp_path / "bin" / "broken"
    fake_program(broken).write_bytes(b"\x7fELF nonsense")
    with pytest.raises(ProgramNotFoundError, match="Exec format error"):
        here.run(["broken"], 1)
    with pytest.raises(ProgramNotFoundError):
        here.run([sys.executable, "a\0b"], 1)


def test_a_program_that_a_limit_keeps_from_starting_is_not_called_absent() -> None:
    assert ProgramNotFoundError("no descriptor", OSError(errno.EMFILE, "Too many open files")).is_absent is False
    assert ProgramNotFoundError("no thread", RuntimeError("can't start new thread")).is_absent is False
    assert ProgramNotFoundError("gone", FileNotFoundError(errno.ENOENT, "No such file")).is_absent is True
    assert ProgramNotFoundError("not on the PATH").is_absent is True


def test_lines_are_read_as_they_come(here: RealSystem) -> None:
    script = "import time; print('first', flush=True); print('half', end='', flush=True); time.sleep(60)"
    program = here.start([sys.executable, "-c", script])
    try:
        assert program.read_line(_in(20)) == "first"
        assert program.read_line(_in(0.2)) is None, "half a line is no line"
        assert not program.output_ended
    finally:
        program.kill()
    done = program.finish(_in(5))
    assert (done.signal_name, done.stdout) == ("SIGKILL", "first\nhalf")


def test_what_still_runs_can_be_stopped_at_the_end(here: RealSystem) -> None:
    programs = [here.start([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(2)]
    ended = here.start([sys.executable, "-c", ""])
    ended.finish(_in(20))
    here.stop_programs()
    assert [program.finish(_in(5)).signal_name for program in programs] == ["SIGKILL", "SIGKILL"]


def _in(seconds: float) -> float:
    return time.monotonic() + seconds
