"""Compares judged machines: findings that only one has, the facts behind them, and everything else by how much it matters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from msgspec import structs

from cudadoctor import __version__
from cudadoctor.compare.comparison import CompareReport, Comparison, Difference, Machine, OneSided, Rank, Side
from cudadoctor.compare.facts import COMPARED, LISTS, Value, facts_of, list_of, value_at
from cudadoctor.matrices import Matrices
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.report import Report, Tool
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.report.outline import joined_subjects
from cudadoctor.rules.case import Case
from cudadoctor.rules.engine import Outcome, run_rule
from cudadoctor.rules.registry import RULES

HARMLESS = {
    "driver.driver_cuda_version": "what nvidia-smi prints as CUDA Version is what the driver supports, not what is installed",
    "host.os_name": "no rule reads it",
    "python.kind": "no rule objects to a way of installing Python",
    "python.installer": "it only decides how fixes are spelled",
    "gpus.ecc_enabled": "it costs some memory and speed; what works is the same",
    "gpus.driver_model": "CUDA works with each of them",
    "gpus.persistence": "it changes how fast the driver starts, not what it can do",
    "gpus.memory_total_bytes": "it is enough or not, which depends on the program",
    "gpus.power_limit_w": "it changes the speed, not what works",
}
"""Facts whose difference matters only where a finding names it, and why."""
FOLLOWS = {
    "gpus.compute_capability": "gpus.name",
    "gpus.integrated": "gpus.name",
    "gpus.pcie_generation_max": "gpus.name",
    "gpus.pcie_width_max": "gpus.name",
    "driver.visible_device_count": "gpus.name",
    "driver.kernel_module": "driver.driver_release",
    "toolkits.targets": "toolkits.toolkit_version",
    "python.torch.build": "python.torch.torch_version",
    "python.torch.torch_cuda_version": "python.torch.torch_version",
    "python.torch.arch_list": "python.torch.torch_version",
    "python.torch.cudnn_version": "python.torch.torch_version",
    "python.torch.nccl_version": "python.torch.torch_version",
    "python.torch.cxx11_abi": "python.torch.torch_version",
    "python.packages.torch": "python.torch.torch_version",
}
"""Fact to the one of which it is a consequence: where both differ, the latter says it."""
PARTS = (
    "python.torch",
    "python.packages",
    "driver",
    "gpus",
    "toolkits",
    "host_compilers",
    "environment",
    "libraries",
    "container",
)
"""What is tried from the other machine, most particular first."""
_INDEX = re.compile(r"\[\d+\]")
_WHEEL_OF_TORCH = re.compile(r"python\.packages\.(nvidia-.*|triton|torch(vision|audio))")
_ORDER = list(Rank)
_UNKNOWN = Value(None)


@dataclass(frozen=True)
class Judged:
    """A machine with what the rules say of it; `is_partial` for one that is known from a pasted text."""

    machine: Machine
    report: Report
    decided: frozenset[str]
    """Codes of the rules that could be judged."""
    is_partial: bool

    @cached_property
    def facts(self) -> Mapping[str, Value]:
        """Its facts by path."""
        return facts_of(self.report.snapshot, self.report.proofs, is_partial=self.is_partial)

    @cached_property
    def problems(self) -> dict[str, Finding]:
        """Its errors and warnings by code: of several of one rule the first, with the subjects and the evidence of all."""
        by_code: dict[str, list[Finding]] = {}
        for finding in self.report.findings:
            if finding.severity is not Severity.NOTE:
                by_code.setdefault(finding.code, []).append(finding)
        return {code: _as_one(found) for code, found in by_code.items()}


def _as_one(found: Sequence[Finding]) -> Finding:
    evidence = tuple(dict.fromkeys(item for finding in found for item in finding.evidence))
    return structs.replace(found[0], subject=joined_subjects(finding.subject for finding in found), evidence=evidence)


def compare(reference: Judged, others: Sequence[Judged], matrices: Matrices) -> CompareReport:
    """The reference against each other machine; those that differ from it alike are told once."""
    alike: dict[Comparison, list[Machine]] = {}
    for other in others:
        alike.setdefault(_compared(reference, other, matrices), []).append(other.machine)
    comparisons = tuple(structs.replace(each, machines=tuple(machines)) for each, machines in alike.items())
    return CompareReport(
        tool=Tool(version=__version__),
        summary=_sentence(reference, comparisons),
        reference=reference.machine,
        comparisons=comparisons,
    )


def _sentence(reference: Judged, comparisons: Iterable[Comparison]) -> str:
    differing = [each for each in comparisons if each.matters]
    if not differing:
        return f"No difference from {reference.machine.name} that matters."
    findings = sum(each.is_known_of_both and each.finding.root for comparison in differing for each in comparison.findings)
    others = sum(each.rank is Rank.DIFFERS for comparison in differing for each in comparison.differences)
    parts = [_count(findings, "problem") + " on one side only"] if findings else []
    parts += [_count(others, "difference") + " to which no rule objects"] if others else []
    names = ", ".join(machine.name for each in differing for machine in each.machines)
    return f"{reference.machine.name} and {names}: {' and '.join(parts) or 'something differs'}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _compared(reference: Judged, other: Judged, matrices: Matrices) -> Comparison:
    """Without the machines' names, so that equal comparisons are equal."""
    differing = dict(_differing(reference.facts, other.facts))
    findings = (
        *_one_sided(reference, other, Side.REFERENCE, differing, matrices),
        *_one_sided(other, reference, Side.OTHER, differing, matrices),
    )
    differences = sorted(_ranked(differing, findings), key=lambda each: _ORDER.index(each.rank))
    common = reference.problems.keys() & other.problems.keys()
    return Comparison(
        machines=(),
        findings=findings,
        differences=tuple(differences),
        in_common=tuple(f"{code} {reference.problems[code].name}" for code in sorted(common)),
    )


