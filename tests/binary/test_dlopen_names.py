from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cudadoctor.binary import dlopen_names as module_under_test
from cudadoctor.binary.dlopen_names import dlopen_names
from cudadoctor.binary.source import BytesSource, FileSource


def names(path: Path) -> tuple[str, ...]:
    with FileSource(path) as source:
        return dlopen_names(source)


def test_names_in_constant_data(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    texts = ("libcudnn_ops.so.9", "libcuda.so", "not a liblonger.so.1 name", "libx.so.1.2.3", "libnot.sox", "lib.so")
    source = "\n".join(f'const char t{index}[] = "\\0{text}";' for index, text in enumerate(texts))
    assert names(compile_library(tmp_path / "a.so", source=source)) == ("libcudnn_ops.so.9", "libcuda.so", "libx.so.1.2.3")


def test_names_at_every_chunk_border(tmp_path: Path, compile_library: Callable[..., Path]) -> None:
    size = module_under_test._CHUNK
    for before in (size - 40, size - 25, size - 1, size):
        source = (
            f"""__asm__(".section .rodata\\n.balign 64\\n.zero {before}\\n.byte 0\\n.asciz \\"libborder.so.1\\"\\n.zero 500");"""
        )
        assert names(compile_library(tmp_path / "b.so", source=source)) == ("libborder.so.1",)


def test_other_files_have_none(samples: Path) -> None:
    assert dlopen_names(BytesSource(b"libx.so")) == ()
    assert names(samples / "specific.cubin") == ()
