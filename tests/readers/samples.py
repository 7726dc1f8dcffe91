"""The samples of tests/tool_output: real outputs of tools, each with what a right parser returns."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "tool_output"


@dataclass(frozen=True)
class Sample:
    """One text and its expectation."""

    kind: str
    slug: str
    text: str
    expect: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.kind}/{self.slug}"


@cache
def samples() -> tuple[Sample, ...]:
    """All samples, in the order of their names."""
    found = []
    for path in sorted(FOLDER.glob("*/*.json")):
        sidecar = json.loads(path.read_text(encoding="utf-8"))
        text = path.with_suffix(".txt").read_bytes().decode("utf-8")
        found.append(Sample(sidecar["kind"], sidecar["slug"], text, sidecar["expect"]))
    return tuple(found)


def differences(expected: Any, got: Any, path: str = "") -> list[str]:
    """Where `got` departs from `expected`: keys that are absent in `expected` are not judged, a null may be absent in `got`."""
    if isinstance(expected, dict) and isinstance(got, dict):
        found = []
        for key, value in expected.items():
            if key in got:
                found += differences(value, got[key], f"{path}.{key}")
            elif value is not None:
                found.append(f"{path}.{key}: missing, expected {value!r}")
        return found
    if isinstance(expected, list) and isinstance(got, list) and len(expected) == len(got):
        pairs = enumerate(zip(expected, got, strict=True))
        return [found for position, (one, other) in pairs for found in differences(one, other, f"{path}[{position}]")]
    return [] if expected == got else [f"{path}: expected {expected!r}, got {got!r}"]
