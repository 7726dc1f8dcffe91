from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.binary.source import BinaryError
from cudadoctor.binary.torch_code import torch_code


def test_torch_targets_are_those_of_most_modules(samples: Path, tmp_path: Path) -> None:
    (tmp_path / "libtorch_cuda.so").write_bytes((samples / "compressed.so").read_bytes())
    found = torch_code(str(tmp_path))
    assert found is not None
    assert found.library == str(tmp_path / "libtorch_cuda.so")
    assert [str(target) for target in found.targets] == ["sm_75", "compute_120", "sm_120"]


def test_torch_without_cuda(samples: Path, tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    assert torch_code(str(tmp_path)) is None
    compile_library(tmp_path / "libtorch.so")
    assert torch_code(str(tmp_path)) is None
    (tmp_path / "libtorch_cuda.so").write_bytes((samples / "plain.so").read_bytes()[:200])
    with pytest.raises(BinaryError):
        torch_code(str(tmp_path))
