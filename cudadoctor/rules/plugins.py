"""The rule about rules of other packages that could not judge (CD880)."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from cudadoctor.model.finding import Evidence, Fix, Severity, Where
from cudadoctor.rules.engine import Case, NotApplicableError, Problem, Remedy, Rule


def plugin_broken(case: Case) -> Iterable[Problem]:
    """An installed package offers rules for cudadoctor, and they could not be used.

    What it checks: each entry point of the group cudadoctor.rules is loaded and asked in a process of its own. It is broken where
    it cannot be imported, raises, hangs, crashes, exits, or offers something else than rules.

    Why it matters: what these rules would have found is not in the report. The rest of it holds: nothing else depends on them.

    How to fix: update the package, or remove it.

    When it is wrong: a slow disk may need more than the five seconds that a plugin has.

    Sources: docs/plugins.md.
    """
    if not case.broken_plugins:
        raise NotApplicableError("no installed plugin is broken")
    for plugin in case.broken_plugins:
        pip = f"{shlex.quote(plugin.python)} -m pip"
        package = shlex.quote(plugin.package)
        yield Problem(
            subject=f"{plugin.package}:{plugin.name}",
            what=f"The plugin {plugin.name} of {plugin.package} {plugin.version} could not judge: {plugin.because}.",
            why="What its rules would have found is not in this report; the rest holds.",
            evidence=(Evidence(fact=f"plugins.{plugin.name}", value=plugin.because, source="plugin child"),),
            remedies=(
                Remedy(Fix(title="Update the package", commands=(f"{pip} install --upgrade {package}",), where=Where.VENV)),
                Remedy(Fix(title="Or remove it", commands=(f"{pip} uninstall {package}",), where=Where.VENV)),
            ),
        )


RULES = (Rule("CD880", "plugin-broken", Severity.WARNING, "Rules of an installed plugin could not be used", plugin_broken),)
