from __future__ import annotations

import os
import sys

import pytest

from cudadoctor.gpu.child import Child, ChildError, ChildFailure

LOOP = "import sys, os, json, time, signal\nfor line in sys.stdin:\n    {body}\n"


def python_child(body: str) -> Child:
    return Child((sys.executable, "-I", "-S", "-c", LOOP.format(body=body)), os.environ)


def test_answers_come_back() -> None:
    with python_child("print(json.dumps({'got': json.loads(line)}), flush=True)") as child:
        assert child.ask({"a": 1}, 10) == {"got": {"a": 1}}
        assert child.ask({"b": 2}, 10) == {"got": {"b": 2}}


@pytest.mark.parametrize(
    ("body", "failure", "text"),
    [
        ("time.sleep(60)", ChildFailure.HUNG, r"gave no answer within 0\.5 s"),
        ("os.kill(os.getpid(), signal.SIGKILL)", ChildFailure.CRASHED, "died of SIGKILL"),
        ("sys.exit('out of luck')", ChildFailure.CRASHED, "ended with exit code 1: out of luck"),
        ("print('Hello', flush=True)", ChildFailure.GARBLED, "garbage"),
        ("print('[1]', flush=True)", ChildFailure.GARBLED, "garbage"),
        ("os.close(1); time.sleep(60)", ChildFailure.CRASHED, "closed its output"),
    ],
)
def test_each_way_to_fail_has_its_words(body: str, failure: ChildFailure, text: str) -> None:
    limit = 0.5 if failure is ChildFailure.HUNG else 10
    with python_child(body) as child, pytest.raises(ChildError, match=text) as caught:
        child.ask({}, limit)
    assert caught.value.failure is failure


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(ChildError, match="could not be started") as caught:
        Child(("/nonexistent/python",), os.environ)
    assert caught.value.failure is ChildFailure.NOT_STARTED


def test_a_child_that_ended_already_says_so_to_every_request() -> None:
    with python_child("sys.exit(3)") as child:
        for _ in range(2):
            with pytest.raises(ChildError, match="exit code 3"):
                child.ask({}, 10)


def test_the_child_gets_exactly_the_environment_given() -> None:
    argv = (sys.executable, "-I", "-S", "-c", LOOP.format(body="print(json.dumps(dict(os.environ)), flush=True)"))
    with Child(argv, {"ONLY": "this"}) as child:
        answer = child.ask({}, 10)
    assert answer.pop("ONLY") == "this"
    assert "PATH" not in answer
