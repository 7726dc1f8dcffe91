"""The rest of the matrix: home, working folder, the process's own limits and descriptors, the machine's folders, --output."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.hostile import hostilities as h
from tests.hostile.cells import NOTHING, Cell, Prepare
from tests.hostile.doctor import ENTRY_POINT
from tests.hostile.judge import Expected
from tests.hostile.machine import RULE, Prey

SAME = Expected()
ALL_PROOFS = ("driver-jit", "nvcc", "nvrtc", "torch")
PYTHON_FACTS = ("python", "libraries", "toolkits", "errors")
ANYTHING = Expected(("",), ALL_PROOFS, exits=(0, 1, 2, 4), other_values=("errors", "environment"))
"""Where next to nothing works: a report all the same, and nothing invented."""
NOWHERE = Expected(printed=False)
SHADOWED = (
    *("json", "typing", "torch", "typer", "ctypes", "msgspec"),
    *("subprocess", "pynvml", "rich", "tomllib", "dataclasses", "enum"),
)
SHADOW = "import os\nos.write(2, b'shadow\\n')\nraise SystemExit(99)\n"


def under(**conditions: Any) -> Prepare:
    """Conditions of the process: limits, closed descriptors, mounts."""
    return lambda prey: {"conditions": conditions}


def home_cells() -> Iterator[Cell]:
    """Caches and homes that cannot be used."""

    def home(make: h.Hostility, where: str) -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            path = prey.home / where
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.mkdir()
            make(path)
            return {"conditions": {"humble": True}}

        return prepare

    for name, make in h.FOLDER.items():
        for thing, where in (("HOME", "."), ("cache folder", "cache"), ("kernels' cache", "cache/cudadoctor/kernels")):
            if where == "." and name in {"absent", "folder", "link loop", "dangling link", "named pipe", "file", "empty"}:
                continue
            yield Cell(thing, name, home(make, where), SAME)
    yield Cell("HOME", "read-only", home(lambda path: path.chmod(0o555), "."), SAME)
    yield Cell("cache folder", "read-only", home(lambda path: path.chmod(0o555), "cache"), SAME)

    def with_file(make: h.Hostility, where: str) -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            path = prey.home / where
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"format": 1, "files": {}}')
            make(path)
            return {"conditions": {"humble": True}}

        return prepare

    for name, make in h.FILE.items():
        yield Cell("scan cache", name, with_file(make, "cache/cudadoctor/scan.json"), SAME)


def cwd_cells() -> Iterator[Cell]:
    """Shadowing modules, policies, and a working folder that is gone."""

    def shadows_in(where: str, variables: Mapping[str, str], **place: Any) -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            folder = getattr(prey, where)
            for name in SHADOWED:
                (folder / f"{name}.py").write_text(SHADOW)
            prey.env.update({name: value.format(folder=folder) for name, value in variables.items()})
            return place

        return prepare

    module = (sys.executable, "-m", "cudadoctor", "check")
    yield Cell("cwd", "shadowing modules", shadows_in("cwd", {}), SAME)
    yield Cell("cwd", "shadowing modules, python -m", shadows_in("cwd", {}, program=module), SAME)
    broken = Expected((*PYTHON_FACTS, "environment"), ("torch",), exits=(1, 4), other_values=("environment",))
    yield Cell("PYTHONPATH", "shadowing modules", shadows_in("shadows", {"PYTHONPATH": "{folder}"}), broken)
    yield Cell("PYTHONPATH", "shadowing modules, cwd", shadows_in("cwd", {"PYTHONPATH": "."}), broken)

    def policy(name: str, make: h.Hostility) -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            (prey.cwd / name).write_text("")
            make(prey.cwd / name)
            return {"conditions": {"humble": True}}

        return prepare

    shown = Expected(other_values=("readings",))
    for file in ("cudadoctor.toml", "pyproject.toml"):
        for name, make in h.FILE.items():
            expected = NOWHERE if file == "cudadoctor.toml" or name == "unreadable" else SAME
            if file == "cudadoctor.toml" and name in {"absent", "empty"}:
                expected = shown if name == "empty" else SAME
            yield Cell(file, name, policy(file, make), expected)

    def leave(prey: Prey) -> Mapping[str, Any]:
        program = beginning_with(f"os.rmdir({str(prey.shadows)!r})")
        return {"cwd": prey.shadows, "watched": (prey.home, prey.site, prey.toolkit), "program": program}

    yield Cell("cwd", "removed", leave, SAME)

    def shut(prey: Prey) -> Mapping[str, Any]:
        return {"program": beginning_with("os.chmod('.', 0o600)"), "conditions": {"humble": True}}

    yield Cell("cwd", "unsearchable", shut, NOWHERE)


def beginning_with(statement: str) -> tuple[str, ...]:
    """The doctor, in whose process the statement is run first."""
    code = f"import os, runpy; {statement}; runpy.run_path({str(ENTRY_POINT)!r}, run_name='__main__')"
    return (sys.executable, "-c", code, "check")


def limit_cells() -> Iterator[Cell]:
    """Tiny limits and odd descriptors."""
    mib = 1 << 20
    tiny = Expected(
        (".",), ALL_PROOFS, ("torch-import-fails",), (0, 1, 4), other_values=("errors", "python.executable", "toolkits")
    )
    starved = replace(tiny, starved=True)
    for name, limits, expected in (
        ("64 descriptors", {"NOFILE": 64}, SAME),
        ("32 descriptors", {"NOFILE": 32}, tiny),
        ("20 descriptors", {"NOFILE": 20}, tiny),
        ("12 descriptors", {"NOFILE": 12}, starved),
        ("2 GB", {"AS": 2048 * mib}, SAME),
        ("400 MB", {"AS": 400 * mib}, tiny),
        ("200 MB", {"AS": 200 * mib}, tiny),
        ("100 MB", {"AS": 100 * mib}, starved),
        ("small stack", {"STACK": mib}, SAME),
        ("files of 4 kB", {"FSIZE": 4096}, NOWHERE),
        ("files of 0 B", {"FSIZE": 0}, NOWHERE),
        ("no core, locked memory, queues", {"CORE": 0, "MEMLOCK": 0, "MSGQUEUE": 0}, SAME),
        ("20 s of processor", {"CPU": 20}, SAME),
    ):
        prepare = under(limits=limits)
        yield Cell("limits", name, prepare, expected)
    preloaded = replace(tiny, other_values=(*tiny.other_values, "environment"))
    for number in (60, 40, 24, 12, 6, 0):
        yield Cell("threads and processes", f"{number} more", fewer_threads(number), preloaded)
    for name, closed, expected in (
        ("stdin", [0], SAME),
        ("stdout", [1], NOWHERE),
        ("stderr", [2], SAME),
        ("stdin and stderr", [0, 2], SAME),
        ("all", [0, 1, 2], NOWHERE),
    ):
        yield Cell("closed descriptors", name, under(close=closed), expected)
    for name, opened, expected in (
        ("stdout", {"1": "/dev/full"}, NOWHERE),
        ("stderr", {"2": "/dev/full"}, SAME),
        ("both", {"1": "/dev/full", "2": "/dev/full"}, NOWHERE),
    ):
        yield Cell("full disk", name, under(open=opened), expected)
    yield Cell("stdin", "endless", under(open={"0": "/dev/zero"}), SAME)


def fewer_threads(number: int) -> Prepare:
    """A process tree that may make so many threads and processes and no more, as under a cgroup's pids.max."""

    def prepare(prey: Prey) -> Mapping[str, Any]:
        prey.env["LD_PRELOAD"] = str(h.built("LIMITS_TASKS"))
        prey.env["HOSTILE_TASKS"] = str(number)
        return NOTHING

    return prepare


