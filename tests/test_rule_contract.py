"""What every rule must have: a code of its own, a kebab-case problem name, documentation, and causes that exist."""

import inspect
import re
from pathlib import Path

import pytest

import cudadoctor.rules
from cudadoctor.commands import rules as listing
from cudadoctor.matrices import Matrices
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.rules.engine import Case, Outcome, Rule, evaluate
from cudadoctor.rules.registry import RULES

HEADINGS = ("What it checks:", "Why it matters:", "How to fix:", "When it is wrong:", "Sources:")
NOT_RULES = {"__init__", "case", "circumstances", "engine", "evidence", "fixes", "presence", "questions", "registry", "silence"}


def _id(rule: Rule) -> str:
    return rule.name


def test_codes_and_names_are_unique() -> None:
    assert len({rule.code for rule in RULES}) == len(RULES)
    assert len({rule.name for rule in RULES}) == len(RULES)


@pytest.mark.parametrize("rule", RULES, ids=_id)
def test_rule_is_documented(rule: Rule) -> None:
    page = inspect.cleandoc(rule.check.__doc__ or "")
    missing = [heading for heading in HEADINGS if heading not in page]
    assert not missing
    assert page.splitlines()[0].endswith(".")
    assert [page.index(heading) for heading in HEADINGS] == sorted(page.index(heading) for heading in HEADINGS)


@pytest.mark.parametrize("rule", RULES, ids=_id)
def test_code_and_name_have_their_form(rule: Rule) -> None:
    assert re.fullmatch(r"CD[1-8]\d\d", rule.code)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.name)
    assert rule.summary


@pytest.mark.parametrize("rule", RULES, ids=_id)
def test_causes_exist(rule: Rule) -> None:
    names = {other.name for other in RULES}
    assert [cause for cause in rule.explained_by if cause not in names] == []
    assert rule.name not in rule.explained_by


def test_no_two_rules_explain_each_other() -> None:
    causes = {rule.name: set(rule.explained_by) for rule in RULES}
    circles = [(name, cause) for name, named in causes.items() for cause in named if name in causes.get(cause, set())]
    assert circles == []


def test_every_module_of_rules_is_listed() -> None:
    folder = Path(cudadoctor.rules.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - NOT_RULES
    listed = {rule.check.__module__.rpartition(".")[2] for rule in RULES}
    assert {name for name in modules if not name.endswith(("_fixes", "_questions"))} == listed


def test_nothing_known_gives_no_finding_and_no_crash() -> None:
    results = evaluate(Case(Snapshot(), Matrices.load()), RULES)
    assert [result.because for result in results.outcomes if result.outcome is Outcome.CRASH] == []
    assert results.findings == ()


def test_listing_has_every_rule_once() -> None:
    assert listing.as_text().count("\n") == len(RULES)
    assert all(f'"{rule.name}"' in listing.as_json() for rule in RULES)
