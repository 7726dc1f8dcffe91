"""From a snapshot and proofs to the report: runs the rules, gives the verdict and the one-sentence summary."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from cudadoctor import __version__
from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Fact, Missing, MissingReason
from cudadoctor.model.finding import Finding, Severity, UnknownRule
from cudadoctor.model.proof import Proof, ProofOutcome
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.plugins import NO_WORD, PluginWord
from cudadoctor.requirements import Requirement
from cudadoctor.rules.engine import Case, Outcome, Problem, Results, Rule, RuleSet, evaluate
from cudadoctor.rules.registry import RULES

BLOCK = re.compile(r"[A-Za-z]{2,8}[0-9]{1,5}")
"""A code of a rule, or its beginning, as far as the first digit at least."""
NOT_ANSWERED = (MissingReason.TIMEOUT, MissingReason.CRASHED)


class SelectionError(ValueError):
    """`--select` or `--ignore` names no rule."""


@dataclass(frozen=True)
class Selection:
    """Which rules speak: names or codes (`CD412`, `arch-missing-in-wheel`, or a block such as `CD4`)."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    severities: tuple[tuple[str, Severity], ...] = ()
    """Rules, named as above, whose findings all get another severity."""

    def rules(self, rules: Sequence[Rule] = RULES) -> RuleSet:
        """The rules that remain; raises SelectionError for an entry that names none."""
        if not self.select and not self.ignore and not self.severities:
            return RuleSet.of(rules)
        for entry in (*self.select, *self.ignore, *(name for name, _ in self.severities)):
            if not any(is_named(entry, rule) for rule in rules):
                raise SelectionError(f"no rule is called {entry!r}; `cudadoctor rules` lists them")
        chosen = [rule for rule in rules if not self.select or any(is_named(entry, rule) for entry in self.select)]
        return RuleSet(self._graded(rule) for rule in chosen if not any(is_named(entry, rule) for entry in self.ignore))

    def _graded(self, rule: Rule) -> Rule:
        wanted = [severity for name, severity in self.severities if is_named(name, rule)]
        return regraded(rule, lambda _: wanted[-1]) if wanted else rule


def regraded(rule: Rule, grade: Callable[[Severity], Severity]) -> Rule:
    """The rule with other severities for what it finds."""

    def check(case: Case) -> Iterable[Problem]:
        for problem in rule.check(case):
            yield replace(problem, severity=grade(problem.severity or rule.severity))

    check.__doc__ = rule.check.__doc__
    return replace(rule, check=check, severity=grade(rule.severity))


def is_named(entry: str, rule: Rule) -> bool:
    """Does an entry of --select and its like name this rule: by name, code, or block?"""
    wanted = entry.strip()
    return wanted.lower() == rule.name or (BLOCK.fullmatch(wanted) is not None and rule.code.startswith(wanted.upper()))


@dataclass(frozen=True)
class Diagnosis:
    """The report, and what the rules did: an internal crash of a rule decides the exit code."""

    report: Report
    results: Results

    @property
    def crashes(self) -> tuple[str, ...]:
        """`rule: error` for each rule that crashed: a bug of cudadoctor."""
        return tuple(
            f"{result.rule.name}: {result.because}" for result in self.results.outcomes if result.outcome is Outcome.CRASH
        )


def diagnose(
    snapshot: Snapshot,
    proofs: tuple[Proof, ...],
    matrices: Matrices,
    *,
    selection: Selection | None = None,
    requirements: tuple[Requirement, ...] = (),
    node: str | None = None,
    started: float | None = None,
    rules: Sequence[Rule] = RULES,
    plugins: PluginWord = NO_WORD,
) -> Diagnosis:
    """Judge a machine; `started` (time.monotonic()) is when the command began, for the report's `seconds`.

    `plugins` is what rules of other packages said of it: they stand beside ours.
    """
    rules = (selection or Selection()).rules((*rules, *plugins.rules) if plugins.rules else rules)
    results = evaluate(Case(snapshot, matrices, proofs, requirements, plugins.broken), rules)
    unknown = tuple(
        UnknownRule(code=result.rule.code, name=result.rule.name, because=result.because)
        for result in results.undecided
        if not result.was_not_asked
    )
    verdict = _verdict(results, proofs, snapshot)
    report = Report(
        tool=Tool(version=__version__, matrices_as_of=matrices.drivers.as_of.isoformat()),
        created=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        node=node,
        verdict=verdict,
        summary=summary(verdict, results.findings, proofs),
        findings=results.findings,
        unknown=unknown,
        proofs=proofs,
        snapshot=snapshot,
        seconds=None if started is None else round(time.monotonic() - started, 3),
    )
    return Diagnosis(report, results)


def _verdict(results: Results, proofs: Sequence[Proof], snapshot: Snapshot) -> Verdict:
    """Problems where there is an error; undetermined where an essential answer is missing, or a text says nothing to judge by."""
    if any(finding.severity is Severity.ERROR for finding in results.findings):
        return Verdict.PROBLEMS
    undecided = [result for result in results.undecided if result.rule.essential]
    if any(not result.was_not_asked for result in undecided) or (undecided and not results.findings):
        return Verdict.UNDETERMINED
    unproven = any(proof.outcome is ProofOutcome.UNKNOWN for proof in proofs)
    return Verdict.UNDETERMINED if unproven or _something_hung(snapshot) else Verdict.HEALTHY


def _something_hung(snapshot: Snapshot) -> bool:
    """Did a source that the verdict rests on hang or die?"""
    driver = snapshot.driver
    facts: tuple[Fact[object], ...] = (driver.nvidia_smi, driver.nvml, driver.cu_init, snapshot.python.torch)
    return any(isinstance(fact, Missing) and fact.reason in NOT_ANSWERED for fact in facts)


def summary(verdict: Verdict, findings: Sequence[Finding], proofs: Sequence[Proof]) -> str:
    """One sentence: how many problems, which to fix first, and what is proven to work."""
    proven = proven_to_work(proofs)
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    warnings = [finding for finding in findings if finding.severity is Severity.WARNING]
    if verdict is Verdict.PROBLEMS:
        roots = [finding for finding in errors if finding.root] or errors
        first = ", ".join(dict.fromkeys(finding.name for finding in roots))
        opening = f"{_count(len(errors), 'problem')}{f', {len(roots)} to fix first' if len(errors) > 1 else ''}: {first}."
    elif verdict is Verdict.UNDETERMINED:
        opening = "No problem was found, but something essential could not be determined."
    elif warnings:
        opening = f"No problem was found; {_count(len(warnings), 'warning')}."
    else:
        opening = "No problem was found."
    return f"{opening} {proven}".strip()


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def proven_to_work(proofs: Sequence[Proof]) -> str:
    """`Proven to work: driver, NVRTC, nvcc, torch.`, or what is not; empty where nothing was run."""
    layers = {proof.layer.value for proof in proofs}
    works = [layer for layer in layers if _all_passed(layer, proofs)]
    order = ("driver-jit", "nvrtc", "nvcc", "torch", "torch-extension", "peer", "nccl")
    shown = [layer for layer in order if layer in works]
    return f"Proven to work: {', '.join(shown)}." if shown else ""


def _all_passed(layer: str, proofs: Sequence[Proof]) -> bool:
    ran = [proof for proof in proofs if proof.layer.value == layer and proof.outcome is not ProofOutcome.SKIPPED]
    return bool(ran) and all(proof.outcome is ProofOutcome.PASSED for proof in ran)
