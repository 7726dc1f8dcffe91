"""Compares `cudadoctor scan` with NVIDIA's cuobjdump on real libraries: entry counts, time and peak memory, side by side.

    python benchmarks/scan_vs_cuobjdump.py FOLDER [--only REQUIREMENT ...] [--older-cuobjdump PATH ...]

downloads the wheels below (about 3.5 GB) into FOLDER with pip, unpacks their libraries there, and prints a Markdown table. The
cuobjdump is that of its own wheel (13.5), which refuses files with code for GPUs that CUDA 12 dropped: those are compared with
the older ones given (that of CUDA 11.8 is in Debian's nvidia-cuda-toolkit, a 12.4 in triton 3.1.0). Both programs run as
processes of their own; the memory is the peak of the process.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.binary.cuobjdump import REQUIREMENT, cuobjdump_counts, our_counts, unseen_modules  # noqa: E402 - after the path

WHEELS = (
    "torch==2.14.1",
    "nvidia-cublas==13.1.1.3",
    "nvidia-cudnn-cu13==9.24.0.43",
    "nvidia-cufft==12.0.0.61",
    "nvidia-curand==10.4.0.35",
    "nvidia-cusolver==12.0.4.66",
    "nvidia-cusparse==12.6.3.3",
    "nvidia-cusparselt-cu13==0.8.1",
    "nvidia-nccl-cu13==2.30.7",
    "nvidia-nvshmem-cu13==3.4.5",
    "nvidia-cufile==1.15.1.6",
    "nvidia-cuda-cupti==13.0.85",
    "nvidia-curand-cu12==10.3.9.90",
    "nvidia-cusparselt-cu12==0.8.1",
    "nvidia-npp-cu12==12.4.1.87",
    "nvidia-nvjpeg-cu12==12.4.0.76",
    "nvidia-curand-cu11==10.3.0.86",
    "nvidia-cusolver-cu11==11.4.1.48",
    "bitsandbytes==0.50.2",
    "cupy-cuda11x==13.6.0",
    "ctranslate2==4.8.5",
    "faiss-gpu-cu12==1.14.1.post1",
    "xformers==0.0.35",
)
"""Wheels of three CUDA majors and of frameworks that compile their own kernels."""

EQUAL = {True: "equal", False: "equal to an older cuobjdump"}
SCAN = """
import sys
from cudadoctor.binary.contents import read_contents
from cudadoctor.binary.source import FileSource
with FileSource(sys.argv[1]) as source:
    read_contents(source)
"""


@dataclass(frozen=True)
class Cost:
    """Seconds and peak megabytes of a process."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Row:
    """One library."""

    name: str
    megabytes: float
    entries: int
    verdict: str
    unseen: int
    ours: Cost
    theirs: Cost


def download(requirement: str, folder: Path) -> Path:
    """The wheel, from FOLDER or from the index."""
    target = folder / "wheels" / requirement.replace("==", "-")
    if not list(target.glob("*.whl")):
        argv = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target), requirement)
        subprocess.run(argv, check=True)
    return next(target.glob("*.whl"))


def unpack(wheel: Path, folder: Path) -> Iterator[Path]:
    """The shared and static libraries of a wheel, unpacked below FOLDER."""
    with zipfile.ZipFile(wheel) as file:
        for info in file.infolist():
            name = Path(info.filename).name
            if ".so" in name or name.endswith((".a", ".dll", "cuobjdump")):
                target = folder / "unpacked" / info.filename
                if not target.exists() or target.stat().st_size != info.file_size:
                    file.extract(info, folder / "unpacked")
                target.chmod(0o755)
                yield target


def cost(*argv: str) -> Cost:
    """What running a program to its end costs; its output is thrown away."""
    started = time.perf_counter()
    child = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    _pid, _status, usage = os.wait4(child.pid, 0)
    child.returncode = 0
    return Cost(time.perf_counter() - started, usage.ru_maxrss / 1024)


def compare(path: Path, programs: tuple[Path, ...]) -> Row | None:
    """The row of one library; None where neither program finds GPU code."""
    ours, unseen = our_counts(path), unseen_modules(path)
    answers = ((program, cuobjdump_counts(program, path)) for program in programs)
    program, theirs = next(((program, counts) for program, counts in answers if counts is not None), (programs[0], None))
    if not ours and not theirs and not unseen:
        return None
    if theirs is not None and ours != theirs:
        print(f"{path}: ours {dict(ours - theirs)}, cuobjdump's {dict(theirs - ours)}", file=sys.stderr)
    return Row(
        name=path.name,
        megabytes=path.stat().st_size / 1e6,
        entries=sum(ours.values()),
        verdict="refused" if theirs is None else "DIFFERENT" if ours != theirs else EQUAL[program is programs[0]],
        unseen=sum(unseen.values()),
        ours=cost(sys.executable, "-c", SCAN, str(path)),
        theirs=cost(str(program), "-all", "--list-elf", str(path)),
    )


def report(rows: list[Row]) -> Iterator[str]:
    """The table, largest library first, and its summary."""
    yield "| library | MB | entries | equal | modules unseen by cuobjdump | scan s | scan MB | cuobjdump s | cuobjdump MB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: -row.megabytes):
        cells = (
            row.name,
            f"{row.megabytes:.1f}",
            row.entries,
            row.verdict,
            row.unseen or "",
            f"{row.ours.seconds:.2f}",
            f"{row.ours.megabytes:.0f}",
            f"{row.theirs.seconds:.2f}",
            f"{row.theirs.megabytes:.0f}",
        )
        yield "| " + " | ".join(str(cell) for cell in cells) + " |"
    with_entries = [row for row in rows if row.entries]
    verdicts = Counter(row.verdict for row in with_entries)
    seconds = sum(row.ours.seconds for row in rows), sum(row.theirs.seconds for row in rows)
    yield ""
    words = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common())
    yield f"{len(with_entries)} libraries with {sum(row.entries for row in rows)} entries: {words};"
    yield f"scan {seconds[0]:.1f} s, cuobjdump {seconds[1]:.1f} s in all."


def main() -> None:
    """Download, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="*", default=WHEELS)
    parser.add_argument("--older-cuobjdump", nargs="*", type=Path, default=[])
    options = parser.parse_args()
    cuobjdump = next(path for path in unpack(download(REQUIREMENT, options.folder), options.folder) if path.name == "cuobjdump")
    rows = []
    for requirement in options.only:
        for path in unpack(download(requirement, options.folder), options.folder):
            row = compare(path, (cuobjdump, *options.older_cuobjdump))
            if row is not None:
                rows.append(row)
                print(f"{row.name}: {row.verdict}", file=sys.stderr)
    print("\n".join(report(rows)))


if __name__ == "__main__":
    main()
