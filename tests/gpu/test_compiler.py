from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from cudadoctor.gpu.catalog import ATTN_F32_FUSED, GEMM_F32_NAIVE, GEMM_F32_TILED, KernelSpec
from cudadoctor.gpu.compile_cache import CompileCache
from cudadoctor.gpu.compiler import (
    CompileError,
    CompilerStuckError,
    CompilerUnavailableError,
    NvccCompiler,
    NvrtcCompiler,
    Workshop,
    telling_line,
)
from cudadoctor.model.versions import CudaVersion, SmTarget
from cudadoctor.resources import kernels_folder
from tests.fakes.build import build_shared_library
from tests.fakes.compilers import compiling_nvcc, fake_nvcc

Machine = Callable[..., dict[str, str]]
SM_90 = SmTarget.parse("sm_90")


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    (tmp_path / "work").mkdir()
    return Workshop(kernels_folder(), tmp_path / "work", CompileCache(tmp_path / "cache"))


@pytest.mark.parametrize("kernel", [GEMM_F32_TILED, ATTN_F32_FUSED], ids=lambda kernel: kernel.name)
def test_nvrtc_makes_a_cubin_once(kernel: KernelSpec, nvrtc_12_4: str, machine: Machine, workshop: Workshop) -> None:
    compiler = NvrtcCompiler(nvrtc_12_4, machine(), workshop)
    first = compiler.compile(kernel, SM_90, 60)
    second = compiler.compile(kernel, SM_90, 60)
    other = compiler.compile(kernel, SmTarget.parse("sm_80"), 60)
    compiler.close()
    assert compiler.toolkit_version == CudaVersion.of(12, 4)
    assert compiler.targets is not None and SM_90 in compiler.targets
    content = first.path.read_bytes()
    assert content.startswith(b"\x7fELF") and kernel.entry.encode() in content
    assert first.compile_s is not None and second.compile_s is None, "the second came from the cache"
    assert second.path.read_bytes() == content
    assert other.path.read_bytes() != content


def test_nvrtc_compiles_anew_where_the_kept_file_is_damaged(
    nvrtc_12_4: str, machine: Machine, workshop: Workshop, tmp_path: Path
) -> None:
    compiler = NvrtcCompiler(nvrtc_12_4, machine(), workshop)
    compiler.compile(GEMM_F32_NAIVE, SM_90, 60)
    for kept in (tmp_path / "cache").rglob("*.cubin"):
        kept.write_bytes(b"damaged")
    again = compiler.compile(GEMM_F32_NAIVE, SM_90, 60)
    compiler.close()
    assert again.compile_s is not None
    assert again.path.read_bytes().startswith(b"\x7fELF")


def test_nvrtc_names_what_is_wrong_in_a_source(nvrtc_12_4: str, machine: Machine, workshop: Workshop) -> None:
    wrong = dataclasses.replace(ATTN_F32_FUSED, head_dim=65)
    compiler = NvrtcCompiler(nvrtc_12_4, machine(), workshop)
    with pytest.raises(
        CompileError, match=r"NVRTC_ERROR_COMPILATION: attention/attn_fwd_f32_fused_sm50\.cu\(\d+\).*tiles are chosen"
    ) as caught:
        compiler.compile(wrong, SM_90, 60)
    compiler.close()
    assert caught.value.error is not None and caught.value.error.code == 6


def test_nvrtc_names_a_target_it_does_not_know(nvrtc_12_4: str, machine: Machine, workshop: Workshop) -> None:
    compiler = NvrtcCompiler(nvrtc_12_4, machine(), workshop)
    with pytest.raises(CompilerUnavailableError, match=r"NVRTC 12\.4 does not know the target: .*sm_120"):
        compiler.compile(GEMM_F32_NAIVE, SmTarget.parse("sm_120"), 60)
    compiler.close()


def test_a_file_that_is_no_library_is_a_reason_to_skip(machine: Machine, workshop: Workshop, tmp_path: Path) -> None:
    (tmp_path / "libnvrtc.so.12").write_text("no library")
    with pytest.raises(CompilerUnavailableError, match=r"cannot be used: .*libnvrtc"):
        NvrtcCompiler(str(tmp_path / "libnvrtc.so.12"), machine(), workshop).load(20)


def test_a_library_that_is_no_nvrtc_is_a_reason_to_skip(fake_libcuda: str, machine: Machine, workshop: Workshop) -> None:
    with pytest.raises(CompilerUnavailableError, match="not an NVRTC library"):
        NvrtcCompiler(fake_libcuda, machine(), workshop).load(20)


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [("raise(SIGSEGV);", CompileError, "died of SIGSEGV"), ("sleep(60);", CompilerStuckError, "no answer within")],
)
def test_a_library_that_crashes_or_hangs_when_loaded(
    body: str, error: type[Exception], text: str, machine: Machine, workshop: Workshop, tmp_path: Path
) -> None:
    source = tmp_path / "bad.c"
    source.write_text(
        f"#include <signal.h>\n#include <unistd.h>\n__attribute__((constructor)) static void go(void) {{ {body} }}\n"
    )
    library = build_shared_library(source, tmp_path / "libnvrtc.so.12")
    with pytest.raises(error, match=text):
        NvrtcCompiler(str(library), machine(), workshop).load(1.0 if error is CompilerStuckError else 20)


