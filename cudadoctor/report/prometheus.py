"""Metrics for the node exporter's textfile collector: verdict, findings, proofs, and what the machine is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from cudadoctor.model.fact import Fact, Known, maybe
from cudadoctor.model.finding import Severity
from cudadoctor.model.proof import Proof
from cudadoctor.model.report import Report, Verdict, made_at
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.report import inert
from cudadoctor.report.options import Charset, RenderOptions
from cudadoctor.report.proof_table import WORST_FIRST

Labels = Mapping[str, object]
_LABEL = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A gauge with its samples; of two with the same labels the first counts."""

    name: str
    help: str
    samples: Iterable[tuple[Labels, float]]


def render(report: Report, options: RenderOptions) -> str:
    """The exposition format, version 0.0.4; every metric is there, also without samples."""
    return exposition(_metrics(report), options.charset)


def _metrics(report: Report) -> Iterator[Metric]:
    yield from _about_the_report(report)
    yield from _judgement(report)
    yield from _proofs(report.proofs)
    yield from _machine(report.snapshot)


def _about_the_report(report: Report) -> Iterator[Metric]:
    info = {"version": report.tool.version, "matrices_as_of": report.tool.matrices_as_of, "node": report.node or ""}
    yield Metric("info", "The cudadoctor that made the report, and the node as it names it.", [(info, 1)])
    made = made_at(report.created)
    yield Metric("report_timestamp_seconds", "When the report was made.", [({}, made)] if made is not None else [])
    yield Metric("duration_seconds", "How long the command took.", [({}, report.seconds)] if report.seconds is not None else [])


def _judgement(report: Report) -> Iterator[Metric]:
    verdicts = [({"verdict": verdict.value}, float(report.verdict is verdict)) for verdict in Verdict]
    yield Metric("verdict", "1 for the verdict of the report, 0 for the others.", verdicts)
    by_severity = Counter(finding.severity for finding in report.findings)
    totals = [({"severity": severity.value}, by_severity[severity]) for severity in Severity]
    yield Metric("findings", "Number of findings of each severity.", totals)
    named = Counter((f.code, f.name, f.severity.value, str(f.root).lower()) for f in report.findings)
    each = [(dict(zip(("code", "name", "severity", "root"), key, strict=True)), count) for key, count in named.items()]
    yield Metric("finding", "Number of findings of one rule; root is true where no other finding explains them.", each)
    yield Metric("unknown_rules", "Rules that could not be judged.", [({}, len({rule.code for rule in report.unknown}))])


def _proofs(proofs: tuple[Proof, ...]) -> Iterator[Metric]:
    worst = _worst_of_each(proofs)
    outcomes = [({**_proof_labels(proof), "outcome": proof.outcome.value}, 1) for proof in worst]
    yield Metric("proof_outcome", "1 for the outcome of each kernel run: passed, failed, skipped or unknown.", outcomes)
    times = [(_proof_labels(proof), proof.run_ms / 1000) for proof in worst if proof.run_ms is not None]
    yield Metric("proof_run_seconds", "Median time of one launch of the kernel.", times)
    rates = [(_proof_labels(proof), proof.tflops) for proof in worst if proof.tflops is not None]
    yield Metric("proof_tflops", "Rate of the same launches, in 10^12 floating point operations a second.", rates)
    copies = [(_proof_labels(proof), proof.gb_s) for proof in worst if proof.gb_s is not None]
    yield Metric("proof_gb_s", "Rate of a copy between GPUs, or bus bandwidth of an all-reduce, in 10^9 bytes a second.", copies)


def _worst_of_each(proofs: Iterable[Proof]) -> list[Proof]:
    """The proofs; of several with the same labels, the one with the worst outcome."""
    chosen: dict[tuple[object, ...], Proof] = {}
    for proof in proofs:
        key = tuple(_proof_labels(proof).values())
        chosen[key] = min(chosen.get(key, proof), proof, key=lambda each: WORST_FIRST.index(each.outcome))
    return list(chosen.values())


def _proof_labels(proof: Proof) -> dict[str, object]:
    return {
        "layer": proof.layer.value,
        "gpu": "" if proof.gpu is None else proof.gpu,
        "kernel": proof.kernel,
        "target": proof.target or "",
        "compiler": proof.compiler or "",
        **({"peer": proof.peer} if proof.peer is not None else {}),
    }


def _machine(snapshot: Snapshot) -> Iterator[Metric]:
    """What is not known has an empty label, or no sample where nothing of it is known."""
    driver = {
        "driver_release": _text(snapshot.driver.driver_release),
        "driver_cuda_version": _text(snapshot.driver.driver_cuda_version),
    }
    yield Metric("driver_info", "The driver, and the newest CUDA that its API supports.", _known(driver))
    gpus = [
        ({"gpu": gpu.index, "name": _text(gpu.name), "compute_capability": _text(gpu.compute_capability)}, 1.0)
        for gpu in maybe(snapshot.gpus) or ()
    ]
    yield Metric("gpu_info", "The GPUs, numbered as NVML does.", gpus)
    torch = maybe(snapshot.python.torch)
    build = {
        "torch_version": _text(torch.torch_version) if torch is not None else "",
        "torch_cuda_version": _text(torch.torch_cuda_version) if torch is not None else "",
    }
    yield Metric("torch_info", "The torch of the examined Python, and the CUDA that it is built for.", _known(build))


def _text(fact: Fact[object]) -> str:
    return str(fact.value) if isinstance(fact, Known) else ""


def _known(labels: Labels) -> list[tuple[Labels, float]]:
    return [(labels, 1.0)] if any(labels.values()) else []


# The exposition format


def exposition(metrics: Iterable[Metric], charset: Charset) -> str:
    """The metrics as text, each with its help and type."""
    return "".join(_lines(metric, charset) for metric in metrics)


def _lines(metric: Metric, charset: Charset) -> str:
    name = f"cudadoctor_{metric.name}"
    samples: dict[str, float] = {}
    for labels, value in metric.samples:
        samples.setdefault(_labels(labels, charset), value)
    shown = [f"{name}{labels} {_number(value)}" for labels, value in samples.items()]
    return "".join(f"{line}\n" for line in (f"# HELP {name} {metric.help}", f"# TYPE {name} gauge", *shown))


def _labels(labels: Labels, charset: Charset) -> str:
    pairs = (f'{key}="{_label(str(value), charset)}"' for key, value in labels.items())
    return "{" + ",".join(pairs) + "}" if labels else ""


def _label(value: str, charset: Charset) -> str:
    """A label's value on one line: backslash, quote and newline as the format wants them."""
    return inert.value(value, charset, inert.CELL_LIMIT).translate(_LABEL)


def _number(value: float) -> str:
    """Nine digits; whole numbers as they are."""
    return str(int(value)) if float(value).is_integer() else f"{value:.9g}"
