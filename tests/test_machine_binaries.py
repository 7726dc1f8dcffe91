"""`cudadoctor check` on whole machines whose site-packages hold real small binaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import Torch
from tests.binary.conftest import compile_library, samples
from tests.fakes.machines import Machine, build_machine
from tests.test_machines import Checked

__all__ = ["compile_library", "samples"]


def site_of(machine: Machine) -> Path:
    return next((machine.folder / "venv").glob("lib/python*/site-packages"))


def install(machine: Machine, name: str, *files: str, sample: Path) -> None:
    """A package whose files are copies of a sample."""
    site = site_of(machine)
    info = site / f"{name.replace('-', '_')}-1.2.3.dist-info"
    info.mkdir()
    for path in files:
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_bytes(sample.read_bytes())
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """An RTX 4090 (8.9) with driver 535 (CUDA 12.2) and torch of CUDA 12.4."""
    return build_machine("A", tmp_path)


def test_packages_that_serve_the_gpu_are_no_finding(
    machine: Machine, samples: Path, compile_library: Callable[..., Path]
) -> None:
    install(machine, "my-kernels", "my_kernels/a.so", sample=samples / "lz4.so")
    install(machine, "vllm", "vllm/loose.so", sample=samples / "constants.so")
    compile_library(site_of(machine) / "my_kernels/libcudart.so.13")
    compile_library(site_of(machine) / "vllm/libcudart.so.13")
    checked = Checked(machine)
    assert checked.named("error") == set()
    assert checked.exit_code is ExitCode.OK
    assert checked.named("warning") == {"ptx-newer-than-driver"}
    binaries = checked.typed.snapshot.binaries
    assert isinstance(binaries, Known)
    assert {package.name: package.complete for package in binaries.value} == {"vllm": True, "my-kernels": True}
    assert [run.outcome for run in checked.typed.snapshot.probe_runs if run.probe == "binaries"] == ["ok"]


def test_an_extension_for_other_gpus_is_the_root(machine: Machine, samples: Path) -> None:
    install(machine, "sgl-kernel", "sgl_kernel/ops.so", sample=samples / "loose.so")
    checked = Checked(machine)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert checked.roots == ["extension-arch-missing"]
    finding = checked.findings["extension-arch-missing"]
    assert finding["subject"] == "package sgl-kernel"
    assert "sgl-kernel 1.2.3 has no code for NVIDIA GeForce RTX 4090 (compute capability 8.9)" in finding["what"]
    assert "Predicted" in finding["why"]
    assert "cudadoctor scan sgl-kernel --gpu 8.9" in finding["fixes"][0]["verify"]


def test_an_extension_for_another_cuda_major_is_the_root(
    machine: Machine, tmp_path: Path, compile_library: Callable[..., Path]
) -> None:
    names = ("libc10.so", "libcudart.so.11.0")
    needed = [str(compile_library(tmp_path / "needed" / name, f"-Wl,-soname,{name}")) for name in names]
    built = compile_library(tmp_path / "extension.so", "-Wl,--no-as-needed", *needed)
    install(machine, "flash-attn", "flash_attn_2_cuda.so", sample=built)
    checked = Checked(machine)
    assert checked.roots == ["extension-cuda-major-mismatch"]
    assert "flash-attn 1.2.3 needs libcudart.so.11.0" in checked.findings["extension-cuda-major-mismatch"]["what"]


def test_torch_that_cannot_be_imported_is_judged_by_its_binaries(tmp_path: Path, samples: Path) -> None:
    machine = build_machine("X2", tmp_path)
    library = site_of(machine) / "torch/lib/libtorch_cuda.so"
    library.parent.mkdir()
    library.write_bytes((samples / "compressed.so").read_bytes())  # sm_75, sm_120, compute_120: nothing for 8.9
    checked = Checked(machine)
    assert checked.exit_code is ExitCode.PROBLEMS
    assert {"torch-import-fails", "arch-missing-in-wheel"} <= checked.named("error")
    torch = checked.typed.snapshot.python.torch
    assert isinstance(torch, Known)
    assert isinstance(torch.value, Torch)
    assert isinstance(torch.value.arch_list, Known)
    assert torch.value.arch_list.source.endswith("torch/lib/libtorch_cuda.so")
    assert "sm_75 to sm_120, PTX compute_120" in checked.findings["arch-missing-in-wheel"]["what"]


def test_a_saved_machine_is_judged_by_its_binaries_again(machine: Machine, samples: Path, tmp_path: Path) -> None:
    install(machine, "sgl-kernel", "sgl_kernel/ops.so", sample=samples / "loose.so")
    saved = tmp_path / "machine.json"
    first = Checked(machine)
    saved.write_text(json.dumps(first.report))
    again = Checked(machine, "--snapshot", str(saved))
    assert again.roots == first.roots == ["extension-arch-missing"]
