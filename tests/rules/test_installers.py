"""What installers refuse, and packages that are not where the program looks."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.model.finding import Severity
from cudadoctor.model.snapshot import Host, Platform, PythonEnvironment, Snapshot
from cudadoctor.model.versions import DottedVersion
from cudadoctor.rules.engine import Outcome
from tests.rules.builders import (
    FAIL,
    NOT_APPLICABLE,
    PASS,
    Table,
    healthy,
    judged,
    known,
    names,
    outcome,
    roots,
    rows,
    said,
    text_only,
)
from tests.rules.software import diagnosed, error_tags, tags, with_packages, with_reading


def refused(requirement: str, versions: str) -> Snapshot:
    return text_only(said("pip-no-matching-version", requirement=requirement, versions=versions))


def on_python(snapshot: Snapshot, version: str) -> Snapshot:
    return structs.replace(snapshot, python=PythonEnvironment(python_version=known(DottedVersion.parse(version), "prompt")))


PLAIN = "2.2.0, 2.2.1, 2.5.0, 2.5.1, 2.6.0"
TAGGED = "2.2.0, 2.2.0+cpu, 2.2.0+cu118, 2.2.0+cu121, 2.2.1+cu121"
MAC = Host(platform=known(Platform.MACOS))
ABI = said("extension-abi-mismatch", "flash_attn_2_cuda.cpython-310.so: undefined symbol", symbol="_ZN3c104cuda9SetDeviceEi")
LISTED = with_packages(healthy(), torch="2.3.0")
TABLE: Table = {
    "python-version-no-wheel": (
        ("older than all that the index has", refused("torch==2.1.0", PLAIN), FAIL),
        ("the release is there", refused("torch==2.5.1+cu124", PLAIN), PASS),
        ("matrix excludes the Python", on_python(refused("torch==2.1.0+cu121", TAGGED), "3.12"), FAIL),
        ("matrix has the Python", on_python(refused("torch==2.1.0+cu121", TAGGED), "3.10"), PASS),
        ("nothing at all", refused("torch", "none"), FAIL),
        ("TensorFlow", on_python(refused("tensorflow==2.10.0", "2.16.1, 2.17.0"), "3.12"), FAIL),
        ("uv's reason", with_reading(text_only(), "uv_failure", reason="no_matching_python_abi"), FAIL),
        ("pip's words", text_only(said("python-version-no-wheel", "is not a supported wheel on this platform")), FAIL),
        ("macOS", structs.replace(refused("torch==2.1.0", PLAIN), host=MAC), NOT_APPLICABLE),
        ("no text", healthy(), PASS),
        ("no requirement", refused("???", PLAIN), PASS),
    ),
    "wheel-index-missing": (
        ("plain versions only", refused("torch==2.5.1+cu124", PLAIN), FAIL),
        ("tagged versions", refused("torch==2.1.0+cu121", TAGGED), PASS),
        ("no tag asked for", refused("torch==2.1.0", PLAIN), PASS),
        ("uv", text_only(said("uv-no-solution", requirement="torch==2.6.0+cu124")), FAIL),
        ("macOS", structs.replace(refused("torch==2.5.1+cu124", PLAIN), host=MAC), NOT_APPLICABLE),
        ("nothing at all, Python unknown", refused("torch==2.5.1+cu124", "none"), PASS),
        ("nothing at all, Python fits", on_python(refused("torch==2.5.1+cu124", "none"), "3.11"), FAIL),
    ),
    "wheel-variant-absent": (
        ("release with other tags", refused("torch==2.2.0+cu124", TAGGED), FAIL),
        ("another release", refused("torch==2.1.0+cu121", TAGGED), PASS),
        ("untagged index", refused("torch==2.5.1+cu124", PLAIN), PASS),
    ),
    "multiple-environments": (
        ("another release listed", with_reading(LISTED, "python_answers", torch_version="2.0.1"), FAIL),
        ("the same", with_reading(LISTED, "python_answers", torch_version="2.3.0+cu121"), PASS),
        ("CUDA listed, none there", with_packages(text_only(said("torch-not-compiled-with-cuda")), torch="2.2.2+cu121"), FAIL),
        ("listed and not found", with_packages(text_only(said("torch-not-importable")), torch="2.1.0"), FAIL),
        ("not found and not listed", text_only(said("torch-not-importable")), PASS),
        ("Debian's folder names no minor", on_python(text_only(said("shown-site-packages", python="3")), "3.11"), PASS),
        ("another Python", on_python(text_only(said("shown-site-packages", python="3.8")), "3.11"), FAIL),
        ("the same Python", on_python(text_only(said("shown-site-packages", python="3.11")), "3.11.4"), PASS),
        ("healthy", healthy(), PASS),
    ),
    "pip-reports-conflict": (
        ("torch", text_only(said("pip-dependency-conflict", "which is incompatible", package="torch", have="2.1.0")), FAIL),
        ("another package", text_only(said("pip-dependency-conflict", package="numpy", have="2.0")), PASS),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("rule", "snapshot", "expected"), rows(TABLE))
def test_outcome(rule: str, snapshot: Snapshot, expected: Outcome) -> None:
    assert outcome(snapshot, rule) is expected


def test_another_environment_explains_the_cpu_build() -> None:
    results = judged(with_packages(text_only(said("torch-not-compiled-with-cuda")), torch="2.2.2+cu121"))
    assert roots(results) == ["multiple-environments"]


def test_another_python_alone_is_a_warning() -> None:
    results = judged(on_python(text_only(said("shown-site-packages", python="3.8")), "3.11"))
    assert names(results, Severity.ERROR) == []


def test_index_of_the_tag_is_named() -> None:
    (finding,) = judged(refused("torch==2.5.1+cu124", PLAIN)).findings
    assert finding.fixes[0].commands[0].endswith("--index-url https://download.pytorch.org/whl/cu124")


TICKETS = {
    "xFormers and a list from elsewhere": (
        """WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:
    PyTorch 2.1.2+cu121 with CUDA 1201 (you have 2.0.1+cu118)
$ pip list
torch                  2.3.0+cu121
xformers               0.0.26.post1""",
        {"multiple-environments"},
        {"cpu-only-torch"},
    ),
    "uv and another Python": (
        "  x No solution found when resolving dependencies:\n"
        "  ╰─▶ Because torch==2.3.1 has no wheels with a matching Python ABI tag (e.g., `cp313`) and you require torch==2.3.1, "
        "we can conclude that your requirements are unsatisfiable.",
        {"python-version-no-wheel"},
        {"wheel-index-missing"},
    ),
}


@pytest.mark.parametrize("name", TICKETS)
def test_ticket(name: str) -> None:
    text, expected, never = TICKETS[name]
    report = diagnosed(text)
    assert expected <= tags(report)
    assert not never & error_tags(report)
