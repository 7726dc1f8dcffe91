"""What a GitHub runner makes of a step's output, after "Workflow commands for GitHub Actions" in GitHub's documentation."""

from __future__ import annotations

from dataclasses import dataclass

COMMANDS = ("error", "warning", "notice", "debug", "group", "endgroup", "add-mask", "stop-commands", "set-output", "save-state")


@dataclass(frozen=True)
class Command:
    """`::name key=value,key=value::message`, unescaped."""

    name: str
    properties: dict[str, str]
    message: str


def commands(output: str) -> list[Command]:
    """The commands in the lines of an output; a line that is none raises ValueError."""
    lines = output.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] != "":
        raise ValueError("the last line does not end")
    return [command(line) for line in lines[:-1]]


def command(line: str) -> Command:
    """One command; raises ValueError."""
    if not line.startswith("::"):
        raise ValueError(f"not a command: {line!r}")
    head, separator, message = line[2:].partition("::")
    name, _, properties = head.partition(" ")
    if not separator or name not in COMMANDS:
        raise ValueError(f"not a command: {line!r}")
    pairs = [pair.split("=", 1) for pair in properties.split(",") if pair]
    return Command(name, {key: decoded(value, "%0A %0D %3A %2C") for key, value in pairs}, decoded(message, "%0A %0D"))


def decoded(text: str, codes: str) -> str:
    """The text with these escapes replaced, the percent sign's own last; any other percent sign stays."""
    for code in (*codes.split(), "%25"):
        text = text.replace(code, chr(int(code[1:], 16)))
    return text
