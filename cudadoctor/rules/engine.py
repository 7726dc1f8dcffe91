"""Runs rules over a snapshot: pure, and the only place where an unknown fact or a crash of a rule is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property

from msgspec import Struct, structs

from cudadoctor.model.fact import NOT_ASKED, Fact, Known, Missing, MissingReason, UnknownFactError, describe_missing
from cudadoctor.model.finding import Confidence, Evidence, Finding, Fix, Severity
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.case import Case
from cudadoctor.rules.silence import topics, watched_case

__all__ = [
    "Case",
    "NotApplicableError",
    "Outcome",
    "Problem",
    "Remedy",
    "Results",
    "Rule",
    "RuleResult",
    "RuleSet",
    "evaluate",
    "evidence",
    "run_rule",
]


@dataclass(frozen=True)
class Remedy:
    """A fix and what it would change: `effect` gives the snapshot as it would be afterwards, for the re-check.

    `effect` is None only where the snapshot cannot show the change (asking an administrator, a reboot of unknown outcome).
    """

    fix: Fix
    effect: Callable[[Snapshot], Snapshot] | None = None


@dataclass(frozen=True)
class Problem:
    """What a rule yields; the engine adds code, name and severity of the rule and makes it a Finding."""

    subject: str
    what: str
    why: str = ""
    evidence: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    tags: tuple[str, ...] = ()
    confidence: Confidence = Confidence.CERTAIN
    severity: Severity | None = None
    """None: the rule's own."""
    references: tuple[str, ...] = ()


class NotApplicableError(Exception):
    """The rule's question does not arise on this machine; the text says why."""


@dataclass(frozen=True)
class Rule:
    """One check. The docstring of `check` is the documentation that `explain` prints."""

    code: str
    name: str
    severity: Severity
    summary: str
    check: Callable[[Case], Iterable[Problem]]
    explained_by: tuple[str, ...] = ()
    """Names of rules whose finding, where there is one, is the cause of this one's."""
    needs_gpu: bool = False
    """True where the question does not arise on a machine that is known to have no NVIDIA GPU."""
    essential: bool = False
    """True where not knowing the answer leaves the whole verdict undetermined."""

    @cached_property
    def silence(self) -> Silence | None:
        """How the rule ends where nothing is known; None where it cannot be told from that how it ends elsewhere."""
        case = watched_case()
        result = run_rule(replace(self, needs_gpu=False), case)
        if result.problems or result.outcome is Outcome.CRASH:
            return None
        return Silence(frozenset(case.asked), structs.replace(result, rule=self))


class Outcome(Enum):
    """How a rule ended."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    NOT_APPLICABLE = "not_applicable"
    CRASH = "crash"


UNDECIDED = (Outcome.UNKNOWN, Outcome.CRASH)


class RuleResult(Struct, frozen=True):
    """One rule's outcome; a missing fact or words say why where it is unknown, not applicable or a crash."""

    rule: Rule
    outcome: Outcome
    problems: tuple[Problem, ...] = ()
    missing: Missing | None = None
    words: str = ""

    @property
    def because(self) -> str:
        """Why the rule did not judge; empty where it did."""
        return describe_missing(self.missing) if self.missing is not None else self.words

    @property
    def was_not_asked(self) -> bool:
        """True where nothing looked for the fact: a pasted text that does not mention it."""
        return self.missing is NOT_ASKED or (self.missing is not None and self.missing.reason is MissingReason.NOT_ASKED)


@dataclass(frozen=True)
class Silence:
    """How a rule ends on a snapshot that speaks of none of the topics that it asks for."""

    asks: frozenset[str]
    result: RuleResult


