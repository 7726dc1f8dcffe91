"""Records the machines that `cudadoctor demo` replays, into cudadoctor/demos.

    python tools/record_demos.py [NAME ...]

Simulated machines are those of the tests, examined by `check` as any machine is; texts are tickets of tests/tickets. Needs
a C compiler. A real machine is added by hand: `recorded` says which, `report` is what its `check --format json` printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cudadoctor.diagnosis import diagnose
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import to_builtins
from cudadoctor.model.redact import redact
from tests.fakes.machines import build_machine
from tests.fakes.whole_machines import snapshot_of
from tests.test_container_machines import MACHINES as CONTAINERS
from tests.test_wsl_machines import MACHINES as WSL

CHECKOUT = Path(__file__).resolve().parents[1]
DEMOS = CHECKOUT / "cudadoctor" / "demos"
SIMULATED = "a simulated machine of the project's tests, examined by check"
TICKET = "the text of a reduced public ticket, examined by triage"
FOLDER = "/machine"
"""Stands for the folder in which a simulated machine was built."""
CHECKED: Mapping[str, tuple[str, str]] = {
    "healthy": ("A", "RTX 4090, an older driver: works by minor-version compatibility"),
    "old-wheel": ("B", "RTX 5090 with a torch and a toolkit that are older than it"),
    "gb10": ("C", "GB10, served by code for sm_120"),
    "old-gpu": ("D", "V100 with a torch that has left it behind"),
    "old-driver": ("E", "A100 whose driver is too old for torch's CUDA 13"),
    "version-mismatch": ("F", "a driver updated under a running kernel module"),
    "cpu-only-torch": ("G", "a healthy GPU and a torch without CUDA"),
    "newer-than-tables": ("H", "GB300 with software newer than any table of the doctor's"),
    "hanging-nvidia-smi": ("X1", "nvidia-smi never returns"),
    "crashing-torch": ("X2", "import torch dies of SIGSEGV"),
}
"""Name to machine of design.md section 7, and title."""
PROBED: Mapping[str, tuple[Any, str]] = {
    "docker-without-gpus": (CONTAINERS, "docker without --gpus"),
    "slurm-apptainer": (CONTAINERS, "apptainer without --nv in a job of Slurm"),
    "wsl-linux-driver": (WSL, "WSL2: a Linux driver's libcuda is found before the one of Windows"),
    "wsl-stub": (WSL, "WSL2: the toolkit's stub of libcuda is found first"),
}
TICKETS: Mapping[str, tuple[str, str]] = {
    "ticket-extension": ("k01", "a ticket: an extension that no longer fits its torch"),
    "ticket-build": ("d01", "a ticket: a build with nvcc 11.8 for a torch of CUDA 12.1"),
}
"""Name to the beginning of a ticket's id, and title."""


def checked(machine: str, folder: Path) -> Any:
    """The report that `check` prints on a machine of design.md."""
    built = build_machine(machine, folder)
    argv = [sys.executable, "-m", "cudadoctor", "check", "--format", "json"]
    done = subprocess.run(argv, env=built.env, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return json.loads(done.stdout.replace(str(folder), FOLDER))


def probed(machines: Any, label: str, folder: Path) -> Any:
    """The report on a whole container or distribution, without kernels."""
    machine = next(each for each in machines if each.label == label)
    report = diagnose(snapshot_of(machine, folder), (), Matrices.load()).report
    return json.loads(json.dumps(to_builtins(redact(report))).replace(str(folder), ""))


def ticket(start: str) -> str:
    """The text of the ticket whose id begins so."""
    lines = (CHECKOUT / "tests" / "tickets" / "open.jsonl").read_text(encoding="utf-8").splitlines()
    text: str = next(each["pasted"] for each in map(json.loads, lines) if each["id"].startswith(f"{start}-"))
    return text


def recorded(name: str) -> dict[str, Any]:
    """The demo of that name, recorded now."""
    if name in TICKETS:
        start, title = TICKETS[name]
        return {"title": title, "recorded": TICKET, "text": ticket(start)}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        if name in CHECKED:
            machine, title = CHECKED[name]
            return {"title": title, "recorded": SIMULATED, "report": checked(machine, root)}
        machines, title = PROBED[name]
        return {"title": title, "recorded": SIMULATED, "report": probed(machines, title, root)}


def main() -> int:
    """Write the demos named, or all."""
    DEMOS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or (*CHECKED, *PROBED, *TICKETS):
        demo = recorded(name)
        (DEMOS / f"{name}.json").write_text(json.dumps(demo, indent=1) + "\n", encoding="utf-8")
        print(f"{name}: {demo['title']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
