from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.dependencies import MissingVersion, resolve_tree
from cudadoctor.binary.loader import LoaderView, Resolved, Via
from cudadoctor.binary.source import BinaryError
from tests.binary.system_libraries import system_libraries
from tests.binary.test_loader import our_answers, real_answers


@pytest.mark.parametrize("path", system_libraries(40))
def test_system_libraries_resolve_as_in_the_real_loader(path: str) -> None:
    real = real_answers(Path(path), {})
    assert our_answers(Path(path), {}) == real


def test_missing_symbol_version_of_the_winner(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    script = tmp_path / "versions"
    script.write_text("V_2 { global: two; };")
    new = compile_library(tmp_path / "new/libx.so", "-Wl,-soname,libx.so", f"-Wl,--version-script={script}", source="int two;")
    script.write_text("V_1 { global: one; };")
    old = compile_library(tmp_path / "old/libx.so", "-Wl,-soname,libx.so", f"-Wl,--version-script={script}", source="int one;")
    options = (f"-L{new.parent}", "-l:libx.so", f"-Wl,-rpath,{new.parent}")
    main = compile_library(tmp_path / "main.so", *options, source="extern int two; int *f(void) { return &two; }")
    assert resolve_tree(LoaderView(), str(main)).missing_versions == ()
    tree = resolve_tree(LoaderView(ld_library_path=(str(old.parent),)), str(main))
    assert tree.missing_versions == (MissingVersion(str(main), "libx.so", "V_2", str(old)),)


def test_missing_library_is_named_with_its_requester(samples: Path) -> None:
    view = LoaderView(root=str(samples), hwcaps=())
    tree = resolve_tree(view, "/plain.so")
    assert tree.missing[0].resolution.name == "libcudart.so.13"
    assert tree.missing[0].requester == "/plain.so"


def test_same_file_under_two_names_is_loaded_once(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    compile_library(tmp_path / "libx.so.1")
    compile_library(tmp_path / "libx.so.2")
    options = (f"-L{tmp_path}", "-Wl,--no-as-needed", "-l:libx.so.1", "-l:libx.so.2", f"-Wl,-rpath,{tmp_path}")
    main = compile_library(tmp_path / "main.so", *options)
    (tmp_path / "libx.so.2").unlink()
    (tmp_path / "libx.so.2").symlink_to("libx.so.1")
    tree = resolve_tree(LoaderView(), str(main))
    assert len(tree.objects) == 2
    assert our_answers(main, {}).keys() == {"libx.so.1", "libx.so.2"}


def test_circle_of_libraries_ends(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    first = compile_library(tmp_path / "liba.so", "-Wl,-soname,liba.so")
    options = (f"-L{tmp_path}", "-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}")
    second = compile_library(tmp_path / "libb.so", *options, "-l:liba.so", "-Wl,-soname,libb.so")
    compile_library(first, *options, "-l:libb.so", "-Wl,-soname,liba.so")
    tree = resolve_tree(LoaderView(), str(first))
    assert [item.path for item in tree.objects] == [str(first), str(second)]
    last = tree.dependencies[-1].resolution
    assert isinstance(last, Resolved)
    assert last.via is Via.LOADED


def test_what_is_no_library_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.so").write_text("no library")
    with pytest.raises(BinaryError, match=r"x\.so"):
        resolve_tree(LoaderView(), str(tmp_path / "x.so"))
