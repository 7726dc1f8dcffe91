from __future__ import annotations

import os
from pathlib import Path

import pytest

from cudadoctor.binary import cache as module_under_test
from cudadoctor.binary.cache import ScanCache
from cudadoctor.binary.contents import Contents
from cudadoctor.binary.formats import FileKind

CONTENTS = Contents(FileKind.ELF, needed=("libcudart.so.12",))


@pytest.fixture
def large(tmp_path: Path) -> Path:
    path = tmp_path / "large.so"
    path.write_bytes(bytes(module_under_test.WORTH_CACHING))
    return path


def test_remembers_one_state_of_a_file(large: Path, tmp_path: Path) -> None:
    cache = ScanCache(str(tmp_path / "cache"))
    cache.put(str(large), large.stat(), CONTENTS)
    cache.save()
    again = ScanCache(str(tmp_path / "cache"))
    assert again.get(str(large), large.stat()) == CONTENTS
    os.utime(large, ns=(0, large.stat().st_mtime_ns + 1))
    assert again.get(str(large), large.stat()) is None
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["scan.json"]


def test_small_files_are_not_worth_it(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.write_bytes(b"x")
    cache = ScanCache(str(tmp_path / "cache"))
    cache.put(str(small), small.stat(), CONTENTS)
    cache.save()
    assert cache.get(str(small), small.stat()) is None
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', '{"format": 0, "files": {}}', "\udcff"])
def test_damaged_cache_is_no_cache(text: str, large: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "scan.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    cache = ScanCache(str(folder))
    assert cache.get(str(large), large.stat()) is None
    cache.put(str(large), large.stat(), CONTENTS)
    cache.save()
    assert ScanCache(str(folder)).get(str(large), large.stat()) == CONTENTS


def test_folder_that_cannot_be_written(large: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ScanCache(str(tmp_path / "file" / "cache"))
    cache.put(str(large), large.stat(), CONTENTS)
    cache.save()
    assert cache.get(str(large), large.stat()) == CONTENTS


def test_oldest_are_forgotten(large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "MAX_FILES", 3)
    cache = ScanCache(str(tmp_path))
    for name in "abcd":
        cache.put(name, large.stat(), CONTENTS)
    assert [cache.get(name, large.stat()) is not None for name in "abcd"] == [False, True, True, True]


@pytest.mark.parametrize(
    ("environ", "file"),
    [
        ({"XDG_CACHE_HOME": "{tmp}/x"}, "x/cudadoctor/scan.json"),
        ({"HOME": "{tmp}"}, ".cache/cudadoctor/scan.json"),
        ({"HOME": "{tmp}/nowhere"}, None),
        ({"XDG_CACHE_HOME": "relative"}, None),
        ({}, None),
    ],
)
def test_place_of_the_cache(environ: dict[str, str], file: str | None, large: Path, tmp_path: Path) -> None:
    cache = ScanCache.of_environment({name: text.replace("{tmp}", str(tmp_path)) for name, text in environ.items()})
    cache.put(str(large), large.stat(), CONTENTS)
    cache.save()
    written = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("scan.json")]
    assert written == ([] if file is None else [file])
