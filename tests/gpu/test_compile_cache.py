from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudadoctor.gpu.compile_cache import CompileCache, cache_key, file_identity, user_cache_folder


@pytest.fixture
def cubin(tmp_path: Path) -> Path:
    file = tmp_path / "made.cubin"
    file.write_bytes(b"\x7fELF" + bytes(100))
    return file


def test_what_is_kept_comes_back(tmp_path: Path, cubin: Path) -> None:
    cache = CompileCache(tmp_path / "cache")
    assert cache.get("key") is None
    cache.put("key", cubin)
    kept = cache.get("key")
    assert kept is not None and kept != cubin
    assert kept.read_bytes() == cubin.read_bytes()
    assert cache.get("another") is None
    assert [path.suffix for path in (tmp_path / "cache").rglob("*.*")] == [".cubin"], "no temporary file stays"


@pytest.mark.parametrize("damage", [b"", b"\x7fELF" + bytes(99), b"garbage"])
def test_a_damaged_entry_is_no_entry_and_is_replaced(tmp_path: Path, cubin: Path, damage: bytes) -> None:
    cache = CompileCache(tmp_path / "cache")
    cache.put("key", cubin)
    kept = cache.get("key")
    assert kept is not None
    kept.write_bytes(damage)
    assert cache.get("key") is None
    cache.put("key", cubin)
    again = cache.get("key")
    assert again is not None and again.read_bytes() == cubin.read_bytes()


def test_a_place_that_cannot_be_written_is_no_cache(tmp_path: Path, cubin: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("a file where a folder is needed")
    for cache in (CompileCache(blocked / "cache"), CompileCache(None), CompileCache(Path("/proc/cudadoctor"))):
        cache.put("key", cubin)
        assert cache.get("key") is None


def test_a_folder_in_place_of_an_entry(tmp_path: Path) -> None:
    (tmp_path / "cache" / "key" / "folder").mkdir(parents=True)
    assert CompileCache(tmp_path / "cache").get("key") is None


def test_keys_tell_apart_what_differs() -> None:
    parts = ["source", ["-arch=sm_90"], [["/usr/bin/nvcc", 1, 2]]]
    assert cache_key(*parts) == cache_key(*parts)
    assert (
        len({cache_key(*parts), cache_key("ource", *parts[1:]), cache_key(*parts[:2]), cache_key(*parts[:2], [["/x", 1, 2]])})
        == 4
    )


def test_the_identity_changes_with_the_file(tmp_path: Path) -> None:
    file, link = tmp_path / "nvcc-12.4", tmp_path / "nvcc"
    file.write_text("one")
    link.symlink_to(file)
    before = file_identity(link)
    assert before[0] == str(file)
    file.write_text("other")
    os.utime(file, ns=(1, 1))
    assert file_identity(link) != before
    assert file_identity(tmp_path / "absent")[1] == -1


@pytest.mark.skipif(os.name == "nt", reason="the XDG folders")
@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "{home}"}, "{home}/.cache/cudadoctor/kernels"),
        ({"HOME": "{home}", "XDG_CACHE_HOME": "/scratch/ada"}, "/scratch/ada/cudadoctor/kernels"),
        ({"HOME": "{home}", "XDG_CACHE_HOME": "relative"}, "{home}/.cache/cudadoctor/kernels"),
        ({}, None),
        ({"HOME": ""}, None),
    ],
)
def test_the_folder_of_the_user(env: dict[str, str], folder: str | None, tmp_path: Path) -> None:
    environ = {name: value.replace("{home}", str(tmp_path)) for name, value in env.items()}
    assert user_cache_folder(environ) == (Path(folder.replace("{home}", str(tmp_path))) if folder else None)


def test_no_home_is_made_for_the_cache(tmp_path: Path) -> None:
    assert user_cache_folder({"HOME": str(tmp_path / "nowhere")}) is None
    assert user_cache_folder({"HOME": str(tmp_path)}) == tmp_path / ".cache" / "cudadoctor" / "kernels"
    assert user_cache_folder({"HOME": "/\0"}) is None
