"""The checked-in policy: what can stand in it, what is refused and why, and that it decides the exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cudadoctor.cli import app
from cudadoctor.diagnosis import Selection
from cudadoctor.exit_codes import ExitCode
from cudadoctor.matrices import Matrices
from cudadoctor.model.codec import to_json
from cudadoctor.model.finding import Severity
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.policy import NO_POLICY, PolicyError, find_policy, read_policy, with_policy_shown
from tests.rules.builders import healthy

MATRICES = Matrices.load()
FULL = """
gpus = ["RTX 4090", "12.0"]
driver = "550"
ignore = ["benign-torch-vs-toolkit"]
fail-on = "warning"

[require]
torch = ">=2.6,<3"
cudnn = ">=9"

[severity]
toolkit-too-old = "error"
CD219 = "note"
"""


def written(folder: Path, text: str, name: str = "cudadoctor.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_setting_is_read(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, FULL), MATRICES)
    assert policy.gpus == ("RTX 4090", "12.0")
    assert policy.driver == "550"
    assert policy.requirements == "torch>=2.6,torch<3,cudnn>=9"
    assert policy.selection.ignore == ("benign-torch-vs-toolkit",)
    assert policy.selection.severities == (("toolkit-too-old", Severity.ERROR), ("CD219", Severity.NOTE))
    assert policy.fail_on == "warning"
    assert policy.machine_requirements(MATRICES) == "gpu==8.9,gpu==12.0,driver>=550,torch>=2.6,torch<3,cudnn>=9"


def test_conditions_may_be_a_list(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, 'require = ["cc>=8.0", "driver_cuda>=12.4"]'), MATRICES)
    assert policy.requirements == "cc>=8.0,driver_cuda>=12.4"


def test_where_a_policy_is_found(tmp_path: Path) -> None:
    assert find_policy(tmp_path, None, MATRICES) is NO_POLICY
    written(tmp_path, "[tool.other]\nx = 1\n", "pyproject.toml")
    assert find_policy(tmp_path, None, MATRICES) is NO_POLICY
    written(tmp_path, '[tool.cudadoctor]\ndriver = "535"\n', "pyproject.toml")
    assert find_policy(tmp_path, None, MATRICES).driver == "535"
    written(tmp_path, 'driver = "550"\n')
    assert find_policy(tmp_path, None, MATRICES).driver == "550"
    other = written(tmp_path, 'driver = "570"\n', "other.toml")
    assert find_policy(tmp_path, other, MATRICES).driver == "570"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpus = [", "not TOML"),
        ("colour = 1", "colour: no such setting"),
        ("gpus = 4090", "gpus: must be a list of texts"),
        ('gpus = ["RTX"]', "gpus: 'RTX' leaves several compute capabilities"),
        ('gpus = ["Voodoo"]', "gpus: no GPU is called"),
        ('driver = "new"', "driver: "),
        ("driver = true", "driver: "),
        ("driver = []", "driver: "),
        ('require = ["colour>=8"]', "require: nothing is called 'colour'"),
        ('require = ["torch"]', "require: cannot read the requirement 'torch'"),
        ("require = {torch = 2}", "require.torch: must be a text"),
        ('require = {torch = "about 2"}', "require: cannot read"),
        ('select = ["no-such-rule"]', "select: no rule is called 'no-such-rule'"),
        ("ignore = [1]", "ignore: must be a list of texts"),
        ('severity = "error"', "severity: must be a table"),
        ('severity = {no-rule = "error"}', "severity.no-rule: no rule is called"),
        ('severity = {toolkit-too-old = "fatal"}', "severity.toolkit-too-old: must be one of error, warning, note"),
        ('fail-on = "always"', "fail-on: must be one of"),
        ("fail-on = 3", "fail-on: must be one of"),
        ("x = " + "[" * 50_000, "not TOML|nested too deeply"),
    ],
    ids=lambda value: value[:40],
)
def test_a_bad_policy_is_refused_with_file_key_and_reason(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(PolicyError, match=rf"cudadoctor\.toml: (?:{reason})"):
        read_policy(written(tmp_path, text), MATRICES)


def test_files_that_are_no_policy_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="No such file"):
        read_policy(tmp_path / "absent.toml", MATRICES)
    with pytest.raises(PolicyError, match="not a regular file"):
        read_policy(tmp_path, MATRICES)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="not UTF-8"):
        read_policy(tmp_path / "binary.toml", MATRICES)
    with pytest.raises(PolicyError, match="has no table"):
        read_policy(written(tmp_path, "[tool.cudadoctor-x]\n", "pyproject.toml"), MATRICES)
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(PolicyError, match="larger than"):
        read_policy(tmp_path / "large.toml", MATRICES)


@pytest.mark.parametrize("make", ["dangling link", "folder", "pipe"])
def test_a_policy_of_our_own_that_is_no_file_is_never_passed_over(tmp_path: Path, make: str) -> None:
    path = tmp_path / "cudadoctor.toml"
    if make == "pipe":
        os.mkfifo(path)
    elif make == "folder":
        path.mkdir()
    else:
        path.symlink_to("nowhere")
    with pytest.raises(PolicyError, match=r"cudadoctor\.toml"):
        find_policy(tmp_path, None, MATRICES)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"name = 'caf\xe9'", b"x" * (2 << 20), b"not [ toml"])
def test_a_bad_pyproject_of_somebody_else_is_none_of_our_business(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    assert find_policy(tmp_path, None, MATRICES) is NO_POLICY
    (tmp_path / "pyproject.toml").write_bytes(b"[tool.cudadoctor]\n" + content)
    with pytest.raises(PolicyError):
        find_policy(tmp_path, None, MATRICES)


def test_the_command_line_selects_alone_and_ignores_besides(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, 'select = ["CD4"]\nignore = ["CD219"]'), MATRICES)
    assert policy.combined(Selection()) == Selection(("CD4",), ("CD219",))
    assert policy.combined(Selection(("CD1",), ("CD220",))) == Selection(("CD1",), ("CD219", "CD220"))


def test_the_report_shows_one_policy(tmp_path: Path) -> None:
    policy = read_policy(written(tmp_path, FULL), MATRICES)
    shown = with_policy_shown(with_policy_shown(Snapshot(), policy), policy)
    (reading,) = shown.readings
    assert reading.values["severity"] == {"toolkit-too-old": "error", "CD219": "note"}
    assert with_policy_shown(shown, NO_POLICY).readings == ()


# The gate


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code: int = app(list(arguments), standalone_mode=False)
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A healthy machine with an RTX 4090, driver 580 and torch 2.9.1, saved; the working folder is an empty one."""
    monkeypatch.chdir(tmp_path)
    tool = Tool(version="0")
    report = Report(tool=tool, created="2026-11-30T00:00:00Z", verdict=Verdict.HEALTHY, summary="", snapshot=healthy())
    path = tmp_path / "saved.json"
    path.write_bytes(to_json(report))
    return str(path)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("", ExitCode.OK, "Policy: cudadoctor.toml."),
        ('gpus = ["4090"]\ndriver = "580"\nrequire = ["torch>=2.6"]', ExitCode.OK, "Policy: cudadoctor.toml."),
        ('gpus = ["H100"]', ExitCode.PROBLEMS, "gpu==9.0 is required"),
        ('driver = "590"', ExitCode.PROBLEMS, "driver>=590 is required"),
        ('require = {torch = ">=2.10"}', ExitCode.PROBLEMS, "torch>=2.10 is required"),
        ('require = {torch = ">=2.10"}\nfail-on = "never"', ExitCode.OK, "torch>=2.10 is required"),
        ('driver = "590"\n[severity]\nrequirement-unmet = "warning"', ExitCode.OK, "driver>=590 is required"),
        ('driver = "590"\nfail-on = "warning"\n[severity]\nCD890 = "warning"', ExitCode.PROBLEMS, "driver>=590 is required"),
        ('driver = "590"\nignore = ["requirement-unmet"]', ExitCode.OK, "No problem"),
        ('[severity]\nbenign-same-major-arch = "error"', ExitCode.PROBLEMS, "benign-same-major-arch"),
    ],
)
def test_a_policy_is_a_gate_for_check(
    tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str], text: str, code: ExitCode, words: str
) -> None:
    written(tmp_path, text)
    ended, out, _ = ran(capsys, "check", "--snapshot", saved)
    assert ended == code
    assert words in " ".join(out.split())


