"""Rules of other packages: real ones, installed in a real environment beside cudadoctor, sound and broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
HEAD = """
from cudadoctor.model.fact import known, Missing, MissingReason, UnknownFactError
from cudadoctor.model.finding import Fix, Severity
from cudadoctor.rules.engine import NotApplicableError, Problem, Remedy, Rule
"""
SOUND = (
    HEAD
    + """
def driver_not_ours(case):
    '''This site runs one driver release.

    How to fix: ask the operators.
    '''
    release = known(case.snapshot.driver.driver_release)
    if str(release) != "550.54.15":
        fix = Fix(title="Ask the operators", commands=("mail ops",))
        yield Problem(subject="driver", what=f"Driver {release} is not the site's.", remedies=(Remedy(fix),))

RULES = (Rule("SITE1", "driver-not-ours", Severity.ERROR, "Another driver than the site's", driver_not_ours),)
"""
)
TICKET = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.95\n"
SMI = "| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |\n"


def one_rule(body: str, **fields: str) -> str:
    """A plugin of one rule with this body."""
    given = {"code": "'SITE1'", "name": "'site-rule'", "explained_by": "()", **fields}
    rule = f"Rule({given['code']}, {given['name']}, Severity.ERROR, 'a rule', check, explained_by={given['explained_by']})"
    return f"{HEAD}\ndef check(case):\n    {body}\n    yield from ()\n\nRULES = ({rule},)\n"


@dataclass(frozen=True)
class Environment:
    """A virtual environment in which cudadoctor and what it needs can be imported."""

    python: Path
    site_packages: Path

    def install(self, name: str, source: str, offers: str = "RULES") -> None:
        """A package as pip leaves it: one module, and its metadata with the entry point."""
        (self.site_packages / f"{name}.py").write_text(source)
        info = self.site_packages / f"{name}-1.2.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
        (info / "entry_points.txt").write_text(f"[cudadoctor.rules]\n{name}-rules = {name}:{offers}\n")

    def run(self, *arguments: str, text: str = TICKET, **env: str) -> subprocess.CompletedProcess[str]:
        """The command line in this environment, `text` on its standard input."""
        argv = [str(self.python), "-m", "cudadoctor", *arguments]
        return subprocess.run(
            argv, input=text, env={**os.environ, **env}, cwd=self.python.parent, capture_output=True, text=True, timeout=60
        )

    def triage(self, text: str = TICKET, *options: str) -> dict[str, Any]:
        """The report on a text."""
        done = self.run("triage", "-", "--format", "json", *options, text=text)
        assert "Traceback" not in done.stderr, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """An environment without plugins."""
    venv.create(tmp_path / "venv", with_pip=False)
    folder = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (folder / "beside.pth").write_text(f"{CHECKOUT}\n{sysconfig.get_paths()['purelib']}\n")
    return Environment(tmp_path / "venv" / "bin" / "python", folder)


def named(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["name"]: finding for finding in report["findings"]}


def test_a_plugins_rule_judges_beside_ours(environment: Environment) -> None:
    environment.install("siterules", SOUND)
    found = named(environment.triage(SMI))["driver-not-ours"]
    assert found["code"] == "SITE1"
    assert found["what"] == "Driver 535.104.05 is not the site's."
    assert [fix["commands"] for fix in found["fixes"]] == [["mail ops"]]


def test_a_plugins_rule_is_silent_where_its_question_is_answered(environment: Environment) -> None:
    environment.install("siterules", SOUND)
    assert "driver-not-ours" not in named(environment.triage(SMI.replace("535.104.05", "550.54.15 ")))


def test_what_a_plugin_does_not_know_is_unknown(environment: Environment) -> None:
    because = "raise UnknownFactError(Missing(MissingReason.TIMEOUT, 'the licence server did not answer'))"
    environment.install("siterules", one_rule(because))
    report = environment.triage()
    assert [(row["name"], row["because"]) for row in report["unknown"] if row["code"] == "SITE1"] == [
        ("site-rule", "timeout: the licence server did not answer")
    ]


def test_one_of_our_findings_may_explain_a_plugins(environment: Environment) -> None:
    source = one_rule("yield Problem(subject='s', what='w')", explained_by="('nvml-version-mismatch',)")
    environment.install("siterules", source)
    findings = named(environment.triage())
    assert findings["nvml-version-mismatch"]["explains"] == ["SITE1"]
    assert not findings["site-rule"]["root"]


def test_a_plugins_rule_is_selected_ignored_listed_and_explained(environment: Environment) -> None:
    environment.install("siterules", SOUND)
    assert list(named(environment.triage(SMI, "--select", "SITE1"))) == ["driver-not-ours"]
    assert "driver-not-ours" not in named(environment.triage(SMI, "--ignore", "driver-not-ours"))
    assert environment.run("triage", "-", "--select", "SITE9").returncode == 2
    assert "SITE1   error" in environment.run("rules").stdout.replace("SITE1  ", "SITE1   ")
    assert "This site runs one driver release." in environment.run("explain", "driver-not-ours").stdout


def test_check_asks_plugins_too(environment: Environment) -> None:
    environment.install("siterules", one_rule("yield Problem(subject='s', what='Site says no.')"))
    done = environment.run("check", "--no-run", "--format", "json")
    assert "site-rule" in named(json.loads(done.stdout))


BROKEN = {
    "import": ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "syntax": ("def f(:\n", "SyntaxError"),
    "raises": (one_rule("raise KeyError('gpu')"), "its rule site-rule raised KeyError"),
    "crashes": (one_rule("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), "died of SIGSEGV"),
    "exits": (one_rule("import os; os._exit(0)"), "ended with exit code 0"),
    "sys-exit": ("raise SystemExit(3)\n", "ended with exit code 3"),
    "no rules": ("RULES = 3\n", "siterules:RULES is neither a Rule nor an iterable of them"),
    "empty": ("RULES = ()\n", "siterules:RULES is neither a Rule nor an iterable of them"),
    "our code": (one_rule("return", code="'CD999'"), "the code 'CD999' is not two to eight capitals"),
    "our name": (one_rule("return", name="'driver-too-old'"), "the name 'driver-too-old' is taken"),
    "twice": (SOUND + "RULES = RULES * 2\n", "'SITE1' is the code or name of two rules"),
    "numbers for words": (one_rule("yield Problem(subject=7, what=None)"), "answered with something else than rules"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_plugin_is_a_finding_and_the_rest_holds(environment: Environment, kind: str) -> None:
    source, because = BROKEN[kind]
    environment.install("siterules", source)
    findings = named(environment.triage())
    assert because in findings["plugin-broken"]["what"]
    assert findings["plugin-broken"]["code"] == "CD880"
    assert findings["plugin-broken"]["severity"] == "warning"
    assert findings["nvml-version-mismatch"]["root"]
    assert "-m pip install --upgrade siterules" in findings["plugin-broken"]["fixes"][0]["commands"][0]


def test_a_plugin_that_hangs_is_given_up(environment: Environment) -> None:
    environment.install("siterules", one_rule("import time; time.sleep(300)"))
    started = time.monotonic()
    findings = named(environment.triage())
    assert time.monotonic() - started < 30
    assert "gave no answer within 5.0 s" in findings["plugin-broken"]["what"]
    assert "nvml-version-mismatch" in findings


def test_a_broken_plugin_takes_no_other_with_it(environment: Environment) -> None:
    environment.install("abroken", "raise ValueError('no')\n")
    environment.install("siterules", SOUND)
    findings = named(environment.triage(SMI))
    assert {"plugin-broken", "driver-not-ours"} <= findings.keys()


def test_of_two_plugins_with_one_code_the_later_is_broken(environment: Environment) -> None:
    environment.install("first", SOUND)
    environment.install("second", one_rule("yield Problem(subject='s', what='w')"))
    findings = named(environment.triage(SMI))
    assert "another plugin has a rule called SITE1" in findings["plugin-broken"]["what"]
    assert findings["plugin-broken"]["subject"] == "second:second-rules"
    assert "site-rule" not in findings


def test_what_a_plugin_prints_does_not_reach_the_report(environment: Environment) -> None:
    environment.install("siterules", "import os\nprint('noise')\nos.write(1, b'noise')\n" + SOUND)
    assert "driver-not-ours" in named(environment.triage(SMI))


def test_a_plugins_words_are_data(environment: Environment) -> None:
    hostile = "yield Problem(subject='[red]s', what='\\x1b[31m[bold]loud[/bold]\\x1b]0;title\\x07')"
    environment.install("siterules", one_rule(hostile))
    shown = environment.run("triage", "-").stdout
    assert "[bold]loud[/bold]" in shown
    assert "\x1b" not in shown
    assert "\x07" not in shown


@pytest.mark.parametrize("where", ["cwd", "PYTHONPATH"])
def test_what_lies_about_is_no_plugin(environment: Environment, tmp_path: Path, where: str) -> None:
    folder = environment.python.parent if where == "cwd" else tmp_path / "elsewhere"
    folder.mkdir(exist_ok=True)
    Environment(environment.python, folder).install("siterules", f"open({str(tmp_path / 'ran')!r}, 'w')\n{SOUND}")
    env = {"PYTHONPATH": str(folder)} if where == "PYTHONPATH" else {}
    done = environment.run("triage", "-", "--format", "json", text=SMI, **env)
    assert "driver-not-ours" not in named(json.loads(done.stdout))
    assert not (tmp_path / "ran").exists()


def test_rules_names_the_plugin_that_it_leaves_out(environment: Environment) -> None:
    environment.install("siterules", "raise ValueError('no licence')\n")
    done = environment.run("rules")
    assert done.returncode == 0
    assert "the plugin siterules-rules of siterules is left out: ValueError: no licence" in done.stderr


if sys.platform == "win32":
    pytest.skip("environments are laid out otherwise there", allow_module_level=True)
