"""Writes real executables that answer as told: text, errors, exit codes, hangs, crashes, garbage, megabytes."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """#!{python} -IS
import base64, json, os, sys, time
with open(__file__ + ".calls", "a") as log:
    print(json.dumps(sys.argv[1:]), file=log)
{body}
"""

_SAYS = """
rules = json.loads({rules!r})
rule = next((says for key, says in rules if any(argument.startswith(key) for argument in sys.argv[1:])), rules[-1][1])
for stream, text in ((sys.stdout, rule["stdout"]), (sys.stderr, rule["stderr"])):
    stream.buffer.write(base64.b64decode(text))
    stream.flush()
if rule["megabytes"]:
    try:
        for _ in range(rule["megabytes"]):
            sys.stdout.buffer.write(b"x" * 1048576)
    except BrokenPipeError:
        os._exit(1)
if rule["child_hangs"] and os.fork() == 0:
    time.sleep(3600)
if rule["hangs"]:
    time.sleep(3600)
if rule["signal"]:
    os.kill(os.getpid(), rule["signal"])
sys.exit(rule["exit_code"])
"""


@dataclass(frozen=True)
class Says:
    """What a program answers: it prints, then hangs, dies of a signal, or ends."""

    stdout: str | bytes = ""
    stderr: str | bytes = ""
    exit_code: int = 0
    hangs: bool = False
    child_hangs: bool = False
    """A child of the program hangs on, with the pipes open."""
    signal: int = 0
    megabytes: int = 0

    def packed(self) -> dict[str, object]:
        """As the script reads it."""
        streams = {name: base64.b64encode(_bytes(getattr(self, name))).decode() for name in ("stdout", "stderr")}
        return {**vars(self), **streams}


def fake_program(path: Path, default: Says | str = "", answers: Mapping[str, Says | str] | None = None) -> Path:
    """An executable at `path` that gives the first of `answers` whose key one of its arguments begins with, else `default`."""
    rules = [(key, _says(says).packed()) for key, says in (answers or {}).items()]
    return python_program(path, _SAYS.format(rules=json.dumps([*rules, ("", _says(default).packed())])))


def python_program(path: Path, body: str) -> Path:
    """An executable at `path` that runs Python statements; base64, json, os, sys, time are imported. Every call is logged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_SCRIPT.format(python=sys.executable, body=body), encoding="utf-8")
    path.chmod(0o755)
    return path


def calls(path: Path) -> list[Sequence[str]]:
    """The argument lists with which a fake was called, in order."""
    log = Path(f"{path}.calls")
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def _says(says: Says | str) -> Says:
    return Says(says) if isinstance(says, str) else says


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text
