from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.snapshot import EnvironmentKind
from cudadoctor.probes.python_env import ChosenPython, choose_python, environment_kind, installer, parse_environment, site_folders
from tests.fakes.fakebin import fake_program
from tests.fakes.roots import linux, windows

CHOSEN = ChosenPython("/venv/bin/python", "the active environment, VIRTUAL_ENV", "/venv")
VENV: dict[str, Any] = {
    "executable": "/venv/bin/python",
    "version": "3.12.1",
    "prefix": "/venv",
    "base_prefix": "/usr",
    "conda": False,
    "made_by_uv": False,
    "path": [],
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path in ("usr/bin/python3", "venv/bin/python", "conda/bin/python", "other/bin/python3"):
        fake_program(tmp_path / path)
    (tmp_path / "gone").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("wanted", "environ", "executable", "because"),
    [
        ("", {}, "/usr/bin/python3", "python3 on the PATH"),
        ("", {"VIRTUAL_ENV": "/venv", "CONDA_PREFIX": "/conda"}, "/venv/bin/python", "the active environment, VIRTUAL_ENV"),
        ("", {"CONDA_PREFIX": "/conda"}, "/conda/bin/python", "the active environment, CONDA_PREFIX"),
        ("/other/bin/python3", {"VIRTUAL_ENV": "/venv"}, "/other/bin/python3", "given by --python"),
        ("python3", {"VIRTUAL_ENV": "/venv"}, "/usr/bin/python3", "given by --python"),
        ("/other", {}, "/other/bin/python3", "given by --python"),
        ("/nowhere", {}, "/nowhere", "given by --python"),
        ("", {"VIRTUAL_ENV": "/gone"}, "/usr/bin/python3", "python3 on the PATH; VIRTUAL_ENV is /gone, which has no Python"),
    ],
)
def test_the_interpreter_is_chosen_in_the_documented_order(
    root: Path, wanted: str, environ: dict[str, str], executable: str, because: str
) -> None:
    chosen = choose_python(linux(root, environ={"PATH": "/usr/bin", **environ}), wanted)
    assert (chosen.executable, chosen.because) == (executable, because)


@pytest.mark.parametrize(
    ("environ", "files", "executable"),
    [
        ({}, {"/p/version": "3.11.7\n3.10.1\n"}, "/p/versions/3.11.7/bin/python3"),
        ({"PYENV_VERSION": "3.10.1:3.11.7"}, {"/p/version": "3.11.7"}, "/p/versions/3.10.1/bin/python3"),
        ({"PWD": "/a/b"}, {"/p/version": "3.11.7", "/a/.python-version": "3.10.1"}, "/p/versions/3.10.1/bin/python3"),
        ({"PYENV_VERSION": "9.9.9"}, {"/p/version": "3.11.7"}, "/p/shims/python3"),
        ({}, {"/p/version": "system"}, "/p/shims/python3"),
        ({}, {}, "/p/shims/python3"),
    ],
)
def test_a_shim_of_pyenv_is_followed(tmp_path: Path, environ: dict[str, str], files: dict[str, str], executable: str) -> None:
    for path in ("p/shims", "p/versions/3.11.7/bin", "p/versions/3.10.1/bin"):
        fake_program(tmp_path / path / "python3")
    assert choose_python(linux(tmp_path, files, environ={"PATH": "/p/shims", **environ})).executable == executable


def test_our_own_python_is_the_last_resort(tmp_path: Path) -> None:
    chosen = choose_python(linux(tmp_path, environ={"PATH": "/usr/bin"}))
    assert (chosen.executable, chosen.because) == (sys.executable, "cudadoctor's own, as no other was found")


def test_windows_keeps_its_interpreters_elsewhere(tmp_path: Path) -> None:
    system = windows(tmp_path, {r"C:\venv\Scripts\python.exe": ""}, {"PATH": "", "VIRTUAL_ENV": r"C:\venv"})
    chosen = choose_python(system)
    assert chosen.executable == r"C:\venv\Scripts\python.exe"
    assert site_folders(system, chosen) == (r"C:\venv\Lib\site-packages",)


def test_site_packages_are_guessed_from_the_path(tmp_path: Path) -> None:
    files = dict.fromkeys(
        ["/venv/lib/python3.12/site-packages", "/usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages"]
    )
    system = linux(tmp_path, files)
    assert site_folders(system, CHOSEN) == ("/venv/lib/python3.12/site-packages",)
    of_system = ChosenPython("/usr/bin/python3", "", "/usr")
    assert site_folders(system, of_system) == ("/usr/lib/python3/dist-packages", "/usr/local/lib/python3.11/dist-packages")
    assert site_folders(system, ChosenPython("/shims/python3", "")) == ()


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, EnvironmentKind.VENV),
        ({"prefix": "/opt/conda", "base_prefix": "/opt/conda", "conda": True}, EnvironmentKind.CONDA),
        ({"prefix": "/usr"}, EnvironmentKind.SYSTEM),
        ({"prefix": "/root/.pyenv/x", "base_prefix": "/root/.pyenv/x"}, EnvironmentKind.OTHER),
    ],
)
def test_the_kind_of_environment(changes: dict[str, Any], kind: EnvironmentKind) -> None:
    assert environment_kind({**VENV, **changes}) is kind


@pytest.mark.parametrize(
    ("changes", "packages", "name"),
    [
        ({}, (), "pip"),
        ({}, ({"name": "torch", "installer": "uv"},), "uv"),
        ({"made_by_uv": True}, (), "uv"),
        ({"conda": True}, ({"name": "pytorch", "installer": "conda"},), "conda"),
        ({"conda": True}, ({"name": "torch", "installer": "pip"},), "pip"),
        ({"conda": True}, (), "conda"),
        ({"prefix": "/work/.pixi/envs/default", "conda": True}, (), "pixi"),
        ({"prefix": "/home/x/.cache/pypoetry/virtualenvs/y"}, (), "poetry"),
    ],
)
def test_what_installed_torch_or_would(changes: dict[str, Any], packages: tuple[dict[str, str], ...], name: str) -> None:
    assert installer({**VENV, **changes}, packages) == name


def test_an_interpreter_that_says_nothing_is_missing_with_the_reason() -> None:
    unsaid = Missing(MissingReason.TIMEOUT, "starting Python: no answer", "torch child")
    environment = parse_environment({}, CHOSEN, unsaid)
    assert known(environment.executable) == "/venv/bin/python"
    assert environment.python_version == environment.packages == environment.torch == unsaid


def test_an_interpreter_that_dies_before_it_lists_its_packages() -> None:
    unsaid = Missing(MissingReason.CRASHED, "died", "torch child")
    environment = parse_environment({"python": VENV}, CHOSEN, unsaid)
    assert str(known(environment.python_version)) == "3.12.1"
    assert environment.packages == unsaid