@dataclass(frozen=True)
class Results:
    """All outcomes, and the findings, root causes first."""

    outcomes: tuple[RuleResult, ...]
    findings: tuple[Finding, ...] = field(default=())

    @cached_property
    def undecided(self) -> tuple[RuleResult, ...]:
        """The outcomes that leave a question open."""
        return tuple(result for result in self.outcomes if result.outcome in UNDECIDED)

    def outcome_of(self, name: str) -> Outcome:
        """The outcome of the rule of that name; raises KeyError."""
        return {result.rule.name: result.outcome for result in self.outcomes}[name]


DOES_NOT_ARISE = (MissingReason.NOT_APPLICABLE, MissingReason.NOT_SUPPORTED)
"""Reasons for which a question is not open but idle: a GeForce has no ECC to count errors of."""


def run_rule(rule: Rule, case: Case) -> RuleResult:
    """The outcome of one rule on one case; never raises. What it found before it met an unknown fact counts."""
    if rule.needs_gpu and case.has_no_gpu:
        return RuleResult(rule, Outcome.NOT_APPLICABLE, words="no NVIDIA GPU")
    problems: list[Problem] = []
    try:
        problems.extend(rule.check(case))
    except UnknownFactError as unknown:
        if not problems:
            outcome = Outcome.NOT_APPLICABLE if unknown.missing.reason in DOES_NOT_ARISE else Outcome.UNKNOWN
            return RuleResult(rule, outcome, missing=unknown.missing)
    except NotApplicableError as reason:
        return RuleResult(rule, Outcome.NOT_APPLICABLE, words=str(reason))
    except Exception as bug:  # noqa: BLE001  # a crash in one rule must not take the report with it; it is reported as a crash
        return RuleResult(rule, Outcome.CRASH, words=f"{type(bug).__name__}: {bug}")
    return RuleResult(rule, Outcome.FAIL if problems else Outcome.PASS, tuple(problems))


class RuleSet(tuple[Rule, ...]):
    """Rules in their order, with an index of what they ask for: those that would find none of it need not run."""

    @classmethod
    def of(cls, rules: Sequence[Rule]) -> RuleSet:
        """The rules as a set; the very same object where they are one."""
        return rules if isinstance(rules, cls) else cls(rules)

    @cached_property
    def _silent(self) -> tuple[RuleResult, ...]:
        """How each rule ends where it finds nothing that it asks for."""
        return tuple(rule.silence.result if rule.silence is not None else RuleResult(rule, Outcome.UNKNOWN) for rule in self)

    @cached_property
    def _unwatched(self) -> tuple[int, ...]:
        return tuple(position for position, rule in enumerate(self) if rule.silence is None)

    @cached_property
    def _for_gpus(self) -> tuple[int, ...]:
        return tuple(position for position, rule in enumerate(self) if rule.needs_gpu)

    @cached_property
    def _asking(self) -> dict[str, list[int]]:
        """Topic to the positions of the rules that ask for it."""
        positions: dict[str, list[int]] = {}
        for position, rule in enumerate(self):
            for topic in rule.silence.asks if rule.silence is not None else ():
                positions.setdefault(topic, []).append(position)
        return positions

    def to_run(self, case: Case) -> Iterable[int]:
        """The positions of the rules whose outcome only running them can tell."""
        if case.proofs or case.requirements or case.broken_plugins:
            return range(len(self))
        positions = {*self._unwatched, *(self._for_gpus if case.has_no_gpu else ())}
        positions.update(*(self._asking.get(topic, ()) for topic in topics(case.snapshot)))
        return positions

    def outcomes(self, case: Case) -> tuple[RuleResult, ...]:
        """The outcome of each rule, in their order."""
        results = list(self._silent)
        for position in self.to_run(case):
            results[position] = run_rule(self[position], case)
        return tuple(results)


