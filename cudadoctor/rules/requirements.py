"""The rule behind `--require`: what the user demands of the machine (CD890)."""

from __future__ import annotations

from collections.abc import Iterable

from cudadoctor.model.fact import Missing, known
from cudadoctor.model.finding import Severity
from cudadoctor.requirements import QUANTITIES
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Rule, evidence


def requirement_unmet(case: Case) -> Iterable[Problem]:
    """The machine does not meet a requirement that was given.

    What it checks: each condition of --require or of the policy file against the facts found.

    Why it matters: whoever wrote the condition relies on it: a build image, a job, a fleet.

    How to fix: bring the named part to the required version, or run where it is; `cudadoctor recommend` names a torch build.

    When it is wrong: never by itself; a fact that could not be determined leaves the requirement unknown, not met.

    Sources: the user's own conditions.
    """
    if not case.requirements:
        raise NotApplicableError("nothing was required")
    missing = None
    for requirement in case.requirements:
        fact = requirement.fact(case.snapshot)
        if isinstance(fact, Missing):
            missing = missing or fact
        elif not requirement.holds(fact.value):
            yield Problem(
                subject=requirement.name,
                what=f"{requirement.text} is required, and the {QUANTITIES[requirement.name].meaning} is {fact.value}.",
                evidence=evidence(f"requirement.{requirement.name}", fact),
            )
    if missing is not None:
        known(missing)


RULES = (Rule("CD890", "requirement-unmet", Severity.ERROR, "A requirement given is not met", requirement_unmet, essential=True),)
