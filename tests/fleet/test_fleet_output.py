"""The summary in every format: as recorded, valid, and inert whatever a report holds."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from importlib import import_module
from importlib.resources import files
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from prometheus_client.parser import text_string_to_metric_families

from cudadoctor.commands.fleet_summary import RENDERERS
from cudadoctor.exit_codes import ExitCode
from cudadoctor.fleet.documents import Unreadable
from cudadoctor.fleet.gathering import MOST_UNREADABLE, Gathered
from cudadoctor.fleet.summarising import summarise
from cudadoctor.fleet.summary import FleetSummary
from cudadoctor.model.codec import from_json, to_compact_json, to_json
from cudadoctor.report import Charset, Detail, RenderOptions
from cudadoctor.report.fleet_json import schema_text
from cudadoctor.report.fleet_text import MOST_ROWS
from tests.fleet.small import found, small_summary
from tests.report.ci_reports import is_inert
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import healthy_h100

SHIPPED = files("cudadoctor").joinpath("fleet.schema.json")
SUFFIXES = {"text": "txt", "json": "json", "html": "html", "prometheus": "prom"}


def rendered(format: str, summary: FleetSummary, options: RenderOptions | None = None) -> str:
    text: str = import_module(RENDERERS[format]).render(summary, options or RenderOptions())
    return text


def hostile_summary(text: str) -> FleetSummary:
    gathered = Gathered()
    gathered.add_all([found(hostile_report(text)), found(healthy_h100(), text, 2)])
    return summarise(gathered, (text, "a"))


@pytest.mark.parametrize("format", RENDERERS)
def test_golden(format: str, golden: Callable[[str, str], None]) -> None:
    golden(f"fleet/summary.{SUFFIXES[format]}", rendered(format, small_summary()))


def test_findings_only_leaves_out_what_is_usual() -> None:
    text = rendered("text", small_summary(), RenderOptions(detail=Detail.FINDINGS))
    assert "sick-node" in text and "N{CHECK MARK}" not in text


def test_of_much_garbage_the_first_is_kept_and_all_is_counted() -> None:
    gathered = Gathered()
    gathered.add_all(Unreadable("log", line, "no JSON") for line in range(MOST_UNREADABLE + 5))
    summary = summarise(gathered)
    assert (len(summary.unreadable), summary.counts.unreadable) == (MOST_UNREADABLE, MOST_UNREADABLE + 5)
    assert f"and {MOST_UNREADABLE + 5 - MOST_ROWS} more (--format json)" in rendered("text", summary)


def test_shipped_schema_is_current(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        request.path.parents[2].joinpath("cudadoctor", "fleet.schema.json").write_bytes(schema_text())
    assert SHIPPED.read_bytes() == schema_text(), "the summary changed: run pytest --update-golden"


@pytest.mark.parametrize("summary", [small_summary(), hostile_summary("x")], ids=["small", "hostile"])
def test_json_is_as_the_schema_says_and_reads_back(summary: FleetSummary) -> None:
    schema = json.loads(SHIPPED.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads(rendered("json", summary)))
    assert from_json(rendered("json", summary), FleetSummary) == summary


class Tags(HTMLParser):
    """The names of a page's elements and attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.update((tag, *(f"{tag} {name}" for name, _ in attrs)))


def tags(page: str) -> set[str]:
    parser = Tags()
    parser.feed(page)
    return parser.seen


@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_becomes_markup_or_a_control_code(name: str) -> None:
    summary = hostile_summary(HOSTILE[name])
    assert tags(rendered("html", summary)) <= tags(rendered("html", small_summary()))
    for format in ("text", "html", "prometheus"):
        assert is_inert(rendered(format, summary))
    list(text_string_to_metric_families(rendered("prometheus", summary)))
    assert rendered("text", summary, RenderOptions(charset=Charset.ASCII)).isascii()


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "cudadoctor", "fleet", "summary", *arguments], input=stdin, capture_output=True)


def test_a_stream_is_summed_up_and_nothing_else_is_on_standard_output() -> None:
    done = run("-", "--format", "json", "--nodes", "line 1", stdin=to_compact_json(healthy_h100()) + b"\n")
    summary = from_json(done.stdout, FleetSummary)
    assert (done.returncode, done.stderr, summary.counts.healthy) == (ExitCode.OK, b"", 1)
    assert summary.seconds is not None and summary.peak_memory_bytes is not None


def test_garbage_ends_with_2_and_the_rest_is_still_reported(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(to_json(healthy_h100()))
    (tmp_path / "bad.json").write_bytes(b"\x00\xff{")
    done = run(str(tmp_path))
    shown = b"".join(line.strip() for line in done.stdout.splitlines())  # a long folder name is broken over lines
    assert done.returncode == ExitCode.USAGE
    assert b"good" not in done.stdout and b"1 x NVIDIA H100" in done.stdout and b"bad.json" in shown
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [(), ("-", "--nodes", "n[1-"), ("-", "--format", "yaml"), ("/no/such/folder",)], ids=str)
def test_wrong_usage_ends_with_2(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert done.returncode == ExitCode.USAGE
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m cudadoctor fleet summary - --format json | head -c 1"
    done = subprocess.run(["/bin/sh", "-c", command], input=to_json(healthy_h100()) * 400, capture_output=True)
    assert done.stderr == b""
