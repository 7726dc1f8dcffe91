"""A report without the names of people and machines, serial numbers and secrets.

Pseudonyms are stable within one report: the same GPU UUID is `GPU-uuid-1` wherever it stands. Only values are changed, never
keys, enums or version numbers, and redacting twice changes nothing more. What cannot be told from ordinary text is kept where
it is harmless: four numbers with dots are a version far more often than an address, so an address is hidden only where its
surroundings show that it is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct, structs

from cudadoctor.model.fact import NOT_ASKED, maybe
from cudadoctor.model.finding import Evidence, Finding, UnknownRule
from cudadoctor.model.private_text import NOBODY, Identity, Redactor
from cudadoctor.model.report import Report, Tool
from cudadoctor.model.snapshot import ErrorSeen, Package, TextReading
from cudadoctor.model.versions import DottedVersion, DriverRelease

__all__ = ["NOBODY", "Identity", "redact", "redact_text"]

_UNTOUCHED: dict[type, frozenset[str]] = {
    Report: frozenset({"schema", "created", "node"}),
    Tool: frozenset({"version", "matrices_as_of"}),
    Finding: frozenset({"code", "name", "tags", "explains"}),
    UnknownRule: frozenset({"code", "name"}),
    Evidence: frozenset({"fact"}),
    ErrorSeen: frozenset({"kind"}),
    TextReading: frozenset({"kind"}),
    Package: frozenset({"name", "package_version"}),
}
"""Fields that hold identifiers of ours or public names. A node is in a report because the user chose to name it."""


def redact(report: Report, identity: Identity = NOBODY) -> Report:
    """The report with pseudonyms and `<redacted>` in place of what identifies a person, a machine or a secret."""
    redactor = Redactor(_texts(report), identity, _public_words(report))
    redacted: Report = report if redactor.changes_nothing else _rewritten(report, redactor)
    return redacted


def redact_text(text: str, identity: Identity = NOBODY) -> str:
    """A single text, redacted as a report's values are; pseudonyms count anew."""
    return Redactor([text], identity).text(text)


def _public_words(report: Report) -> Iterator[str]:
    """Words that the report needs: of rules, packages and GPUs."""
    for finding in report.findings:
        yield from finding.name.split("-")
    for rule in report.unknown:
        yield from rule.name.split("-")
    for package in maybe(report.snapshot.python.packages) or ():
        yield package.name
        yield from package.name.split("-")
    for gpu in maybe(report.snapshot.gpus) or ():
        yield from (maybe(gpu.name) or "").split()


def _texts(document: Any) -> list[str]:
    """Every string value within a document; under a key, as `key=value`."""
    texts: list[str] = []
    _collect(document, texts)
    return texts


def _collect(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            item = getattr(value, name)
            if item is not NOT_ASKED and item is not None:
                _collect(item, texts)
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(f"{key}={item}" if isinstance(item, str) else item, texts)
    elif isinstance(value, (tuple, list)):
        for item in value:
            _collect(item, texts)
    elif isinstance(value, DottedVersion):
        texts.append(value.text)


def _rewritten(value: Any, redactor: Redactor) -> Any:
    """The document with every string value passed through the redactor; the very same object where nothing changes."""
    if isinstance(value, str):
        return redactor.text(value)
    if isinstance(value, Struct):
        return _rewritten_struct(value, redactor)
    if isinstance(value, dict):
        return {key: _rewritten_item(str(key), item, redactor) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        items = [_rewritten(item, redactor) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    if isinstance(value, DottedVersion) and not isinstance(value, DriverRelease):
        new = redactor.text(value.text)
        return value if new == value.text else DottedVersion(value.parts, new)
    return value


def _rewritten_item(key: str, value: Any, redactor: Redactor) -> Any:
    return redactor.of_key(key, value) if isinstance(value, str) else _rewritten(value, redactor)


def _rewritten_struct(value: Struct, redactor: Redactor) -> Struct:
    kept = _UNTOUCHED.get(type(value), frozenset())
    changed = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if old is NOT_ASKED or name in kept:
            continue
        new = _rewritten(old, redactor)
        if new is not old:
            changed[name] = new
    return structs.replace(value, **changed) if changed else value
