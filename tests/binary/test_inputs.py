from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from cudadoctor.binary.inputs import (
    InputError,
    InputKind,
    Interpreter,
    folder_files,
    locate,
    mapped_files,
    may_be_binary,
    process,
)
from cudadoctor.system import RealSystem


@pytest.fixture(scope="session")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real virtual environment with one hand-made package."""
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "flash_attn").mkdir()
    (site / "flash_attn/__init__.py").write_text("raise RuntimeError('imported')")
    (site / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so").write_bytes(b"x")
    info = site / "flash_attn-2.8.0.dist-info"
    info.mkdir()
    record = (
        "flash_attn/__init__.py,sha256=x,1\n"
        "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so,sha256=x,1\n"
        '"flash_attn/odd, name.so",,\n'
        "../../../bin/tool,,\n"
        "flash_attn-2.8.0.dist-info/RECORD,,\n"
    )
    (info / "RECORD").write_text(record)
    (site / "no_metadata").mkdir()
    (site / "no_metadata/kernel.so").write_bytes(b"x")
    return folder


def interpreter(environment: Path) -> Interpreter:
    return Interpreter(str(environment / "bin/python"), RealSystem())


@pytest.mark.parametrize("name", ["flash-attn", "Flash_Attn", "flash.attn"])
def test_package_by_any_spelling_of_its_name(name: str, environment: Path) -> None:
    found = locate(name, interpreter(environment))
    site = next(environment.glob("lib/python*/site-packages"))
    assert found.kind is InputKind.PACKAGE
    assert found.files == (
        str(site / "flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so"),
        str(site / "flash_attn/odd, name.so"),
        str(environment / "bin/tool"),
        str(site / "flash_attn-2.8.0.dist-info/RECORD"),
    )


def test_package_without_metadata_is_found_by_its_folder(environment: Path) -> None:
    found = locate("no-metadata", interpreter(environment))
    assert [Path(path).name for path in found.files] == ["kernel.so"]


def test_absent_package_names_where_it_looked(environment: Path) -> None:
    with pytest.raises(InputError, match=r"nothing_here.*site-packages"):
        locate("nothing_here", interpreter(environment))


@pytest.mark.parametrize(
    ("script", "words"), [("exit 3", "exit code 3"), ("echo no json", "cannot ask"), ("echo broken >&2; exit 1", "broken")]
)
def test_interpreter_that_does_not_answer(script: str, words: str, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    with pytest.raises(InputError, match=words):
        locate("torch", Interpreter(str(python), RealSystem()))


def test_interpreter_that_does_not_exist() -> None:
    with pytest.raises(InputError, match="/nonexistent/python"):
        locate("torch", Interpreter("/nonexistent/python", RealSystem()))


def test_paths_before_packages(tmp_path: Path, environment: Path) -> None:
    (tmp_path / "a.so").write_text("")
    (tmp_path / "a.whl").write_text("")
    python = interpreter(environment)
    assert locate(str(tmp_path), python).kind is InputKind.FOLDER
    assert locate(str(tmp_path / "a.so"), python).kind is InputKind.FILE
    assert locate(str(tmp_path / "a.whl"), python).kind is InputKind.WHEEL
    for missing in ("missing.so", "./missing", "missing.whl"):
        with pytest.raises(InputError, match="no such file"):
            locate(missing, python)


def test_folder_files_are_ordered_and_links_are_not_followed(tmp_path: Path) -> None:
    for name in ("b/z.so", "b/a.so.1.2", "b/x.py", "a/kernel.cubin", "top", "b/data.GGUF"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "b/loop").symlink_to("..")
    (tmp_path / "b/link.so").symlink_to("z.so")
    os.mkfifo(tmp_path / "pipe")
    assert [str(Path(path).relative_to(tmp_path)) for path in folder_files(str(tmp_path))] == [
        "top",
        "a/kernel.cubin",
        "b/a.so.1.2",
        "b/z.so",
    ]
    assert list(folder_files(str(tmp_path / "none"))) == []


def test_may_be_binary() -> None:
    assert may_be_binary("libtorch_cuda.so")
    assert may_be_binary("libcudart.so.12.6.77")
    assert may_be_binary("kernel.ptx")
    assert not may_be_binary("module.py")
    assert not may_be_binary("weights.safetensors")


MAPS = """\
5583a0000000-5583a0001000 r--p 00000000 08:01 1 /usr/bin/python3.11
5583a0001000-5583a0002000 r-xp 00001000 08:01 1 /usr/bin/python3.11
7f0000000000-7f0000001000 r-xp 00000000 08:01 2 /opt/my libs/libcudart.so.12
7f0000002000-7f0000003000 r-xp 00000000 08:01 3 /tmp/gone.so (deleted)
7f0000004000-7f0000005000 rw-p 00000000 08:01 4 /usr/share/data.bin
7f0000006000-7f0000007000 rw-p 00000000 00:00 0
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0 [vdso]
7f0000008000-7f0000009000 r-xp 00000000 08:01 2 /opt/my libs/libcudart.so.12
"""


def test_mapped_files(tmp_path: Path) -> None:
    expected = ("/usr/bin/python3.11", "/opt/my libs/libcudart.so.12")
    assert mapped_files(MAPS, "/nonexistent") == expected
    assert mapped_files(MAPS, str(tmp_path)) == tuple(f"{tmp_path}{path}" for path in expected)


def test_a_running_process() -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("no procfs")
    child = subprocess.Popen((sys.executable, "-c", "print(flush=True); input()"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        found = process(child.pid)
    finally:
        child.communicate(b"\n")
    assert found.kind is InputKind.PROCESS
    assert any("libc" in Path(path).name for path in found.files)


def test_no_such_process() -> None:
    if not Path("/proc/self").exists():
        pytest.skip("no procfs")
    with pytest.raises(InputError, match="no process 4194305"):
        process(4194305)
