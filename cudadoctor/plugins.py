"""Rules of other packages: installed ones are asked, each in a child with a deadline, and a broken one is a finding."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cudadoctor.background import in_background
from cudadoctor.gpu.child import PACKAGE_PARENT, Child, ChildError
from cudadoctor.model import codec
from cudadoctor.model.fact import UnknownFactError
from cudadoctor.model.finding import Finding
from cudadoctor.rules.case import BrokenPlugin, Case
from cudadoctor.rules.engine import NotApplicableError, Outcome, Problem, Remedy, Rule

if TYPE_CHECKING:
    from typing import TypeAlias

    from cudadoctor.model.proof import Proof
    from cudadoctor.model.snapshot import Snapshot
    from cudadoctor.plugin_child import JudgedRule

    Answer: TypeAlias = tuple[JudgedRule, ...] | BrokenPlugin

GROUP = "cudadoctor.rules"
"""The entry points that offer rules: each is a `Rule`, or an iterable of them."""
LIMIT_S = 5.0
"""Longest wait for one plugin to load and to judge."""
SHORTEST_WAIT_S = 0.5
_BOOTSTRAP = "import sys; sys.path.extend(sys.argv[1:]); from cudadoctor.plugin_child import main; main()"


@dataclass(frozen=True)
class Plugin:
    """An entry point of an installed package that offers rules."""

    name: str
    package: str
    version: str


@dataclass(frozen=True)
class PluginWord:
    """What the plugins say of a machine: rules that know their outcome already, and the plugins that could not be used."""

    rules: tuple[Rule, ...] = ()
    broken: tuple[BrokenPlugin, ...] = ()


NO_WORD = PluginWord()


@functools.cache
def installed() -> tuple[Plugin, ...]:
    """The plugins installed beside this package, each once, ordered by package and name."""
    offering = {str(file.parent.parent) for folder in folders() for file in _offers_in(Path(folder))}
    if not offering:
        return ()
    from importlib import metadata  # takes longer to import than the look at the files

    found = {
        Plugin(point.name, distribution.name, distribution.version)
        for distribution in metadata.distributions(path=sorted(offering))
        for point in distribution.entry_points
        if point.group == GROUP
    }
    return tuple(sorted(found, key=lambda plugin: (plugin.package, plugin.name)))


def _offers_in(folder: Path) -> Iterator[Path]:
    """The lists of entry points in which the group's name stands; what cannot be read offers nothing."""
    for file in folder.glob("*.dist-info/entry_points.txt"):
        with suppress(OSError):
            if GROUP.encode() in file.read_bytes():
                yield file


def folders() -> tuple[str, ...]:
    """Where packages are installed for this Python. What lies in the working folder or on PYTHONPATH was not installed by anyone
    who meant it for cudadoctor, and is not run."""
    import site

    user = (site.getusersitepackages(),) if site.ENABLE_USER_SITE else ()
    return tuple(dict.fromkeys((*site.getsitepackages(), *user, PACKAGE_PARENT)))


def described() -> PluginWord:
    """The rules of the installed plugins; judged they are not."""
    return _gathered(_asked(None, (), LIMIT_S))


def ask_plugins(snapshot: Snapshot, proofs: tuple[Proof, ...] = (), timeout_s: float = LIMIT_S) -> PluginWord:
    """What the installed plugins say of a machine, all asked side by side; each is given up after `timeout_s` seconds."""
    return _gathered(_asked(snapshot, proofs, max(SHORTEST_WAIT_S, min(LIMIT_S, timeout_s))))


def _asked(snapshot: Snapshot | None, proofs: tuple[Proof, ...], timeout_s: float) -> Iterable[Answer]:
    asking = [
        in_background(functools.partial(_ask, plugin, snapshot, proofs, timeout_s), f"plugin {plugin.name}")
        for plugin in installed()
    ]
    return [answer.result() for answer in asking]


def _ask(plugin: Plugin, snapshot: Snapshot | None, proofs: tuple[Proof, ...], timeout_s: float) -> Answer:
    from cudadoctor.plugin_child import PluginAnswer

    argv = (sys.executable, "-I", "-c", _BOOTSTRAP, *folders())
    request = {
        "group": GROUP,
        "entry_point": plugin.name,
        "package": plugin.package,
        "snapshot": None if snapshot is None else codec.to_builtins(snapshot),
        "proofs": codec.to_builtins(proofs),
    }
    try:
        with Child(argv, os.environ) as child:
            answer = codec.from_builtins(child.ask(request, timeout_s), PluginAnswer)
    except ChildError as error:
        return _broken(plugin, str(error))
    except codec.DocumentError as error:
        return _broken(plugin, f"answered with something else than rules: {error}")
    crash = next((rule for rule in answer.rules if rule.outcome is Outcome.CRASH), None)
    if answer.error or crash is not None:
        return _broken(plugin, answer.error if crash is None else f"its rule {crash.name} raised {crash.words}")
    return answer.rules


def _broken(plugin: Plugin, because: str) -> BrokenPlugin:
    return BrokenPlugin(plugin.name, plugin.package, plugin.version, because, sys.executable)


def _gathered(answers: Iterable[Answer]) -> PluginWord:
    """All rules; of two plugins that use one code or name, the later one is broken."""
    rules: list[Rule] = []
    broken: list[BrokenPlugin] = []
    taken: set[str] = set()
    for plugin, answer in zip(installed(), answers, strict=True):
        if isinstance(answer, BrokenPlugin):
            broken.append(answer)
            continue
        words = {word for rule in answer for word in (rule.code, rule.name)}
        if words & taken:
            broken.append(_broken(plugin, f"another plugin has a rule called {min(words & taken)} already"))
            continue
        taken |= words
        rules.extend(_rule(judged) for judged in answer)
    return PluginWord(tuple(rules), tuple(broken))


def _rule(judged: JudgedRule) -> Rule:
    """The rule, whose check tells what it found in its own process."""

    def check(_: Case) -> Iterator[Problem]:
        yield from (_problem(finding) for finding in judged.findings)
        if judged.missing is not None:
            raise UnknownFactError(judged.missing)
        if judged.outcome is Outcome.NOT_APPLICABLE:
            raise NotApplicableError(judged.words)

    check.__doc__ = judged.documentation
    return Rule(judged.code, judged.name, judged.severity, judged.summary, check, explained_by=judged.explained_by)


def _problem(finding: Finding) -> Problem:
    return Problem(
        subject=finding.subject,
        what=finding.what,
        why=finding.why,
        evidence=finding.evidence,
        remedies=tuple(Remedy(fix) for fix in finding.fixes),
        tags=finding.tags,
        confidence=finding.confidence,
        severity=finding.severity,
        references=finding.references,
    )
