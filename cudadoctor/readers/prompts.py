"""Reads what was typed: shell, cmd, PowerShell, Python and notebook prompts with their commands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudadoctor.readers.reader import Reader, Values
from cudadoctor.readers.text import PlainText

_PATTERNS = (
    ("powershell", re.compile(r"^\s{0,16}(?:\([\w.-]{1,40}\) ?)?PS [A-Za-z]:[\\/][^\n>]{0,160}> ?(?P<command>\S[^\n]{0,600})$")),
    ("cmd", re.compile(r"^\s{0,16}(?:\([\w.-]{1,40}\) ?)?[A-Za-z]:\\[^\n>]{0,160}> ?(?P<command>\S[^\n]{0,600})$")),
    ("python", re.compile(r"^\s{0,16}(?:>>>|In \[\d{1,4}\]:|\.\.\.) (?P<command>\S[^\n]{0,600})$")),
    ("shell", re.compile(r"^\s{0,16}(?:\([\w./-]{1,40}\) ?)?\[?[\w.-]{1,40}@[\w.-]{1,60}[^\n$#>]{0,160}[$#] ?"
r"(?P<command>\S[^\n]{0,600})$")),
    ("shell", re.compile(r"^\s{0,16}(?:\([\w./-]{1,40}\) ?)?(?:sh-[\d.]{1,6}|bash-[\d.]{1,6})?\$ (?P<command>\S[^\n]{0,600})$")),
    ("shell", re.compile(r"^\s{0,16}(?:\u276f|\u279c  ?~?|%) (?P<command>\S[^\n]{0,600})$")),
    ("notebook", re.compile(r"^\s{0,16}[!%]{1,2}(?P<command>[a-z]\S{1,40} ?[^\n]{0,600})$")),
    ("dockerfile", re.compile(r"^\s{0,16}(?:=> \[[^\]\n]{1,60}\] )?RUN (?P<command>\S[^\n]{0,600})$")),
)  # fmt: skip
_SIGN = re.compile(r"[$>#%!\u276f\u279c]|\.\.\. |In \[|RUN ")
"""Without one of these a line has no prompt."""
_AMBIGUOUS = re.compile(r"^\s{0,16}(?P<sign>[#>]) (?P<command>(?P<program>[a-z][\w.+/-]{0,60})(?: [^\n]{0,600})?)$")
_PROGRAMS = frozenset(
    {
        "ls", "echo", "cat", "python", "python3", "pip", "pip3", "uv", "conda", "mamba", "nvidia-smi", "nvcc", "ldconfig",
        "ldd", "dpkg", "rpm", "apt",
        "apt-get", "make", "cmake", "gcc", "g++", "docker", "podman", "kubectl", "env", "printenv", "export", "uname",
        "lsmod", "modprobe", "dmesg",
        "which", "sudo", "ffmpeg", "find", "cd", "bash", "sh", "source", "systemctl", "journalctl", "wsl", "where",
        "update-alternatives", "nvidia-ctk",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Command:
    """One command typed in the text, with what stands below it up to the next prompt."""

    shell: str
    text: str
    line: int
    index: int
    """Position in the lines of the text."""


def commands(text: PlainText) -> tuple[Command, ...]:
    """The commands of a text in their order; `# word ...` counts only where the word is a program, as it may be a comment."""
    found: list[Command] = []
    for index, (number, line) in enumerate(zip(text.numbers, text.lines, strict=True)):
        if _SIGN.search(line) and (match := _match(line)):
            found.append(Command(match[0], match[1].strip(" *`"), number, index))
    return tuple(found)


def _match(line: str) -> tuple[str, str] | None:
    for shell, pattern in _PATTERNS:
        if match := pattern.match(line):
            return shell, match["command"]
    match = _AMBIGUOUS.match(line)
    if match and match["program"].rsplit("/", 1)[-1] in _PROGRAMS and not _is_prose(match["command"]):
        return "root" if match["sign"] == "#" else "shell", match["command"]
    return None


def _is_prose(command: str) -> bool:
    """Several plain words and no option, path, quote or pipe: a remark that begins with a program's name."""
    return command.count(" ") >= 3 and not any(sign in command for sign in "-|/\"'=$*<>.")


def answer(text: PlainText, found: tuple[Command, ...], position: int) -> tuple[str, ...]:
    """The lines below a command, up to the next one."""
    start = found[position].index + 1
    end = found[position + 1].index if position + 1 < len(found) else len(text.lines)
    return text.lines[start:end]


def read_commands(text: PlainText) -> Values | None:
    """All commands with their lines, for rules to which an action matters (`docker run` without `--gpus`)."""
    found = commands(text)
    return {"commands": [{"shell": c.shell, "text": c.text, "line": c.line} for c in found]} if found else None


COMMANDS = Reader("commands", ("$", ">", "#", "\u276f", "\u279c", "!", "%", "RUN "), read_commands)
