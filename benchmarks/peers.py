"""What other doctors say of the machines A to H, X1 and X2 (tests/fakes/machines.py), beside cudadoctor.

    python benchmarks/peers.py [--venv FOLDER] [--raw FOLDER] [--machine NAME]... [--timeout 30]

Installs env-doctor, cuda-doctor and rapids-cli from the default index into one environment and takes collect_env.py out of a
wheel of torch; then runs each on each machine, with the machine's own Python, which has a stand-in for torch. Prints a Markdown
table. What was said counts as naming the cause where one of the machine's patterns matches it, and else as wrong where one of the
wrong claims does; both lists stand below and are the same for all, cudadoctor included.
`--raw` keeps what each said, to be read by eye.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cudadoctor import __version__  # noqa: E402 - after the path
from tests.fakes.machines import MACHINES, Machine, build  # noqa: E402 - after the path

PACKAGES = ("env-doctor", "cuda-doctor", "rapids-cli")
TORCH = "2.13.0"
"""The release whose collect_env.py is run."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
COLLECT = """
import runpy, sys, types
try:
    import torch
except ImportError:
    pass
else:  # what collect_env reads of a real torch and the stand-in has not
    torch.version.debug, torch.version.xpu = False, None
    torch.xpu = types.SimpleNamespace(is_available=lambda: False, device_count=lambda: 0)
    xnnpack = types.ModuleType("torch.backends.xnnpack")
    xnnpack.enabled = True
    torch.backends.xnnpack, torch.utils = xnnpack, types.SimpleNamespace()
    sys.modules |= {"torch.backends": torch.backends, "torch.backends.xnnpack": xnnpack}
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@dataclass(frozen=True)
class Truth:
    """What is the matter with a machine."""

    matter: str
    named_by: Sequence[str]
    """Patterns of which a right answer has one; none: the machine works."""
    wrong: Sequence[str] = ()
    """Patterns of claims that are wrong there."""


ALARM = (r"critical conflict[^!]*!", r"not compatible", r"incompatib\w+", r"too (old|new)", r"upgrade gpu driver")
OF_THE_FAKE = r"libnvrtc\.so could not be found"
"""A complaint that is true of the stand-ins only: their toolkits have no libnvrtc."""
ALL_WELL = (r"status: healthy", r"compatible with driver \([^)]*\)", r"all checks passed")
TRUTHS: Mapping[str, Truth] = {
    "A": Truth("works: minor-version compatibility, and sm_86 serves 8.9", (), ALARM),
    "B": Truth(
        "torch has no code for sm_120", (r"sm_120 is not compatible", r"no code for .{0,60}compute capability 12\.0"), ALL_WELL
    ),
    "C": Truth("works: sm_120 serves 12.1", (), ALARM),
    "D": Truth("torch has dropped sm_70", (r"sm_70 is not compatible", r"no code for .{0,60}compute capability 7\.0"), ALL_WELL),
    "E": Truth(
        "driver 525 is too old for CUDA 13",
        (r"driver supports up to 12\.0", r"driver does not satisfy", r"driver.{0,80}(too old|older)", r"newer than.{0,40}driver"),
        ALL_WELL,
    ),
    "F": Truth(
        "kernel module and libraries differ: reboot",
        (r"driver/library version mismatch", r"different versions"),
        (r"no nvidia driver detected\W*install nvidia drivers", *ALL_WELL),
    ),
    "G": Truth("torch is a CPU build", (r"cpu[- ]only", r"without cuda", r"not compiled with cuda"), ALL_WELL),
    "H": Truth("works, newer than every table", (), ALARM),
    "X1": Truth("nvidia-smi never returns", (r"nvidia-smi.{0,40}(hang|timed? ?out|not return|no answer|not respond)",), ALL_WELL),
    "X2": Truth("import torch dies of SIGSEGV", (r"sigsegv", r"segmentation fault"), ALL_WELL),
}


@dataclass(frozen=True)
class Peer:
    """A doctor: its name with the version, and how it is started with a machine's Python."""

    name: str
    argv: Sequence[str]
    path: str = ""
    """PYTHONPATH."""


@dataclass(frozen=True)
class Said:
    """How a run went; no exit code where it was ended for its time."""

    exit_code: int | None
    seconds: float
    text: str


