"""One page a kernel: the head of its file, its budgets as the catalogue has them, and its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile

from cudadoctor.gpu.catalog import CATALOG, KernelSpec
from cudadoctor.resources import kernels_folder
from site_pages.markdown import block, code, escaped, table

LADDERS = {"gemm": "gemm_ladder", "attention": "attention_ladder", "memory": "bench"}
"""The page that tells what each step of a folder's kernels is for."""


def pages() -> Iterator[tuple[str, str]]:
    """The path of each page within the site, without suffix, and its Markdown."""
    by_file = {file: tuple(specs) for file, specs in groupby(sorted(CATALOG, key=lambda spec: spec.file), lambda spec: spec.file)}
    yield "kernels/index", _index(by_file)
    for file, specs in by_file.items():
        yield f"kernels/{_name(file)}", _page(file, specs)


def _name(file: str) -> str:
    return file.rpartition("/")[2].removesuffix(".cu")


def _index(by_file: dict[str, Sequence[KernelSpec]]) -> str:
    parts = [
        "# Kernels",
        "What `check` and `bench` compile and run. The steps are told in [the GEMM ladder](../docs/gemm_ladder.md), "
        "[the attention ladder](../docs/attention_ladder.md) and [bench](../docs/bench.md), the measurements in "
        "[RESULTS.md](RESULTS.md) and [RESULTS_attention.md](RESULTS_attention.md).",
    ]
    for folder, files in groupby(by_file, key=lambda file: file.partition("/")[0]):
        rows = [(f"[{_name(file)}]({_name(file)}.md)", escaped(_summary(file)), _target(by_file[file][0])) for file in files]
        parts += [f"## {folder}", table(("kernel", "what", "from"), rows)]
    return "\n\n".join(parts) + "\n"


def _target(spec: KernelSpec) -> str:
    major, minor = spec.lowest_target.major, spec.lowest_target.minor
    return f"sm\\_{major}{minor}{spec.target_suffix}"


def _page(file: str, specs: Sequence[KernelSpec]) -> str:
    ladder = LADDERS[file.partition("/")[0]]
    parts = [
        "---\norphan: true\n---",
        f"# {_name(file)}",
        block("\n".join(_head(file))),
        f"[The steps]({f'../docs/{ladder}.md'}) · [all kernels](index.md)",
        "## Budget",
        table(
            ("built as", "threads", "tile", "shared memory, static + at launch (B)", "registers at most", "spills at most (B)"),
            [_budget(spec) for spec in specs],
        ),
        "## Source",
        f"`kernels/{file}`, after its head; what it includes lies beside it.",
        block(_body(file), "cuda"),
    ]
    return "\n\n".join(parts) + "\n"


def _budget(spec: KernelSpec) -> tuple[str, ...]:
    macros = ", ".join(code(define) for define in spec.defines) or "as it is"
    threads = spec.block[0] * spec.block[1] * spec.block[2]
    smem = f"{spec.smem_bytes:,} + {spec.dynamic_smem_bytes:,}"
    return (macros, str(threads), " x ".join(map(str, spec.tile)), smem, str(spec.max_registers), str(spec.max_spill_bytes))


def _lines(file: str) -> list[str]:
    return (kernels_folder() / file).read_text(encoding="utf-8").splitlines()


def _head(file: str) -> list[str]:
    """The comment that opens the file, without the slashes."""
    return [line.removeprefix("//").removeprefix(" ") for line in takewhile(lambda line: line.startswith("//"), _lines(file))]


def _body(file: str) -> str:
    return "\n".join(_lines(file)[len(_head(file)) :])


def _summary(file: str) -> str:
    """The first line of the head after the kernel's name."""
    return _head(file)[0].partition(": ")[2]
