"""Libraries that the files of packages would load: found, missing, brought by torch, hidden by LD_LIBRARY_PATH."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cudadoctor.matrices import Matrices
from cudadoctor.model.binaries import BinaryFile, LibraryProblemKind, Wanted
from cudadoctor.probes.package_files import PackageReader
from tests.binary.conftest import compile_library, samples
from tests.fakes.roots import linux
from tests.probes.test_binaries import SITE, install

__all__ = ["compile_library", "samples"]
Compile = Callable[..., Path]


class Built:
    """A root folder in which libraries are compiled that need each other by name."""

    def __init__(self, root: Path, compile_it: Compile) -> None:
        self.root, self._compile = root, compile_it

    def library(self, path: str, *needs: str, runpath: str = "", source: str = "int marker;") -> Path:
        """A library at a path of the root that needs libraries of these names."""
        target = self.root / path.lstrip("/")
        options = [f"-Wl,-soname,{target.name}", "-Wl,--no-as-needed"]
        for name in needs:
            stub = self.root / "stubs" / name
            self._compile(stub, f"-Wl,-soname,{name}")
            options.append(str(stub))
        if runpath:
            options += ["-Wl,--enable-new-dtags", f"-Wl,-rpath,{runpath}"]
        return self._compile(target, *options, source=source)

    def package(self, name: str, path: str, *needs: str, runpath: str = "") -> None:
        """A package with one library that needs others."""
        install(self.root, name, {path: self.library(f"/built/{name}.so", *needs, runpath=runpath)})

    def read(self, name: str, environ: Mapping[str, str] | None = None) -> BinaryFile:
        """The one file of the package."""
        reader = PackageReader(linux(self.root, environ=environ), (SITE,), lambda: Matrices.load().sonames, "")
        package = next(package for package in reader.installed(()) if package.name == name)
        (file,) = reader.read(package, lambda: False).files
        return file


@pytest.fixture
def built(tmp_path: Path, compile_library: Compile) -> Built:
    return Built(tmp_path, compile_library)


def missing(file: BinaryFile) -> dict[str, tuple[str, ...]]:
    return {library.name: library.elsewhere for library in file.missing}


def test_found_and_missing_libraries(built: Built) -> None:
    built.library("/usr/lib/x86_64-linux-gnu/libcudart.so.12")
    built.library("/usr/lib/aarch64-linux-gnu/libcudart.so.12")
    built.package("mine", "mine.so", "libcudart.so.12", "libcublas.so.12", "libcuda.so.1", "libother.so.1")
    file = built.read("mine")
    assert missing(file) == {"libcublas.so.12": ()}
    assert file.missing[0].wanted is Wanted.NEEDED
    assert file.needed == ("libcudart.so.12", "libcublas.so.12", "libcuda.so.1")


def test_copies_where_the_loader_does_not_look(built: Built) -> None:
    built.library(f"{SITE}/nvidia/cublas/lib/libcublas.so.12")
    built.library("/usr/local/cuda-12.4/lib64/libcufft.so.11")
    built.package("mine", "mine.so", "libcublas.so.12", "libcufft.so.11")
    assert missing(built.read("mine")) == {
        "libcublas.so.12": (f"{SITE}/nvidia/cublas/lib/libcublas.so.12",),
        "libcufft.so.11": ("/usr/local/cuda-12.4/lib64/libcufft.so.11",),
    }


def test_what_torch_brings_is_there_for_its_extensions_only(built: Built) -> None:
    built.library(f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12")
    built.library(f"{SITE}/torch/lib/libtorch_cuda.so", "libcudart.so.12", runpath="$ORIGIN/../../nvidia/cuda_runtime/lib")
    built.package("extension", "extension.so", "libtorch_cuda.so", "libcudart.so.12", "libcusolver.so.11")
    built.package("other", "other.so", "libcudart.so.12")
    assert list(missing(built.read("extension"))) == ["libcusolver.so.11"]
    assert list(missing(built.read("other"))) == ["libcudart.so.12"]


def test_libraries_beside_the_file_are_found_by_its_runpath(built: Built) -> None:
    built.library(f"{SITE}/mine.libs/libcudart-1234.so.12")
    built.package("mine", "mine/core.so", "libcudart-1234.so.12", runpath="$ORIGIN/../mine.libs")
    assert missing(built.read("mine")) == {}


def test_a_folder_of_ld_library_path_in_front(built: Built) -> None:
    built.library(f"{SITE}/own/libcudart.so.12")
    rival = built.library("/opt/rival/libcudart.so.12")
    built.package("mine", "mine.so", "libcudart.so.12", runpath="$ORIGIN/own")
    assert built.read("mine").shadowing == ()
    (use,) = built.read("mine", {"LD_LIBRARY_PATH": "/opt/rival"}).shadowing
    assert use.path == "/" + str(rival.relative_to(built.root))
    assert use.shadowed == (f"{SITE}/own/libcudart.so.12",)


def test_two_cuda_majors(built: Built) -> None:
    for name in ("libcudart.so.11.0", "libcudart.so.12"):
        built.library(f"/usr/lib/{name}")
        built.library(f"/usr/lib64/{name}")
    built.package("mine", "mine.so", "libcudart.so.11.0", "libcudart.so.12")
    assert [problem.kind for problem in built.read("mine", {"LD_LIBRARY_PATH": "/usr/lib"}).problems] == [
        LibraryProblemKind.SEVERAL_CUDA_MAJORS
    ]


def test_files_that_are_no_elf_are_not_resolved(built: Built, samples: Path) -> None:
    install(built.root, "mine", {"mine/code.fatbin": samples / "family.fatbin"})
    file = built.read("mine")
    assert file.modules
    assert file.missing == ()


def test_a_cut_file_says_why(built: Built, samples: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes((samples / "plain.so").read_bytes()[:300])
    install(built.root, "mine", {"mine/cut.so": cut})
    file = built.read("mine")
    assert file.unread
    assert file.modules == ()
