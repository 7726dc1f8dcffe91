"""Cut and corrupted files: nothing but BinaryError, no hang, bounded memory."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudadoctor.binary.contents import read_contents
from cudadoctor.binary.coverage import Gpu, judge
from cudadoctor.binary.dlopen_names import dlopen_names
from cudadoctor.binary.fatbin import CONTAINER_MAGIC
from cudadoctor.binary.source import BinaryError, ByteSource, BytesSource, FileSource
from cudadoctor.binary.zip_member import wheel_members
from cudadoctor.model.versions import ComputeCapability
from tests.binary.conftest import SAMPLES
from tests.binary.test_fatbin import container, entry
from tests.binary.test_formats import EXPECTED

GPU = Gpu(ComputeCapability(9, 0))
SECONDS = 5.0
"""Far more than any input of these sizes needs; a hang is minutes."""

relaxed = settings(deadline=None, max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture])


def survive(data: bytes) -> None:
    started = time.process_time()
    read_to_the_end(BytesSource(data))
    try:
        dlopen_names(BytesSource(data))
    except BinaryError as error:
        assert str(error)
    assert time.process_time() - started < SECONDS


def read_to_the_end(source: ByteSource) -> None:
    try:
        contents = read_contents(source)
    except BinaryError as error:
        assert str(error)
    else:
        if contents is not None:
            judge(contents.groups, GPU)


names = st.sampled_from(sorted(EXPECTED))


@relaxed
@given(name=names, size=st.integers(0, 30_000))
def test_truncated(name: str, size: int, samples: Path) -> None:
    survive((samples / name).read_bytes()[:size])


@relaxed
@given(name=names, patches=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1, max_size=12))
def test_corrupted(name: str, patches: list[tuple[float, bytes]], samples: Path) -> None:
    data = bytearray((samples / name).read_bytes())
    for place, patch in patches:
        at = int(place * (len(data) - len(patch)))
        data[at : at + len(patch)] = patch
    survive(bytes(data))


HEADER_FIELDS = (16, 18, 24, 32, 40, 48, 52, 54, 56, 58, 60, 62)
EXTREMES = st.sampled_from([0, 1, 2, 0x7F, 0xFF, 0xFFFE, 0xFFFF, 1 << 31, (1 << 32) - 1, 1 << 47, 1 << 63, (1 << 64) - 1])


@relaxed
@given(name=names, fields=st.dictionaries(st.sampled_from(HEADER_FIELDS), EXTREMES, min_size=1, max_size=4))
def test_lying_elf_header(name: str, fields: dict[int, int], samples: Path) -> None:
    data = bytearray((samples / name).read_bytes())
    for offset, value in fields.items():
        width = 8 if offset in {24, 32, 40} else 2 if offset >= 52 or offset < 20 else 4
        data[offset : offset + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    survive(bytes(data))


@relaxed
@given(name=names, index=st.integers(0, 40), field=st.integers(0, 7), value=EXTREMES)
def test_lying_section(name: str, index: int, field: int, value: int, samples: Path) -> None:
    data = bytearray((samples / name).read_bytes())
    table = struct.unpack_from("<Q", data, 40)[0]
    at = table + 64 * index + 8 * field
    if at + 8 <= len(data):
        data[at : at + 8] = value.to_bytes(8, "little")
    survive(bytes(data))


@relaxed
@given(st.binary(max_size=400), st.integers(0, 1 << 64), st.integers(0, 1 << 64))
def test_random_container(body: bytes, size: int, payload: int) -> None:
    row = bytearray(entry())
    row[8:16] = (payload & ((1 << 64) - 1)).to_bytes(8, "little")
    survive(CONTAINER_MAGIC + (size & ((1 << 64) - 1)).to_bytes(8, "little") + bytes(row) + body)


@relaxed
@given(st.binary(max_size=3000))
def test_random_bytes(data: bytes) -> None:
    for head in (b"", b"\x7fELF\x02\x01\x01", b"!<arch>\n", b"MZ", CONTAINER_MAGIC):
        survive(head + data)


@relaxed
@given(
    patches=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=6), cut=st.floats(0.5, 1)
)
def test_corrupted_wheel(patches: list[tuple[float, bytes]], cut: float, tmp_path: Path) -> None:
    data = bytearray(SAMPLES.read_bytes())
    for place, patch in patches:
        at = int(place * (len(data) - 4))
        data[at : at + len(patch)] = patch
    path = tmp_path / "fuzz.whl"
    path.write_bytes(data[: int(len(data) * cut)] if cut < 0.9 else data)
    with FileSource(path) as source:
        try:
            for member in wheel_members(path, source):
                read_to_the_end(member.source)
        except BinaryError as error:
            assert str(error)


@pytest.mark.parametrize(
    "data",
    [
        container() * 100_000,
        container(entry()) * 40_000,
        CONTAINER_MAGIC * 200_000,
        (CONTAINER_MAGIC + b"\xff" * 8) * 80_000,
        b"\x7fELF\x02\x01\x01\x33\x07" + bytes(9) + b"\xbe\x00" + b"\x7fELF\x02\x01\x01\x33\x07" * 100_000,
    ],
    ids=["empty containers", "many containers", "magic only", "endless containers", "cubin starts"],
)
def test_files_made_of_headers(data: bytes) -> None:
    started = time.process_time()
    read_to_the_end(BytesSource(CONTAINER_MAGIC + bytes(8) + data))
    read_to_the_end(BytesSource(data))
    assert time.process_time() - started < 60


HOSTILE = """
import re, sys
from pathlib import Path
from cudadoctor.binary.contents import read_contents
from cudadoctor.binary.source import BinaryError, FileSource
with FileSource(sys.argv[1]) as source:
    try:
        read_contents(source)
    except BinaryError as error:
        print(error)
print(int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024)
"""
"""Prints its peak memory in MB; not getrusage's, which starts at that of the process that started it."""


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="no procfs to read the peak memory from")
@pytest.mark.parametrize("overlap", ["data", "fatbin", "names"])
def test_many_sections_over_one_large_sparse_file(overlap: str, tmp_path: Path) -> None:
    """Ten thousand section headers that each claim the whole 300 MB: time and memory stay bounded."""
    path, size, count = tmp_path / "hostile.so", 300 << 20, 10_000
    kinds = {"data": b".data\0", "fatbin": b".nv_fatbin\0", "names": b".rodata\0"}
    names = b"\0" + kinds[overlap]
    rows = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    rows += struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, 15 << 20 if overlap == "names" else len(names), 0, 0, 1, 0)
    rows += struct.pack("<IIQQQQIIQQ", 1, 1, 2, 0x1000, 64, size - 64, 0, 0, 8, 0) * count
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, size, 0, 64, 56, 0, 64, count + 2, 1)
    )
    with path.open("wb") as file:
        file.write(header + names)
        file.truncate(size)
        file.seek(size)
        file.write(rows)
    started = time.monotonic()
    done = subprocess.run((sys.executable, "-c", HOSTILE, str(path)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 120
    assert time.monotonic() - started < 100
