"""Makes faults real on this machine, one process at a time, runs cudadoctor on each, and scores what it says.

    python benchmarks/real_faults.py [--only REGEX] [--jobs 3] [--python PATH] [--repeat 10] [--output FILE] [--texts] [--list]

A fault is right where its root is named, nothing else is claimed, and the fix is the one that mends it. Then `check` is run
--repeat times in a row, and half as often beside a program that computes on the GPU. Everything lives in the environment of the
children and in a temporary folder; at the end it is verified that the machine is as it was.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.real_faults import steadiness, traces  # noqa: E402 - after the path
from tests.real_faults.catalogue import FAULTS  # noqa: E402
from tests.real_faults.fault import Check, Fault  # noqa: E402
from tests.real_faults.machine import Machine, NotHereError  # noqa: E402
from tests.real_faults.run import SHOWN, Said, check, run_fault, wrong  # noqa: E402


@dataclass(frozen=True)
class Score:
    """How one fault was answered."""

    fault: str
    expected: str
    roots: Sequence[str] = ()
    """Names of the root findings but those of the machine without a fault; notes are in brackets."""
    explains: Sequence[str] = ()
    fix: str = ""
    """The command that was to be expected, else the first; FOLDER is the fault's own."""
    fix_expected: bool = False
    rechecked: bool | None = None
    seconds: float = 0.0
    wrong: Sequence[str] = ()
    not_here: str = ""
    report: dict[str, Any] = field(default_factory=dict)
    """Whole where something was wrong with it, else without the snapshot."""
    text: str = ""


def score(fault: Fault, machine: Machine, folder: Path, healthy: Said) -> Score:
    """Make the fault and judge the answer."""
    expected = fault.expected
    try:
        said = run_fault(fault, machine, folder)
    except NotHereError as reason:
        return Score(fault.name, expected.root, not_here=str(reason))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        unmade = (f"{expected.root or 'nothing'} is no root", f"{type(error).__name__}: {error}"[:400])
        return Score(fault.name, expected.root, wrong=unmade)
    faults = tuple(wrong(expected, said, healthy.claims))
    usual = {one["name"] for one in healthy.report["findings"]} - {expected.root}
    roots = [one for one in said.report["findings"] if one["root"] and one["name"] not in usual]
    names = tuple(one["name"] if one["severity"] in SHOWN else f"({one['name']})" for one in roots)
    fix, rechecked = _shown_fix(said, expected.root, expected.fix)
    fix = fix.replace(str(folder), "FOLDER")
    explains = (said.finding(expected.root) or {}).get("explains", ())
    return Score(
        fault.name,
        expected.root,
        names,
        explains,
        fix,
        bool(expected.fix),
        rechecked,
        said.seconds,
        faults,
        report=dict(said.report) if faults else _short(said),
        text=said.text,
    )


def _shown_fix(said: Said, name: str, pattern: str) -> tuple[str, bool | None]:
    """The command that was to be expected, else the first, and whether its fix was re-checked."""
    fixes = (said.finding(name) or {"fixes": ()})["fixes"]
    commands = [(command, fix["rechecked"]) for fix in fixes for command in fix["commands"]]
    matching = [pair for pair in commands if pattern and re.search(pattern, pair[0])]
    return (matching or commands or [("", None)])[0]


def _short(said: Said) -> dict[str, Any]:
    """The report without the snapshot's bulk."""
    return {name: said.report[name] for name in ("verdict", "summary", "findings", "proofs")}


def scores(faults: Sequence[Fault], machine: Machine, jobs: int, scratch: Path, healthy: Said) -> Iterator[Score]:
    """All faults, several at a time, in their order."""
    with ThreadPoolExecutor(jobs) as workers:
        yield from workers.map(
            lambda pair: score(pair[1], machine, scratch / f"fault-{pair[0]}", healthy), list(enumerate(faults))
        )


