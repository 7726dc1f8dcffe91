"""`rules`: the list of all rules."""

from __future__ import annotations

import json
from collections.abc import Sequence

from cudadoctor import plugins
from cudadoctor.rules.engine import Rule
from cudadoctor.rules.registry import RULES
from cudadoctor.saying import say


def all_rules() -> tuple[Rule, ...]:
    """Ours, and those of the installed plugins; one that is broken is named on standard error."""
    said = plugins.described()
    for plugin in said.broken:
        say(f"the plugin {plugin.name} of {plugin.package} is left out: {plugin.because}")
    return (*RULES, *said.rules)


def as_json(rules: Sequence[Rule] = RULES) -> str:
    """The list as design.md section 3 describes it."""
    rows = [{"code": rule.code, "name": rule.name, "severity": rule.severity.value, "summary": rule.summary} for rule in rules]
    return json.dumps({"rules": sorted(rows, key=lambda row: row["code"])}, indent=2) + "\n"


def as_text(rules: Sequence[Rule] = RULES) -> str:
    """One line a rule, in the order of their codes."""
    name_width = max(len(rule.name) for rule in rules)
    lines = [
        f"{rule.code}  {rule.severity.value:<7}  {rule.name:<{name_width}}  {rule.summary}"
        for rule in sorted(rules, key=lambda rule: rule.code)
    ]
    return "\n".join(lines) + "\n"
