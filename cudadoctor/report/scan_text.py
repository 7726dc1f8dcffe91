"""The result of `scan` for a terminal, a pipe or a log: a table by file, the modules where asked for, libraries, one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from cudadoctor.binary.coverage import Verdict
from cudadoctor.binary.libraries import LibraryReport
from cudadoctor.binary.report import FileReport, ModuleReport, ScanReport
from cudadoctor.model.binaries import Wanted
from cudadoctor.report import inert
from cudadoctor.report.ink import GAP, Ink
from cudadoctor.report.marks import Mark
from cudadoctor.report.options import Detail, RenderOptions
from cudadoctor.report.printing import printed

MIN_WIDTH = 60
MAX_MODULES = 2000
"""Most modules of one file that are printed; the JSON has them all."""

_OF_VERDICT = {
    Verdict.RUNS: (Mark.OK, "runs"),
    Verdict.RUNS_BY_JIT: (Mark.OK, "runs after PTX is compiled"),
    Verdict.UNCERTAIN: (Mark.WARNING, "not promised"),
    Verdict.PARTLY: (Mark.NOTE, "partly"),
    Verdict.FAILS: (Mark.ERROR, "fails"),
    Verdict.UNKNOWN: (Mark.UNKNOWN, "unknown"),
    Verdict.NO_KERNELS: (Mark.ABSENT, "no kernels"),
}


def render(report: ScanReport, options: RenderOptions) -> str:
    """The report as lines of at most `options.width` columns, save for words that are longer."""
    return printed(lambda ink: _parts(report, ink, options.detail), options, MIN_WIDTH)


def _parts(report: ScanReport, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    for argument, group in groupby(report.files, key=lambda file: file.argument):
        files = tuple(group)
        shown = tuple(file for file in files if _has_news(file, argument)) if detail < Detail.EVIDENCE else files
        yield ink.value(argument, "bold")
        yield _table(shown, argument, ink)
        if len(shown) < len(files):
            yield Padding(ink.prose(f"and {len(files) - len(shown):,} CUDA libraries without GPU code", "dim"), (0, 0, 0, GAP))
        for file in shown:
            yield from _details(file, argument, ink, detail)
        yield Text("")
    yield ink.prose(closing(report))


def _has_news(file: FileReport, argument: str) -> bool:
    """False for a library of a tree that only needs CUDA libraries, all of which are there."""
    has_problems = bool(file.problem) or (file.libraries is not None and bool(file.libraries.problems))
    return file.path == argument or has_problems or bool(file.modules or file.relocatable_modules)


def _table(files: tuple[FileReport, ...], argument: str, ink: Ink) -> Padding:
    table = ink.grid()
    table.add_column(overflow="fold", ratio=3)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold", ratio=4)
    table.add_column(overflow="fold", ratio=3)
    for file in files:
        path = ink.value(_short(file.path, argument))
        table.add_row(
            path,
            ink.value(size_words(file.size) if file.size or not file.problem else ""),
            ink.prose(code_words(file)),
            _verdict(file, ink),
        )
    return Padding(table, (0, 0, 0, GAP))


def _verdict(file: FileReport, ink: Ink) -> Text:
    if file.problem:
        return ink.mark(Mark.UNKNOWN, file.problem)
    judgement = file.judgement
    if judgement is None:
        return Text("")
    mark, words = _OF_VERDICT[judgement.verdict]
    usable = sum(judgement.modules.get(name, 0) for name in ("sass", "jit", "uncertain"))
    counts = f", {usable} of {judgement.judged} modules" if judgement.judged else ""
    errors = f", error {' or '.join(map(str, judgement.errors))}" if judgement.verdict is Verdict.FAILS else ""
    return ink.mark(mark, words + counts + errors)


def _details(file: FileReport, argument: str, ink: Ink, detail: Detail) -> Iterator[RenderableType]:
    lines = [*_module_lines(file), *_library_lines(file.libraries, detail)]
    if not lines:
        return
    yield Text("")
    yield Padding(ink.value(_short(file.path, argument), "bold"), (0, 0, 0, GAP))
    for line in lines:
        yield Padding(ink.value(line, limit=inert.VALUE_LIMIT), (0, 0, 0, 2 * GAP))


def _module_lines(file: FileReport) -> Iterator[str]:
    for module in file.by_module[:MAX_MODULES]:
        yield _module_line(module)
    if len(file.by_module) > MAX_MODULES:
        yield f"and {len(file.by_module) - MAX_MODULES:,} more: see --format json"


def _module_line(module: ModuleReport) -> str:
    flags = (("stub", module.is_tiny), ("device-linked", module.is_device_linked), ("cut off", not module.is_complete))
    notes = [name for name, is_set in flags if is_set] + ([module.outcome] if module.outcome else [])
    place = module.section or module.place.value
    return f"{place}+{module.offset:#x}  {module.size:,} B  {', '.join(module.code) or 'empty'}  {' '.join(notes)}".rstrip()


def _library_lines(libraries: LibraryReport | None, detail: Detail) -> Iterator[str]:
    if libraries is None:
        return
    for problem in libraries.problems:
        yield f"problem: {problem.what}"
    for use in libraries.uses:
        if use.wanted is Wanted.MAY_DLOPEN and detail < Detail.EVIDENCE:
            continue
        wanted = "may dlopen " if use.wanted is Wanted.MAY_DLOPEN else ""
        yield f"{wanted}{use.name} -> {use.path or 'not found'}" + (f" ({use.via})" if use.via else "")
        yield from (f"  hides {path}" for path in use.shadowed)
        yield from (f"  not taken: {reason}" for reason in use.rejected)


def _short(path: str, argument: str) -> str:
    """The path without the argument in front of it: the row stands below the argument."""
    if path == argument:
        return os.path.basename(path)  # noqa: PTH119 - members of wheels are no paths
    for separator in ("/", "!"):
        if path.startswith(argument.rstrip("/") + separator):
            return path[len(argument.rstrip("/")) + 1 :]
    return path


def size_words(size: int) -> str:
    """`502.8 MB`, `3.1 MB`, `947 B`."""
    if size >= 100_000:
        return f"{size / 1e6:,.1f} MB"
    return f"{size / 1e3:.1f} kB" if size >= 1000 else f"{size} B"


def code_words(file: FileReport) -> str:
    """`475 modules: sm_75 sm_80; 59 of them also sm_100a`: targets together that have equal counts, most frequent first."""
    if not file.modules and not file.relocatable_modules:
        return "not read" if file.problem else "no GPU code"
    parts = [_code_words(file.code, file.modules)] if file.modules else []
    if file.relocatable_modules:
        parts.append("relocatable " + _code_words(file.relocatable_code, file.relocatable_modules))
    if file.ptx_isa:
        parts.append(f"PTX version {', '.join(map(str, file.ptx_isa))}")
    return "; ".join(parts)


def _code_words(code: dict[str, int], modules: int) -> str:
    by_count: dict[int, list[str]] = {}
    for target, count in code.items():
        by_count.setdefault(count, []).append(target)
    words = [f"{' '.join(targets)} in {count:,}" for count, targets in sorted(by_count.items(), reverse=True)]
    if modules == 1:
        return " ".join(code) or "one empty module"
    if words and modules in by_count:
        words[0] = f"{' '.join(by_count[modules])} in all {modules:,}"
    else:
        words.insert(0, f"{modules:,} modules")
    return ", ".join(words)


def closing(report: ScanReport) -> str:
    """One sentence on the whole."""
    files = [file for file in report.files if file.modules or file.relocatable_modules]
    total = sum(file.modules for file in files)
    found = f"{_counted(len(files), 'file')} with GPU code, {_counted(total, 'module')}."
    if report.gpu is None:
        return found
    failing = [file for file in files if file.judgement is not None and file.judgement.verdict is Verdict.FAILS]
    gpu = f"compute capability {report.gpu}"
    verdict = f"{_counted(len(failing), 'file')} cannot run on {gpu}" if failing else f"None certainly fails on {gpu}"
    return f"{found} {verdict}. This is a prediction from the files; libraries that compile at run time may do better."


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
