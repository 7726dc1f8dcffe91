"""The text renderer: inert values, width, charset, colour, and how much `-q`, `-v` and `-vv` show."""

from __future__ import annotations

import re
import unicodedata

import pytest
from msgspec import structs
from rich.cells import cell_len

from cudadoctor.model.finding import Fix, UnknownRule, Where
from cudadoctor.model.report import Report, Tool, Verdict
from cudadoctor.model.snapshot import Snapshot
from cudadoctor.report import RENDERERS, Charset, Detail, RenderOptions
from cudadoctor.report.ink import Ink
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import ARCH_MISSING, SAMPLES, healthy_h100, no_gpu, rtx_5090_old_wheel, undetermined

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def text(report: Report, **options: object) -> str:
    return RENDERERS["text"](report, structs_options(**options))


def structs_options(**options: object) -> RenderOptions:
    return RenderOptions(**{"width": 80, **options})  # type: ignore[arg-type]  # a test's own keywords


@pytest.mark.parametrize("detail", Detail)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_values_are_inert(name: str, detail: Detail) -> None:
    shown = text(hostile_report(HOSTILE[name]), detail=detail)
    odd = {c for c in shown if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"}
    assert odd == set()
    shown.encode("utf-8")


def test_values_with_markup_are_shown_as_they_are() -> None:
    assert "[bold red]x[/bold red]" in text(hostile_report(HOSTILE["rich markup"]))


def test_a_newline_in_a_value_starts_no_line_of_the_report() -> None:
    lines = text(hostile_report(HOSTILE["newlines"]), detail=Detail.PROBE_RUNS).splitlines()
    assert not [line for line in lines if line.startswith("✓ all is well")]


def test_only_colour_codes_of_ours_reach_a_coloured_terminal() -> None:
    shown = ANSI.sub("", text(hostile_report(HOSTILE["ansi"]), colour=True, detail=Detail.PROBE_RUNS))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert r"\x1b[31mred" in shown


def test_a_long_value_is_cut_and_says_so() -> None:
    shown = text(hostile_report(HOSTILE["long"]), detail=Detail.PROBE_RUNS)
    assert len(shown) < 40_000
    assert "(100,000 characters in all)" in re.sub(r"\s+", " ", shown)


def test_a_command_is_never_cut() -> None:
    shown = text(hostile_report("x" * 3_000))
    assert "a command of 3,005 characters: see --format json" in shown


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize("name", SAMPLES)
def test_lines_fit_the_width(name: str, width: int) -> None:
    lines = text(SAMPLES[name](), width=width, detail=Detail.PROBE_RUNS).splitlines()
    too_long = [line for line in lines if cell_len(line) > width]
    assert [line for line in too_long if " " in line.strip().removesuffix(" \\")] == [], "only a single word may be longer"
    assert width < 80 or not too_long


@pytest.mark.parametrize("name", ["wide", "emoji", "long words", "markdown"])
def test_hostile_prose_fits_the_width(name: str) -> None:
    lines = text(hostile_report(HOSTILE[name])).splitlines()
    wrapped = [line for line in lines if not line.startswith("         ")]
    assert [line for line in wrapped if cell_len(line) > 80] == []


@pytest.mark.parametrize("name", [*SAMPLES, *HOSTILE])
def test_ascii_is_all_that_a_plain_stream_gets(name: str) -> None:
    report = SAMPLES[name]() if name in SAMPLES else hostile_report(HOSTILE[name])
    text(report, charset=Charset.ASCII, detail=Detail.PROBE_RUNS).encode("ascii")


@pytest.mark.parametrize(
    ("encoding", "charset"),
    [
        ("utf-8", Charset.UNICODE),
        ("UTF8", Charset.UNICODE),
        ("utf_8_sig", Charset.UNICODE),
        ("ascii", Charset.ASCII),
        ("ANSI_X3.4-1968", Charset.ASCII),
        ("cp1252", Charset.ASCII),
        (None, Charset.ASCII),
    ],
)
def test_charset_of_a_stream(encoding: str | None, charset: Charset) -> None:
    assert Charset.of_encoding(encoding) is charset


@pytest.mark.parametrize("name", SAMPLES)
def test_colour_adds_nothing_but_colour(name: str) -> None:
    coloured = text(SAMPLES[name](), colour=True)
    assert "\x1b[" in coloured
    stripped = "\n".join(line.rstrip() for line in ANSI.sub("", coloured).splitlines())
    assert stripped.strip() == text(SAMPLES[name]()).strip()


def test_rendering_does_not_look_at_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = text(healthy_h100())
    for name, value in {"COLUMNS": "40", "FORCE_COLOR": "1", "TERM": "dumb", "JUPYTER_COLUMNS": "20"}.items():
        monkeypatch.setenv(name, value)
    assert text(healthy_h100()) == plain


def test_a_healthy_machine_is_the_table_the_proofs_and_one_sentence() -> None:
    blocks = text(healthy_h100()).strip().split("\n\n")
    assert len(blocks) == 4
    header, stack, proofs, sentence = blocks
    assert header.startswith("cudadoctor 0.1.0")
    assert stack.lstrip().startswith("GPU 0")
    assert proofs.startswith("Proofs")
    assert sentence.startswith("No problems")
    assert sentence.endswith("3.9 s")


def test_quiet_shows_findings_only() -> None:
    assert text(healthy_h100(), detail=Detail.FINDINGS) == ""
    shown = text(rtx_5090_old_wheel(), detail=Detail.FINDINGS)
    assert shown.startswith("✗ CD412")
    assert "Proofs" not in shown
    assert "GPU 0     NVIDIA" not in shown


def test_quiet_never_makes_an_undetermined_machine_look_well() -> None:
    assert "no answer within 4 s" in text(undetermined(), detail=Detail.FINDINGS)


def test_evidence_and_references_are_for_verbose() -> None:
    usual, verbose = text(rtx_5090_old_wheel()), text(rtx_5090_old_wheel(), detail=Detail.EVIDENCE)
    assert "python.torch.arch_list" not in usual
    assert "python.torch.arch_list = sm_50" in verbose
    assert "https://pytorch.org/get-started/locally/" in verbose


def test_probe_runs_are_for_very_verbose() -> None:
    assert "Probes" not in text(healthy_h100(), detail=Detail.EVIDENCE)
    assert "torch   3.02 s" in text(healthy_h100(), detail=Detail.PROBE_RUNS)


def test_consequences_stand_below_their_root_without_fixes() -> None:
    lines = text(rtx_5090_old_wheel()).splitlines()
    root = next(i for i, line in enumerate(lines) if line.startswith("✗ CD412"))
    after = next(i for i, line in enumerate(lines) if line.startswith("! CD207"))
    consequence = next(i for i, line in enumerate(lines) if "CD802" in line)
    assert root < consequence < after
    assert lines[consequence].startswith("  └ ✗ CD802")


def test_rules_that_could_not_be_judged_are_never_silent() -> None:
    assert "2 rules could not be judged" in text(no_gpu())
    assert "CD103 nvml-version-mismatch" in text(no_gpu(), detail=Detail.EVIDENCE)
    assert "CD103 nvml-version-mismatch" in text(undetermined())


@pytest.mark.parametrize("where", Where)
def test_a_fix_says_where_as_whom_and_whether_to_reboot(where: Where) -> None:
    fix = Fix(title="Do it", commands=("true",), where=where, needs_root=True, needs_reboot=True)
    shown = text(structs.replace(no_gpu(), findings=(structs.replace(ARCH_MISSING, fixes=(fix,)),)))
    place = {
        Where.HOST: "",
        Where.CONTAINER: "in the container, ",
        Where.WSL: "inside WSL, ",
        Where.WINDOWS: "on Windows, ",
        Where.VENV: "in the examined environment, ",
    }[where]
    assert f"Do it ({place}as root, then reboot):" in shown


def test_an_empty_snapshot_renders() -> None:
    report = Report(
        tool=Tool(version="1"), created="", verdict=Verdict.UNDETERMINED, summary="Nothing is known.", snapshot=Snapshot()
    )
    assert text(report) == "cudadoctor 1\n\nNothing is known.\n"


def test_unknown_without_a_reason_says_so() -> None:
    report = structs.replace(undetermined(), unknown=(UnknownRule("CD1", "x", ""),))
    assert "no reason was given" in text(report)


def test_a_long_path_is_broken_before_a_slash_and_short_ones_are_not() -> None:
    ink = Ink(Charset.UNICODE, 100)
    assert ink.paths("/proc/driver/nvidia/version", 25).plain == "/proc/driver/nvidia\n/version"
    assert ink.paths("PATH, /usr/local/cuda", 25).plain == "PATH, /usr/local/cuda"
    assert ink.paths("a" * 30 + "/b", 25).plain == "a" * 30 + "/b"
