"""The process that loads one plugin and lets its rules judge: a plugin that hangs, crashes, prints or exits harms only this one.

One request, one answer, each a line of JSON: {"group": NAME, "entry_point": NAME, "package": NAME, "snapshot": {…}|null,
"proofs": […]} is answered with a `PluginAnswer`. Without a snapshot, the rules are only described.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from typing import Any

from msgspec import Struct

from cudadoctor.gpu.driver_child import private_stdout
from cudadoctor.matrices import Matrices
from cudadoctor.model import codec
from cudadoctor.model.fact import Missing
from cudadoctor.model.finding import Finding, Severity
from cudadoctor.model.proof import Proof
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.case import Case
from cudadoctor.rules.engine import Outcome, Results, Rule, evaluate
from cudadoctor.rules.registry import RULES

CODE = re.compile(r"(?!CD[0-9])[A-Z]{2,8}[0-9]{1,5}")
"""Codes of rules that are not ours."""
NAME = re.compile(r"[a-z0-9]{1,40}(-[a-z0-9]{1,40}){0,9}")


class PluginError(Exception):
    """The plugin cannot be used; the text says why."""


class JudgedRule(Struct, frozen=True, kw_only=True):
    """A plugin's rule, and how it ended where a snapshot was judged."""

    code: str
    name: str
    severity: Severity
    summary: str
    documentation: str
    explained_by: tuple[str, ...] = ()
    outcome: Outcome = Outcome.UNKNOWN
    missing: Missing | None = None
    words: str = ""
    findings: tuple[Finding, ...] = ()


class PluginAnswer(Struct, frozen=True, kw_only=True):
    """The plugin's rules, or why it has none to offer."""

    rules: tuple[JudgedRule, ...] = ()
    error: str = ""


def answer(request: dict[str, Any]) -> PluginAnswer:
    """What the plugin says; never raises for what the plugin does."""
    try:
        rules = load_rules(request["package"], request["group"], request["entry_point"])
        results = _judged(rules, request) if request["snapshot"] is not None else None
        return PluginAnswer(rules=tuple(_described(rule, results) for rule in rules))
    except PluginError as error:
        return PluginAnswer(error=str(error))
    except Exception as error:  # noqa: BLE001  # third-party code may raise anything; it becomes a finding
        return PluginAnswer(error=f"{type(error).__name__}: {error}")


def load_rules(package: str, group: str, entry_point: str) -> tuple[Rule, ...]:
    """The rules that an installed package offers under that name; raises PluginError, or whatever importing it raises."""
    points = metadata.distribution(package).entry_points
    offered = [point for point in points if point.group == group and point.name == entry_point]
    if not offered:
        raise PluginError("is no longer installed")
    value = offered[0].load()
    rules = (value,) if isinstance(value, Rule) else tuple(value) if isinstance(value, Iterable) else ()
    if not rules or not all(isinstance(rule, Rule) for rule in rules):
        raise PluginError(f"{offered[0].value} is neither a Rule nor an iterable of them")
    problem = next(_improper(rules), None)
    if problem is not None:
        raise PluginError(problem)
    return rules


def _improper(rules: Sequence[Rule]) -> Iterator[str]:
    """What keeps the rules from standing beside the others."""
    taken = {rule.name for rule in RULES}
    counts = Counter(word for rule in rules for word in (rule.code, rule.name))
    for rule in rules:
        if not CODE.fullmatch(rule.code):
            yield f"the code {rule.code[:40]!r} is not two to eight capitals and a number, or begins with CD, which is ours"
        if not NAME.fullmatch(rule.name) or rule.name in taken:
            yield f"the name {rule.name[:60]!r} is taken, or is no kebab-case"
    yield from (f"{word!r} is the code or name of two rules" for word, count in counts.items() if count > 1)


def _judged(rules: tuple[Rule, ...], request: dict[str, Any]) -> Results:
    """Ours judge with them: they may be the causes, and fixes are re-checked with all."""
    snapshot = codec.from_builtins(request["snapshot"], Snapshot)
    proofs = codec.from_builtins(request["proofs"], tuple[Proof, ...])
    return evaluate(Case(snapshot, Matrices.load(), proofs), (*RULES, *rules))


def _described(rule: Rule, results: Results | None) -> JudgedRule:
    described = JudgedRule(
        code=rule.code,
        name=rule.name,
        severity=rule.severity,
        summary=rule.summary,
        documentation=inspect.cleandoc(rule.check.__doc__ or rule.summary),
        explained_by=rule.explained_by,
    )
    if results is None:
        return described
    result = next(result for result in results.outcomes if result.rule.name == rule.name)
    return JudgedRule(
        **{name: getattr(described, name) for name in ("code", "name", "severity", "summary", "documentation", "explained_by")},
        outcome=result.outcome,
        missing=result.missing,
        words=result.words,
        findings=tuple(finding for finding in results.findings if finding.name == rule.name),
    )


def main() -> None:
    """Answer the one request; what the plugin prints goes to stderr."""
    channel = private_stdout()
    said = answer(json.loads(sys.stdin.readline()))
    channel.write(codec.to_compact_json(said).decode() + "\n")
    channel.flush()
