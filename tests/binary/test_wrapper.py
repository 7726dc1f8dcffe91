from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cudadoctor.binary.elf import read_header, read_sections
from cudadoctor.binary.source import FileSource
from cudadoctor.binary.wrapper import WRAPPER_SECTION, device_linked_offsets


@pytest.mark.parametrize(("name", "linked"), [("linked.so", 1), ("linked_sass.so", 1), ("linked_lld.so", 1), ("plain.so", 0)])
def test_device_linked_containers(name: str, linked: int, samples: Path) -> None:
    with FileSource(samples / name) as source:
        assert len(device_linked_offsets(source, read_sections(source, read_header(source)))) == linked


def test_lld_leaves_the_pointer_to_a_relocation(samples: Path) -> None:
    """The reason for reading relocations: in place, the pointer is zero."""
    with FileSource(samples / "linked_lld.so") as source:
        section = next(part for part in read_sections(source, read_header(source)) if part.name == WRAPPER_SECTION)
        assert struct.unpack("<IIQ", source.read(section.offset, 16)) == (0x466243B1, 2, 0)