def machine_cells() -> Iterator[Cell]:
    """A machine without /proc or /sys, or with a full disk: in mount namespaces, where they are allowed."""
    for target, expected in (
        ("/proc", ANYTHING),
        ("/sys", Expected(("driver.pci_devices", "host"), other_values=("host", "driver.pci"))),
        ("/etc", replace(ANYTHING, other_values=(*ANYTHING.other_values, "libraries"))),
        ("/usr/local", Expected(("toolkits", "libraries", "driver"), other_values=("toolkits", "libraries"))),
        ("/dev/shm", SAME),
    ):
        yield Cell(target, "empty", under(mounts=[["tmpfs", target]]), expected)

    def full(where: str, size: str = "4k") -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            path = prey.home / "cache" if where == "cache" else prey.folder / "tmp"
            path.mkdir(parents=True, exist_ok=True)
            return {"conditions": {"mounts": [[f"tmpfs:{size}", str(path)]]}}

        return prepare

    yield Cell("full disk", "cache", full("cache"), SAME)
    without_space = Expected(("environment",), ALL_PROOFS, exits=(0, 1, 4), other_values=("environment",))
    yield Cell("full disk", "TMPDIR", full("TMPDIR"), without_space)
    told = replace(without_space, errors=("kernel-proof-fails",))
    yield Cell("full disk", "TMPDIR, 64 kB", full("TMPDIR", "64k"), told)


def output_cells() -> Iterator[Cell]:
    """--output to places where no file can be, and to devices, which must stay what they are."""

    def to(path: str, make: h.Hostility = h.void) -> Prepare:
        def prepare(prey: Prey) -> Mapping[str, Any]:
            target = path.format(folder=prey.folder, cwd=prey.cwd)
            make(Path(target))
            return {"options": ("--output", target), "conditions": {"humble": True}}

        return prepare

    for name, path, make in (
        ("no folder", "/nowhere/at/all/report", h.void),
        ("folder", "{folder}/lib", h.void),
        ("below a file", "{cwd}/" + RULE + "/report", h.void),
        ("link loop", "{folder}/loop", h.loop),
        ("unwritable folder", "/proc/report", h.void),
        ("line break", "{folder}/nowhere\n/x", h.void),
        ("long name", "{folder}/" + "x" * 300, h.void),
    ):
        yield Cell("--output", name, to(path, make), NOWHERE)