def peers(folder: Path) -> tuple[Peer, ...]:
    """All of them, installed below `folder`."""
    python = str(folder / "venv" / "bin" / "python")
    if not Path(python).exists():
        venv.create(folder / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    site = run_text([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    script = folder / "collect_env.py"
    if not script.exists():
        download = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), f"torch=={TORCH}"]
        subprocess.run(download, check=True)
        with zipfile.ZipFile(next(folder.glob("torch-*.whl"))) as wheel:
            script.write_bytes(wheel.read("torch/utils/collect_env.py"))
    code = f"from importlib.metadata import version; print(*map(version, {PACKAGES!r}))"
    env_doctor, cuda_doctor, rapids = run_text([python, "-c", code]).split()
    return (
        Peer(f"env-doctor {env_doctor}", _calling("env_doctor.cli", "main", "env-doctor", "check"), site),
        Peer(f"cuda-doctor {cuda_doctor}", _calling("cuda_doctor.cli", "main", "cuda-doctor", "diagnose"), site),
        Peer(f"rapids-cli {rapids}", _calling("rapids_cli.cli", "rapids", "rapids", "doctor"), site),
        Peer(f"collect_env of torch {TORCH}", ("-c", COLLECT, str(script))),
    )


def _calling(module: str, function: str, *argv: str) -> tuple[str, str]:
    """As the script does that pip installs, with any Python."""
    return ("-c", f"import sys; sys.argv[:] = {list(argv)!r}; from {module} import {function}; sys.exit({function}())")


def run_text(argv: Sequence[str]) -> str:
    """What a command that has to succeed prints."""
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def run(argv: Sequence[str], machine: Machine, python_path: str, timeout: float) -> Said:
    """One doctor on one machine; its whole process group is ended with it."""
    env = {**machine.env, **({"PYTHONPATH": python_path} if python_path else {}), "COLUMNS": "120", "NO_COLOR": "1"}
    started = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            argv, env=env, cwd=machine.folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            exit_code: int | None = process.wait(timeout)
        except subprocess.TimeoutExpired:
            exit_code = None
        seconds = time.monotonic() - started
        end_group(process)
        output.seek(0)
        return Said(exit_code, seconds, ESCAPES.sub("", output.read().decode("utf-8", "replace")))


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the process has started and left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.wait()


def matches(patterns: Sequence[str], text: str) -> list[str]:
    """What the patterns find in the text."""
    return [match[0] for pattern in patterns if (match := re.search(pattern, text, re.IGNORECASE))]


def verdict(said: Said, truth: Truth) -> str:
    """What the run is worth, in words."""
    text = " ".join(said.text.split())
    found, wrong = (matches(patterns, text) for patterns in (truth.named_by, truth.wrong))
    if said.exit_code is None:
        return "never ends"
    if said.exit_code < 0 or "Traceback (most recent call last)" in said.text:
        return f"dies{f' of signal {-said.exit_code}' if said.exit_code < 0 else ' with a traceback'}"
    if found:
        return f"names it: {found[0]!r}"
    if wrong:
        return f"wrong: {wrong[0]!r}"
    if not truth.named_by and re.search(OF_THE_FAKE, text):
        return "cannot tell on a fake"
    return "does not name it" if truth.named_by else "no alarm"


def rows(doctors: Sequence[Peer], names: Sequence[str], timeout: float, raw: Path | None) -> Iterator[str]:
    """The table, a machine a line."""
    yield f"| | machine | {' | '.join(doctor.name for doctor in doctors)} |"
    yield "|---|---|" + "---|" * len(doctors)
    for name in names:
        cells = []
        for doctor in doctors:
            with tempfile.TemporaryDirectory() as folder:
                machine = build(MACHINES[name], Path(folder) / "machine")
                python = sys.executable if doctor.name.startswith("cudadoctor") else str(machine.python)
                said = run((python, *doctor.argv), machine, doctor.path, timeout)
            if raw is not None:
                (raw / f"{name}-{doctor.name.split()[0]}.txt").write_text(f"exit code {said.exit_code}\n{said.text}")
            code = "none" if said.exit_code is None else said.exit_code
            cells.append(f"{verdict(said, TRUTHS[name])} (exit {code}, {said.seconds:.1f} s)")
        yield f"| {name} | {TRUTHS[name].matter} | {' | '.join(cells)} |"


def main() -> None:
    """Install, run, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--venv", type=Path)
    parser.add_argument("--raw", type=Path)
    parser.add_argument("--machine", action="append", choices=list(MACHINES))
    parser.add_argument("--timeout", type=float, default=30)
    options = parser.parse_args()
    if options.raw is not None:
        options.raw.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.venv or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        ours = Peer(f"cudadoctor {__version__}", ("-m", "cudadoctor", "check"))
        print(f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, ended after {options.timeout:.0f} s\n")
        for line in rows((ours, *peers(folder)), options.machine or list(MACHINES), options.timeout, options.raw):
            print(line, flush=True)


if __name__ == "__main__":
    main()
