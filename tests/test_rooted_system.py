from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from cudadoctor.rooted_system import RootedSystem
from cudadoctor.system import ProgramNotFoundError
from tests.fakes.fakebin import fake_program
from tests.fakes.roots import linux, windows


def test_absolute_links_stay_inside_the_root(tmp_path: Path) -> None:
    system = linux(tmp_path, {"/opt/cuda-12.6/version.json": "{}"}, {"/usr/local/cuda": "/opt/cuda", "/opt/cuda": "cuda-12.6"})
    assert system.real_path("/usr/local/cuda") == "/opt/cuda-12.6"
    assert system.read_text("/usr/local/cuda/version.json") == "{}"
    assert system.list_folder("/usr/local/cuda") == ("version.json",)
    assert system.is_folder("/usr/local/cuda")


def test_links_cannot_leave_the_root(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    system = linux(tmp_path / "root", {"/inside": "ok"}, {"/up": "../../../outside", "/far": "../../inside"})
    assert not system.exists("/up")
    assert system.read_text("/far") == "ok"
    with pytest.raises(FileNotFoundError):
        system.read_text("/../../outside")


def test_links_that_go_in_circles_are_an_error(tmp_path: Path) -> None:
    system = linux(tmp_path, {}, {"/a": "b", "/b": "/a"})
    for ask in (system.real_path, system.read_text, system.list_folder, system.mode):
        with pytest.raises(OSError) as caught:  # the code is looked at
            ask("/a")
        assert caught.value.errno == errno.ELOOP
    assert not system.exists("/a")
    assert not system.is_folder("/a")
    assert not system.access("/a", os.R_OK)


def test_a_path_that_is_missing_has_no_real_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        linux(tmp_path).real_path("/nowhere")
    assert linux(tmp_path).real_path("/") == "/"


def test_programs_of_an_image_are_found_but_not_run(tmp_path: Path) -> None:
    fake_program(tmp_path / "usr/bin/nvcc", "hello")
    image = linux(tmp_path, uname=None)
    assert image.which("nvcc") == ("/usr/bin/nvcc",)
    with pytest.raises(ProgramNotFoundError, match="not run"):
        image.run(["nvcc"], 1)
    with pytest.raises(ProgramNotFoundError, match="not run"):
        image.start(["nvcc"])


def test_programs_of_a_fake_machine_run_with_its_folders(tmp_path: Path) -> None:
    fake_program(tmp_path / "usr/bin/nvcc", "hello")
    (tmp_path / "usr/lib/fake").mkdir(parents=True)
    environ = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/usr/lib/fake:/absent"}
    machine = linux(tmp_path, environ=environ)
    assert machine.run(["nvcc"], 10).stdout == "hello"
    show = "import os; print(os.environ['LD_LIBRARY_PATH'])"
    assert machine.run([sys.executable, "-c", show], 10).stdout == f"{tmp_path}/usr/lib/fake:/absent\n"


def test_windows_paths_lie_below_the_drive(tmp_path: Path) -> None:
    system = windows(tmp_path, {r"C:\Windows\System32\nvidia-smi.exe": "", r"C:\Windows\System32\nvml.dll": ""})
    assert isinstance(system, RootedSystem)
    assert system.exists(r"C:\Windows\System32\nvml.dll")
    assert system.which("nvidia-smi") == (r"C:\Windows\System32\nvidia-smi.exe",)
    assert system.real_path(r"C:\Windows\System32\nvml.dll") == r"C:\Windows\System32\nvml.dll"