def test_nvcc_makes_a_cubin_once_for_one_environment(machine: Machine, workshop: Workshop, tmp_path: Path) -> None:
    nvcc = compiling_nvcc(tmp_path / "bin", ("kernel",), 90)
    runs = tmp_path / "bin" / "runs"
    first = NvccCompiler(str(nvcc), "nvcc 12.4", machine(), workshop).compile(GEMM_F32_NAIVE, SM_90, 20)
    kept = NvccCompiler(str(nvcc), "nvcc 12.4", machine(), workshop).compile(GEMM_F32_NAIVE, SM_90, 20)
    assert runs.read_text().count("run") == 1
    assert first.compile_s is not None and kept.compile_s is None
    NvccCompiler(str(nvcc), "nvcc 12.4", machine(NVCC_APPEND_FLAGS="-O0"), workshop).compile(GEMM_F32_NAIVE, SM_90, 20)
    assert runs.read_text().count("run") == 2, "other flags, other code"
    nvcc.write_text(nvcc.read_text() + "\n# a new release")
    NvccCompiler(str(nvcc), "nvcc 12.4", machine(), workshop).compile(GEMM_F32_NAIVE, SM_90, 20)
    assert runs.read_text().count("run") == 3, "another compiler, other code"


GCC_TOO_NEW = """In file included from <built-in>:1:
/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later than 13 are bad!
  143 | #error -- unsupported GNU version!"""


@pytest.mark.parametrize(
    ("body", "error", "text"),
    [
        (f"cat >&2 <<'END'\n{GCC_TOO_NEW}\nEND\nexit 1", CompileError, "exit code 1: .*unsupported GNU version"),
        (
            "echo \"Unsupported gpu architecture 'compute_90'\" >&2; exit 1",
            CompilerUnavailableError,
            "too old for it: .*compute_90",
        ),
        ("echo \"Value 'c++17' is not defined for option 'std'\" >&2; exit 1", CompilerUnavailableError, "too old"),
        ("exit 2", CompileError, "exit code 2: no output"),
        ("kill -SEGV $$", CompileError, "died of SIGSEGV"),
        ("sleep 60", CompilerStuckError, "did not end within"),
    ],
)
def test_what_nvcc_says_is_kept(
    body: str, error: type[Exception], text: str, machine: Machine, workshop: Workshop, tmp_path: Path
) -> None:
    nvcc = fake_nvcc(tmp_path / "bin", body)
    with pytest.raises(error, match=text):
        NvccCompiler(str(nvcc), "nvcc 12.4", machine(), workshop).compile(
            GEMM_F32_NAIVE, SM_90, 1.0 if error is CompilerStuckError else 20
        )


def test_an_nvcc_that_says_success_but_makes_nothing(machine: Machine, workshop: Workshop, tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path / "bin", "exit 0")
    with pytest.raises(CompileError, match="made no cubin"):
        NvccCompiler(str(nvcc), "nvcc 12.4", machine(), workshop).compile(GEMM_F32_NAIVE, SM_90, 20)


def test_no_nvcc_is_a_reason_to_skip(machine: Machine, workshop: Workshop, tmp_path: Path) -> None:
    with pytest.raises(CompilerUnavailableError, match="nvcc"):
        NvccCompiler(str(tmp_path / "nvcc"), "nvcc 12.4", machine(), workshop).compile(GEMM_F32_NAIVE, SM_90, 20)


def test_the_telling_line() -> None:
    assert telling_line("note\nfoo.h:1: error: bad\nfatal: stop") == "foo.h:1: error: bad"
    assert telling_line("only this\n\n") == "only this"
    assert telling_line("") == "no output"
    assert len(telling_line("error " * 1000)) == 400


def test_an_nvcc_without_a_host_compiler_is_a_reason_to_skip(machine: Machine, workshop: Workshop, tmp_path: Path) -> None:
    says = 'echo "nvcc fatal   : Failed to preprocess host compiler properties." >&2; exit 1'
    nvcc = fake_nvcc(tmp_path / "cuda", says)
    bare = NvccCompiler(str(nvcc), "nvcc 13.0", {**machine(), "PATH": str(tmp_path)}, workshop)
    with pytest.raises(CompilerUnavailableError, match="no host compiler"):
        bare.compile(GEMM_F32_NAIVE, SM_90, 10)
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    with pytest.raises(CompileError, match="Failed to preprocess"):
        bare.compile(GEMM_F32_NAIVE, SM_90, 10)
