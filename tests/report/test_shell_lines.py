"""A command on several lines is, to a real shell, the same command."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from cudadoctor.report.shell_lines import shell_lines

LONG = [
    "pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu130",
    "python -c 'import torch; print(torch.ones(1).cuda(), torch.version.cuda, torch.__version__)' --flag value",
    'sh -c "echo one   two   three   four   five   six   seven   eight   nine" && echo done | tr a b > /dev/null',
    "sudo apt-get install --no-install-recommends nvidia-driver-580-server nvidia-utils-580-server libnvidia-compute-580-server",
    "a " * 100,
]


def arguments(command: str) -> list[str]:
    """What a POSIX shell makes of the words of a command."""
    return shlex.split(command.replace("\\\n", ""))


@pytest.mark.parametrize("width", [30, 60, 72])
@pytest.mark.parametrize("command", LONG)
def test_words_stay_the_same(command: str, width: int) -> None:
    assert arguments("\n".join(shell_lines(command, width))) == arguments(command)


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX shell")
def test_a_real_shell_agrees() -> None:
    command = "printf '%s|' one 'two  three' \"four   five\" --option value six seven eight nine ten eleven twelve"
    lines = shell_lines(command, 30)
    assert len(lines) > 2
    run = [
        subprocess.run(["sh", "-c", text], capture_output=True, text=True, check=True).stdout
        for text in (command, "\n".join(lines))
    ]
    assert run[0] == run[1]


@pytest.mark.parametrize("command", LONG)
def test_lines_fit_unless_one_word_does_not(command: str) -> None:
    for line in shell_lines(command, 60):
        assert cell_len(line) <= 60 or len(line.removesuffix(" \\").split()) <= 2 or "'" in line or '"' in line


def test_an_option_goes_to_its_value() -> None:
    assert shell_lines(LONG[0], 71) == [
        "pip install --upgrade torch \\",
        "  --index-url https://download.pytorch.org/whl/cu130",
    ]


@pytest.mark.parametrize(
    "command", ["x " * 60 + "# comment", "x " * 60 + "\n" + "y " * 60, "x " * 60 + "a\\ b", "x " * 60 + "`y z`"]
)
def test_what_may_change_by_cutting_is_left_whole(command: str) -> None:
    assert shell_lines(command, 40) == [command]


@given(st.lists(st.text(alphabet="ab-='\" ", max_size=12), max_size=20).map(" ".join), st.integers(10, 60))
@example("'a b", 10)
@example("  = ' --' =", 10)
def test_any_command_that_a_shell_can_read_stays_the_same(command: str, width: int) -> None:
    try:
        wanted = arguments(command)
    except ValueError:
        return
    assert arguments("\n".join(shell_lines(command, width))) == wanted
