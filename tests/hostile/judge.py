"""What must hold for a run on a machine with one hostile thing: compares it with the plain run of the same machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cudadoctor.model.codec import DocumentError, from_json
from cudadoctor.model.report import Report
from tests.hostile.doctor import Run

SLACK_S = 2.0
"""What a run may take beyond its deadline."""
EXIT_CODES = frozenset({0, 1, 2, 4})
INCIDENTAL = frozenset({"source", "others", "detail", "probe_runs", "chosen_because", "binaries"})
"""Keys of a snapshot that say how a fact was found, not what it is."""
INTERNAL = ("Traceback (most recent call last)", "a bug of cudadoctor", "Exception in thread", "Fatal Python error")


@dataclass(frozen=True)
class Expected:
    """What one hostile thing may change."""

    facts: Sequence[str] = ()
    """Beginnings of the paths of facts in the snapshot that may be missing or have less in them."""
    layers: Sequence[str] = ()
    """Layers whose proofs may end otherwise."""
    errors: Sequence[str] = ()
    """Names of error findings that are right."""
    exits: Sequence[int] = ()
    """Exit codes that are right; empty: that of the plain run, and 4 where a fact is missing."""
    printed: bool = True
    """False: there is nowhere to print the report to."""
    other_values: Sequence[str] = ()
    """Facts that are truly other ones."""
    starved: bool = False
    """So little memory, or so few descriptors, that Python's own machinery may fail: a probe that says so is no fault."""
    reasons: Sequence[str] = ()
    """Facts that, where they are missing, may be missing for another reason."""


def faults(run: Run, plain: Run, expected: Expected, folders: tuple[str, str], slack: float = SLACK_S) -> Iterator[str]:
    """Everything that is wrong with the run; `folders` are those of its machine and of the plain one."""
    if run.seconds > run.timeout + slack:
        yield f"took {run.seconds:.1f} s of {run.timeout:.0f}"
    if run.exit_code not in EXIT_CODES:
        yield f"ended with {run.exit_code}: {run.stderr[-300:]}"
    for words in () if expected.starved else INTERNAL:
        if words in run.stderr:
            yield f"{words}: {run.stderr[-600:]}"
    if run.left_running:
        yield f"left running: {run.left_running}"
    if run.written:
        yield f"wrote {run.written}"
    if expected.printed:
        yield from _faults_of_report(run, plain, expected, folders)
    elif run.exit_code != 2:
        yield f"exit code {run.exit_code} although the report went nowhere"


def _faults_of_report(run: Run, plain: Run, expected: Expected, folders: tuple[str, str]) -> Iterator[str]:
    if run.report is None:
        yield f"printed no report, exit code {run.exit_code}: {run.stdout[:200]!r} {run.stderr[-400:]}"
        return
    try:
        from_json(run.stdout, Report)
    except DocumentError as error:
        yield f"the report does not validate: {error}"
        return
    yield from faults_of_facts(run, plain, expected, folders)
    yield from _faults_of_proofs(run, plain, expected)
    wrong = _errors(run) - _errors(plain) - set(expected.errors)
    if wrong:
        yield f"error findings {sorted(wrong)}"
    allowed = set(expected.exits) or {plain.exit_code, 4}
    if run.exit_code not in allowed:
        yield f"exit code {run.exit_code}, not one of {sorted(allowed)}"
    crashed = [probe for probe in run.report["snapshot"]["probe_runs"] if probe["outcome"] == "crashed" and probe.get("detail")]
    if crashed and not expected.starved:
        yield f"a probe crashed: {crashed}"


def faults_of_facts(run: Run, plain: Run, expected: Expected, folders: tuple[str, str]) -> Iterator[str]:
    """Facts elsewhere must be the same; those of the hostile thing the same or missing, never invented."""
    here, there = (dict(facts(item, folder)) for item, folder in zip((run, plain), folders, strict=True))
    for path in sorted(here.keys() | there.keys()):
        value, wanted = here.get(path), there.get(path)
        if value == wanted or _begins(path, expected.other_values):
            continue
        if _is_missing(value or "") and _is_missing(wanted or "") and _begins(path, expected.reasons):
            continue
        if path.startswith("errors[") and "errors" in expected.facts:
            continue  # what the thing itself says
        if not _begins(path, expected.facts):
            yield f"{path}: {value!r}, in the plain run {wanted!r}"
        elif value is not None and not _is_missing(value) and (wanted is None or not _is_missing(wanted)):
            yield f"{path}: invented {value!r}, in the plain run {wanted!r}"


def _faults_of_proofs(run: Run, plain: Run, expected: Expected) -> Iterator[str]:
    here, there = _proofs(run), _proofs(plain)
    for key in sorted(here.keys() | there.keys(), key=str):
        if key[0] in expected.layers:
            if here.get(key) == "passed" and there.get(key) != "passed":
                yield f"proof {key} passed, which it does not plainly"
        elif here.get(key) != there.get(key):
            yield f"proof {key}: {here.get(key)}, in the plain run {there.get(key)}"


def facts(run: Run, folder: str) -> Iterator[tuple[str, str]]:
    """Each fact of the snapshot by its path; a missing one as `missing: REASON`."""
    snapshot = (run.report or {}).get("snapshot", {})
    yield from _flat(snapshot, "", folder)


def _flat(node: Any, path: str, folder: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, dict) and node.get("state") == "missing":
        yield path, f"missing: {node['reason']}"
    elif isinstance(node, dict) and node.get("state") == "known":
        yield from _flat(node["value"], path, folder)
    elif isinstance(node, dict):
        for key, value in node.items():
            if key not in INCIDENTAL:
                yield from _flat(value, f"{path}.{key}" if path else key, folder)
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _flat(value, f"{path}[{_name(value, index, folder)}]", folder)
    else:
        yield path, str(node).replace(folder, "<machine>")


def _name(item: Any, index: int, folder: str) -> str:
    """What tells one entry of a list from the others."""
    for key in ("root", "path", "name", "kind", "soname"):
        if isinstance(item, dict) and isinstance(item.get(key), str):
            return str(item[key]).replace(folder, "<machine>")
    return str(index)


def _is_missing(text: str) -> bool:
    return text.startswith("missing: ")


def _begins(path: str, beginnings: Sequence[str]) -> bool:
    return any(re.match(beginning, path) for beginning in beginnings)


def _errors(run: Run) -> set[str]:
    return {finding["name"] for finding in (run.report or {})["findings"] if finding["severity"] == "error"}


def _proofs(run: Run) -> dict[tuple[str, str, str], str]:
    proofs = (run.report or {})["proofs"]
    return {(proof["layer"], str(proof.get("gpu")), proof["kernel"]): proof["outcome"] for proof in proofs}
