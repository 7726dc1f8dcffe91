"""Every sample of tests/tool_output is read right, alone and after what browsers and mails do to text."""

from __future__ import annotations

import pytest

from cudadoctor.readers import READERS
from cudadoctor.readers.paste import read_paste
from cudadoctor.readers.reader import Values
from tests.readers.samples import Sample, differences, samples

GLIBC_PREFIX = "2.1.0-centos7-4xv100-one-line"
"""This one sample keeps `glibc-` before the version, which the others leave out."""


def reading(sample: Sample, text: str) -> Values | None:
    """What `read_paste` understood of the kind of this sample."""
    found = read_paste(text).snapshot.readings
    return next((one.values for one in found if one.kind == sample.kind), None)


@pytest.mark.parametrize("sample", samples(), ids=str)
def test_sample_is_read_right(sample: Sample) -> None:
    values = reading(sample, sample.text)
    assert values is not None
    expect = sample.expect
    if sample.slug == GLIBC_PREFIX:
        expect = expect | {"libc": expect["libc"].removeprefix("glibc-")}
    assert differences(expect, values) == []


def test_all_kinds_have_a_reader() -> None:
    assert {sample.kind for sample in samples()} <= {reader.kind for reader in READERS}


def test_each_kind_has_one_reader() -> None:
    kinds = [reader.kind for reader in READERS]
    assert len(kinds) == len(set(kinds))


INDENTED = [s for s in samples() if s.kind in ("nvidia_smi", "nvcc", "proc_driver_version", "dmesg_nvrm", "collect_env")]


def joined(sample: Sample) -> bool:
    """Is the text one where line starts carry meaning that indentation would change? (It is cut or joined already.)"""
    return sample.text.count("\n") < 2


@pytest.mark.parametrize("sample", [s for s in INDENTED if not joined(s)], ids=str)
def test_indented_crlf_and_colour_change_nothing(sample: Sample) -> None:
    mangled = "\r\n".join(f"    \x1b[0m{line}" for line in sample.text.split("\n"))
    values = reading(sample, mangled)
    expect = {key: value for key, value in sample.expect.items() if key != "platform"}
    assert values is not None
    assert differences(expect, values) == []


@pytest.mark.parametrize("sample", [s for s in samples() if s.kind == "nvidia_smi" and "gpus" in s.expect], ids=str)
def test_quoted_smi_table_is_read(sample: Sample) -> None:
    quoted = "\n".join(f"> {line}" for line in sample.text.split("\n"))
    values = reading(sample, quoted)
    assert values is not None
    assert [gpu["name"] for gpu in values["gpus"]] == [gpu["name"] for gpu in sample.expect["gpus"]]


def test_wide_table_wrapped_at_80_is_read() -> None:
    sample = next(s for s in samples() if s.slug == "550-h100-sxm-load")
    table = sample.text.split("+-----------------------------------------+----\n")[0]
    wrapped = "\n".join(line[i : i + 80] for line in table.split("\n") for i in range(0, max(len(line), 1), 80))
    values = reading(sample, wrapped)
    assert values is not None
    assert [(gpu["memory_used_mib"], gpu["mig"]) for gpu in values["gpus"]] == [(77654, "Disabled"), (71674, "Disabled")]
