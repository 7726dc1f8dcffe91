"""Inputs that somebody else made: none holds a command up or eats the memory, each is refused in one line with exit code 2."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest

TIMEOUT_S = 60
"""Far above what any of these takes; a command that hangs ends the test."""
ESCAPE = "\\u001b]0;owned\\u0007\\u001b[2J"


def run(*arguments: str, stdin: bytes | Path = b"") -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-m", "cudadoctor", *arguments]
    if isinstance(stdin, bytes):
        return subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT_S)
    with stdin.open("rb") as stream:
        return subprocess.run(argv, stdin=stream, capture_output=True, timeout=TIMEOUT_S)


def refused(done: subprocess.CompletedProcess[bytes]) -> bytes:
    said = done.stderr + done.stdout
    assert done.returncode == 2, said
    assert b"Traceback" not in said and b"a bug" not in said and b"\x1b" not in said
    return said


def test_a_bomb_of_reports_is_left_after_what_reports_may_hold(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.json.gz"
    with gzip.open(bomb, "wb", 9) as file:
        file.write(b'{"schema":"cudadoctor.report/1","node":"')
        for _ in range(2000):
            file.write(b"a" * (1 << 20))
    assert b"is longer than 16 MiB" in refused(run("fleet", "summary", str(bomb)))


@pytest.mark.parametrize("arguments", [("fleet", "summary"), ("triage", "--jsonl"), ("triage",), ("check", "--snapshot")])
def test_an_endless_standard_input_is_left(arguments: tuple[str, ...]) -> None:
    assert b"longer" in (said := refused(run(*arguments, "-", stdin=Path("/dev/zero")))) or b"larger" in said


@pytest.mark.parametrize(
    "text",
    [
        f'"{ESCAPE}" = 1'.encode(),
        b"fail-on = " + b"9" * 200_000,
        b"a." * 100_000 + b"a = 1",
        b"[" + b"'a' . " * 100_000 + b"a]",
        b"a = " + b"[" * 5000 + b"]" * 5000,
    ],
    ids=["terminal codes", "a number of 200,000 digits", "a key of 100,000 parts", "quoted parts", "deep lists"],
)
def test_a_hostile_policy_is_refused_in_one_line(text: bytes, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_bytes(text)
    assert refused(run("check", "--no-run", "--policy", str(policy))).count(b"\n") == 1


def test_an_empty_text_is_no_ticket() -> None:
    assert refused(run("triage", "-", stdin=b" \n")) == b"cudadoctor: there is nothing to diagnose: the text is empty\n"


def test_standard_input_is_called_by_its_name() -> None:
    assert refused(run("check", "--snapshot", "-", stdin=b"{")).startswith(b"cudadoctor: standard input is no cudadoctor report")


@pytest.mark.parametrize("value", ["nan", "abc", "0", "inf", "1e999"])
def test_a_deadline_is_a_number_of_seconds(value: str) -> None:
    said = refused(run("check", "--no-run", "--timeout", value)).decode()
    assert said.startswith(f"cudadoctor: invalid value for '--timeout': '{value}' is not a number of seconds from 1 to 86400")


def test_a_gpu_of_bench_is_a_number() -> None:
    said = refused(run("bench", "--gpu", "RTX 4090"))
    assert said.startswith(b"cudadoctor: invalid value for '--gpu': 'RTX 4090' is not the number of a GPU, such as 0")
