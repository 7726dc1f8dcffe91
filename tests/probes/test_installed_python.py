from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.model.fact import Missing, MissingReason, known
from cudadoctor.model.snapshot import EnvironmentKind, TorchBuild
from cudadoctor.model.versions import CudaVersion
from cudadoctor.probes import ProbeOptions, collect
from cudadoctor.probes.installed_python import describe_installed, installed_prefix
from cudadoctor.system import System
from tests.fakes.roots import fill, linux
from tests.fakes.stub_torch import StubTorch, add_distribution, write_stub_torch

SITE = "opt/venv/lib/python3.12/site-packages"


@pytest.fixture
def image(tmp_path: Path) -> System:
    """An unpacked image with a torch in /opt/venv and a toolkit without nvcc."""
    write_stub_torch(tmp_path / SITE, StubTorch("2.5.1+cu124", "12.4"))
    add_distribution(tmp_path / SITE, "nvidia-cudnn-cu12", "9.1.0.70")
    add_distribution(tmp_path / SITE, "requests", "2.32.0")
    fill(tmp_path, {"/opt/venv/pyvenv.cfg": "", "/usr/local/cuda-12.4/version.json": '{"cuda": {"version": "12.4.1"}}'})
    return linux(tmp_path, environ={"PATH": "/usr/bin"}, uname=None)


def test_an_image_s_python_is_read_from_its_files(image: System) -> None:
    chosen = installed_prefix(image)
    assert (chosen.prefix, chosen.because) == ("/opt/venv", "a usual place")
    python = describe_installed(image, chosen)
    assert str(known(python.python_version)) == "3.12"
    assert known(python.kind) is EnvironmentKind.VENV
    packages = {package.name: package.package_version for package in known(python.packages)}
    assert packages == {"torch": "2.5.1+cu124", "nvidia-cudnn-cu12": "9.1.0.70"}
    torch = known(python.torch)
    assert known(torch.torch_version) == "2.5.1+cu124"
    assert known(torch.build) is TorchBuild.CUDA
    assert known(torch.torch_cuda_version) == CudaVersion.of(12, 4)
    for fact in (torch.imports, torch.is_available):
        assert isinstance(fact, Missing)
        assert fact.reason is MissingReason.NOT_APPLICABLE


def test_an_active_environment_of_the_image_is_preferred(tmp_path: Path, image: System) -> None:
    fill(tmp_path, {"/conda/bin/python": "", "/conda/conda-meta/history": ""})
    (tmp_path / "conda/bin/python").chmod(0o755)
    of_conda = linux(tmp_path, environ={"PATH": "/usr/bin", "CONDA_PREFIX": "/conda"}, uname=None)
    chosen = installed_prefix(of_conda)
    assert chosen.prefix == "/conda"
    python = describe_installed(of_conda, chosen)
    assert known(python.kind) is EnvironmentKind.CONDA
    assert isinstance(python.torch, Missing)
    assert python.torch.reason is MissingReason.NOT_FOUND


def test_nothing_of_this_machine_enters_an_image_s_snapshot(image: System) -> None:
    snapshot = collect(image, ProbeOptions(), 20)
    assert known(known(snapshot.python.torch).torch_version) == "2.5.1+cu124"
    assert [kit.root for kit in known(snapshot.toolkits)] == ["/usr/local/cuda-12.4"]
    assert known(snapshot.host_compilers) == ()
    for fact in (snapshot.host.architecture, snapshot.host.kernel_release, snapshot.gpus, snapshot.driver.nvidia_smi):
        assert isinstance(fact, Missing)
    assert known(snapshot.driver.libcuda_copies) == ()


def test_an_image_without_python_says_so(tmp_path: Path) -> None:
    python = collect(linux(tmp_path, uname=None), ProbeOptions(), 20).python
    assert isinstance(python.executable, Missing)
    assert python.executable.detail == "no Python was found in these files"
    assert isinstance(python.torch, Missing)
