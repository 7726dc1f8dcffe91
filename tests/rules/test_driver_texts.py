"""Pasted texts about drivers, kernel modules, WSL and containers, from the words to the finding (driver_texts.txt)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudadoctor.model.finding import Severity
from cudadoctor.readers.paste import read_paste
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import judged

HEADING = re.compile(r"^=== (?P<name>\S+) \| finds: (?P<finds>.*) \| never: (?P<never>.*)$", re.MULTILINE)


@dataclass(frozen=True)
class PastedText:
    """A text, the tags that have to be reported for it, and those that may not be raised as an error."""

    name: str
    finds: frozenset[str]
    never: frozenset[str]
    text: str


def tags(words: str) -> frozenset[str]:
    return frozenset(word for word in words.split() if word != "-")


def pasted_texts() -> list[PastedText]:
    whole = (Path(__file__).parent / "driver_texts.txt").read_text(encoding="utf-8")
    headings = list(HEADING.finditer(whole))
    ends = [heading.start() for heading in headings[1:]] + [len(whole)]
    return [
        PastedText(heading["name"], tags(heading["finds"]), tags(heading["never"]), whole[heading.end() : end].strip("\n"))
        for heading, end in zip(headings, ends, strict=True)
    ]


TEXTS = pasted_texts()


def test_names_are_unique() -> None:
    assert len({text.name for text in TEXTS}) == len(TEXTS) > 100


@pytest.mark.parametrize("pasted", TEXTS, ids=lambda pasted: pasted.name)
def test_text_leads_to_its_finding(pasted: PastedText) -> None:
    results = judged(read_paste(pasted.text).snapshot)
    reported = {tag for finding in results.findings for tag in (finding.name, *finding.tags)}
    errors = {tag for finding in results.findings if finding.severity is Severity.ERROR for tag in (finding.name, *finding.tags)}
    assert pasted.finds <= reported
    assert pasted.never & errors == frozenset()
    assert [result.because for result in results.outcomes if result.outcome is Outcome.CRASH] == []


@pytest.mark.parametrize("pasted", [text for text in TEXTS if text.finds], ids=lambda pasted: pasted.name)
def test_every_finding_quotes_its_evidence(pasted: PastedText) -> None:
    wanted = [finding for finding in judged(read_paste(pasted.text).snapshot).findings if finding.name in pasted.finds]
    assert all(finding.evidence for finding in wanted)
