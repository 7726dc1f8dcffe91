from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.inputs import Interpreter
from cudadoctor.binary.libraries import LibraryReport
from cudadoctor.binary.live import LiveDifference, LiveReport, import_live
from cudadoctor.model.binaries import LibraryUse, Wanted
from cudadoctor.system import RealSystem

pytestmark = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no procfs")

CODE = "int one(void) { return 1; }"


def run(folder: Path, source: str, *predicted: LibraryReport, timeout: float = 30) -> LiveReport:
    (folder / "package.py").write_text(source)
    system = RealSystem({"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"})
    return import_live("package", Interpreter(sys.executable, system), predicted, timeout)


def loads(path: Path) -> str:
    return f"import ctypes; ctypes.CDLL({str(path)!r}); print('noise')"


def uses(path: Path) -> LibraryReport:
    return LibraryReport((LibraryUse("libcudart.so.12", Wanted.NEEDED, "/a.so", str(path), "RPATH"),), ())


def test_library_as_predicted(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    real = compile_library(tmp_path / "libcudart.so.12.6.77", source=CODE)
    link = tmp_path / "libcudart.so.12"
    link.symlink_to(real.name)
    report = run(tmp_path, loads(link), uses(link))
    assert report == LiveReport("package", (str(real),))


def test_library_from_elsewhere(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    predicted = compile_library(tmp_path / "a/libcudart.so.12", source=CODE)
    actual = compile_library(tmp_path / "b/libcudart.so.12", source=CODE)
    report = run(tmp_path, loads(actual), uses(predicted))
    assert report.differences == (LiveDifference("libcudart.so.12", str(predicted), str(actual)),)


def test_import_that_fails_still_tells_what_was_loaded(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    actual = compile_library(tmp_path / "libcublas.so.12", source=CODE)
    report = run(tmp_path, loads(actual) + "\nraise ImportError('libcudnn.so.9: cannot open')")
    assert report.mapped == (str(actual),)
    assert report.error == "ImportError: libcudnn.so.9: cannot open"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os; os._exit(7)", "exit code 7"),
        ("import time; time.sleep(60)", "did not end within 1 s"),
    ],
)
def test_import_that_ends_the_process(source: str, words: str, tmp_path: Path) -> None:
    assert words in run(tmp_path, source, timeout=1 if "sleep" in source else 30).error


def test_no_interpreter() -> None:
    report = import_live("package", Interpreter("/nonexistent/python", RealSystem()), (), 5)
    assert "/nonexistent/python" in report.error
