"""The search of ld.so: constructed cases, each compared with the real `ld.so --list` of the machine that runs the tests."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cudadoctor.binary.dependencies import resolve_tree
from cudadoctor.binary.dynamic import read_dynamic
from cudadoctor.binary.elf import Machine
from cudadoctor.binary.loader import LoaderView, Resolved, Unresolved, Via, split_library_path
from cudadoctor.binary.source import FileSource

Compile = Callable[..., Path]


def loader_program() -> str:
    """The ld.so of this machine."""
    for path in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"):
        if Path(path).exists():
            return path
    pytest.skip("no glibc loader on this machine")


def real_answers(path: Path, environ: Mapping[str, str], folder: Path | None = None) -> dict[str, str | None]:
    """What ld.so would load for `path`, by name: the trusted files of this test only."""
    env = {"PATH": os.environ["PATH"], "LD_TRACE_LOADED_OBJECTS": "1", **environ}
    done = subprocess.run((loader_program(), str(path)), env=env, cwd=folder, capture_output=True, text=True, timeout=60)
    answers: dict[str, str | None] = {}
    for name, target in re.findall(r"^\s+(\S+) => (.*?)(?: \(0x[0-9a-f]+\))?$", done.stdout, re.MULTILINE):
        if not name.startswith(("ld-linux", "linux-vdso", "/")):
            answers[name] = None if target == "not found" else target
    return answers


def our_answers(path: Path, environ: Mapping[str, str]) -> dict[str, str | None]:
    tree = resolve_tree(LoaderView.of_environment(environ), str(path))
    found = {entry.resolution.name: entry.resolution for entry in reversed(tree.dependencies)}
    return {
        name: resolution.path if isinstance(resolution, Resolved) else None
        for name, resolution in found.items()
        if not name.startswith("ld-linux")
    }


@dataclass
class Case:
    """Libraries by place: `{"a/libx.so": options}`; `main.so` is what is loaded. `{root}` is filled in with the folder."""

    files: Mapping[str, tuple[str, ...]]
    environ: Mapping[str, str] = field(default_factory=dict)
    expected: Mapping[str, str | None] = field(default_factory=dict)


OLD, NEW = "-Wl,--disable-new-dtags", "-Wl,--enable-new-dtags"
X = "-Wl,-soname,libx.so"
NEEDS_X, NEEDS_Y = "-l:libx.so", "-l:liby.so"
STUB = "-L{root}/stub"

CASES = {
    "RPATH comes before LD_LIBRARY_PATH": Case(
        {"rpath/libx.so": (X,), "env/libx.so": (X,), "main.so": (STUB, NEEDS_X, OLD, "-Wl,-rpath,{root}/rpath")},
        {"LD_LIBRARY_PATH": "{root}/env"},
        {"libx.so": "rpath/libx.so"},
    ),
    "LD_LIBRARY_PATH comes before RUNPATH": Case(
        {"run/libx.so": (X,), "env/libx.so": (X,), "main.so": (STUB, NEEDS_X, NEW, "-Wl,-rpath,{root}/run")},
        {"LD_LIBRARY_PATH": "{root}/env"},
        {"libx.so": "env/libx.so"},
    ),
    "RUNPATH without LD_LIBRARY_PATH": Case(
        {"run/libx.so": (X,), "main.so": (STUB, NEEDS_X, NEW, "-Wl,-rpath,{root}/run")}, {}, {"libx.so": "run/libx.so"}
    ),
    "RPATH is inherited": Case(
        {
            "libs/libx.so": (X,),
            "libs/liby.so": (STUB, NEEDS_X, "-Wl,-soname,liby.so"),
            "main.so": (STUB, NEEDS_Y, OLD, "-Wl,-rpath,{root}/libs"),
        },
        {},
        {"liby.so": "libs/liby.so", "libx.so": "libs/libx.so"},
    ),
    "RUNPATH is not inherited": Case(
        {
            "libs/libx.so": (X,),
            "libs/liby.so": (STUB, NEEDS_X, "-Wl,-soname,liby.so"),
            "main.so": (STUB, NEEDS_Y, NEW, "-Wl,-rpath,{root}/libs"),
        },
        {},
        {"liby.so": "libs/liby.so", "libx.so": None},
    ),
    "a RUNPATH shuts out the RPATH of the loader": Case(
        {
            "libs/libx.so": (X,),
            "libs/liby.so": (STUB, NEEDS_X, "-Wl,-soname,liby.so", NEW, "-Wl,-rpath,{root}/nowhere"),
            "main.so": (STUB, NEEDS_Y, OLD, "-Wl,-rpath,{root}/libs"),
        },
        {},
        {"liby.so": "libs/liby.so", "libx.so": None},
    ),
    "$ORIGIN is the folder of the file": Case(
        {"deep/lib/libx.so": (X,), "deep/bin/main.so": (STUB, NEEDS_X, NEW, "-Wl,-rpath,$ORIGIN/../lib")},
        {},
        {"libx.so": "deep/bin/../lib/libx.so"},
    ),
    "${ORIGIN} in braces": Case(
        {"lib/libx.so": (X,), "main.so": (STUB, NEEDS_X, OLD, "-Wl,-rpath,${ORIGIN}/lib")}, {}, {"libx.so": "lib/libx.so"}
    ),
    "hwcaps folders come first": Case(
        {
            "env/libx.so": (X,),
            "env/glibc-hwcaps/x86-64-v2/libx.so": (X,),
            "env/glibc-hwcaps/x86-64-v3/libx.so": (X,),
            "env/glibc-hwcaps/x86-64-v4/libx.so": (X,),
            "main.so": (STUB, NEEDS_X),
        },
        {"LD_LIBRARY_PATH": "{root}/env"},
    ),
    "already loaded by soname": Case(
        {
            "a/libx.so": (X,),
            "b/libx.so": (X,),
            "a/liby.so": (STUB, NEEDS_X, "-Wl,-soname,liby.so", NEW, "-Wl,-rpath,{root}/b"),
            "main.so": (STUB, NEEDS_X, NEEDS_Y, NEW, "-Wl,-rpath,{root}/a"),
        },
        {},
        {"libx.so": "a/libx.so", "liby.so": "a/liby.so"},
    ),
    "breadth first": Case(
        {
            "a/libx.so": (X,),
            "b/libx.so": (X,),
            "a/liby.so": (STUB, NEEDS_X, "-Wl,-soname,liby.so", NEW, "-Wl,-rpath,{root}/b"),
            "main.so": (STUB, NEEDS_Y, NEEDS_X, NEW, "-Wl,-rpath,{root}/a"),
        },
        {},
        {"libx.so": "a/libx.so"},
    ),
    "empty and missing LD_LIBRARY_PATH entries": Case(
        {"env/libx.so": (X,), "main.so": (STUB, NEEDS_X)},
        {"LD_LIBRARY_PATH": "/nowhere::{root}/main.so;{root}/env/"},
        {"libx.so": "env/libx.so"},
    ),
    "missing": Case({"main.so": (STUB, NEEDS_X)}, {}, {"libx.so": None}),
}


def _lay(case: Case, root: Path, compile_library: Compile) -> tuple[Path, dict[str, str]]:
    compile_library(root / "stub/libx.so", X)
    compile_library(root / "stub/liby.so", "-Wl,-soname,liby.so")
    for place, options in case.files.items():
        compile_library(root / place, "-Wl,--no-as-needed", *(option.replace("{root}", str(root)) for option in options))
    main = next(place for place in case.files if place.endswith("main.so"))
    return root / main, {name: text.replace("{root}", str(root)) for name, text in case.environ.items()}


@pytest.mark.parametrize("name", CASES)
def test_same_answers_as_the_real_loader(name: str, tmp_path: Path, compile_library: Compile) -> None:
    case = CASES[name]
    main, environ = _lay(case, tmp_path, compile_library)
    real = real_answers(main, environ)
    assert real
    assert our_answers(main, environ) == real
    for library, place in case.expected.items():
        assert real[library] == (None if place is None else f"{tmp_path}/{place}")


def test_links_keep_their_folder_for_origin(tmp_path: Path, compile_library: Compile) -> None:
    compile_library(tmp_path / "real/libx.so", X)
    compile_library(tmp_path / "stub/libx.so", X)
    options = (f"-L{tmp_path}/stub", "-Wl,--no-as-needed", NEEDS_X, "-Wl,-rpath,$ORIGIN")
    compile_library(tmp_path / "real/liby.so", *options, "-Wl,-soname,liby.so")
    compile_library(tmp_path / "link/libx.so", X)
    (tmp_path / "link/liby.so").symlink_to("../real/liby.so")
    main = compile_library(
        tmp_path / "main.so", f"-L{tmp_path}/link", "-Wl,--no-as-needed", NEEDS_Y, f"-Wl,-rpath,{tmp_path}/link"
    )
    assert our_answers(main, {}) == real_answers(main, {})
    assert our_answers(main, {})["libx.so"] == f"{tmp_path}/link/libx.so"


@pytest.mark.parametrize("kind", ["32-bit", "other processor", "unreadable"])
def test_unsuitable_files_are_passed_over(kind: str, tmp_path: Path, compile_library: Compile) -> None:
    good = compile_library(tmp_path / "good/libx.so", X)
    bad = tmp_path / "bad/libx.so"
    bad.parent.mkdir()
    data = bytearray(good.read_bytes())
    if kind == "32-bit":
        data[4] = 1
    elif kind == "other processor":
        data[18:20] = (8).to_bytes(2, "little")
    bad.write_bytes(data)
    if kind == "unreadable":
        if os.geteuid() == 0:
            pytest.skip("root can read every file")
        bad.chmod(0)
    main = compile_library(tmp_path / "main.so", f"-L{good.parent}", "-Wl,--no-as-needed", NEEDS_X)
    environ = {"LD_LIBRARY_PATH": f"{bad.parent}:{good.parent}"}
    assert real_answers(main, environ)["libx.so"] == str(good)
    assert our_answers(main, environ)["libx.so"] == str(good)
    found = LoaderView.of_environment(environ).find("libx.so")
    assert isinstance(found, Resolved)
    assert [entry.path for entry in found.rejected] == [str(bad)]


@pytest.mark.parametrize("kind", ["text", "empty", "folder", "loop"])
def test_broken_files_stop_the_search_as_in_the_real_loader(kind: str, tmp_path: Path, compile_library: Compile) -> None:
    good = compile_library(tmp_path / "good/libx.so", X)
    bad = tmp_path / "bad/libx.so"
    bad.parent.mkdir()
    if kind == "folder":
        bad.mkdir()
    elif kind == "loop":
        bad.symlink_to(bad)
    else:
        bad.write_text("INPUT(libx.a)" * 20 if kind == "text" else "")
    main = compile_library(tmp_path / "main.so", f"-L{good.parent}", "-Wl,--no-as-needed", NEEDS_X)
    environ = {"LD_LIBRARY_PATH": f"{bad.parent}:{good.parent}"}
    assert our_answers(main, environ).get("libx.so") == real_answers(main, environ).get("libx.so")


def test_shadowed_copies_are_listed_in_search_order(tmp_path: Path, compile_library: Compile) -> None:
    first, second = (compile_library(tmp_path / name / "libx.so", X) for name in ("first", "second"))
    third = compile_library(tmp_path / "run/libx.so", X)
    (tmp_path / "alias").symlink_to("first")
    options = (f"-L{first.parent}", "-Wl,--no-as-needed", NEEDS_X, NEW, f"-Wl,-rpath,{third.parent}")
    main = compile_library(tmp_path / "main.so", *options)
    view = LoaderView(ld_library_path=(str(first.parent), str(tmp_path / "alias"), str(second.parent)))
    found = view.find("libx.so", str(main))
    assert isinstance(found, Resolved)
    assert (found.path, found.via) == (str(first), Via.LD_LIBRARY_PATH)
    assert [(copy.path, copy.via) for copy in found.shadowed] == [
        (str(second), Via.LD_LIBRARY_PATH),
        (str(third), Via.RUNPATH),
    ]
    assert found.shadowed[1].owner == str(main)


def test_system_library_comes_from_the_cache_or_a_default_folder() -> None:
    found = LoaderView().find("libc.so.6")
    assert isinstance(found, Resolved)
    assert found.via in {Via.CACHE, Via.DEFAULT}
    with FileSource(found.real_path) as source:
        assert read_dynamic(source).soname == "libc.so.6"


def test_executable_rpath_counts_for_dlopen(tmp_path: Path, compile_library: Compile) -> None:
    library = compile_library(tmp_path / "lib/libx.so", X)
    program = compile_library(tmp_path / "bin/python", OLD, "-Wl,-rpath,$ORIGIN/../lib")
    found = LoaderView(ld_library_path=("/nowhere",), executable=str(program)).find("libx.so")
    assert isinstance(found, Resolved)
    assert (found.real_path, found.via, found.owner) == (str(library), Via.RPATH, str(program))


def test_root_folder_of_an_unpacked_image(tmp_path: Path, compile_library: Compile) -> None:
    root = tmp_path / "image"
    compile_library(root / "opt/cuda/lib64/libcudart.so.12.6.77", "-Wl,-soname,libcudart.so.12")
    (root / "opt/cuda/lib64/libcudart.so.12").symlink_to("libcudart.so.12.6.77")
    (root / "usr/local").mkdir(parents=True)
    (root / "usr/local/cuda").symlink_to("/opt/cuda")  # absolute: stays inside the image
    compile_library(root / "usr/lib/x86_64-linux-gnu/libcuda.so.1")
    view = LoaderView(root=str(root), ld_library_path=("/usr/local/cuda/lib64",), machine=Machine.X86_64, hwcaps=())
    found = view.find("libcudart.so.12")
    assert isinstance(found, Resolved)
    assert found.path == "/usr/local/cuda/lib64/libcudart.so.12"
    assert found.real_path == "/opt/cuda/lib64/libcudart.so.12.6.77"
    driver = view.find("libcuda.so.1")
    assert isinstance(driver, Resolved)
    assert (driver.path, driver.via) == ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", Via.DEFAULT)
    assert isinstance(view.find("libc.so.6"), Unresolved)


@pytest.mark.parametrize("root", ["/nonexistent", "empty", "odd"])
def test_odd_machines_give_no_answer_and_no_error(root: str, tmp_path: Path) -> None:
    folder = tmp_path / root if not root.startswith("/") else Path(root)
    if root == "odd":
        (folder / "etc/ld.so.cache").mkdir(parents=True)
        (folder / "lib").symlink_to("lib")
    elif root == "empty":
        folder.mkdir()
    view = LoaderView(root=str(folder), ld_library_path=("", "/x", "\0", "relative"))
    assert isinstance(view.find("libcuda.so.1"), Unresolved)
    assert isinstance(view.find("/etc/ld.so.cache"), Unresolved)
    assert view.load("/nothing") is None


def test_split_library_path() -> None:
    assert split_library_path("/a:/b;/c::") == ("/a", "/b", "/c", "", "")
    assert split_library_path("") == ()
