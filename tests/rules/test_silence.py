"""A rule that is not run because nothing it asks for is there ends as it would have ended."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, known
from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Driver, Snapshot, TextReading
from cudadoctor.readers.paste import read_paste
from cudadoctor.rules.engine import Case, Outcome, Problem, Rule, RuleResult, RuleSet, evaluate, run_rule
from cudadoctor.rules.registry import RULES
from cudadoctor.rules.silence import topics
from tests.rules.builders import healthy, said, text_only

DUMPS = sorted((Path(__file__).parent.parent / "tickets").glob("*.jsonl"))
TEXTS = [json.loads(line)["pasted"] for dump in DUMPS for line in dump.read_text(encoding="utf-8").splitlines() if line.strip()]


def _parts_alone(whole: Snapshot) -> Iterable[Snapshot]:
    """Snapshots that know one part of a machine each."""
    return (structs.replace(Snapshot(), **{name: getattr(whole, name)}) for name in Snapshot.__struct_fields__)


SNAPSHOTS = [Snapshot(), healthy(), *_parts_alone(healthy()), *(read_paste(text).snapshot for text in TEXTS)]


def _told(result: RuleResult) -> tuple[object, ...]:
    """What can be compared: the effect of a remedy is a new function in each run."""
    said = [(problem.subject, problem.what, [remedy.fix for remedy in problem.remedies]) for problem in result.problems]
    return result.rule, result.outcome, result.because, result.missing, said


def test_there_are_tickets() -> None:
    assert len(TEXTS) > 100


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_ends_as_if_it_were_run(rule: Rule, matrices: Matrices) -> None:
    for snapshot in SNAPSHOTS:
        case = Case(snapshot, matrices)
        (result,) = RuleSet((rule,)).outcomes(case)
        assert _told(result) == _told(run_rule(rule, case))


class _AllRun(RuleSet):
    """Rules of which each is run."""

    def to_run(self, case: Case) -> Iterable[int]:
        return range(len(self))


def test_findings_and_their_fixes_are_those_of_all_rules_run(matrices: Matrices) -> None:
    for snapshot in SNAPSHOTS:
        case = Case(snapshot, matrices)
        assert evaluate(case, RULES).findings == evaluate(case, _AllRun(RULES)).findings


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_rule_need_not_run_where_nothing_is_known(rule: Rule) -> None:
    assert rule.silence is not None


def test_topics_name_facts_errors_and_readings() -> None:
    snapshot = text_only(
        said("no-kernel-image"),
        driver=Driver(visible_device_count=Known(0, "test")),
        gpus=Known((), "test"),
        readings=(TextReading(kind="nvcc"),),
    )
    wanted = {"driver.visible_device_count", "gpus", "errors", "errors no-kernel-image", "readings", "readings nvcc"}
    assert topics(snapshot) == wanted
    assert topics(Snapshot()) == set()


def _rule(check: object) -> Rule:
    return Rule("CD999", "made-up", Severity.ERROR, "", check)  # type: ignore[arg-type]  # each test's own function


def test_what_a_rule_asks_for_is_noted_up_to_the_first_unknown_fact() -> None:
    def check(case: Case) -> Iterable[Problem]:
        if case.saw("xid", "xid-bus-error") or case.snapshot.values_read("nvcc"):
            yield Problem(subject="GPU", what="")
        known(case.snapshot.driver.nvml)
        known(case.snapshot.gpus)

    silence = _rule(check).silence
    assert silence is not None
    assert silence.asks == {"errors xid", "errors xid-bus-error", "readings nvcc", "driver.nvml"}
    assert silence.result.outcome is Outcome.UNKNOWN


def _compares_a_part(case: Case) -> Iterable[Problem]:
    if case.snapshot.driver == Driver():
        return ()
    return (Problem(subject="machine", what=""),)


def _asks_the_matrices(case: Case) -> Iterable[Problem]:
    return (Problem(subject="machine", what=""),) if case.matrices.drivers.as_of.year == 0 else ()


def _calls_a_method(case: Case) -> Iterable[Problem]:
    return (Problem(subject="machine", what=""),) if structs.asdict(case.snapshot)["errors"] else ()


def _speaks_of_nothing(case: Case) -> Iterable[Problem]:
    return () if case.snapshot.errors else (Problem(subject="machine", what="silent"),)


@pytest.mark.parametrize("check", [_compares_a_part, _asks_the_matrices, _calls_a_method, _speaks_of_nothing])
def test_rule_that_cannot_be_watched_is_always_run(check: object, matrices: Matrices) -> None:
    rule = _rule(check)
    assert rule.silence is None
    case = Case(text_only(said("xid"), driver=Driver(visible_device_count=Known(0, "test"))), matrices)
    (result,) = RuleSet((rule,)).outcomes(case)
    assert _told(result) == _told(run_rule(rule, case))


def test_rule_for_gpus_stays_not_applicable_without_one(matrices: Matrices) -> None:
    rule = Rule("CD999", "made-up", Severity.ERROR, "", lambda _: (), needs_gpu=True)
    without = structs.replace(Snapshot(), driver=Driver(pci_devices=Known((), "test")))
    (result,) = RuleSet((rule,)).outcomes(Case(without, matrices))
    assert result.outcome is Outcome.NOT_APPLICABLE
