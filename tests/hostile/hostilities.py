"""Ways to make one thing hostile: a program, a file, a library, a folder. Each takes the path and changes what is there."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fakes.build import build_shared_library
from tests.fakes.fakebin import Says, fake_program, python_program
from tests.fakes.nvml import CACHE

Hostility = Callable[[Path], None]
LIBRARY_SOURCE = Path(__file__).with_name("hostile_library.c")
GARBAGE = bytes(range(256)) * 16
NOT_TEXT = b"caf\xe9 \xff\xfe \xed\xa0\x80 \x00\n"
"""Latin-1, no UTF-8 at all, half of a surrogate pair, NUL."""
TERMINAL = "\x1b[31m\x1b]0;title\x07\x1b[2J\u202eetar\u2066\n"
FOREIGN = "nvcc: schwerwiegender Fehler: Datei nicht gefunden — Treiberversion: 535,104,05\n見つかりません\n"
ABSURD = "release 99999999999999999999999999.1, V9.9 Driver Version: 9.9.9.9.9.9 CUDA Version: 999999999999999999.9 -1 NaN\n"
DIGITS = "9" * 5000
"""Of a number that Python refuses to read (its limit is 4300)."""
ENDLESS_NUMBERS = f"release {DIGITS}.{DIGITS}, V{DIGITS} Driver Version: {DIGITS}.{DIGITS} CUDA Version: {DIGITS}.{DIGITS}\n"
HUGE = 10 << 30
"""Bytes of a sparse file: more than the doctor may read."""


def gone(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def replaced(make: Hostility) -> Hostility:
    """First remove what is there."""

    def hostility(path: Path) -> None:
        gone(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path)

    return hostility


def folder(path: Path) -> None:
    path.mkdir()


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    path.symlink_to("nowhere/at/all")


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o755)


def endless_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def unreadable(path: Path) -> None:
    path.chmod(0)


def not_executable(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o644)


def content(data: bytes, mode: int = 0o644) -> Hostility:
    """A file of these bytes."""

    def hostility(path: Path) -> None:
        path.write_bytes(data)
        path.chmod(mode)

    return replaced(hostility)


def followed_by(data: bytes) -> Hostility:
    """The file as it is, and these bytes behind it."""

    def hostility(path: Path) -> None:
        path.write_bytes(path.read_bytes() + data)

    return hostility


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(HUGE)
    path.chmod(0o755)


def says(**what: object) -> Hostility:
    """A program that answers so, whatever it is asked."""
    return replaced(lambda path: void(fake_program(path, Says(**what))))  # type: ignore[arg-type]  # keywords of Says


def does(body: str) -> Hostility:
    """A program that runs these Python statements."""
    return replaced(lambda path: void(python_program(path, body)))


def void(_: object) -> None:
    """Nothing, of anything."""


COMMON: Mapping[str, Hostility] = {
    "absent": gone,
    "folder": replaced(folder),
    "link loop": replaced(loop),
    "dangling link": replaced(dangling),
    "named pipe": replaced(pipe),
    "unreadable": unreadable,
}
PROGRAM: Mapping[str, Hostility] = {
    **COMMON,
    "not executable": not_executable,
    "empty": content(b"", 0o755),
    "garbage": content(b"\x7fELF" + GARBAGE, 0o755),
    "interpreter gone": content(b"#!/nowhere/at/all\n", 0o755),
    "hangs": says(hangs=True),
    "prints, then hangs": says(stdout="Fri Nov 29 10:00:00 2024\n", hangs=True),
    "child keeps pipes": says(child_hangs=True),
    "ignores signals": does(
        "import signal\nfor n in range(1, 32):\n    n in (9, 19) or signal.signal(n, signal.SIG_IGN)\ntime.sleep(99)"
    ),
    "closes output, hangs": does("os.close(1); os.close(2); time.sleep(3600)"),
    "SIGSEGV": says(signal=int(signal.SIGSEGV)),
    "SIGKILL": says(signal=int(signal.SIGKILL)),
    "exit 1, silent": says(exit_code=1),
    "exit 0, silent": says(),
    "exit 255, speaks": says(stderr="fatal: something is wrong here\n", exit_code=255),
    "megabytes": says(megabytes=64),
    "endless errors": does("while True: os.write(2, b'x' * 65536)"),
    "no UTF-8": says(stdout=NOT_TEXT * 10),
    "binary": says(stdout=GARBAGE, stderr=GARBAGE),
    "localised": says(stdout=FOREIGN),
    "localised, exit 2": says(stderr=FOREIGN, exit_code=2),
    "terminal codes": says(stdout=TERMINAL, stderr=TERMINAL),
    "absurd numbers": says(stdout=ABSURD),
    "endless numbers": says(stdout=ENDLESS_NUMBERS * 2),
    "deep JSON": says(stdout="[" * 100_000 + "\n" + '{"event": ' * 20_000 + "\n"),
}
FILE: Mapping[str, Hostility] = {
    **COMMON,
    "endless device": replaced(endless_device),
    "empty": content(b""),
    "megabytes": content(b"x" * (8 << 20)),
    "10 GB": replaced(sparse),
    "lines": content(b"\n" * (2 << 20)),
    "binary": content(GARBAGE * 10),
    "no UTF-8": followed_by(NOT_TEXT),
    "deep JSON": content(b'{"cuda": ' * 100_000),
    "endless numbers": content(
        f"#define CUDA_VERSION {DIGITS}\n#define CUDNN_MAJOR {DIGITS}\n__version__ = '{DIGITS}.1+cu124'\ncuda = '12.4'\n".encode()
    ),
    "absurd numbers": content(ABSURD.encode() + b"#define CUDA_VERSION 999999\n" + b'{"cuda": {"version": "9e999"}}'),
}
FOLDER: Mapping[str, Hostility] = {
    **COMMON,
    "file": content(b"no folder\n"),
    "empty": replaced(folder),
    "strange names": lambda path: strange_names(path),
    "many names": lambda path: many_names(path),
    "unsearchable": lambda path: path.chmod(stat.S_IRUSR),
}


def strange_names(path: Path) -> None:
    for name in (
        b"caf\xe9.so.1",
        b"libcudnn.so.9\n",
        b"lib\x1b[31mcudart.so.12",
        b"torch-\xff.dist-info",
        b" ",
        b"-rf",
        b"nvidia\xff0",
    ):
        Path(os.fsdecode(os.fsencode(path) + b"/" + name)).touch()


def many_names(path: Path) -> None:
    for number in range(5000):
        (path / f"libcudnn_{number}.so.9").touch()


def library(behaviour: str) -> Hostility:
    """A shared library whose loading does something: see hostile_library.c."""
    return replaced(lambda path: void(shutil.copyfile(built(behaviour), path)))


def built(behaviour: str) -> Path:
    """The compiled library, kept between runs as long as its source stays the same."""
    digest = hashlib.sha256(LIBRARY_SOURCE.read_bytes()).hexdigest()[:16]
    target = CACHE / "hostile" / digest / f"{behaviour}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            source = Path(scratch) / f"{behaviour}.c"
            source.write_text(f'#define {behaviour}\n#include "{LIBRARY_SOURCE}"\n')
            build_shared_library(source, Path(scratch) / target.name).replace(target)
    return target


def truncated(path: Path) -> None:
    real = path.resolve()
    data = real.read_bytes()
    gone(path)
    path.write_bytes(data[: len(data) // 2])


LIBRARY: Mapping[str, Hostility] = {
    **COMMON,
    "endless device": replaced(endless_device),
    "empty": content(b""),
    "binary": content(b"\x7fELF" + GARBAGE),
    "text": content(b"/* GNU ld script */\nINPUT(libgone.so)\n"),
    "32-bit": content(b"\x7fELF\x01\x01\x01" + bytes(2000)),
    "truncated": truncated,
    "10 GB": replaced(sparse),
    "no functions": library("NOTHING"),
    "hangs": library("HANGS"),
    "SIGSEGV": library("SEGFAULTS"),
    "abort": library("ABORTS"),
    "exit 0, silent": library("EXITS"),
    "megabytes": library("FLOODS"),
    "prints": library("PRINTS"),
    "child keeps pipes": library("FORKS"),
}
