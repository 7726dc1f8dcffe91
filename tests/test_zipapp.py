"""The first lines that the zipapp runs: an old Python has to be able to read them, and is turned away in words."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PREAMBLE = Path(__file__).parents[1] / "tools" / "zipapp_preamble.py"
AS_VERSION = "import runpy, sys; sys.version_info = ({version}); runpy.run_path(sys.argv[1])"


def run_as(version: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", AS_VERSION.format(version=version), str(PREAMBLE)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_python_3_6_can_read_it() -> None:
    ast.parse(PREAMBLE.read_text(encoding="utf-8"), feature_version=(3, 6))


def test_the_check_of_syntax_refuses_what_3_6_cannot_read() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("if (old := True): pass", feature_version=(3, 6))


@pytest.mark.parametrize("version", ["3, 6, 15", "3, 9, 18"])
def test_an_old_python_is_turned_away_in_one_line(version: str) -> None:
    ended = run_as(version)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("cudadoctor: needs Python 3.10 or newer; this is ")
    assert ended.stderr.count("\n") == 1


def test_3_10_goes_on_without_a_word() -> None:
    ended = run_as("3, 10, 0")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