def test_without_a_policy_nothing_changes(saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "check", "--snapshot", saved)
    assert code == ExitCode.OK
    assert "Policy" not in out


def test_the_command_line_decides_over_fail_on(tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(tmp_path, 'driver = "590"\nfail-on = "never"')
    assert ran(capsys, "check", "--snapshot", saved, "--fail-on", "error")[0] == ExitCode.PROBLEMS


@pytest.mark.parametrize("command", ["check", "preflight"])
def test_a_bad_policy_ends_with_2(tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str], command: str) -> None:
    written(tmp_path, "gpus = 3")
    code, out, err = ran(capsys, command, *(("--snapshot", saved) if command == "check" else ()))
    assert (code, out) == (ExitCode.USAGE, "")
    assert "cudadoctor.toml: gpus: must be a list of texts" in err


def test_a_policy_names_the_target_of_preflight(tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    del saved
    written(tmp_path, '[tool.cudadoctor]\ngpus = ["RTX 5090"]\ndriver = "580"\n', "pyproject.toml")
    image = tmp_path / "Dockerfile"
    image.write_text("FROM python:3.11\nRUN pip install torch==2.5.1 --index-url https://download.pytorch.org/whl/cu124\n")
    code, out, _ = ran(capsys, "preflight", "--dockerfile", "Dockerfile", "--format", "json")
    document = json.loads(out)
    assert code == ExitCode.PROBLEMS
    assert [each["name"] for each in document["findings"]] == ["arch-missing-in-wheel"]
    assert document["summary"].endswith("Judged for RTX 5090 (12.0), driver 580.178.04. Policy: pyproject.toml.")
    assert document["snapshot"]["gpus"]["source"] == "pyproject.toml"
    (policy,) = [each["values"] for each in document["snapshot"]["readings"] if each["kind"] == "policy"]
    assert policy["gpus"] == ["RTX 5090"]
    assert ran(capsys, "preflight", "--dockerfile", "Dockerfile", "--gpu", "4090")[0] == ExitCode.OK


def test_a_driver_named_has_to_meet_the_floor(tmp_path: Path, saved: str, capsys: pytest.CaptureFixture[str]) -> None:
    del saved
    written(tmp_path, 'driver = "550"')
    (tmp_path / "Dockerfile").write_text("FROM python:3.11\n")
    code, out, _ = ran(capsys, "preflight", "--dockerfile", "Dockerfile", "--driver", "535")
    assert code == ExitCode.PROBLEMS
    assert "driver>=550 is required" in " ".join(out.split())
