"""The part of the matrix that lies in environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.hostile.cells import NOTHING, Cell, Prepare
from tests.hostile.judge import Expected
from tests.hostile.machine import RULE, Prey

LATIN_1 = os.fsdecode(b"caf\xe9")
ALL_PROOFS = ("driver-jit", "nvcc", "nvrtc", "torch")
Values = Mapping[str, "str | None"]


def changing(*facts: str, layers: tuple[str, ...] = (), errors: tuple[str, ...] = ()) -> Expected:
    """What may change with a variable: the environment, and these facts, which truly become other ones."""
    values = ("environment", *facts)
    return Expected(values, layers, errors, (0, 1, 4), other_values=values)


def with_variables(values: Values) -> Prepare:
    """None takes a variable away; `{home}` and the like stand for folders of the machine, `{old}` for what it was."""

    def prepare(prey: Prey) -> Mapping[str, Any]:
        places = {"home": prey.home, "cwd": prey.cwd, "folder": prey.folder}
        for name, value in values.items():
            old = prey.env.pop(name, "")
            if value is not None:
                prey.env[name] = value.format(old=old, **places)
        return {"cache": (*prey.caches, Path(prey.env.get("XDG_CACHE_HOME", "")))}

    return prepare


ENTRIES: Mapping[str, str] = {
    "nonexistent": "/nowhere/at/all",
    "file": "{cwd}/" + RULE,
    "line break": "{cwd}/a\nb",
    "relative": ".:..",
    "empty entries": ":::",
    "no UTF-8": "/" + LATIN_1,
    "long": "/" + "x" * 4000,
    "many": ":".join(f"/nowhere/{number}" for number in range(2000)),
    "device": "/dev/null:/dev/zero",
    "terminal codes": "\x1b[31m",
}
"""What may stand in a list of folders."""
PATHS: Mapping[str, str] = {
    "nonexistent": "{folder}/nowhere/at/all",
    "file": "{cwd}/" + RULE,
    "link loop": "{cwd}/loop",
    "relative": ".",
    "line break": "{folder}/a\nb",
    "no UTF-8": "{folder}/" + LATIN_1,
    "slash": "/",
    "procfs": "/proc/self/root",
    "empty": "",
    "terminal codes": "\x1b[31m",
}
"""What may stand where one folder should."""
TEXTS: Mapping[str, str] = {
    "empty": "",
    "odd": "\x1b[31m\nx",
    "no UTF-8": LATIN_1,
    "long": "0," * 50_000,
    "commands": "$(touch {cwd}/pwned)`touch {cwd}/pwned`;touch {cwd}/pwned",
    "number": "9" * 5000,
}
"""What may stand where a word should."""
SAME = changing()
COMPILERS = changing("host_compilers", layers=("nvcc",))
DEVICES = changing(
    "driver.visible_device_count",
    "driver.cu_init",
    "gpus",
    "errors",
    layers=ALL_PROOFS,
    errors=("visible-devices-invalid", "visible-devices-hide-all", "no-device-visible"),
)
TOOLKITS = changing("toolkits", "libraries", layers=("nvcc",), errors=("cuda-home-wrong", "cuda-home-malformed"))
ANOTHER_PYTHON = changing("python", "libraries", "toolkits", layers=("torch",))
"""The one that PATH leads to, or of another folder."""
PLACES: Mapping[str, Expected] = {
    "HOME": SAME,
    "XDG_CACHE_HOME": SAME,
    "TMPDIR": changing("toolkits", layers=("nvcc",)),
    "CUDA_HOME": TOOLKITS,
    "CONDA_PREFIX": changing("libraries"),
    "VIRTUAL_ENV": ANOTHER_PYTHON,
    "PYTHONUSERBASE": SAME,
}
WORDS: Mapping[str, Expected] = {
    "CUDA_VISIBLE_DEVICES": DEVICES,
    "CXX": COMPILERS,
    "NVCC_CCBIN": COMPILERS,
    "NVCC_APPEND_FLAGS": COMPILERS,
    "TORCH_CUDA_ARCH_LIST": changing(errors=("arch-list-malformed", "arch-list-invalid")),
    "NODE_NAME": SAME,
    "USER": SAME,
    "LANG": SAME,
    "LC_ALL": SAME,
    "TERM": SAME,
    "COLUMNS": SAME,
    "NVIDIA_VISIBLE_DEVICES": SAME,
}
TOGETHER: Mapping[str, Values] = {
    "nothing but PATH": {"HOME": None, "XDG_CACHE_HOME": None, "LANG": None, "TERM": None, "TMPDIR": None},
    "no home": {"HOME": None, "XDG_CACHE_HOME": None},
    "home of one letter": {"HOME": "a", "USER": "e", "LOGNAME": "o", "HOSTNAME": "n"},
    "strict Python": {"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2", "PYTHONDEVMODE": "1", "PYTHONHASHSEED": "0"},
    "odd Python": {"PYTHONUNBUFFERED": "1", "PYTHONMALLOC": "debug", "PYTHONSAFEPATH": "1", "PYTHONSTARTUP": "{cwd}/" + RULE},
    "ASCII": {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii", "LC_ALL": "POSIX"},
    "unknown locale": {"LANG": "xx_YY.NOPE", "LC_ALL": "tlh_XX.klingon", "LANGUAGE": "de"},
    "odd terminal": {"TERM": "\x1b[31m\nx", "COLUMNS": "-1", "LINES": "x", "NO_COLOR": "0", "FORCE_COLOR": "yes"},
    "preloaded library is gone": {"LD_PRELOAD": "/nowhere/x.so"},
    "careful malloc": {"MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"},
    "megabyte": {f"CUDA_X{number}": "x" * 50_000 for number in range(20)},
}
WRITTEN_TO = ("HOME", "XDG_CACHE_HOME", "TMPDIR")


def variable_cells() -> Iterator[Cell]:
    """Lists of folders, folders, words, and several variables together."""
    lists = {"PATH": SAME, "LD_LIBRARY_PATH": changing("libraries"), "PYTHONPATH": changing("python.packages")}
    for variable, expected in lists.items():
        for name, entry in ENTRIES.items():
            yield _cell(variable, name, {variable: f"{entry}:{{old}}:{entry}"}, expected)
    for variable, expected in PLACES.items():
        for name, value in PATHS.items():
            if variable in WRITTEN_TO and name in {"slash", "procfs"}:
                continue  # would write outside of the machine, as was asked for
            values: Values = {variable: value, "XDG_CACHE_HOME": None} if variable == "HOME" else {variable: value}
            yield _cell(variable, name, values, expected)
    for variable, expected in WORDS.items():
        for name, value in TEXTS.items():
            yield _cell(variable, name, {variable: value}, expected)
    for name, values in TOGETHER.items():
        yield _cell("environment", name, values, changing("errors"))
    without = changing("driver.nvidia_smi", "host_compilers", "container", "toolkits", "errors", layers=("nvcc",))
    yield Cell("PATH", "empty", with_variables({"PATH": ""}), without)
    yield Cell("PATH", "unset", with_variables({"PATH": None}), without)
    yield Cell("PATH", "world-writable", _open_folder, SAME)


def _cell(thing: str, hostility: str, values: Values, expected: Expected) -> Cell:
    return Cell(thing, hostility, with_variables(values), expected)


def _open_folder(prey: Prey) -> Mapping[str, Any]:
    (prey.folder / "open").mkdir()
    (prey.folder / "open").chmod(0o777)
    prey.env["PATH"] = f"{prey.folder}/open:{prey.env['PATH']}"
    return NOTHING
