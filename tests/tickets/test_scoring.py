"""The scorer itself: it can tell right from wrong."""

from __future__ import annotations

from tests.tickets.scoring import Case, cases, judge, table

CASE = Case("x1", "x", "high", "reported", "text", ("first", "second"), ("never",))
BENIGN = Case("x2", "x", "high", "reported", "text", ("benign-x",), ())


def test_all_tags_pass_strictly() -> None:
    assert judge(CASE, {"first", "second", "more"}, {"first"}).strict


def test_first_tag_alone_passes_leniently() -> None:
    verdict = judge(CASE, {"first"}, {"first"})
    assert (verdict.strict, verdict.lenient, verdict.missed) == (False, True, ("second",))


def test_forbidden_error_fails_and_a_note_does_not() -> None:
    assert not judge(CASE, {"first", "second", "never"}, {"never"}).lenient
    assert judge(CASE, {"first", "second", "never"}, {"first"}).strict


def test_any_error_on_a_benign_ticket_is_a_false_alarm() -> None:
    assert judge(BENIGN, {"benign-x", "other"}, {"other"}).false_alarms == ("other",)
    assert judge(BENIGN, {"benign-x"}, set()).strict


def test_table_counts() -> None:
    lines = table([judge(CASE, {"first"}, set()), judge(BENIGN, set(), {"e"})]).split("\n")
    assert lines[2] == "| all | 2 | 0 | 1 | 1 |"


def test_tickets_are_there() -> None:
    assert len(cases()) > 100
    assert all(case.pasted and case.must_find for case in cases())
