"""What runs could have changed on the machine, read before and after."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.real_faults.machine import Machine

FOLDERS = ("/etc/ld.so.conf.d", "/etc/ld.so.cache", "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia")
"""Where toolkits, drivers and the loader's settings lie, besides the toolkit's own folder and the GPUs' nodes."""
STATE = (
    "persistence_mode,compute_mode,ecc.mode.current,mig.mode.current,power.limit,clocks.applications.graphics,"
    "clocks.applications.memory,accounting.mode"
)


def state(machine: Machine, folders: Sequence[str] = FOLDERS) -> dict[str, str]:
    """The state by subject: digests of listings, the card's settings, the mounts, who computes."""
    nodes = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
    return {
        **{folder: _digest(folder) for folder in (*folders, *_toolkits(), *nodes)},
        "settings": _nvidia_smi(machine, f"--query-gpu={STATE}", "--format=csv,noheader"),
        "programs on the GPU": _nvidia_smi(machine, "--query-compute-apps=pid", "--format=csv,noheader"),
        "mounts": Path("/proc/self/mounts").read_text(),
    }


def _toolkits() -> list[str]:
    return sorted(str(path.resolve()) for path in Path("/usr/local").glob("cuda*"))


def changed(before: dict[str, str], after: dict[str, str]) -> tuple[str, ...]:
    """The subjects that differ."""
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def _digest(path: str) -> str:
    """One number for the names, sizes, modes and times of change of everything below a path."""
    seen = hashlib.sha256()
    for line in _listing(path):
        seen.update(line.encode("utf-8", "surrogateescape"))
    return seen.hexdigest()


def _listing(top: str) -> Iterator[str]:
    if not os.path.isdir(top):  # noqa: PTH112 - text paths, thousands of them
        yield _entry(top)
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted((*files, *folders)):
            yield _entry(f"{folder}/{name}")


def _entry(path: str) -> str:
    try:
        status = os.lstat(path)
    except OSError as error:
        return f"{path} {error.strerror}\n"
    changed_at = "" if path.startswith("/dev/") else status.st_mtime_ns
    return f"{path} {status.st_mode} {status.st_uid} {status.st_size} {changed_at}\n"


def _nvidia_smi(machine: Machine, *options: str) -> str:
    argv = [machine.program("nvidia-smi"), *options]
    return subprocess.run(argv, env=dict(machine.env), capture_output=True, text=True, timeout=60, check=False).stdout
