from __future__ import annotations

import threading

import pytest

from cudadoctor.background import in_background, started


class Refused(threading.Thread):
    """A thread on a machine whose limits allow no more."""

    def start(self) -> None:
        raise RuntimeError("can't start new thread")


def test_the_result_comes_from_another_thread() -> None:
    assert in_background(threading.get_ident, "test").result(10) != threading.get_ident()


def test_an_error_comes_to_whoever_asks() -> None:
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0, "test").result(10)


def test_where_no_thread_can_be_had_the_work_is_done_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Thread", Refused)
    assert in_background(threading.get_ident, "test").result(0) == threading.get_ident()


def test_a_refused_thread_is_told_with_the_system_s_words() -> None:
    assert "can't start new thread" in str(started(Refused()))
    assert started(threading.Thread(target=int)) is None
