from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.cache import ScanCache
from cudadoctor.binary.coverage import Gpu, Verdict
from cudadoctor.binary.inputs import InputError, Interpreter
from cudadoctor.binary.loader import LoaderView
from cudadoctor.binary.report import FileReport
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices.catalog import Matrices
from cudadoctor.model.versions import ComputeCapability, CudaVersion, PtxIsa
from cudadoctor.scan import Detail, LibrarySearch, ScanOptions, gpu_of, run_scan, scan
from cudadoctor.system import RealSystem
from tests.binary.conftest import SAMPLES, compile_library, samples, wheel

__all__ = ["compile_library", "samples", "wheel"]
NO_CACHE = ScanCache(None)


def options(*arguments: Path | str, **changes: object) -> ScanOptions:
    python = Interpreter(sys.executable, RealSystem())
    return ScanOptions(tuple(str(argument) for argument in arguments), python, NO_CACHE, **changes)  # type: ignore[arg-type] # named fields


def names(reports: tuple[FileReport, ...]) -> list[str]:
    return [Path(report.path).name for report in reports]


def test_one_file(samples: Path) -> None:
    report = run_scan(options(samples / "plain.so", gpu=Gpu(ComputeCapability(7, 5))))
    (file,) = report.files
    assert (file.modules, file.stubs) == (2, 1)
    assert file.code == {"sm_80": 2, "compute_90": 1, "sm_90a": 2}
    assert file.judgement is not None
    assert file.judgement.verdict is Verdict.FAILS
    assert report.exit_code is ExitCode.PROBLEMS


def test_folder_streams_only_what_matters(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    (folder / "sub").mkdir(parents=True)
    for name in ("plain.so", "sub/lto.o", "specific.cubin"):
        (folder / name).write_bytes((samples / Path(name).name).read_bytes())
    (folder / "text.txt").write_text("hello")
    (folder / "unknown").write_bytes(b"\1" * 100)
    (folder / "libcudnn_cut.so").write_bytes((samples / "plain.so").read_bytes()[:3000])
    seen: list[str] = []
    stream = scan(options(folder, on_file=seen.append))
    assert next(stream).path == str(folder / "libcudnn_cut.so")
    assert [Path(path).name for path in seen] == ["libcudnn_cut.so"]
    assert names(tuple(stream)) == ["plain.so", "specific.cubin", "lto.o"]
    assert str(folder / "text.txt") not in seen


def test_cut_file_says_why(samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.so"
    path.write_bytes((samples / "plain.so").read_bytes()[:5000])
    report = run_scan(options(path))
    assert "outside" in report.files[0].problem
    assert report.exit_code is ExitCode.USAGE


def test_wheel_is_read_in_place(samples: Path, tmp_path: Path) -> None:
    wheel_path = tmp_path / "package-1.0-py3-none-any.whl"
    wheel_path.write_bytes(SAMPLES.read_bytes())
    before = sorted(tmp_path.rglob("*"))
    inside = run_scan(options(wheel_path)).files
    outside = {name: run_scan(options(samples / name)).files[0] for name in names_in(wheel_path)}
    assert len(inside) == len(outside)
    for report in inside:
        archive, _, member = report.path.partition("!")
        assert archive == str(wheel_path)
        assert (report.code, report.needed, report.size) == (outside[member].code, outside[member].needed, outside[member].size)
    assert sorted(tmp_path.rglob("*")) == before


def names_in(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as file:
        return file.namelist()


def test_zip_bomb_is_a_problem_not_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "bomb.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("libcuda_bomb.so", b"\x7fELF" + bytes(100 << 20))
    report = run_scan(options(path))
    assert "zip bomb" in report.files[0].problem
    assert report.exit_code is ExitCode.USAGE


def test_second_scan_comes_from_the_cache(samples: Path, tmp_path: Path) -> None:
    path = tmp_path / "large.so"
    path.write_bytes((samples / "plain.so").read_bytes() + bytes(2 << 20))
    python = Interpreter(sys.executable, RealSystem())
    cache_folder = str(tmp_path / "cache")
    first = run_scan(ScanOptions((str(path),), python, ScanCache(cache_folder)))
    status = path.stat()
    path.write_bytes(bytes(status.st_size))  # the same size and time, so the cache must answer
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert run_scan(ScanOptions((str(path),), python, ScanCache(cache_folder))) == first
    os.utime(path)
    assert run_scan(ScanOptions((str(path),), python, ScanCache(cache_folder))) != first


def test_by_module(samples: Path) -> None:
    gpu = Gpu(ComputeCapability(9, 0))
    (file,) = run_scan(options(samples / "plain.so", detail=Detail.MODULE, gpu=gpu)).files
    assert [(module.code, module.is_tiny, module.outcome) for module in file.by_module] == [
        (("sm_80", "sm_90a"), True, "sass"),
        (("sm_80", "sm_90a", "compute_90 PTX 9.0"), False, "sass"),
    ]


def test_libraries_of_a_file(samples: Path) -> None:
    search = LibrarySearch(LoaderView(), Matrices.load().sonames)
    (file,) = run_scan(options(samples / "plain.so", libraries=search)).files
    assert file.libraries is not None
    assert [use.name for use in file.libraries.uses if use.wanted.value == "needed"] == ["libcudart.so.13"]


def test_this_process() -> None:
    if not Path("/proc/self/maps").exists():
        pytest.skip("no procfs")
    report = run_scan(options(pid=os.getpid()))
    assert all(file.argument == f"pid {os.getpid()}" for file in report.files)


def test_argument_that_names_nothing() -> None:
    with pytest.raises(InputError, match="no such file"):
        run_scan(options("/nonexistent/file.so"))


def test_text_file_named_by_itself_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    report = run_scan(options(tmp_path / "notes.txt"))
    assert "known binary format" in report.files[0].problem
    assert report.exit_code is ExitCode.USAGE


def test_driver_decides_about_ptx() -> None:
    toolkits = Matrices.load().toolkits
    assert gpu_of(ComputeCapability(9, 0), CudaVersion.of(12, 4), toolkits).driver_ptx_isa == PtxIsa(8, 4)
    assert gpu_of(ComputeCapability(9, 0), None, toolkits).driver_ptx_isa is None
    assert gpu_of(ComputeCapability(9, 0), CudaVersion.of(99, 0), toolkits).driver_ptx_isa is None


AARCH64 = ("--platform=manylinux2014_aarch64", "--platform=manylinux_2_27_aarch64", "--only-binary=:all:")


@pytest.mark.parametrize("platform", [(), AARCH64], ids=["this", "aarch64"])
def test_real_wheels(platform: tuple[str, ...], wheel: Callable[..., Path]) -> None:
    path = wheel("nvidia-cufile==1.15.1.6", *platform)
    (report,) = (report for report in run_scan(options(path)).files if report.path.endswith("libcufile.so.0"))
    assert report.code == {"sm_75": 1, "sm_80": 1, "compute_86": 1, "sm_86": 1}
    assert report.ptx_isa == (PtxIsa(7, 1),)
    assert "libc.so.6" in report.needed
