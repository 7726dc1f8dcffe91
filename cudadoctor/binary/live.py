"""Imports a package in a child and compares the libraries that it really got with those that were predicted.

The one part of `scan` that runs the package's own code; done only when the user asks for it.
"""

from __future__ import annotations

import json
import posixpath
from typing import TYPE_CHECKING

from msgspec import Struct

from cudadoctor.binary.inputs import mapped_files
from cudadoctor.binary.sonames import is_nvidia
from cudadoctor.process import ProgramNotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from cudadoctor.binary.inputs import Interpreter
    from cudadoctor.binary.libraries import LibraryReport

_CHILD = """
import importlib, json, sys
try:
    importlib.import_module(sys.argv[1])
    error = ""
except BaseException as caught:
    error = "%s: %s" % (type(caught).__name__, caught)
with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
    print("\\n" + json.dumps({"error": error, "maps": maps.read()}))
"""


class LiveDifference(Struct, frozen=True):
    """A library that came from elsewhere than predicted."""

    name: str
    predicted: str
    mapped: str


class LiveReport(Struct, frozen=True, omit_defaults=True):
    """What importing a package brought in. `error`: what the import raised, or why the child gave no answer."""

    package: str
    mapped: tuple[str, ...] = ()
    """The CUDA libraries in the process."""
    differences: tuple[LiveDifference, ...] = ()
    error: str = ""


def import_live(module: str, interpreter: Interpreter, predicted: Iterable[LibraryReport], timeout: float) -> LiveReport:
    """Import `module` in the interpreter, in a child killed after `timeout` seconds, and compare."""
    try:
        done = interpreter.system.run((interpreter.executable, "-c", _CHILD, module), timeout)
    except ProgramNotFoundError as error:
        return LiveReport(module, error=str(error))
    if done.timed_out:
        return LiveReport(module, error=f"the import did not end within {timeout:g} s")
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        maps, raised = str(answer["maps"]), str(answer["error"])
    except (ValueError, IndexError, KeyError, TypeError):
        died = done.signal_name or f"exit code {done.exit_code}"
        return LiveReport(module, error=f"the import ended the process: {died} {done.stderr.strip()[-300:]}".rstrip())
    mapped = tuple(path for path in mapped_files(maps, "/proc/self/root") if is_nvidia(posixpath.basename(path)))
    return LiveReport(module, mapped, tuple(_differences(mapped, predicted)), raised)


def _differences(mapped: tuple[str, ...], predicted: Iterable[LibraryReport]) -> Iterator[LiveDifference]:
    """Libraries of the same soname at another real path; a library that was not predicted at all was dlopened, no difference."""
    seen: set[str] = set()
    for report in predicted:
        for use in report.uses:
            if use.path is None or use.name in seen:
                continue
            seen.add(use.name)
            real = posixpath.realpath(use.path)
            rivals = [path for path in mapped if _is_version_of(posixpath.basename(path), use.name)]
            if rivals and real not in rivals:
                yield LiveDifference(use.name, real, rivals[0])


def _is_version_of(file: str, soname: str) -> bool:
    """True for libcudart.so.12.6.77 of libcudart.so.12."""
    return file == soname or file.startswith(f"{soname}.")
