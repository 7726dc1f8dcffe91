"""Whether a GPU performs as it should and, if not, why: rules on the readings of a run, without any input or output."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from cudadoctor.bench.conditions import Conditions, conditions_of
from cudadoctor.bench.figures import readings
from cudadoctor.bench.model import BenchGpu, BenchReport, Comparison, Outcome, Row, Verdict
from cudadoctor.bench.reasons import OFTEN, reasons_for
from cudadoctor.bench.roofline import model_of, rated_roof
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.expected_speed import Figure, Peak, UsualShare
from cudadoctor.matrices.gpus import GpuModel

LABELS = {
    Figure.COPY: "copy bandwidth",
    Figure.GEMM_TENSOR: "GEMM on tensor cores",
    Figure.GEMM_LIBRARY: "torch.mm on tensor cores",
    Figure.GEMM_F32: "GEMM in fp32",
    Figure.ATTENTION: "attention, causal",
    Figure.TRANSFER: "host to GPU, pinned",
}


def judge(report: BenchReport, matrices: Matrices) -> Verdict:
    """The verdict on a run; unknown is never as expected."""
    conditions = conditions_of(report.samples)
    compared = tuple(comparisons(report, matrices))
    reasons = tuple(reasons_for(report.gpu, conditions, [each.figure for each in compared if each.below], matrices))
    remarks = (*_remarks(report, conditions), *_ecc(report, compared))
    outcome, sentence = _outcome(report, conditions, compared)
    if outcome is not Outcome.SLOW:
        reasons = tuple(reason for reason in reasons if not reason.tags)
    elif reasons:
        sentence += f" {reasons[0].what}"
    else:
        sentence += " " + ("No cause was seen." if report.samples else "NVML gave no readings, so the cause is not known.")
    return Verdict(outcome=outcome, sentence=sentence, comparisons=compared, reasons=reasons, remarks=remarks)


def _outcome(report: BenchReport, conditions: Conditions, compared: Sequence[Comparison]) -> tuple[Outcome, str]:
    wrong = [row for row in report.rows if row.wrong]
    below = [each for each in compared if each.below]
    name = report.gpu.name or "This GPU"
    if wrong:
        return Outcome.WRONG, f"{name} computed wrong results: {wrong[0].kernel}, {wrong[0].problem}: {wrong[0].because}."
    if not any(row.timing is not None for row in report.rows):
        return Outcome.UNDETERMINED, "Nothing could be measured" + _first_cause(report.rows)
    if conditions.busy:
        return (
            Outcome.UNDETERMINED,
            f"Busy: {conditions.busy}. These figures do not tell how fast {name} is; measure again when it is free.",
        )
    if report.gpu.mig:
        return Outcome.UNDETERMINED, f"{name} is split by MIG: what a slice should reach is not known here."
    if not compared:
        return Outcome.UNDETERMINED, f"No expectation is known for {name} and what was measured."
    if below:
        listed = "; ".join(_below(each) for each in below)
        return Outcome.SLOW, f"{name} is slower than it should be: {listed}."
    if not any(each.measured_model for each in compared):
        return (
            Outcome.AS_EXPECTED,
            f"{name} performs within the usual share of its rated peaks; no run on this model is known to compare with.",
        )
    return Outcome.AS_EXPECTED, f"{name} performs as it should."


def _first_cause(rows: Iterable[Row]) -> str:
    causes = [row.because for row in rows if row.because]
    return f": {causes[0]}." if causes else "."


def _below(each: Comparison) -> str:
    return f"{each.figure} {each.value:,.4g} {each.unit}, expected {each.low:,.4g} to {each.high:,.4g}"


def _remarks(report: BenchReport, conditions: Conditions) -> Iterator[str]:
    if conditions.idle_others and not conditions.busy:
        count = conditions.idle_others
        yield f"{count} other process{'es hold' if count > 1 else ' holds'} memory on this GPU, idle while it was watched."
    if not report.samples:
        yield "NVML gave no readings: whether others use the GPU, clocks and power are not known."
    if conditions.power_capped >= OFTEN:
        highest = f", {conditions.power_w:.0f} W at most" if conditions.power_w is not None else ""
        limit = f" of {report.gpu.power_limit_w:.0f} W" if highest and report.gpu.power_limit_w is not None else ""
        often = f"in {conditions.power_capped:.0%} of the samples{highest}{limit}"
        yield f"The driver held clocks down for power {often}: ordinary under this load."


def _ecc(report: BenchReport, compared: Sequence[Comparison]) -> Iterator[str]:
    """ECC as a possible reason; a range measured on the model itself was measured with its ECC on."""
    slow = [each for each in compared if each.below and each.figure == LABELS[Figure.COPY] and not each.measured_model]
    if slow and report.gpu.ecc:
        yield "ECC is on: on boards with GDDR memory it takes some percent of the bandwidth (`nvidia-smi -q -d ECC`)."


# Comparisons


def comparisons(report: BenchReport, matrices: Matrices) -> Iterator[Comparison]:
    """Each figure that was measured and for which an expectation is known."""
    model = model_of(report.gpu, matrices)
    for figure, reading in readings(report.rows).items():
        expected = _of_model(model, figure, matrices) or _of_share(report, model, figure, matrices)
        if expected is not None:
            low, high, basis, measured = expected
            yield Comparison(
                figure=LABELS[figure],
                value=reading.value,
                low=low,
                high=high,
                unit=reading.unit(figure),
                basis=basis,
                measured_model=measured,
                below=reading.fast < low,
            )


Expected = tuple[float, float, str, bool]


def _of_model(model: GpuModel | None, figure: Figure, matrices: Matrices) -> Expected | None:
    row = matrices.speeds.of_model(model.name, figure) if model is not None else None
    return (row.low, row.high, f"measured on {row.gpu}", True) if row is not None else None


def _of_share(report: BenchReport, model: GpuModel | None, figure: Figure, matrices: Matrices) -> Expected | None:
    share = matrices.speeds.share(figure)
    peak = _peak(share, report, model, matrices) if share is not None else None
    if share is None or peak is None:
        return None
    name = {Peak.LINK: "this PCIe link"}.get(share.of, f"the rated {share.of.value} peak")
    return share.low * peak, share.high * peak, f"{share.low:.0%} to {share.high:.0%} of {name} ({peak:,.4g})", False


def _peak(share: UsualShare, report: BenchReport, model: GpuModel | None, matrices: Matrices) -> float | None:
    if share.of is Peak.LINK:
        return _link(report.gpu, matrices)
    roof = rated_roof(model.peaks) if model is not None else None
    takers: dict[Peak, Callable[[], float | None]] = {
        Peak.BANDWIDTH: lambda: roof.gb_s if roof else None,
        Peak.TENSOR: lambda: roof.tensor if roof else None,
        Peak.FP32: lambda: roof.plain if roof else None,
    }
    return takers[share.of]()


def _link(gpu: BenchGpu, matrices: Matrices) -> float | None:
    """What the link could carry if GPU and slot did their best."""
    if gpu.pcie_generation_max is None or gpu.pcie_width_max is None:
        return None
    return matrices.speeds.link_gb_s(gpu.pcie_generation_max, gpu.pcie_width_max)
