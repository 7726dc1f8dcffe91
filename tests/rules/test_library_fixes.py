"""Fixes for missing and mixed libraries."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import EnvironmentKind
from cudadoctor.rules.library_fixes import wheel_of
from tests.rules.build_machines import (
    Change,
    changed,
    errors_of,
    findings,
    judge,
    machine,
    packages,
    told,
)
from tests.rules.builders import known, said


@pytest.mark.parametrize(
    ("library", "cuda", "wheel"),
    [
        ("libcudart.so.12", 12, "nvidia-cuda-runtime-cu12"),
        ("libcudart.so.13", 13, "nvidia-cuda-runtime"),
        ("libcublasLt.so.12", 12, "nvidia-cublas-cu12"),
        ("libcudnn_ops.so.9", 13, "nvidia-cudnn-cu13"),
        ("libnccl.so.2", 13, "nvidia-nccl-cu13"),
        ("libunknown.so.1", 12, None),
    ],
)
def test_wheel_that_brings_a_library(library: str, cuda: int, wheel: str | None) -> None:
    assert wheel_of(library, cuda) == wheel


def test_installed_wheel_is_put_on_the_path(matrices: Matrices) -> None:
    snapshot = changed(told(said("libcudnn-missing", library="libcudnn_cnn.so.9")), packages(nvidia_cudnn_cu12="9.1.0.70"))
    (found,) = findings(judge(snapshot, matrices), "libcudnn-missing")
    (command,) = found.fixes[0].commands
    assert command.startswith("export LD_LIBRARY_PATH=")
    assert "/cudnn/lib" in command
    assert "cudnn-major-mismatch" not in errors_of(judge(snapshot, matrices))


def test_mixed_wheels_are_removed_by_one_command(matrices: Matrices) -> None:
    snapshot = machine(
        packages(nvidia_cudnn_cu11="9.1.0", nvidia_cudnn_cu12="9.10.2", nvidia_nccl_cu11="2.14", nvidia_nccl_cu12="2.27")
    )
    (found,) = findings(judge(snapshot, matrices), "wheels-mix-cuda-majors")
    assert found.fixes[0].commands[0].endswith("pip uninstall -y nvidia-cudnn-cu11 nvidia-nccl-cu11")
    assert found.fixes[0].rechecked


def of_python(**facts: object) -> Change:
    """The examined Python with other facts."""
    return lambda snapshot: structs.replace(snapshot, python=structs.replace(snapshot.python, **facts))


def test_mixed_wheels_that_uv_installed_are_removed_by_uv_and_torchs_own_come_back(matrices: Matrices) -> None:
    mixed = packages(nvidia_cudnn_cu11="9.1.0", nvidia_cudnn_cu12="9.10.2", nvidia_nccl_cu12="2.27")
    (found,) = findings(judge(machine(mixed, of_python(installer=known("uv"))), matrices), "wheels-mix-cuda-majors")
    remove, again = found.fixes[0].commands
    assert remove.startswith("uv pip uninstall --python ") and remove.endswith(" nvidia-cudnn-cu11")
    assert again.endswith(" --reinstall --no-deps nvidia-cudnn-cu12==9.10.2")


@pytest.mark.parametrize(
    ("wanted", "kind", "command"),
    [
        ("glibc_2.38", EnvironmentKind.CONDA, ["docker run --rm -it --gpus all ubuntu:24.04 bash"]),
        ("glibcxx_3.4.32", EnvironmentKind.CONDA, ["conda install -c conda-forge libstdcxx-ng"]),
        ("glibcxx_3.4.32", EnvironmentKind.VENV, []),
    ],
)
def test_a_newer_system_library_comes_with_a_distribution_or_from_conda(
    matrices: Matrices, wanted: str, kind: EnvironmentKind, command: list[str]
) -> None:
    needs = said("glibc-symbol-version-missing", wanted=wanted)
    snapshot = changed(told(needs), of_python(kind=known(kind)))
    (found,) = findings(judge(snapshot, matrices), "system-library-too-old")
    assert [line for fix in found.fixes for line in fix.commands] == command