def evaluate(case: Case, rules: Sequence[Rule]) -> Results:
    """Run all rules, re-check their fixes with the same rules, link consequences to their causes, and sort."""
    rule_set = RuleSet.of(rules)
    outcomes = rule_set.outcomes(case)
    failed = [result for result in outcomes if result.problems]
    fired = {result.rule.name: min(_severity(result.rule, p).rank for p in result.problems) for result in failed}
    broken = {result.rule.name: result.rule for result in failed}
    others = _Others(rule_set, broken)
    findings = [
        _finding(result.rule, problem, fired, _rechecked(result.rule, problem, case, others))
        for result in failed
        for problem in result.problems
    ]
    return Results(outcomes, _linked(findings, broken))


def _severity(rule: Rule, problem: Problem) -> Severity:
    return problem.severity or rule.severity


def _explains(cause: int, effect: int) -> bool:
    """Can a cause of this severity (its rank) explain an effect of that? A note explains nothing, a warning no error."""
    return cause < Severity.NOTE.rank and cause <= effect


def _finding(rule: Rule, problem: Problem, fired: Mapping[str, int], fixes: Iterable[Fix]) -> Finding:
    """The finding; a consequence has no fixes of its own (they are not even re-checked), since mending its cause mends it."""
    rank = _severity(rule, problem).rank
    root = not any(cause in fired and _explains(fired[cause], rank) for cause in rule.explained_by)
    return Finding(
        code=rule.code,
        name=rule.name,
        severity=_severity(rule, problem),
        tags=problem.tags,
        subject=problem.subject,
        what=problem.what,
        why=problem.why,
        confidence=problem.confidence,
        root=root,
        evidence=problem.evidence,
        fixes=tuple(fixes) if root else (),
        references=problem.references,
    )


def _rechecked(rule: Rule, problem: Problem, case: Case, others: _Others) -> Iterator[Fix]:
    """The problem's fixes that help: after each, this problem is gone and no rule that passed before finds an error."""
    for remedy in problem.remedies:
        if remedy.effect is None:
            yield remedy.fix
            continue
        after = Case(remedy.effect(case.snapshot), case.matrices)
        still_there = any(again.subject == problem.subject for again in run_rule(rule, after).problems)
        if not still_there and not others.find_an_error(after):
            yield structs.replace(remedy.fix, rechecked=True)


@dataclass(frozen=True)
class _Others:
    """The rules that found nothing before a fix."""

    rules: RuleSet
    broken: Mapping[str, Rule]

    def find_an_error(self, case: Case) -> bool:
        """Does one of them find an error after it?"""
        rules = (self.rules[position] for position in self.rules.to_run(case))
        return any(
            _is_error(run_rule(rule, case)) for rule in rules if rule.severity is Severity.ERROR and rule.name not in self.broken
        )


def _is_error(result: RuleResult) -> bool:
    return any(_severity(result.rule, problem) is Severity.ERROR for problem in result.problems)


def _effects(cause: Finding, findings: Sequence[Finding], rules: Mapping[str, Rule]) -> Iterable[Finding]:
    return (
        effect
        for effect in findings
        if cause.name in rules[effect.name].explained_by and _explains(cause.severity.rank, effect.severity.rank)
    )


def _linked(findings: Sequence[Finding], rules: Mapping[str, Rule]) -> tuple[Finding, ...]:
    """Each cause lists the codes of what it explains; sorted by root, severity, confidence, code, subject."""
    linked = [
        structs.replace(cause, explains=tuple(sorted({effect.code for effect in _effects(cause, findings, rules)})))
        for cause in findings
    ]
    return tuple(sorted(linked, key=lambda f: (not f.root, f.severity.rank, f.confidence.rank, f.code, f.subject)))


def evidence(fact_path: str, fact: Fact[object], *, value: str | None = None) -> tuple[Evidence, ...]:
    """The evidence that a known fact gives: its value, its source, and what other sources said; nothing for a missing one."""
    if isinstance(fact, Known):
        shown = value if value is not None else str(fact.value)
        first = Evidence(fact=fact_path, value=shown, source=fact.source, line=fact.line)
        return (first, *(Evidence(fact=fact_path, value=other.value, source=other.source) for other in fact.others))
    return ()
