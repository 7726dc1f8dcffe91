"""The text of `scan`: what a reader must see, at every width and in ASCII too."""

from __future__ import annotations

import unicodedata

import pytest
from msgspec import structs
from rich.cells import cell_len

from cudadoctor.binary.contents import Contents
from cudadoctor.binary.coverage import Gpu
from cudadoctor.binary.formats import FileKind
from cudadoctor.binary.libraries import LibraryReport
from cudadoctor.binary.report import SCHEMA, FileReport, ModuleReport, ScanReport, file_report, unreadable_report
from cudadoctor.model.binaries import LibraryProblem, LibraryProblemKind, LibraryUse, ModuleGroup, Place, Wanted
from cudadoctor.model.versions import ComputeCapability
from cudadoctor.report.options import Charset, Detail, RenderOptions
from cudadoctor.report.scan_text import code_words, render, size_words
from tests.binary.test_coverage import group

CC = ComputeCapability(9, 0)


def file(path: str, *groups: ModuleGroup, argument: str = "/torch") -> FileReport:
    return file_report(path, argument, 502_842_281, Contents(FileKind.ELF, groups), Gpu(CC))


def text(*files: FileReport, gpu: ComputeCapability | None = CC, options: RenderOptions | None = None) -> str:
    return render(ScanReport(SCHEMA, gpu, None, files), options or RenderOptions(width=120))


TORCH = file("/torch/lib/libtorch_cuda.so", group("sm_80", "sm_90", count=416), group("sm_80", "sm_90", "sm_90a", count=59))


def test_table_and_closing_sentence() -> None:
    assert text(TORCH, file("/torch/lib/libold.so", group("sm_80", count=2))) == (
        "/torch\n"
        "  lib/libtorch_cuda.so  502.8 MB  sm_80 sm_90 in all 475, sm_90a in 59  \u2713 runs, 475 of 475 modules\n"
        "  lib/libold.so         502.8 MB  sm_80 in all 2                        \u2717 fails, 0 of 2 modules, error 209\n"
        "\n"
        "2 files with GPU code, 477 modules. 1 file cannot run on compute capability 9.0. This is a prediction from the files;\n"
        "libraries that compile at run time may do better.\n"
    )


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ((group("sm_90"),), "runs, 1 of 1 modules"),
        ((group("compute_80@8.0"),), "runs after PTX is compiled"),
        ((group("sm_90"), group("sm_80", count=3)), "partly, 1 of 4 modules"),
        ((group("unknown"),), "unknown"),
        ((group("sm_80", is_tiny=True),), "no kernels"),
    ],
)
def test_verdicts(groups: tuple[ModuleGroup, ...], words: str) -> None:
    assert words in text(file("/torch/a.so", *groups))


def test_without_gpu_nothing_is_judged() -> None:
    shown = text(file_report("/a.so", "/a.so", 5, Contents(FileKind.ELF, (group("sm_80"),)), None), gpu=None)
    assert shown.endswith("1 file with GPU code, 1 module.\n")
    assert "prediction" not in shown


def test_problem_is_shown_instead_of_a_verdict() -> None:
    assert "? file ends early" in text(unreadable_report("/torch/cut.so", "/torch", "file ends early"))


def test_libraries_without_code_are_counted_only() -> None:
    plain = file("/torch/lib/libc10_cuda.so")
    assert "libc10_cuda.so" not in text(TORCH, plain)
    assert "and 1 CUDA libraries without GPU code" in text(TORCH, plain)
    assert "libc10_cuda.so" in text(TORCH, plain, options=RenderOptions(width=120, detail=Detail.EVIDENCE))


def test_modules_and_libraries() -> None:
    module = ModuleReport(Place.REGISTERED, ".nv_fatbin", 0x20A0, 4792, ("sm_80",), is_device_linked=True, outcome="no-image")
    use = LibraryUse("libcudart.so.12", Wanted.NEEDED, "/a.so", "/x/libcudart.so.12", "LD_LIBRARY_PATH", ("/y/libcudart.so.12",))
    problem = LibraryProblem(LibraryProblemKind.MISSING, ("libx.so",), "libx.so, needed by /a.so, is not found")
    base = file("/torch/a.so", group("sm_80"))
    whole = FileReport(
        base.path, base.argument, base.kind, base.size, base.modules, base.code, base.needed, base.judgement,
        by_module=(module,), libraries=LibraryReport((use,), (problem,)),
    )  # fmt: skip
    shown = text(whole)
    assert ".nv_fatbin+0x20a0  4,792 B  sm_80  device-linked no-image" in shown
    assert "libcudart.so.12 -> /x/libcudart.so.12 (LD_LIBRARY_PATH)" in shown
    assert "hides /y/libcudart.so.12" in shown
    assert "problem: libx.so, needed by /a.so, is not found" in shown


@pytest.mark.parametrize("width", [60, 80, 120, 200])
@pytest.mark.parametrize("charset", Charset)
def test_width_and_hostile_names(width: int, charset: Charset) -> None:
    hostile = file("/torch/\x1b[31mred\u202e\n[bold]x[/bold]" + "long" * 60, group("sm_80"))
    shown = text(TORCH, hostile, options=RenderOptions(width=width, charset=charset))
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert {c for c in shown if unicodedata.category(c) in ("Cc", "Cf") and c != "\n"} == set()
    assert charset is Charset.UNICODE or shown.isascii()


@pytest.mark.parametrize(
    ("size", "words"), [(947, "947 B"), (3840, "3.8 kB"), (3_170_800, "3.2 MB"), (4_400_000_000, "4,400.0 MB")]
)
def test_size_words(size: int, words: str) -> None:
    assert size_words(size) == words


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ((), "no GPU code"),
        ((group(),), "one empty module"),
        ((group("sm_80", "compute_90@8.4"),), "sm_80 compute_90; PTX version 8.4"),
        ((group("sm_80", count=2), group("sm_90", count=1)), "3 modules, sm_80 in 2, sm_90 in 1"),
        ((group("sm_80", count=2, place=Place.RELOCATABLE),), "relocatable sm_80 in all 2"),
    ],
)
def test_code_words(groups: tuple[ModuleGroup, ...], words: str) -> None:
    assert code_words(file("/a", *groups)) == words


def test_a_file_that_could_not_be_read_is_not_said_to_have_no_code() -> None:
    damaged = structs.replace(file("/a"), problem="cut short")
    assert code_words(damaged) == "not read"
    assert code_words(structs.replace(file("/a", group("sm_80")), problem="cut short")) == "sm_80"
