"""From gathered reports to the summary: classes of equal nodes, drifting versions, missing GPUs and nodes, stragglers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cudadoctor import __version__
from cudadoctor.fleet.gathering import Gathered, Row, Traits
from cudadoctor.fleet.hostlist import natural
from cudadoctor.fleet.summary import (
    Counts,
    Drift,
    FewerGpus,
    FleetSummary,
    GpuCount,
    KernelTime,
    NodeClass,
    NodeSubjects,
    Share,
    SlowGpu,
)
from cudadoctor.fleet.timings import Straggler, Usual
from cudadoctor.model.report import Tool, Verdict

MAJORITY = 2 / 3
"""Share of the nodes with one model of GPU that must have the same number for it to be usual; of two nodes none is odd."""
_ORDER = {Verdict.PROBLEMS.value: 0, Verdict.UNDETERMINED.value: 1, Verdict.HEALTHY.value: 2}

Classes = Mapping[Traits, list[str]]


def summarise(gathered: Gathered, expected: Sequence[str] = ()) -> FleetSummary:
    """The summary; `expected` are the nodes that should have reported."""
    classes: dict[Traits, list[str]] = {}
    for name in sorted(gathered.rows, key=natural):
        classes.setdefault(gathered.rows[name].traits, []).append(name)
    fewer = tuple(_fewer_gpus(classes))
    silent = gathered.silent
    explained = {each.node for each in silent}
    not_reported = tuple(name for name in expected if name not in gathered.rows and name not in explained)
    listed = frozenset(expected)
    usual, stragglers = _timed(gathered)
    counts = _counts(gathered, classes)
    return FleetSummary(
        tool=Tool(version=__version__),
        summary=_sentence(counts, len(silent), len(not_reported), len(fewer), len(stragglers)),
        counts=counts,
        classes=tuple(_class_rows(classes, gathered.rows)),
        drift=tuple(_drift(classes)),
        fewer_gpus=fewer,
        stragglers=stragglers,
        kernels=usual,
        not_reported=not_reported,
        not_listed=tuple(name for name in gathered.rows if listed and name not in listed),
        unreadable=tuple(gathered.unreadable),
        no_report=silent,
    )


def _counts(gathered: Gathered, classes: Classes) -> Counts:
    verdicts = Counter[str]()
    for traits, names in classes.items():
        verdicts[traits.verdict] += len(names)
    return Counts(
        reports=gathered.reports,
        nodes=len(gathered.rows),
        healthy=verdicts[Verdict.HEALTHY.value],
        problems=verdicts[Verdict.PROBLEMS.value],
        undetermined=verdicts[Verdict.UNDETERMINED.value],
        superseded=gathered.reports - len(gathered.rows),
        unreadable=gathered.unreadable_count,
        newer_schema=gathered.newer_schema,
    )


def _sentence(counts: Counts, silent: int, not_reported: int, fewer: int, stragglers: int) -> str:
    if counts.nodes == 0:
        opening = "No report could be read."
    elif counts.problems:
        opening = f"{counts.problems:,} of {_nodes(counts.nodes)} {_have(counts.problems)} problems."
    elif counts.undetermined:
        opening = f"No problem was found, but {counts.undetermined:,} of {_nodes(counts.nodes)} could not be judged."
    else:
        opening = f"No problem was found on {_nodes(counts.nodes)}."
    rest = (
        (silent, f"{_nodes(silent)} gave no report"),
        (not_reported, f"{_nodes(not_reported)} never reported"),
        (fewer, f"{_nodes(fewer)} {_have(fewer)} fewer GPUs than usual"),
        (stragglers, f"{stragglers:,} {'GPU is' if stragglers == 1 else 'GPUs are'} slow"),
        (counts.unreadable, f"{counts.unreadable:,} unreadable"),
    )
    more = "; ".join(words for number, words in rest if number)
    return f"{opening} {more[0].upper()}{more[1:]}." if more else opening


def _nodes(number: int) -> str:
    return f"{number:,} node" if number == 1 else f"{number:,} nodes"


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _class_rows(classes: Classes, rows: Mapping[str, Row]) -> Iterator[NodeClass]:
    usual = _usual_classes(classes)

    def place(item: tuple[Traits, list[str]]) -> tuple[bool, int, int, str]:
        return item[0] in usual, _ORDER[item[0].verdict], len(item[1]), item[1][0]

    for traits, names in sorted(classes.items(), key=place):
        yield NodeClass(
            nodes=tuple(names),
            is_usual=traits in usual,
            gpus=None if traits.gpus is None else tuple(GpuCount(name, count) for name, count in traits.gpus),
            driver_release=traits.driver,
            toolkit_version=traits.toolkit,
            torch_version=traits.torch,
            verdict=traits.verdict,
            findings=traits.findings,
            about=tuple(NodeSubjects(name, rows[name].subjects) for name in names if rows[name].subjects),
        )


def _usual_classes(classes: Classes) -> set[Traits]:
    """Of the nodes with the same models of GPU, the largest class without problems."""
    largest: dict[tuple[str, ...], Traits] = {}
    for traits, names in classes.items():
        if traits.verdict == Verdict.HEALTHY.value:
            known = largest.setdefault(traits.models, traits)
            if len(names) > len(classes[known]):
                largest[traits.models] = traits
    return set(largest.values())


def _drift(classes: Classes) -> Iterator[Drift]:
    alike: dict[tuple[str, ...], list[Traits]] = {}
    for traits in classes:
        if traits.models:
            alike.setdefault(traits.models, []).append(traits)
    for models, all_traits in alike.items():
        for part in ("driver", "toolkit", "torch"):
            having: dict[str | None, list[str]] = {}
            for traits in all_traits:
                having.setdefault(getattr(traits, part), []).extend(classes[traits])
            if len(having.keys() - {None}) > 1:
                shares = sorted(having.items(), key=lambda item: (-len(item[1]), item[0] or ""))
                yield Drift(models, part, tuple(Share(version, tuple(sorted(names, key=natural))) for version, names in shares))


def _fewer_gpus(classes: Classes) -> Iterator[FewerGpus]:
    """Nodes with fewer GPUs of a model than most nodes with that model have."""
    numbers: dict[str, Counter[int]] = {}
    for traits, names in classes.items():
        for model, count in traits.gpus or ():
            numbers.setdefault(model, Counter())[count] += len(names)
    for model, of_model in numbers.items():
        usual, nodes = of_model.most_common(1)[0]
        if nodes < MAJORITY * of_model.total():
            continue
        for traits, names in classes.items():
            count = dict(traits.gpus or ()).get(model, usual)
            if count < usual:
                yield from (FewerGpus(name, model, count, usual, nodes) for name in names)


def _timed(gathered: Gathered) -> tuple[tuple[KernelTime, ...], tuple[SlowGpu, ...]]:
    node_of = {row.number: name for name, row in gathered.rows.items()}
    usual = gathered.timings.usual(node_of.keys())
    stragglers = gathered.timings.stragglers(usual, node_of.keys())
    return tuple(_kernel_time(each, node_of) for each in usual), tuple(_slow_gpu(each, node_of) for each in stragglers)


def _kernel_time(usual: Usual, node_of: Mapping[int, str]) -> KernelTime:
    return KernelTime(
        usual.gpu,
        *usual.kernel,
        usual.gpus,
        _figure(usual.median_ms),
        _figure(usual.spread_ms),
        _figure(usual.limit_ms),
        _figure(usual.slowest_ms),
        node_of[usual.slowest_owner],
    )


def _slow_gpu(straggler: Straggler, node_of: Mapping[int, str]) -> SlowGpu:
    worst = straggler.worst
    layer, kernel, *_ = worst.kernel
    return SlowGpu(
        node_of[straggler.owner],
        straggler.index,
        straggler.gpu,
        _figure(straggler.ratio),
        straggler.slow,
        straggler.judged,
        f"{layer} {kernel}",
        _figure(straggler.worst_ms),
        _figure(worst.median_ms),
        worst.gpus,
    )


def _figure(value: float) -> float:
    """Five digits: more are noise of the four-byte times."""
    return float(f"{value:.5g}")