def _differing(one: Mapping[str, Value], other: Mapping[str, Value]) -> Iterator[tuple[str, tuple[Value, Value]]]:
    """Path to the two values, for every path at which they differ or only one is known; in the order of the stack."""
    for path in dict.fromkeys((*COMPARED, *sorted(one.keys() | other.keys()))):
        mine, theirs = value_at(one, path), value_at(other, path)
        both_unknown = mine.text is None and theirs.text is None
        if not both_unknown and not _same(mine.text, theirs.text) and not _says_nothing(path, mine, theirs):
            yield path, (mine, theirs)


def _says_nothing(path: str, mine: Value, theirs: Value) -> bool:
    """Is it an entry of a list that is unknown on one side, a proof that only one ran, or the length of two known lists?"""
    both_known = mine.text is not None and theirs.text is not None
    return both_known if path in LISTS else not both_known and (list_of(path) is not None or path.startswith("proofs."))


def _same(one: str | None, other: str | None) -> bool:
    """Equal, or one a coarser statement of the other: 12.4 and 12.4.131."""
    if one is None or other is None:
        return one is other
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def _one_sided(
    mine: Judged, theirs: Judged, side: Side, differing: Mapping[str, object], matrices: Matrices
) -> Iterator[OneSided]:
    """Errors and warnings of one machine that the other does not have, or of which that cannot be told; roots first."""
    for code, finding in mine.problems.items():
        if code not in theirs.problems:
            yield OneSided(
                on=side,
                finding=finding,
                is_known_of_both=code in theirs.decided,
                facts=tuple(path for path in differing if any(_names(item.fact, path) for item in finding.evidence)),
                gone_with=tuple(_gone_with(finding, mine, theirs, matrices)),
            )


def _names(fact: str, path: str) -> bool:
    """Does evidence name the fact of that path: `gpus[3].name` for gpus.name, `python.packages` for one of them?"""
    plain = _INDEX.sub("", fact)
    return plain == path or path.startswith(f"{plain}.")


def _gone_with(finding: Finding, mine: Judged, theirs: Judged, matrices: Matrices) -> Iterator[str]:
    """The parts that, taken from the other machine, leave the rule with nothing to find; what is unknown there clears nothing."""
    rule = next(rule for rule in RULES if rule.code == finding.code)
    for part in PARTS:
        swapped = _with_part(mine.report.snapshot, theirs.report.snapshot, part)
        if run_rule(rule, Case(swapped, matrices, mine.report.proofs)).outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE):
            yield part


def _with_part(snapshot: Snapshot, other: Snapshot, part: str) -> Snapshot:
    """The machine with a part of the other one."""
    name, _, inner = part.partition(".")
    value = getattr(other, name)
    if inner:
        value = structs.replace(getattr(snapshot, name), **{inner: getattr(value, inner)})
    return structs.replace(snapshot, **{name: value})


def _ranked(differing: Mapping[str, tuple[Value, Value]], findings: Sequence[OneSided]) -> Iterator[Difference]:
    for path, (mine, theirs) in differing.items():
        codes = tuple(dict.fromkeys(each.finding.code for each in findings if path in each.facts and each.is_known_of_both))
        rank, because = _rank(path, mine, theirs, differing, named=bool(codes))
        yield Difference(rank=rank, fact=path, reference=mine.text, other=theirs.text, because=because, codes=codes)


def _rank(
    path: str, mine: Value, theirs: Value, differing: Mapping[str, tuple[Value, Value]], *, named: bool
) -> tuple[Rank, str]:
    if mine.text is None or theirs.text is None:
        return Rank.UNKNOWN, mine.because or theirs.because or "not mentioned"
    if named:
        return Rank.FINDING, ""
    if path in HARMLESS:
        return Rank.BENIGN, HARMLESS[path]
    leader = "python.torch.torch_version" if _WHEEL_OF_TORCH.fullmatch(path) else FOLLOWS.get(path)
    if leader is not None and all(value.text is not None for value in differing.get(leader, (_UNKNOWN,))):
        return Rank.BENIGN, f"it follows from {leader}"
    return Rank.DIFFERS, ""
