from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from cudadoctor.binary.ptxas import named_targets
from cudadoctor.binary.source import BytesSource, FileSource


def names(data: bytes) -> list[str]:
    return [str(target) for target in named_targets(BytesSource(data))]


def test_names_anywhere_and_once() -> None:
    assert names(b"\0sm_90a\0x sm_80 sm_80\n-arch=sm_121f,") == ["sm_80", "sm_90a", "sm_121f"]


@pytest.mark.parametrize("data", [b"", b"sm_", b"sm_x", b"sm_1234", b"sm_90abc", b"asm_\0"])
def test_what_is_no_name(data: bytes) -> None:
    assert names(data) == []


@pytest.mark.parametrize("before", range((1 << 20) - 8, (1 << 20) + 2))
def test_a_name_across_the_border_of_two_pieces(before: int) -> None:
    assert names(b"\0" * before + b"sm_120a\0") == ["sm_120a"]


def test_a_real_ptxas_names_all_that_it_accepts() -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("no nvcc on PATH")
    done = subprocess.run([nvcc, "--dryrun", "-cubin", "-x", "cu", "/dev/null"], capture_output=True, text=True, timeout=60)
    found = re.search(r"^#\$ PATH=(.+)$", done.stderr, re.MULTILINE)
    ptxas = shutil.which("ptxas", path=found[1]) if found else None
    if ptxas is None:
        pytest.skip("no ptxas beside nvcc")
    help_text = subprocess.run([ptxas, "--help"], capture_output=True, text=True, timeout=60).stdout
    accepted = set(re.findall(r"'(sm_\d+[af]?)'", help_text))
    with FileSource(ptxas) as source:
        assert accepted <= {str(target) for target in named_targets(source)}
    assert accepted
