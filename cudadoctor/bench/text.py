"""A run as a table for people: plain, aligned, one line a kernel, the verdict last."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from cudadoctor.bench.lessons import lessons, loads
from cudadoctor.bench.model import BenchReport, Change, Comparison, Outcome, Profile, Row, Section
from cudadoctor.bench.roofline import BY_DESIGN, Roof, bound_of, measured_roof, model_of, rated_roof, share_of
from cudadoctor.gpu.catalog import CHASE_U32_CYCLE
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Finding
from cudadoctor.report import inert
from cudadoctor.report.options import Charset, RenderOptions

TITLES = {Section.GEMM: "GEMM", Section.ATTENTION: "Attention", Section.MEMORY: "Memory"}
HEAD = ("", "", "speed", "spread", "rated", "roof", "torch", "limited by", "occ.", "MHz")
RIGHT = frozenset({2, 3, 4, 5, 6, 8, 9})
"""Columns of numbers."""
SIGNS = {Outcome.AS_EXPECTED: "✓", Outcome.SLOW: "✗", Outcome.WRONG: "✗", Outcome.UNDETERMINED: "?"}
ASCII_SIGNS = {"✓": "+", "✗": "x", "\N{EN DASH}": "-"}
LEAST_RATE = 0.1
"""G loads/s below which a pointer chase is shown as the time of one load."""
Cells = tuple[str, ...]


def render(report: BenchReport, matrices: Matrices, options: RenderOptions) -> str:
    """The whole text, ending in a newline."""
    model = model_of(report.gpu, matrices)
    rated = rated_roof(model.peaks) if model is not None else Roof(None, None, None)
    measured = measured_roof(report.rows)
    parts = [_heading(report), *_tables(report, rated, measured)]
    parts.append("\n".join(f"  {sentence}" for sentence in lessons(report.rows)))
    if report.against is not None:
        parts.append("\n".join(_against(report.against)))
    if report.profile is not None:
        parts.append("\n".join(_profile(report.profile, options.width)))
    parts.append("\n".join(_verdict(report, options.width)))
    text = "\n\n".join(part for part in parts if part) + "\n"
    return "".join(f"{_plain(line, options.charset)}\n" for line in text.splitlines())


def _plain(line: str, charset: Charset) -> str:
    """The line without anything that a terminal would act on; signs in ASCII where it knows no others."""
    if charset is Charset.ASCII:
        for sign, plain in ASCII_SIGNS.items():
            line = line.replace(sign, plain)
    return inert.escaped(line.rstrip(), charset)


def _heading(report: BenchReport) -> str:
    gpu = report.gpu
    facts = [
        f"CC {gpu.compute_capability}" if gpu.compute_capability is not None else "",
        f"{gpu.memory_total / 2**30:.0f} GiB" if gpu.memory_total else "",
        f"{gpu.sm_clock_max_mhz:,} MHz" if gpu.sm_clock_max_mhz else "",
        f"{gpu.power_limit_w:.0f} W" if gpu.power_limit_w else "",
        f"driver {gpu.driver_release}" if gpu.driver_release else "",
        f"torch {report.torch}" if report.torch else "",
    ]
    named = f"GPU {gpu.index} {inert.value(gpu.name)}"
    return f"cudadoctor {report.tool.version} bench   {', '.join((named, *(fact for fact in facts if fact)))}"


def _tables(report: BenchReport, rated: Roof, measured: Roof) -> Iterator[str]:
    """One table a section; columns are as wide in all of them."""
    sections = [section for section in Section if any(row.section is section for row in report.rows)]
    lines = {section: [_cells(row, rated, measured) for row in report.rows if row.section is section] for section in sections}
    everything = [HEAD, *(cells for each in lines.values() for cells in each)]
    whole = [cells for cells in everything if len(cells) == len(HEAD)]
    widths = [max(len(cells[column]) for cells in (everything if column < 2 else whole)) for column in range(len(HEAD))]
    for number, section in enumerate(sections):
        head = _line((TITLES[section], *(HEAD[1:] if number == 0 else ("",) * (len(HEAD) - 1))), widths)
        yield "\n".join([head, *(_line(cells, widths) for cells in lines[section])])


def _line(cells: Cells, widths: Sequence[int]) -> str:
    if len(cells) == 3:  # a row without a time: the reason runs on
        return f"  {cells[0]:<{widths[0]}}  {cells[1]:<{widths[1]}}  \N{EN DASH} {cells[2]}"
    padded = (
        cell.rjust(width) if column in RIGHT else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  " + "  ".join(padded)


def _cells(row: Row, rated: Roof, measured: Roof) -> Cells:
    if row.timing is None:
        return (row.kernel, row.problem, row.because)
    return (
        row.kernel,
        row.problem,
        _speed(row),
        f"{row.timing.spread:.1%}",
        _percent(share_of(row, rated)),
        _percent(share_of(row, measured)),
        f"{row.ratio:.2f}x" if row.ratio is not None else "",
        bound.value if (bound := bound_of(row, measured)) is not None else "",
        _percent(row.occupancy),
        f"{row.clock_mhz:,.0f}" if row.clock_mhz else "",
    )


def _speed(row: Row) -> str:
    """In the unit that says something about this kernel."""
    if row.timing is not None and row.kernel == CHASE_U32_CYCLE.name and row.bytes_moved and row.timing.median > 0:
        rate = loads(row) / row.timing.median * 1e-6
        return f"{rate:.3g} G loads/s" if rate >= LEAST_RATE else f"{1 / rate:,.0f} ns a load"
    if row.timing is not None and row.kernel in BY_DESIGN:
        return f"{row.timing.median:.3g} ms"
    if row.tflops is not None:
        return f"{row.tflops:,.1f} TFLOPS"
    return f"{row.gb_s:,.4g} GB/s" if row.gb_s is not None and row.gb_s < 1000 else f"{row.gb_s or 0:,.0f} GB/s"


def _percent(share: float | None) -> str:
    return f"{share:.0%}" if share is not None else ""


def _against(changes: Sequence[Change]) -> Iterator[str]:
    """Changes beyond the noise of both runs, and how many are within it."""
    counting = [change for change in changes if change.counts]
    within = len(changes) - len(counting)
    yield f"Against the earlier run: {len(counting)} changed, {within} within the noise of both runs"
    for change in counting:
        yield f"  {change.kernel} {change.problem}: {change.faster:+.1%} (noise {change.noise:.1%})"


def _profile(profile: Profile, width: int) -> Iterator[str]:
    """What Nsight Compute counted, and what follows."""
    yield "Nsight Compute"
    if profile.because:
        yield f"  \N{EN DASH} {profile.because}"
    for kernel in profile.kernels:
        yield from _wrapped(f"{kernel.kernel}: {kernel.bound}", width, "  ")
        yield from _wrapped(kernel.change, width, "    ")
    for finding in profile.findings:
        yield from _finding(finding, width)


def _verdict(report: BenchReport, width: int) -> Iterator[str]:
    verdict = report.verdict
    if verdict is None:
        return
    names = [each.figure for each in verdict.comparisons]
    for each in verdict.comparisons:
        figure = f"{each.figure:<{max(map(len, names))}}  {each.value:>8,.4g} {each.unit:<6}"
        yield f"  {figure}  {_place(each)} {each.low:,.4g} to {each.high:,.4g}: {each.basis}"
    if names:
        yield ""
    for finding in verdict.reasons:
        yield from _finding(finding, width)
    for remark in verdict.remarks:
        yield from _wrapped(remark, width)
    yield from _wrapped(f"{SIGNS[verdict.outcome]} {verdict.sentence} {report.seconds:.1f} s", width)


def _place(each: Comparison) -> str:
    """Where the figure stands in its range."""
    if each.below:
        return "below"
    if each.value < each.low:
        return "not clearly below"
    return "above" if each.value > each.high else "within"


def _finding(finding: Finding, width: int) -> Iterator[str]:
    yield f"{finding.code} {finding.name}  {finding.subject}"
    yield from _wrapped(f"{finding.what} {finding.why}", width, "  ")
    for fix in finding.fixes:
        for number, command in enumerate(fix.commands):
            yield f"  {'Fix  ' if number == 0 else '     '}{command}"


def _wrapped(text: str, width: int, indent: str = "") -> Iterable[str]:
    return textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent)
