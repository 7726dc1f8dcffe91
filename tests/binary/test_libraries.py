from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.libraries import LibraryReport, describe_libraries
from cudadoctor.binary.loader import LoaderView
from cudadoctor.matrices.catalog import Matrices
from cudadoctor.model.binaries import LibraryProblemKind, Wanted

Compile = Callable[..., Path]


def describe(path: Path, *library_path: Path) -> LibraryReport:
    view = LoaderView(ld_library_path=[str(folder) for folder in library_path])
    return describe_libraries(view, str(path), Matrices.load().sonames)


def problems(report: LibraryReport) -> list[tuple[LibraryProblemKind, tuple[str, ...]]]:
    return [(problem.kind, problem.libraries) for problem in report.problems]


@pytest.fixture
def stack(tmp_path: Path, compile_library: Compile) -> Path:
    """Two toolkits and two cuDNN folders, made of empty libraries with the real names."""
    for major in (12, 13):
        soname = f"-Wl,-soname,libcublas.so.{major}"
        compile_library(tmp_path / f"cuda{major}/libcublas.so.{major}", soname)
        compile_library(tmp_path / f"cuda{major}/libcudart.so.{major}", f"-Wl,-soname,libcudart.so.{major}")
    names = 'const char a[] = "\\0libcudnn_ops.so.9\\0libcudnn_cnn.so.9\\0libstdc++.so.6";'
    for folder in ("cudnn_a", "cudnn_b"):
        origin = "-Wl,-rpath,$ORIGIN"
        compile_library(tmp_path / folder / "libcudnn.so.9", "-Wl,-soname,libcudnn.so.9", origin, source=names)
        compile_library(tmp_path / folder / "libcudnn_ops.so.9", "-Wl,-soname,libcudnn_ops.so.9")
    return tmp_path


def extension(stack: Path, compile_library: Compile, *libraries: str, folders: str = "cuda12", **extra: str) -> Path:
    options = [f"-L{stack / folder}" for folder in ("cuda12", "cuda13", "cudnn_a")]
    paths = ":".join(str(stack / folder) for folder in folders.split())
    wanted = [f"-l:{name}" for name in libraries]
    return compile_library(stack / "ext.so", *options, "-Wl,--no-as-needed", *wanted, f"-Wl,-rpath,{paths}", **extra)


def test_healthy_extension_has_no_problem(stack: Path, compile_library: Compile) -> None:
    report = describe(extension(stack, compile_library, "libcublas.so.12", "libcudart.so.12"))
    assert problems(report) == []
    assert [(use.name, use.wanted, use.path) for use in report.uses] == [
        ("libcublas.so.12", Wanted.NEEDED, str(stack / "cuda12/libcublas.so.12")),
        ("libcudart.so.12", Wanted.NEEDED, str(stack / "cuda12/libcudart.so.12")),
    ]
    assert report.uses[0].via == f"RUNPATH of {stack}/ext.so"


def test_missing_library(stack: Path, compile_library: Compile) -> None:
    report = describe(extension(stack, compile_library, "libcublas.so.12", folders="cuda13"))
    assert problems(report) == [(LibraryProblemKind.MISSING, ("libcublas.so.12",))]
    assert report.uses[0].path is None


def test_several_cuda_majors(stack: Path, compile_library: Compile) -> None:
    report = describe(extension(stack, compile_library, "libcublas.so.12", "libcudart.so.13", folders="cuda12 cuda13"))
    assert [kind for kind, _ in problems(report)] == [LibraryProblemKind.SEVERAL_CUDA_MAJORS]
    assert "CUDA 12: " in report.problems[0].what
    assert "CUDA 13: " in report.problems[0].what


def test_shadowed_copy(stack: Path, compile_library: Compile) -> None:
    rival = compile_library(stack / "rival/libcudart.so.12", "-Wl,-soname,libcudart.so.12")
    report = describe(extension(stack, compile_library, "libcudart.so.12"), rival.parent)
    assert report.uses[0].path == str(rival)
    assert report.uses[0].via == "LD_LIBRARY_PATH"
    assert report.uses[0].shadowed == (str(stack / "cuda12/libcudart.so.12"),)


def test_cudnn_parts_are_candidates_from_the_same_folder(stack: Path, compile_library: Compile) -> None:
    report = describe(extension(stack, compile_library, "libcudnn.so.9", folders="cudnn_a"))
    parts = {use.name: use.path for use in report.uses if use.wanted is Wanted.MAY_DLOPEN}
    assert parts == {"libcudnn_ops.so.9": str(stack / "cudnn_a/libcudnn_ops.so.9"), "libcudnn_cnn.so.9": None}
    assert problems(report) == []


def test_mixed_cudnn(stack: Path, compile_library: Compile) -> None:
    """LD_LIBRARY_PATH comes before the $ORIGIN in cuDNN's RUNPATH, so its parts come from elsewhere."""
    (stack / "cudnn_b/libcudnn.so.9").unlink()
    report = describe(extension(stack, compile_library, "libcudnn.so.9", folders="cudnn_a"), stack / "cudnn_b")
    assert [kind for kind, _ in problems(report)] == [LibraryProblemKind.MIXED_CUDNN]
    assert str(stack / "cudnn_b") in report.problems[0].what


@pytest.mark.parametrize(("number", "path"), [(".9", "cudnn_a/libcudnn_ops.so.9"), ("", "system/libcudnn_ops.so")])
def test_cudnn_asks_for_its_parts_with_its_own_number_first(
    number: str, path: str, stack: Path, compile_library: Compile
) -> None:
    """The system's libcudnn_ops.so is the last resort: seen with cuDNN 9.19 of torch's wheel beside Ubuntu's 9.14."""
    compile_library(stack / "system/libcudnn_ops.so")
    names = 'const char names[] = "\\0libcudnn_ops.so";'
    compile_library(stack / "cudnn_a/libcudnn.so.9", "-Wl,-soname,libcudnn.so.9", "-Wl,-rpath,$ORIGIN", source=names)
    if not number:
        (stack / "cudnn_a/libcudnn_ops.so.9").unlink()
    report = describe(extension(stack, compile_library, "libcudnn.so.9", folders="cudnn_a"), stack / "system")
    assert {use.name: use.path for use in report.uses if "_ops" in use.name} == {f"libcudnn_ops.so{number}": str(stack / path)}
    assert bool(problems(report)) is not bool(number)


def test_names_in_the_file_itself(stack: Path, compile_library: Compile) -> None:
    source = 'const char a[] = "\\0libcublas.so.12\\0libcuda.so.1\\0libother.so\\0";'
    path = extension(stack, compile_library, source=source)
    report = describe(path, stack / "cuda12")
    assert [(use.name, use.wanted) for use in report.uses] == [
        ("libcublas.so.12", Wanted.MAY_DLOPEN),
        ("libcuda.so.1", Wanted.MAY_DLOPEN),
    ]
