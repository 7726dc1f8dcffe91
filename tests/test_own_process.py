from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cudadoctor.own_process import own_modules_first

STREAMS = "from cudadoctor.own_process import restore_streams; restore_streams(); import sys, os; "


def test_the_folders_of_pythonpath_come_behind_all_others() -> None:
    path = ["/app/bin", "/mine", "/usr/lib/python3.12", "/mine/lib", "/venv/site-packages"]
    ordered = own_modules_first(path, "/mine:/mine/lib/:", started_as_module=False)
    assert ordered == ["/app/bin", "/usr/lib/python3.12", "/venv/site-packages", "/mine", "/mine/lib"]


def test_the_working_folder_of_python_m_comes_last_too() -> None:
    path = [str(Path.cwd()), "/usr/lib/python3.12", "/venv/site-packages"]
    assert own_modules_first(path, "", started_as_module=True) == [*path[1:], path[0]]
    assert own_modules_first(path, "", started_as_module=False) == path


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_no_file_gets_the_number_of_a_closed_stream(closed: tuple[int, ...], tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    script = f"{STREAMS}file = open({path!r}, 'w'); sys.exit(file.fileno() < 3 or None in (sys.stdin, sys.stdout, sys.stderr))"
    shell = " ".join(f"{number}>&-" for number in closed)
    assert subprocess.run(["sh", "-c", f'exec "$0" "$@" {shell}', sys.executable, "-c", script], timeout=60).returncode == 0


def test_what_is_printed_to_a_closed_stdout_is_an_error_and_not_lost() -> None:
    script = STREAMS + "print('report', flush=True)"
    done = subprocess.run(["sh", "-c", 'exec "$0" "$@" >&-', sys.executable, "-c", script], capture_output=True, timeout=60)
    assert done.returncode != 0
    assert b"Bad file descriptor" in done.stderr
