from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from cudadoctor.binary.elf import Machine, read_header, read_sections, read_segments
from cudadoctor.binary.source import BinaryError, BytesSource, FileSource
from tests.binary.system_libraries import system_libraries


@pytest.mark.parametrize("path", system_libraries(12))
def test_sections_are_those_of_readelf(path: str) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf on PATH")
    text = subprocess.run(("readelf", "-SW", path), capture_output=True, text=True, check=True, timeout=60).stdout
    rows = re.findall(r"^  \[ *\d+\] (\S*) +[A-Z_0-9+]+ +([0-9a-f]{16}) ([0-9a-f]{6,}) ([0-9a-f]{6,})", text, re.MULTILINE)
    wanted = [(name, int(address, 16), int(offset, 16), int(size, 16)) for name, address, offset, size in rows]
    with FileSource(path) as source:
        sections = read_sections(source, read_header(source))
    assert wanted
    assert [(part.name, part.address, part.offset, part.size) for part in sections] == wanted


@pytest.mark.parametrize("path", system_libraries(3))
def test_segments_are_those_of_readelf(path: str) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("no readelf on PATH")
    text = subprocess.run(("readelf", "-lW", path), capture_output=True, text=True, check=True, timeout=60).stdout
    rows = re.findall(r"^  LOAD +0x([0-9a-f]+) 0x([0-9a-f]+) 0x[0-9a-f]+ 0x([0-9a-f]+) 0x([0-9a-f]+)", text, re.MULTILINE)
    with FileSource(path) as source:
        segments = read_segments(source, read_header(source))
    found = [(part.offset, part.address, part.file_size, part.memory_size) for part in segments if part.type == 1]
    assert found == [tuple(int(number, 16) for number in row) for row in rows]


def test_header_of_a_cubin(samples: Path) -> None:
    with FileSource(samples / "specific.cubin") as source:
        header = read_header(source)
    assert (header.machine, header.os_abi, header.abi_version) == (Machine.CUDA, 0x41, 8)


def test_unknown_machine_keeps_its_number(samples: Path) -> None:
    data = bytearray((samples / "plain.so").read_bytes())
    data[18:20] = (243).to_bytes(2, "little")
    header = read_header(BytesSource(bytes(data)))
    assert (header.machine, header.machine_number) == (Machine.OTHER, 243)


def _patched(samples: Path, offset: int, value: bytes) -> BytesSource:
    data = bytearray((samples / "plain.so").read_bytes())
    data[offset : offset + len(value)] = value
    return BytesSource(bytes(data))


@pytest.mark.parametrize(
    ("offset", "value", "words"),
    [
        (40, (1 << 40).to_bytes(8, "little"), "outside"),
        (58, b"\x10\0", "section entries of 16 bytes"),
        (62, b"\xf0\x0f", "section names in section 4080"),
        (60, b"\xf0\xff", "outside"),
    ],
)
def test_lying_headers_are_errors(offset: int, value: bytes, words: str, samples: Path) -> None:
    source = _patched(samples, offset, value)
    with pytest.raises(BinaryError, match=words):
        read_sections(source, read_header(source))


def test_extended_section_numbering(samples: Path) -> None:
    """A count of 0 and a names index of 0xFFFF mean that section 0 has them (System V ABI)."""
    data = bytearray((samples / "plain.so").read_bytes())
    offset, count, names = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 60)
    plain = read_sections(BytesSource(bytes(data)), read_header(BytesSource(bytes(data))))
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    struct.pack_into("<QI", data, offset + 32, count, names)
    extended = read_sections(BytesSource(bytes(data)), read_header(BytesSource(bytes(data))))
    assert [part.name for part in extended] == [part.name for part in plain]


def test_claimed_million_sections_cost_nothing(samples: Path) -> None:
    data = bytearray((samples / "plain.so").read_bytes())
    (offset,) = struct.unpack_from("<Q", data, 40)
    struct.pack_into("<H", data, 60, 0)
    struct.pack_into("<Q", data, offset + 32, 1 << 50)
    source = BytesSource(bytes(data))
    with pytest.raises(BinaryError, match="sections"):
        read_sections(source, read_header(source))
