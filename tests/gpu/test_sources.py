from __future__ import annotations

from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import GEMM_F16_TILED
from cudadoctor.gpu.sources import inlined_source
from cudadoctor.resources import kernels_folder


def test_includes_are_put_in_place_once(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "b.cuh"\n#include "c.cuh"\nint a;\n')
    (tmp_path / "b.cuh").write_text('#pragma once\n#include "c.cuh"\nint b;\n')
    (tmp_path / "c.cuh").write_text("#pragma once\nint c;\n")
    text = inlined_source(tmp_path, "a.cu")
    code = [line for line in text.splitlines() if not line.startswith("#line")]
    assert code == ["int c;", "int b;", "int a;"]


def test_a_kernel_becomes_one_text_without_includes() -> None:
    text = inlined_source(kernels_folder(), GEMM_F16_TILED.file)
    assert "#include" not in text
    assert text.count("struct f16 {") == 1
    assert text.index("cvt_f32_f16(unsigned") < text.index("gemm_f16_tiled_sm50(")


def test_a_missing_include_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text('#include "gone.cuh"\n')
    with pytest.raises(FileNotFoundError, match=r"gone\.cuh"):
        inlined_source(tmp_path, "a.cu")
