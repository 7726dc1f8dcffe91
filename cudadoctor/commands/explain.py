"""`explain`: what a rule checks, what an error code or text means; everything printed comes from docstrings and matrices."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from difflib import get_close_matches

from cudadoctor import plugins
from cudadoctor.matrices import Matrices
from cudadoctor.matrices.errors import CudaError, NvmlError, Xid
from cudadoctor.readers.errors import recognise
from cudadoctor.rules.engine import Rule
from cudadoctor.rules.registry import RULES


class NothingKnownError(Exception):
    """Neither a rule nor an error is called so."""


def explain(query: str, matrices: Matrices) -> str:
    """The explanation of a rule (name, code), an error code or name, an Xid, or an error text; raises NothingKnownError."""
    text = query.strip()
    rule = _rule(text)
    if rule is not None:
        return rule_page(rule)
    parts = list(dict.fromkeys([*_codes(text, matrices), *_texts(text, matrices)]))
    if not parts:
        near = get_close_matches(text.lower(), [rule.name for rule in RULES], n=1, cutoff=0.75)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise NothingKnownError(
            f"nothing is known about {text[:80]!r}{meant}: give a rule (see `cudadoctor rules`), an error code or an error text"
        )
    return "\n\n".join(parts) + "\n"


def _rule(text: str) -> Rule | None:
    return _named(text, RULES) or _named(text, plugins.described().rules)


def _named(text: str, rules: Iterable[Rule]) -> Rule | None:
    return next((rule for rule in rules if text.lower() == rule.name or text.upper() == rule.code), None)


def rule_page(rule: Rule) -> str:
    """The documentation of a rule: its title line and the docstring of its check."""
    return f"{rule.code}  {rule.name}  ({rule.severity.value})\n\n{inspect.cleandoc(rule.check.__doc__ or rule.summary)}\n"


def _codes(text: str, matrices: Matrices) -> Iterable[str]:
    xid = re.fullmatch(r"xid[ :]{0,2}(\d{1,4})", text, re.IGNORECASE)
    if xid:
        row = matrices.errors.xid(int(xid[1]))
        return [_xid(row)] if row is not None else []
    nvml = re.fullmatch(r"nvml(?:_error)?[ :]{0,2}(\d{1,4})", text, re.IGNORECASE)
    if nvml:
        found = matrices.errors.nvml(int(nvml[1]))
        return [_nvml(found)] if found is not None else []
    code = re.fullmatch(r"(?:(?:cuda )?error )?(\d{1,4})", text, re.IGNORECASE)
    error = matrices.errors.by_code(int(code[1])) if code else matrices.errors.by_name(text)
    return [_cuda(error)] if error is not None else []


def _texts(text: str, matrices: Matrices) -> Iterable[str]:
    errors = [_cuda(error) for error in matrices.errors.by_text(text)] if len(text) > 8 else []
    seen = {error.kind for error in recognise(text, "explain")}
    return [*errors, *(rule_page(rule).rstrip() for rule in RULES if rule.name in seen)]


def _section(title: str, lines: Iterable[str]) -> list[str]:
    listed = [f"  {number}. {line}" for number, line in enumerate(lines, 1)]
    return [f"{title}:", *listed] if listed else []


def _cuda(error: CudaError) -> str:
    names = " / ".join(name for name in (error.runtime_name, error.driver_name) if name)
    return "\n".join(
        [
            f"CUDA error {error.code}  {names}",
            *([f'"{error.message}"'] if error.message else []),
            *_section("Causes, likeliest first", error.causes),
            *_section("What tells them apart", error.checks),
            *_section("Fixes", error.fixes),
            f"Source: {error.origin.source}",
        ]
    )


def _nvml(error: NvmlError) -> str:
    return "\n".join(
        [
            f"NVML error {error.code}",
            f'"{error.message}"',
            *_section("Causes", error.causes),
            *_section("Fixes", error.fixes),
            f"Source: {error.origin.source}",
        ]
    )


def _xid(xid: Xid) -> str:
    title = " ".join(part for part in (f"Xid {xid.number}", xid.name, xid.description) if part)
    rows = (
        ("Meaning", xid.meaning),
        ("Likely", xid.likely),
        ("Action", xid.action),
        ("Immediate action (catalogue)", xid.immediate_action),
    )
    return "\n".join([title, *(f"{name}: {value}" for name, value in rows if value), f"Source: {xid.origin.source}"])
