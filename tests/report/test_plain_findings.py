"""Findings as lines of text: complete, whole commands, nothing hidden."""

from __future__ import annotations

import pytest
from msgspec import structs

from cudadoctor.report.options import Charset
from cudadoctor.report.outline import outline
from cudadoctor.report.plain_findings import consequence_lines, evidence_lines, explained_by, fix_lines, sentences, title
from tests.report.ci_reports import is_inert
from tests.report.hostile import HOSTILE, hostile_report
from tests.report.sample_reports import ARCH_MISSING, rtx_5090_old_wheel, sick_node


def test_a_title_says_how_sure_the_finding_is() -> None:
    assert title(ARCH_MISSING, Charset.UNICODE) == "CD412 arch-missing-in-wheel: GPU 0"
    assert title(sick_node().findings[0], Charset.UNICODE) == "CD510 gpu-lost: GPU 3 (likely)"


def test_every_fix_has_its_commands_and_its_check() -> None:
    assert list(fix_lines(ARCH_MISSING, Charset.UNICODE, elsewhere=False)) == [
        "Fix: Install a torch build that has sm_120 (in the examined environment):",
        "  pip install --upgrade torch --index-url https://download.pytorch.org/whl/cu130",
        "Then check:",
        "  python -c 'import torch; print(torch.ones(1).cuda())'",
        "Or: Build torch from source with TORCH_CUDA_ARCH_LIST=12.0 and CUDA 12.8 or newer (in the examined environment).",
    ]


def test_evidence_names_source_and_line() -> None:
    line = structs.replace(ARCH_MISSING.evidence[1], line=7)
    finding = structs.replace(ARCH_MISSING, evidence=(ARCH_MISSING.evidence[1], line))
    assert list(evidence_lines(finding, Charset.UNICODE)) == [
        "Seen: gpus[0].compute_capability = 12.0 (NVML)",
        "Seen: gpus[0].compute_capability = 12.0 (NVML, line 7)",
    ]


def test_cause_and_consequence_name_each_other() -> None:
    report = rtx_5090_old_wheel()
    branch = outline(report.findings)[0]
    assert list(consequence_lines(branch, Charset.UNICODE)) == [
        "It explains: CD802 torch-proof-fails: GPU 0: A kernel run through torch failed: error 209."
    ]
    assert explained_by(report.findings[2], report.findings) == "Explained by CD412."
    assert explained_by(report.findings[0], report.findings) == ""


@pytest.mark.parametrize("charset", Charset)
@pytest.mark.parametrize("name", HOSTILE)
def test_values_are_inert_and_on_one_line(name: str, charset: Charset) -> None:
    report = hostile_report(HOSTILE[name])
    for finding in report.findings:
        lines = [title(finding, charset), sentences(finding, charset)]
        lines += [*fix_lines(finding, charset, elsewhere=True), *evidence_lines(finding, charset)]
        assert all(is_inert(line) and "\n" not in line for line in lines)
        assert charset is Charset.UNICODE or all(line.isascii() for line in lines)
