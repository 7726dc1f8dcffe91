"""How long the commands that people wait for take to answer, beside an empty start of the same Python.

    python benchmarks/start_up.py [--rounds N] [--root IMAGE]

After one start of each, which compiles the modules, each round runs every command once before the next round begins; medians
of the wall clock and the greatest peak memory are printed. `check` examines this machine: where it has a GPU, its probes
are in the figure. `preflight --root` judges the unpacked image given, else a small one with a toolkit and a stand-in for torch.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.fakes.cuda_tools import fake_toolkit  # noqa: E402 - after the path
from tests.fakes.roots import fill  # noqa: E402
from tests.fakes.stub_torch import StubTorch, write_stub_torch  # noqa: E402

DOCKERFILE = ROOT / "deploy" / "docker" / "Dockerfile.example"
TARGET = ("--gpu", "RTX 4090", "--gpu", "12.0", "--driver", "580")
TICKET = """RuntimeError: CUDA error: no kernel image is available for execution on the device
torch 2.5.1+cu124, NVIDIA GeForce RTX 5090, driver 580.95.05, Ubuntu 24.04
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package is compiled; a checkout would be anew at every start


@dataclass(frozen=True)
class Run:
    """How one command went."""

    seconds: float
    peak_bytes: int


def run(arguments: list[str]) -> Run:
    """Run a command to its end, whatever its exit code, with nothing of its output shown."""
    silence = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1, 2)]
    started = time.perf_counter()
    child = os.posix_spawn(arguments[0], arguments, ENVIRONMENT, file_actions=silence)
    _, _, usage = os.wait4(child, 0)
    return Run(time.perf_counter() - started, usage.ru_maxrss * 1024)


def commands(ticket: Path, image: Path) -> dict[str, list[str]]:
    """What is measured; the first is what the others are compared with."""
    doctor = [sys.executable, "-m", "cudadoctor"]
    return {
        "empty Python": [sys.executable, "-c", "pass"],
        "--version": [*doctor, "--version"],
        "--help": [*doctor, "--help"],
        "triage of one text": [*doctor, "triage", str(ticket)],
        "check": [*doctor, "check"],
        "preflight": [*doctor, "preflight", *TARGET],
        "preflight --root": [*doctor, "preflight", *TARGET, "--root", str(image)],
        "preflight --dockerfile": [*doctor, "preflight", *TARGET, "--dockerfile", str(DOCKERFILE)],
    }


def small_image(root: Path) -> Path:
    """An unpacked image with a toolkit and a torch by name."""
    files: dict[str, str | bytes | None] = {
        "/etc/os-release": 'ID=ubuntu\nVERSION_ID="24.04"\n',
        "/usr/local/bin/python3.11": b"\x7fELF",
    }
    fill(root, files, {"/usr/local/cuda": "cuda-12.8"})
    fake_toolkit(root / "usr/local/cuda-12.8", "12.8", "12.8.93", ())
    write_stub_torch(root / "usr/local/lib/python3.11/site-packages", StubTorch("2.9.1+cu128", "12.8"))
    return root


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--root", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ticket = Path(folder) / "ticket.txt"
        ticket.write_text(TICKET, encoding="utf-8")
        measured = commands(ticket, options.root or small_image(Path(folder) / "image"))
        runs: dict[str, list[Run]] = {name: [] for name in measured}
        for arguments in measured.values():
            run(arguments)
        for _ in range(options.rounds):
            for name, arguments in measured.items():
                runs[name].append(run(arguments))
    empty = median(each.seconds for each in next(iter(runs.values())))
    print(f"{options.rounds} rounds, {sys.executable}")
    for name, taken in runs.items():
        seconds = median(each.seconds for each in taken)
        peak = max(each.peak_bytes for each in taken) / 1e6
        print(f"  {name:<22} {seconds:6.3f} s   {seconds / empty:5.1f} x an empty start   {peak:5.0f} MB at most")


if __name__ == "__main__":
    main()
