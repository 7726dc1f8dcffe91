"""Which file and lines a finding is shown at."""

from __future__ import annotations

from msgspec import structs

from cudadoctor.report.locations import Location, judged_file, location
from cudadoctor.report.options import JudgedFile
from tests.report.ci_reports import NVCC_MISSING, REQUIREMENT, dockerfile, of_line, with_file_named
from tests.report.sample_reports import healthy_h100

FILE = JudgedFile("deploy/Dockerfile", "Dockerfile")


def test_lines_are_those_of_the_file_in_the_order_of_the_evidence() -> None:
    assert location(NVCC_MISSING, FILE) == Location("deploy/Dockerfile", (4, 2))


def test_every_line_is_of_a_pasted_text() -> None:
    assert location(NVCC_MISSING, JudgedFile("job.log")) == Location("job.log", (4, 2, 9))


def test_a_line_is_named_once_and_none_is_below_one() -> None:
    evidence = (of_line("a", "", 3), of_line("b", "", 3), of_line("c", "", 0), of_line("d", "", -1), of_line("e", "", None))
    assert location(structs.replace(NVCC_MISSING, evidence=evidence), FILE) == Location("deploy/Dockerfile", (3,))


def test_without_a_line_the_file_as_a_whole_is_meant() -> None:
    assert location(REQUIREMENT, FILE) == Location("deploy/Dockerfile")


def test_a_machine_is_no_file() -> None:
    assert judged_file(healthy_h100(), None) is None
    assert location(NVCC_MISSING, None) is None
    assert location(NVCC_MISSING, JudgedFile("")) is None


def test_the_commands_name_of_the_file_counts_before_the_reports() -> None:
    assert judged_file(dockerfile(), FILE) == FILE
    assert judged_file(dockerfile(), None) == JudgedFile("Dockerfile", "Dockerfile")


def test_a_name_in_a_report_is_made_inert() -> None:
    assert judged_file(with_file_named(healthy_h100(), "a\nb"), None) == JudgedFile("a\\nb", "a\nb")
