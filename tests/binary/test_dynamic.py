from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.dynamic import DynamicInfo, VersionNeed, read_dynamic
from cudadoctor.binary.elf import Machine
from cudadoctor.binary.source import BinaryError, BytesSource, FileSource
from tests.binary.system_libraries import system_libraries


def dynamic(path: str | Path) -> DynamicInfo:
    with FileSource(path) as source:
        return read_dynamic(source)


@pytest.mark.parametrize("path", system_libraries(25))
def test_agrees_with_readelf(path: str) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf on PATH")
    text = subprocess.run(("readelf", "-dVW", path), capture_output=True, text=True, check=True, timeout=60).stdout
    info = dynamic(path)
    assert list(info.needed) == re.findall(r"\(NEEDED\) +Shared library: \[(.*)\]", text)
    assert [info.soname] == (re.findall(r"\(SONAME\) +Library soname: \[(.*)\]", text) or [None])
    assert ":".join(info.rpath) == "".join(re.findall(r"\(RPATH\) +Library rpath: \[(.*)\]", text))
    assert ":".join(info.runpath) == "".join(re.findall(r"\(RUNPATH\) +Library runpath: \[(.*)\]", text))
    wanted = re.findall(r"Name: (\S+)  Flags: \S+ +(?:\| \S+ +)?Version: \d+", text)
    assert {need.version for need in info.version_needs} == set(wanted)
    defined = re.findall(r"Rev: 1  Flags: (?!BASE)\S+ +(?:\| \S+ +)?Index: \d+  Cnt: \d+  Name: (\S+)", text)
    assert info.version_definitions == frozenset(defined)


def test_sample(samples: Path) -> None:
    info = dynamic(samples / "plain.so")
    assert info.machine is Machine.X86_64
    assert info.needed[0] == "libcudart.so.13"
    assert VersionNeed("libcudart.so.13", "libcudart.so.13", weak=False) in info.version_needs


def test_object_file_has_nothing_to_load(samples: Path) -> None:
    info = dynamic(samples / "lto.o")
    assert (info.needed, info.soname, info.interpreter) == ((), None, None)


def test_program_names_its_interpreter() -> None:
    info = dynamic(Path(shutil.which("sh") or "/bin/sh").resolve())
    assert info.interpreter is not None
    assert Path(info.interpreter).exists()


def test_runpath_hides_rpath_and_empty_entries_stay(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    old = compile_library(tmp_path / "old.so", "-Wl,--disable-new-dtags,-rpath,/a:$ORIGIN/b:", "-Wl,-soname,libold.so.1")
    new = compile_library(tmp_path / "new.so", "-Wl,--enable-new-dtags,-rpath,/a")
    assert dynamic(old).rpath == ("/a", "$ORIGIN/b", "")
    assert dynamic(old).soname == "libold.so.1"
    assert (dynamic(new).rpath, dynamic(new).runpath) == ((), ("/a",))


def test_nodefaultlib_flag(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    assert dynamic(compile_library(tmp_path / "a.so", "-Wl,-z,nodefaultlib")).no_default_folders
    assert not dynamic(compile_library(tmp_path / "b.so")).no_default_folders


def test_works_without_section_table(samples: Path) -> None:
    data = bytearray((samples / "plain.so").read_bytes())
    data[40:48], data[60:64] = bytes(8), bytes(4)
    assert read_dynamic(BytesSource(bytes(data))) == dynamic(samples / "plain.so")


def test_strings_out_of_bounds_are_errors(samples: Path) -> None:
    data = bytearray((samples / "plain.so").read_bytes())
    at = data.find((1).to_bytes(8, "little"), 0x1000)  # some DT_NEEDED is found by trying each
    failures = 0
    while at >= 0:
        patched = bytearray(data)
        patched[at + 8 : at + 16] = (1 << 40).to_bytes(8, "little")
        try:
            read_dynamic(BytesSource(bytes(patched)))
        except BinaryError:
            failures += 1
        at = data.find((1).to_bytes(8, "little"), at + 8)
    assert failures
