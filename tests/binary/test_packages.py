from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.cache import ScanCache
from cudadoctor.binary.packages import InstalledPackage, has_gpu_code, installed_packages, read_package

NO_CACHE = ScanCache(None)


def never() -> bool:
    return False


@pytest.fixture
def site(samples: Path, tmp_path: Path, compile_library: Callable[..., Path]) -> Path:
    """A site-packages folder: a CUDA package, one without metadata, one of the CPU, one that needs CUDA only."""
    for name in ("flash_attn/kernel.so", "mine/kernel.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes((samples / "plain.so").read_bytes())
    compile_library(tmp_path / "numbers/core.so")
    compile_library(tmp_path / "libcudart.so.12", "-Wl,-soname,libcudart.so.12")
    compile_library(tmp_path / "runner/runner.so", "-Wl,--no-as-needed", str(tmp_path / "libcudart.so.12"))
    records = {
        "flash_attn-2.8.0": "flash_attn/__init__.py,,\nflash_attn/kernel.so,,\n",
        "Numbers-1.0": "numbers/core.so,,\n",
        "runner-1.0": "runner/runner.so,,\n",
    }
    for name, record in records.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info/RECORD").write_text(record)
    return tmp_path


def packages(site: Path, *modules: str) -> dict[str, InstalledPackage]:
    return {package.name: package for package in installed_packages((str(site), "/nowhere"), modules)}


def test_packages_are_known_by_metadata_or_by_their_folder(site: Path) -> None:
    assert set(packages(site)) == {"flash-attn", "numbers", "runner"}
    found = packages(site, "mine", "absent", "flash-attn")
    assert set(found) == {"flash-attn", "numbers", "runner", "mine"}
    assert found["flash-attn"].record == site / "flash_attn-2.8.0.dist-info/RECORD"
    assert list(found["mine"].files()) == [str(site / "mine/kernel.so")]


def test_the_first_folder_of_a_name_counts(site: Path, tmp_path: Path) -> None:
    other = tmp_path / "later"
    (other / "flash_attn-1.0.dist-info").mkdir(parents=True)
    found = {package.name: package for package in installed_packages((str(site), str(other)))}
    assert found["flash-attn"].folder == str(site)


def test_gpu_code_is_told_from_section_tables(site: Path) -> None:
    found = packages(site, "mine")
    assert {name for name, package in found.items() if has_gpu_code(package, never)} == {"flash-attn", "mine"}
    assert not has_gpu_code(found["flash-attn"], lambda: True)


def test_files_with_code_or_cuda_needs_are_read(site: Path) -> None:
    found = {name: read_package(package, NO_CACHE, never) for name, package in packages(site).items()}
    assert {name: [file.path for file in files.files] for name, files in found.items()} == {
        "flash-attn": [str(site / "flash_attn/kernel.so")],
        "numbers": [],
        "runner": [str(site / "runner/runner.so")],
    }
    assert all(files.complete for files in found.values())
    contents = found["flash-attn"].files[0].contents
    assert contents is not None
    assert sum(group.count for group in contents.groups) == 2


def test_what_time_did_not_allow_is_incomplete(site: Path) -> None:
    package = packages(site)["flash-attn"]
    (site / "flash_attn/second.so").write_bytes((site / "flash_attn/kernel.so").read_bytes())
    assert package.record is not None
    package.record.write_text("flash_attn/kernel.so,,\nflash_attn/second.so,,\n")
    asked = itertools.count()
    found = read_package(package, NO_CACHE, lambda: next(asked) > 0)
    assert (len(found.files), found.complete) == (1, False)


def test_without_a_list_of_files_the_folder_of_the_module_counts(site: Path) -> None:
    (site / "flash_attn-2.8.0.dist-info/RECORD").unlink()
    package = packages(site)["flash-attn"]
    assert (package.version, package.record, package.module) == ("2.8.0", None, "flash_attn")
    assert [file.path for file in read_package(package, NO_CACHE, never).files] == [str(site / "flash_attn/kernel.so")]


def test_neither_list_nor_folder_is_a_problem(site: Path) -> None:
    (site / "apex-1.0.dist-info").mkdir()
    package = packages(site)["apex"]
    found = read_package(package, NO_CACHE, never)
    assert "RECORD" in found.files[0].problem
    assert not found.complete
    assert not has_gpu_code(package, never)


def test_cut_and_absent_libraries_say_why(site: Path) -> None:
    (site / "flash_attn/cut.so").write_bytes((site / "flash_attn/kernel.so").read_bytes()[:300])
    package = packages(site)["flash-attn"]
    assert package.record is not None
    package.record.write_text("flash_attn/cut.so,,\nflash_attn/absent.so,,\nflash_attn/absent.bin,,\n")
    cut, absent = read_package(package, NO_CACHE, never).files
    assert cut.contents is absent.contents is None
    assert cut.problem
    assert "No such file" in absent.problem


def test_libraries_of_nvidia_s_own_and_static_ones_are_not_the_package_s_code(site: Path) -> None:
    package = packages(site)["flash-attn"]
    assert package.record is not None
    for name in ("libcupti.so.12", "libnvjpeg.1a2b.so.13", "kernels.a", "kernel.o"):
        (site / "flash_attn" / name).write_bytes((site / "flash_attn/kernel.so").read_bytes())
        package.record.write_text(f"flash_attn/{name},,\n")
        assert read_package(package, NO_CACHE, never).files == ()


def test_a_build_for_one_cuda_is_not_found_twice(site: Path) -> None:
    for name in ("faiss_gpu_cu12-1.14", "cupy_cuda13x-14.2"):
        (site / f"{name}.dist-info").mkdir()
        (site / f"{name}.dist-info/RECORD").write_text("")
    for name in ("faiss", "cupy", "torch"):
        (site / name).mkdir()
    (site / "torch_geometric-2.0.dist-info").mkdir()
    assert {"faiss", "cupy", "torch"} & set(packages(site, "faiss", "cupy", "torch")) == {"torch"}


def test_large_files_are_remembered(site: Path, tmp_path: Path) -> None:
    path = site / "flash_attn/kernel.so"
    path.write_bytes(path.read_bytes() + bytes(2 << 20))
    cache = ScanCache(str(tmp_path / "cache"))
    package = packages(site)["flash-attn"]
    first = read_package(package, cache, never)
    cache.save()
    status = path.stat()
    path.write_bytes(bytes(status.st_size))  # the same size and time, so only the cache can tell
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read_package(package, ScanCache(str(tmp_path / "cache")), never) == first
