from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from cudadoctor.model.fact import Fact, Known, Missing, MissingReason, known
from cudadoctor.model.snapshot import PythonEnvironment, Torch, TorchBuild
from cudadoctor.model.versions import SmTarget
from cudadoctor.probes.installed_python import describe_installed, installed_prefix
from cudadoctor.probes.torch_files import with_code_from_files
from tests.binary.conftest import samples
from tests.fakes.roots import linux
from tests.fakes.stub_torch import StubTorch, write_stub_torch

__all__ = ["samples"]
LOCATION = "/venv/lib/python3.12/site-packages/torch"
CRASHED = Missing(MissingReason.CRASHED, "importing torch: died of SIGSEGV", "torch child")


@pytest.fixture
def root(samples: Path, tmp_path: Path) -> Path:
    folder = tmp_path / LOCATION.lstrip("/") / "lib"
    folder.mkdir(parents=True)
    (folder / "libtorch_cuda.so").write_bytes((samples / "compressed.so").read_bytes())
    return tmp_path


def arch_list(root: Path, torch: Torch) -> Fact[tuple[SmTarget, ...]]:
    python = with_code_from_files(linux(root), PythonEnvironment(torch=Known(torch, "torch child")))
    return known(python.torch).arch_list


BROKEN = Torch(
    imports=CRASHED, build=Known(TorchBuild.CUDA, "version.py"), arch_list=CRASHED, location=Known(LOCATION, "torch child")
)


def test_torch_that_dies_at_import_is_known_by_its_files(root: Path) -> None:
    fact = arch_list(root, BROKEN)
    assert isinstance(fact, Known)
    assert [str(target) for target in fact.value] == ["sm_75", "compute_120", "sm_120"]
    assert fact.source == f"{LOCATION}/lib/libtorch_cuda.so"


def test_what_torch_says_itself_stands(root: Path) -> None:
    said = Known((SmTarget.parse("sm_90"),), "torch child")
    assert arch_list(root, structs.replace(BROKEN, arch_list=said)) == said


@pytest.mark.parametrize("build", [TorchBuild.CPU, TorchBuild.ROCM])
def test_builds_without_cuda_are_not_looked_at(root: Path, build: TorchBuild) -> None:
    assert arch_list(root, structs.replace(BROKEN, build=Known(build, "version.py"))) == CRASHED


def test_files_that_are_absent_or_damaged_leave_the_reason(root: Path, tmp_path: Path) -> None:
    assert arch_list(tmp_path / "elsewhere", BROKEN) == CRASHED
    library = root / LOCATION.lstrip("/") / "lib/libtorch_cuda.so"
    library.write_bytes(library.read_bytes()[:500])
    assert arch_list(root, BROKEN) == CRASHED
    assert arch_list(root, structs.replace(BROKEN, location=CRASHED)) == CRASHED


def test_an_unpacked_image_too(samples: Path, tmp_path: Path) -> None:
    site = tmp_path / "opt/venv/lib/python3.12/site-packages"
    write_stub_torch(site, StubTorch("2.5.1+cu124", "12.4"))
    (site / "torch/lib").mkdir()
    (site / "torch/lib/libtorch_cuda.so").write_bytes((samples / "plain.so").read_bytes())
    image = linux(tmp_path, environ={"PATH": "/usr/bin"}, uname=None)
    python = with_code_from_files(image, describe_installed(image, installed_prefix(image)))
    fact = known(python.torch).arch_list
    assert isinstance(fact, Known)
    assert [str(target) for target in fact.value] == ["sm_80", "compute_90", "sm_90a"]
    assert fact.source == "/opt/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so"


def test_no_torch_no_code(tmp_path: Path) -> None:
    python = PythonEnvironment(torch=CRASHED)
    assert with_code_from_files(linux(tmp_path), python) is python
