"""The roofline of a GPU as a picture within the page: its rated roofs, and each proven matrix product at its intensity."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cudadoctor.matrices import Matrices
from cudadoctor.matrices.gpus import Peaks
from cudadoctor.model.fact import Known, maybe
from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.report import Report
from cudadoctor.report.html_page import text

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 720, 330, 62, 44, 14, 26
LETTER = 6.5
"""Width of one, in the picture's units: whether a label has room beside its point."""
INTENSITIES = (1.0, 10000.0)
"""FLOP a byte at both ends of the picture."""
LOWEST_TFLOPS = 0.1
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
"""Of an element, by the type in a kernel's name."""


@dataclass(frozen=True)
class Point:
    """A kernel's best rate in TFLOPS, at its intensity in FLOP a byte of the least traffic."""

    kernel: str
    intensity: float
    tflops: float


def rooflines(report: Report) -> Iterator[str]:
    """A figure for each model of GPU whose rated peaks are known and whose products were timed; nothing for others."""
    names = {gpu.index: gpu.name.value for gpu in maybe(report.snapshot.gpus) or () if isinstance(gpu.name, Known)}
    for name in dict.fromkeys(names.values()):
        numbers = {index for index, each in names.items() if each == name}
        points = tuple(points_of(proof for proof in report.proofs if proof.gpu in numbers))
        peaks = Matrices.load().gpus.peaks(name) if points else None
        if peaks is not None and peaks.bandwidth_gb_s is not None and _plateaus(peaks):
            yield _figure(name, peaks, peaks.bandwidth_gb_s, points)


def points_of(proofs: Iterable[Proof]) -> Iterator[Point]:
    """The best of each kernel that multiplies matrices. They are timed on squares (`gpu.cases`), so rate and time give the size:
    2 n³ FLOP over three matrices of n² elements."""
    best: dict[str, Point] = {}
    for proof in proofs:
        kind, _, rest = proof.kernel.partition("_")
        size = BYTES.get(rest.partition("_")[0])
        if kind != "gemm" or size is None or proof.outcome is not ProofOutcome.PASSED or not proof.tflops or not proof.run_ms:
            continue
        side = (proof.tflops * proof.run_ms * 1e9 / 2) ** (1 / 3)
        point = Point(proof.kernel, 2 * side / (3 * size), proof.tflops)
        if proof.kernel not in best or best[proof.kernel].tflops < point.tflops:
            best[proof.kernel] = point
    yield from best.values()


def _plateaus(peaks: Peaks) -> tuple[tuple[str, float], ...]:
    """The arithmetic roofs that are known, in TFLOPS."""
    tensor = peaks.bf16_tensor or peaks.fp16_tensor
    named = (("tensor cores", tensor), ("fp32", peaks.fp32))
    return tuple((words, rate) for words, rate in named if rate is not None)


def _figure(name: str, peaks: Peaks, bandwidth: float, points: tuple[Point, ...]) -> str:
    roofs = _plateaus(peaks)
    rated = ", ".join(f"{words} {rate:.3g} TFLOPS" for words, rate in roofs)
    said = "; ".join(f"{point.kernel} {point.tflops:.3g} TFLOPS at {point.intensity:.0f} FLOP/B" for point in points)
    top = 10 ** math.ceil(math.log10(max(rate for _, rate in roofs) * 1.5))
    roofs_drawn = (_roof(words, rate, bandwidth, top) for words, rate in roofs)
    drawn = "\n".join([*_axes(top), *roofs_drawn, *(_dot(point, top) for point in points)])
    return (
        f'<figure class="roofline"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{text(f"{name}: {said}", 2000)}">\n'
        f"{drawn}\n</svg>\n<figcaption>{text(name)}, rated: {text(rated)}, memory {bandwidth:.4g} GB/s. "
        "The products of this check are small; <code>cudadoctor bench</code> measures full speed.</figcaption></figure>"
    )


def _x(intensity: float) -> float:
    low, high = (math.log10(each) for each in INTENSITIES)
    share = (math.log10(intensity) - low) / (high - low)
    return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)


def _y(tflops: float, top: float) -> float:
    low, high = math.log10(LOWEST_TFLOPS), math.log10(top)
    share = (math.log10(max(tflops, LOWEST_TFLOPS)) - low) / (high - low)
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)


def _axes(top: float) -> Iterator[str]:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    yield f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}"/>'
    for power in range(round(math.log10(INTENSITIES[0])), round(math.log10(INTENSITIES[1])) + 1):
        yield f'<text x="{_x(10.0**power):.1f}" y="{floor + 16}" text-anchor="middle">{10**power}</text>'
    for power in range(round(math.log10(LOWEST_TFLOPS)), round(math.log10(top)) + 1):
        yield f'<text x="{LEFT - 6}" y="{_y(10.0**power, top) + 4:.1f}" text-anchor="end">{10.0**power:g}</text>'
    yield f'<text x="{(LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">FLOP a byte</text>'
    yield f'<text x="14" y="{floor / 2:.0f}" text-anchor="middle" transform="rotate(-90 14 {floor / 2:.0f})">TFLOPS</text>'


def _roof(words: str, tflops: float, bandwidth: float, top: float) -> str:
    """Bandwidth times intensity up to the ridge, level from there."""
    start, ridge = INTENSITIES[0], tflops * 1e3 / bandwidth
    right, level = WIDTH - RIGHT, _y(tflops, top)
    return (
        f'<path class="roof" d="M{_x(start):.1f} {_y(start * bandwidth * 1e-3, top):.1f}L{_x(ridge):.1f} {level:.1f}H{right}"/>'
        f'<text x="{right}" y="{level - 5:.1f}" text-anchor="end">{text(words)} {tflops:.3g}</text>'
    )


def _dot(point: Point, top: float) -> str:
    x, y, label = _x(point.intensity), _y(point.tflops, top), f"{point.kernel} {point.tflops:.3g}"
    fits = x + 8 + LETTER * len(label) <= WIDTH
    place = f'x="{x + 8:.1f}"' if fits else f'x="{x - 8:.1f}" text-anchor="end"'
    return (
        f'<circle class="kernel" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{text(label)} TFLOPS</title></circle>'
        f'<text {place} y="{y + 4:.1f}">{text(label)}</text>'
    )
