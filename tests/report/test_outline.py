"""Consequences stand under their cause, each finding once, identical ones of several GPUs as one."""

from __future__ import annotations

from msgspec import structs

from cudadoctor.model.finding import Evidence, Finding, Severity, UnknownRule
from cudadoctor.report.outline import Branch, joined_subjects, merged, outline, unknown_by_reason


def finding(code: str, *, root: bool = True, explains: tuple[str, ...] = (), subject: str = "machine") -> Finding:
    name = f"problem-{code}"
    return Finding(code=code, name=name, severity=Severity.ERROR, subject=subject, what="It is.", root=root, explains=explains)


def codes(branches: tuple[Branch, ...]) -> list[object]:
    """The tree as nested lists of codes."""
    return [[branch.finding.code, *codes(branch.consequences)] for branch in branches]


def test_consequences_under_their_root() -> None:
    tree = outline((finding("CD1", explains=("CD3",)), finding("CD2"), finding("CD3", root=False)))
    assert codes(tree) == [["CD1", ["CD3"]], ["CD2"]]


def test_a_consequence_of_a_consequence_is_one_level_deeper() -> None:
    tree = outline((finding("CD1", explains=("CD2",)), finding("CD2", root=False, explains=("CD3",)), finding("CD3", root=False)))
    assert codes(tree) == [["CD1", ["CD2", ["CD3"]]]]


def test_a_consequence_of_two_causes_is_shown_once() -> None:
    tree = outline((finding("CD1", explains=("CD3",)), finding("CD2", explains=("CD3",)), finding("CD3", root=False)))
    assert codes(tree) == [["CD1", ["CD3"]], ["CD2"]]


def test_a_consequence_without_a_cause_is_not_lost() -> None:
    assert codes(outline((finding("CD1"), finding("CD2", root=False)))) == [["CD1"], ["CD2"]]


def test_findings_that_explain_each_other_are_not_lost() -> None:
    tree = outline((finding("CD1", root=False, explains=("CD2",)), finding("CD2", root=False, explains=("CD1",))))
    assert codes(tree) == [["CD1", ["CD2"]]]


def test_a_finding_that_explains_itself_is_shown_once() -> None:
    assert codes(outline((finding("CD1", explains=("CD1",)),))) == [["CD1"]]


def test_equal_findings_of_several_gpus_become_one() -> None:
    evidence = [(Evidence(fact="f", value=str(number), source="s"),) for number in range(8)]
    seen = [structs.replace(finding("CD5", subject=f"GPU {n}"), evidence=evidence[n]) for n in range(8)]
    (one,) = merged([*seen[4:], *seen[:4]])
    assert one.subject == "GPU 0..7"
    assert [item.value for item in one.evidence] == ["4", "5", "6", "7", "0", "1", "2", "3"]


def test_findings_that_say_something_else_stay_apart() -> None:
    other = structs.replace(finding("CD5", subject="GPU 1"), what="It is worse.")
    assert len(merged([finding("CD5", subject="GPU 0"), other])) == 2


def test_joined_subjects() -> None:
    assert joined_subjects(["GPU 0", "GPU 1", "GPU 2", "GPU 5"]) == "GPU 0..2, 5"
    assert joined_subjects(["GPU 0"]) == "GPU 0"
    assert joined_subjects(["torch", "nvcc", "torch"]) == "torch, nvcc"
    assert joined_subjects(["GPU x", "GPU 1"]) == "GPU x, GPU 1"


def test_unknown_rules_are_grouped_by_reason() -> None:
    rules = (UnknownRule("CD1", "a", "timeout"), UnknownRule("CD2", "b", "crash"), UnknownRule("CD3", "c", "timeout"))
    assert {reason: [rule.code for rule in group] for reason, group in unknown_by_reason(rules).items()} == {
        "timeout": ["CD1", "CD3"],
        "crash": ["CD2"],
    }
