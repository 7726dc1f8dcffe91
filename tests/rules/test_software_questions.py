from __future__ import annotations

import pytest

from cudadoctor.rules.software_questions import version_of


@pytest.mark.parametrize("text", ["", "unknown", "9" * 5000, f"2.{'9' * 5000}+cu124"])
def test_what_is_no_version_is_none(text: str) -> None:
    assert version_of(text) is None


def test_a_version_is_read() -> None:
    assert str(version_of("2.5.1+cu124")) == "2.5.1+cu124"
