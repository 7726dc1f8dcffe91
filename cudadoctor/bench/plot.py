"""The roofline of a run as a picture: roofs rated and measured, and each kernel at its intensity. Needs matplotlib."""

from __future__ import annotations

import html
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudadoctor.bench.model import BenchReport, Row, Section
from cudadoctor.bench.roofline import Roof, intensity, measured_roof, model_of, rated_roof
from cudadoctor.commands.output import OutputError
from cudadoctor.matrices import Matrices

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png", ".html")
INSTALL = "pip install 'cudadoctor[plot]'"
COLOURS = {Section.GEMM: "#0b6e4f", Section.ATTENTION: "#b4441c"}
ROOF_COLOURS = {"tensor cores": "#22313f", "fp32": "#7a8793"}
LEAST_INTENSITY, MOST_INTENSITY = 1.0, 10000.0
PNG_DPI = 150
LABEL_HEIGHT = 0.027
"""Of the height of the axes: labels that are nearer are moved apart."""


class PlotError(Exception):
    """The plot cannot be drawn; the text says why and what to do."""


def check(path: Path) -> None:
    """Raise PlotError where the plot cannot be drawn: an unknown kind of file, no folder for it, or no matplotlib."""
    from importlib.util import find_spec

    if path.suffix.lower() not in SUFFIXES:
        raise PlotError(f"--plot writes {', '.join(SUFFIXES)}, not {path.name}")
    if not path.absolute().parent.is_dir():
        raise PlotError(f"cannot write {path}: there is no folder {path.parent}")
    if find_spec("matplotlib") is None:
        raise PlotError(f"--plot needs matplotlib, which is not installed: {INSTALL}")


def draw(report: BenchReport, matrices: Matrices, path: Path) -> None:
    """Write the picture; raises OutputError."""
    figure = _figure(report, matrices)
    kind = "png" if path.suffix.lower() == ".png" else "svg"
    memory = io.BytesIO()
    figure.savefig(memory, format=kind, dpi=PNG_DPI, metadata={"Date": None} if kind == "svg" else None)
    data = memory.getvalue()
    if path.suffix.lower() == ".html":
        data = _page(report, data.decode()).encode()
    try:
        path.write_bytes(data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _page(report: BenchReport, svg: str) -> str:
    """One self-contained page."""
    title = html.escape(f"cudadoctor bench: {report.gpu.name}")
    sentence = html.escape(report.verdict.sentence if report.verdict is not None else "")
    picture = svg[svg.index("<svg") :]
    style = "body{font:16px sans-serif;margin:2rem auto;max-width:60rem}svg{width:100%;height:auto}"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>\n'
        f"<body><h1>{title}</h1><p>{sentence}</p>\n{picture}</body></html>\n"
    )


def _figure(report: BenchReport, matrices: Matrices) -> Any:
    os.environ.setdefault("MPLBACKEND", "Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 6.2), layout="constrained")
    axes = figure.subplots()
    model = model_of(report.gpu, matrices)
    points = [row for row in report.rows if row.tflops is not None and intensity(row) is not None]
    model_roof = rated_roof(model.peaks) if model is not None else Roof(None, None, None)
    axes.set(xscale="log", yscale="log", xlim=(LEAST_INTENSITY, MOST_INTENSITY), ylim=_heights(points, model_roof))
    _roofs(axes, measured_roof(report.rows), "measured", "-")
    _roofs(axes, model_roof, "rated", ":")
    _points(axes, points)
    axes.set_xlabel("arithmetic intensity: FLOP a byte of the least traffic")
    axes.set_ylabel("TFLOPS")
    axes.set_title(_plain(f"{report.gpu.name}, driver {report.gpu.driver_release}, {report.created[:10]}"), loc="left")
    axes.grid(visible=True, which="major", linewidth=0.4, alpha=0.5)
    axes.legend(loc="upper left", frameon=False, fontsize=9)
    return figure


def _heights(points: Sequence[Row], roof: Roof) -> tuple[float, float]:
    """The range of TFLOPS to show."""
    shown = [row.tflops for row in points if row.tflops] + [each for each in (roof.tensor, roof.plain) if each]
    return min([1.0, *shown]) / 2, max([1.0, *shown]) * 2


def _plain(text: str) -> str:
    """Text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")


def _roofs(axes: Axes, roof: Roof, whose: str, style: str) -> None:
    """The slope of the memory and the two ceilings."""
    for label, ceiling in (("tensor cores", roof.tensor), ("fp32", roof.plain)):
        if ceiling is None:
            continue
        slope = roof.gb_s * 1e-3 if roof.gb_s else None
        ridge = ceiling / slope if slope else LEAST_INTENSITY
        x = [LEAST_INTENSITY, ridge, MOST_INTENSITY] if ridge > LEAST_INTENSITY else [LEAST_INTENSITY, MOST_INTENSITY]
        y = [min(ceiling, slope * each) if slope else ceiling for each in x]
        name = f"{whose}: {label} {ceiling:,.0f} TFLOPS" + (f", memory {roof.gb_s:,.0f} GB/s" if roof.gb_s else "")
        axes.plot(x, y, style, color=ROOF_COLOURS[label], linewidth=1.4, label=name)


def _points(axes: Axes, points: Sequence[Row]) -> None:
    """A dot for each kernel, its name at the right, names pushed apart where they would overlap."""
    seen: set[Section] = set()
    lowest, highest = axes.get_ylim()
    step = (highest / lowest) ** LABEL_HEIGHT
    height = 0.0
    for row in sorted(points, key=lambda each: each.tflops or 0.0):
        x, y = intensity(row) or LEAST_INTENSITY, row.tflops or 0.0
        name = {Section.GEMM: "GEMM", Section.ATTENTION: "attention"}.get(row.section, row.section.value)
        axes.plot([x], [y], "o", color=COLOURS[row.section], markersize=5, label=name if row.section not in seen else None)
        seen.add(row.section)
        height = max(y, height * step)
        axes.annotate(
            _plain(f"{row.kernel}, {row.problem}: {y:,.0f}" if y >= 10 else f"{row.kernel}, {row.problem}: {y:.1f}"),
            (x, y),
            xytext=(MOST_INTENSITY * 1.15, height),
            fontsize=8,
            color=COLOURS[row.section],
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": COLOURS[row.section], "linewidth": 0.5, "alpha": 0.6},
        )
