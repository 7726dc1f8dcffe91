"""The engine's promises: unknown is not a pass, a crash stays in its rule, causes explain, useless fixes are not shown."""

from collections.abc import Iterable

import pytest
from msgspec import structs

from cudadoctor.matrices import Matrices
from cudadoctor.model.fact import Known, Missing, MissingReason, known
from cudadoctor.model.finding import Fix, Severity
from cudadoctor.model.snapshot import Driver, Snapshot
from cudadoctor.rules.engine import Case, NotApplicableError, Outcome, Problem, Remedy, Rule, evaluate


@pytest.fixture(scope="module")
def matrices() -> Matrices:
    return Matrices.load()


def with_devices(count: int) -> Snapshot:
    return Snapshot(driver=Driver(visible_device_count=Known(count, "test")))


def no_devices(case: Case) -> Iterable[Problem]:
    if known(case.snapshot.driver.visible_device_count) == 0:
        yield Problem(subject="machine", what="no devices")


def needs_ten(case: Case) -> Iterable[Problem]:
    count = known(case.snapshot.driver.visible_device_count)
    if count < 10:
        yield Problem(subject="machine", what=f"{count} devices")


NO_DEVICES = Rule("CD998", "no-devices", Severity.ERROR, "", no_devices)
NEEDS_TEN = Rule("CD999", "needs-ten", Severity.ERROR, "", needs_ten, explained_by=("no-devices",))


def test_missing_fact_gives_unknown_with_the_reason(matrices: Matrices) -> None:
    snapshot = Snapshot(driver=Driver(visible_device_count=Missing(MissingReason.TIMEOUT, "no answer within 4 s", "cuInit")))
    (result,) = evaluate(Case(snapshot, matrices), [NO_DEVICES]).outcomes
    assert result.outcome is Outcome.UNKNOWN
    assert result.because == "timeout (cuInit): no answer within 4 s"


def test_not_applicable_fact_and_rule(matrices: Matrices) -> None:
    def refuses(case: Case) -> Iterable[Problem]:
        raise NotApplicableError("nothing is compiled here")

    snapshot = Snapshot(driver=Driver(visible_device_count=Missing(MissingReason.NOT_SUPPORTED)))
    (not_supported,) = evaluate(Case(snapshot, matrices), [NO_DEVICES]).outcomes
    assert not_supported.outcome is Outcome.NOT_APPLICABLE
    snapshot = Snapshot(driver=Driver(visible_device_count=Missing(MissingReason.NOT_APPLICABLE)))
    results = evaluate(Case(snapshot, matrices), [NO_DEVICES, Rule("CD997", "refuses", Severity.ERROR, "", refuses)])
    assert [result.outcome for result in results.outcomes] == [Outcome.NOT_APPLICABLE, Outcome.NOT_APPLICABLE]


def test_crash_of_one_rule_leaves_the_others(matrices: Matrices) -> None:
    def crashes(case: Case) -> Iterable[Problem]:
        raise ZeroDivisionError("bug")

    results = evaluate(Case(with_devices(0), matrices), [Rule("CD997", "crashes", Severity.ERROR, "", crashes), NO_DEVICES])
    assert [result.outcome for result in results.outcomes] == [Outcome.CRASH, Outcome.FAIL]
    assert [finding.name for finding in results.findings] == ["no-devices"]


def test_consequence_is_listed_under_its_cause(matrices: Matrices) -> None:
    cause, effect = evaluate(Case(with_devices(0), matrices), [NEEDS_TEN, NO_DEVICES]).findings
    assert (cause.name, cause.root, cause.explains) == ("no-devices", True, ("CD999",))
    assert (effect.name, effect.root, effect.explains) == ("needs-ten", False, ())


def test_without_its_cause_the_same_finding_is_a_root(matrices: Matrices) -> None:
    (finding,) = evaluate(Case(with_devices(3), matrices), [NEEDS_TEN, NO_DEVICES]).findings
    assert (finding.name, finding.root) == ("needs-ten", True)


def set_devices(count: int) -> Remedy:
    def effect(snapshot: Snapshot) -> Snapshot:
        return structs.replace(snapshot, driver=structs.replace(snapshot.driver, visible_device_count=Known(count, "fix")))

    return Remedy(Fix(title=f"make {count} visible"), effect)


def test_a_fix_that_would_not_help_is_not_shown(matrices: Matrices) -> None:
    def check(case: Case) -> Iterable[Problem]:
        if known(case.snapshot.driver.visible_device_count) < 10:
            yield Problem("machine", "too few", remedies=(set_devices(5), set_devices(12), Remedy(Fix(title="ask"))))

    (finding,) = evaluate(Case(with_devices(3), matrices), [Rule("CD999", "few", Severity.ERROR, "", check)]).findings
    assert [(fix.title, fix.rechecked) for fix in finding.fixes] == [("make 12 visible", True), ("ask", False)]


def test_a_fix_that_breaks_something_else_is_not_shown(matrices: Matrices) -> None:
    def too_few(case: Case) -> Iterable[Problem]:
        if known(case.snapshot.driver.visible_device_count) < 10:
            yield Problem("machine", "too few", remedies=(set_devices(99), set_devices(10)))

    def too_many(case: Case) -> Iterable[Problem]:
        if known(case.snapshot.driver.visible_device_count) > 50:
            yield Problem("machine", "too many")

    rules = [Rule("CD998", "few", Severity.ERROR, "", too_few), Rule("CD999", "many", Severity.ERROR, "", too_many)]
    (finding,) = evaluate(Case(with_devices(3), matrices), rules).findings
    assert [fix.title for fix in finding.fixes] == ["make 10 visible"]


def test_a_warning_explains_no_error(matrices: Matrices) -> None:
    def warns(case: Case) -> Iterable[Problem]:
        if known(case.snapshot.driver.visible_device_count) < 10:
            yield Problem("machine", "a circumstance")

    rules = [Rule("CD998", "no-devices", Severity.WARNING, "", warns), NEEDS_TEN]
    findings = {finding.name: finding for finding in evaluate(Case(with_devices(3), matrices), rules).findings}
    assert findings["needs-ten"].root
    assert findings["no-devices"].explains == ()