def row(result: Score) -> str:
    """One line of the table, as Markdown."""
    verdict = f"not here: {result.not_here}" if result.not_here else "; ".join(result.wrong) or "right"
    fix = f"`{result.fix}`" + (" (re-checked)" if result.rechecked else "") if result.fix else ""
    cells = (
        result.fault,
        result.expected or "nothing",
        ", ".join(result.roots) or "none",
        ", ".join(result.explains),
        fix,
        f"{result.seconds:.1f}",
        verdict,
    )
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def summary(results: Sequence[Score]) -> str:
    """The score in one sentence."""
    made = [result for result in results if not result.not_here]
    right = sum(not result.wrong for result in made)
    named = sum(not any("is no root" in fault for fault in result.wrong) for result in made)
    false = sum(any(fault.startswith("false root") for fault in result.wrong) for result in made)
    to_fix = [result for result in made if result.fix_expected]
    fixes = sum(not any(fault.startswith("no fix") for fault in result.wrong) for result in to_fix)
    return (
        f"{right} of {len(made)} right: root named {named}, false roots {false}, fix right {fixes} of {len(to_fix)}; "
        f"{len(results) - len(made)} not possible here"
    )


def steady(machine: Machine, times: int, scratch: Path) -> dict[str, Any]:
    """What repeated runs say, alone and beside a busy neighbour."""
    alone = steadiness.repeated(machine, times, scratch)
    found: dict[str, Any] = {"alone": _agreement(alone)}
    try:
        busy, neighbour = steadiness.on_a_busy_gpu(machine, (times + 1) // 2, scratch)
    except NotHereError as reason:
        return {**found, "busy": str(reason)}
    same = {run.verdict for run in busy} == {run.verdict for run in alone}
    return {**found, "busy": _agreement(busy), "same verdict": same, "neighbour": asdict(neighbour)}


def _agreement(runs: Sequence[Said]) -> dict[str, Any]:
    seconds = sorted(run.seconds for run in runs)
    return {
        "runs": len(runs),
        "different answers": len({run.verdict for run in runs}),
        "answer": [str(part) for part in runs[0].verdict] if runs else [],
        "seconds": [round(seconds[0], 2), round(seconds[len(seconds) // 2], 2), round(seconds[-1], 2)] if runs else [],
    }


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX")
    parser.add_argument("--jobs", type=int, default=3)
    parser.add_argument("--python", default=shutil.which("python3") or sys.executable, help="the interpreter with torch")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--output", type=Path, help="everything as JSON")
    parser.add_argument("--texts", action="store_true", help="print what the faulty programs printed")
    parser.add_argument("--list", action="store_true", help="only name the faults")
    return parser.parse_args()


def main() -> int:
    """Run, print, and say with the exit code whether all was right."""
    wanted = options()
    faults = [fault for fault in FAULTS if re.search(wanted.only, fault.name)]
    if wanted.list:
        print("\n".join(f"{fault.name:48} {fault.expected.root or 'nothing'}" for fault in faults))
        return 0
    machine = Machine(dict(os.environ), wanted.python)
    before = traces.state(machine)
    with tempfile.TemporaryDirectory(prefix="real-faults-") as folder:
        scratch = Path(folder)
        (scratch / "healthy").mkdir()
        healthy = check(machine, Check(), scratch / "healthy")
        print(f"The machine as it is: {healthy.report['summary']} ({healthy.seconds:.1f} s)\n")
        print("| fault | expected | roots | explains | fix | s | |\n|---|---|---|---|---|---|---|", flush=True)
        results = []
        for result in scores(faults, machine, wanted.jobs, scratch, healthy):
            results.append(result)
            print(row(result), flush=True)
            if wanted.texts and result.text:
                print(result.text)
        print(f"\n{summary(results)}", flush=True)
        repeats = steady(machine, wanted.repeat, scratch) if wanted.repeat else {}
        print(json.dumps(repeats, indent=1))
    left = traces.changed(before, traces.state(machine))
    print("The machine is as it was." if not left else f"Changed on the machine: {', '.join(left)}")
    if wanted.output:
        document = {"healthy": _short(healthy), "faults": [asdict(one) for one in results], "repeats": repeats, "changed": left}
        wanted.output.write_text(json.dumps(document, indent=1))
    return 1 if left or any(result.wrong for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
