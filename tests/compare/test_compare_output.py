"""The comparison as it is printed, and the command as a process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from msgspec import structs

from cudadoctor.commands import compare as command
from cudadoctor.compare.comparison import CompareReport
from cudadoctor.exit_codes import ExitCode
from cudadoctor.model.codec import from_json, to_compact_json, to_json
from cudadoctor.model.fact import Known
from cudadoctor.model.snapshot import Package, Snapshot
from cudadoctor.report import Charset, Detail, RenderOptions, compare_json, compare_text
from tests.compare.machines import compared
from tests.report.ci_reports import is_inert
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import SAMPLES, healthy_h100

SHIPPED = files("cudadoctor").joinpath("compare.schema.json")
PAIRS = {
    "works_on_theirs": ("rtx_5090_old_wheel", "healthy_h100"),
    "against_sick_and_hung": ("healthy_h100", "sick_node", "undetermined"),
    "alike": ("healthy_h100", "healthy_h100"),
}


@pytest.fixture(scope="module", params=PAIRS)
def comparison(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, CompareReport]:
    samples = [structs.replace(SAMPLES[name](), node=name.replace("_", "-")) for name in PAIRS[request.param]]
    return request.param, compared(tmp_path_factory.mktemp("machines"), *samples)


def test_golden(comparison: tuple[str, CompareReport], golden: Callable[[str, str], None]) -> None:
    name, report = comparison
    golden(f"compare/{name}.txt", compare_text.render(report, RenderOptions()))


def test_shipped_schema_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        request.path.parents[2].joinpath("cudadoctor", "compare.schema.json").write_bytes(compare_json.schema_text())
    assert SHIPPED.read_bytes() == compare_json.schema_text(), "the comparison changed: run pytest --update-golden"


def test_json_is_as_the_schema_says_and_reads_back(comparison: tuple[str, CompareReport]) -> None:
    schema = json.loads(SHIPPED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    text = compare_json.render(comparison[1])
    Draft202012Validator(schema).validate(json.loads(text))
    assert from_json(text, CompareReport) == comparison[1]


def test_many_differences_are_counted_and_v_lists_them(tmp_path: Path) -> None:
    report = healthy_h100()
    packages = tuple(Package(name=f"p{number}", package_version="1") for number in range(compare_text.MOST_ROWS + 3))
    python = structs.replace(report.snapshot.python, packages=Known(packages, "test"))
    more = structs.replace(report, snapshot=structs.replace(report.snapshot, python=python))
    differing = compared(tmp_path, report, more)
    assert "and 4 more (-v lists them)" in compare_text.render(differing, RenderOptions())  # and torch, which is not in the list
    assert "more (-v" not in compare_text.render(differing, RenderOptions(detail=Detail.EVIDENCE))


@pytest.mark.parametrize("name", [name for name in HOSTILE if not name.startswith("long")])
def test_no_value_becomes_markup_or_a_control_code(name: str, tmp_path: Path) -> None:
    report = compared(tmp_path, healthy_h100(), hostile_report(HOSTILE[name]))
    assert is_inert(compare_text.render(report, RenderOptions()))
    assert compare_text.render(report, RenderOptions(charset=Charset.ASCII)).isascii()


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "cudadoctor", "compare", *arguments], input=stdin, capture_output=True)


def saved(folder: Path, name: str) -> str:
    path = folder / f"{name}.json"
    path.write_bytes(to_json(SAMPLES[name]()))
    return str(path)


def test_exit_codes(tmp_path: Path) -> None:
    healthy, sick = saved(tmp_path, "healthy_h100"), saved(tmp_path, "sick_node")
    assert run(healthy, healthy).returncode == ExitCode.OK
    done = run(healthy, sick)
    assert (done.returncode, done.stderr) == (ExitCode.PROBLEMS, b"")
    assert b"xid-bus-error" in done.stdout


def test_a_bare_snapshot_and_a_report_on_standard_input(tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_bytes(to_json(healthy_h100().snapshot))
    done = run(str(snapshot), "-", "--format", "json", stdin=to_compact_json(healthy_h100()))
    report = from_json(done.stdout, CompareReport)
    assert (report.reference.kind, report.comparisons[0].machines[0].kind) == ("snapshot", "report")
    assert done.returncode == ExitCode.OK


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00\xff" * 200, b"hello", b"{" * 100_000, to_json(healthy_h100())[:3000], to_json(Snapshot()), b"x" * (5 * 2**20)],
    ids=["empty", "binary", "nothing known", "deep", "cut short", "empty snapshot", "too large"],
)
def test_unreadable_input_ends_with_2(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").write_bytes(data)
    code = command.run(command.CompareOptions((saved(tmp_path, "healthy_h100"), str(tmp_path / "other"))))
    printed = capsys.readouterr()
    assert (code, printed.out) == (ExitCode.USAGE, "")
    assert printed.err.startswith("cudadoctor: ")


@pytest.mark.parametrize("arguments", [("-",), ("-", "-"), ("/no/such/file", "-"), ("/", "-")], ids=str)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(command.CompareOptions(arguments)) is ExitCode.USAGE
    assert capsys.readouterr().err.startswith("cudadoctor: ")


def test_a_process_says_why_on_standard_error(tmp_path: Path) -> None:
    done = run(saved(tmp_path, "healthy_h100"), "-", stdin=b"{" * 100_000)
    assert (done.returncode, done.stdout) == (ExitCode.USAGE, b"")
    assert done.stderr.startswith(b"cudadoctor: -: ") and b"Traceback" not in done.stderr
