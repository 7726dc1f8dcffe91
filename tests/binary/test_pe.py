"""PE files are laid by hand here; real DLLs of wheels are read in benchmarks/scan_vs_cuobjdump.py."""

from __future__ import annotations

import struct

import pytest

from cudadoctor.binary.formats import FileKind, open_binary
from cudadoctor.binary.pe import read_pe
from cudadoctor.binary.source import BinaryError, BytesSource
from cudadoctor.model.binaries import Place
from tests.binary.test_fatbin import container, entry

HEADERS = 0x400


def pe(sections: dict[str, bytes], imports: tuple[str, ...] = ()) -> bytes:
    """A 64-bit DLL with these sections, at addresses 0x1000 apart, and an import directory in the last one."""
    bodies = dict(sections)
    address = 0x100000 * (len(bodies) + 1)
    directory = b""
    if imports:
        names_at = address + 20 * (len(imports) + 1)
        names = b""
        for name in imports:
            directory += struct.pack("<12xII", names_at + len(names), 0)
            names += name.encode() + b"\0"
        bodies[".idata"] = directory + bytes(20) + names
    rows, body = b"", b""
    for index, (name, data) in enumerate(bodies.items()):
        code = 0x20 if name == ".text" else 0x40
        raw = data + bytes(-len(data) % 512)
        rows += struct.pack(
            "<8sIIII12xI",
            name.encode(),
            len(data),
            0x100000 * (index + 1),
            len(raw),
            HEADERS + len(body),
            code,
        )
        body += raw
    optional = (
        struct.pack("<H", 0x20B)
        + bytes(110)
        + bytes(8)
        + struct.pack("<II", address if imports else 0, len(directory))
        + bytes(112)
    )
    dos = b"MZ" + bytes(58) + struct.pack("<I", 64)
    coff = struct.pack("<HH12xH2x", 0x8664, len(bodies), len(optional))
    head = dos + b"PE\0\0" + coff + optional + rows
    return head + bytes(HEADERS - len(head)) + body


def test_cut_section_names_and_imports() -> None:
    fat = container(entry(2, 80), entry(1, 90, version=(8, 4)))
    data = pe(
        {".text": fat, ".nv_fatb": fat, "__nv_rel": container(entry(2, 75)), ".rdata": b"x" * 64 + fat},
        ("cudart64_12.dll", "KERNEL32.dll"),
    )
    opened = open_binary(BytesSource(data))
    assert opened is not None
    assert (opened.kind, opened.imports, opened.has_cuda_sections) == (FileKind.PE, ("cudart64_12.dll", "KERNEL32.dll"), True)
    found = [(module.place, tuple(item.label for item in module.entries)) for module in opened.modules]
    assert found == [
        (Place.REGISTERED, ("sm_80", "compute_90 PTX 8.4")),
        (Place.RELOCATABLE, ("sm_75",)),
        (Place.DATA, ("sm_80", "compute_90 PTX 8.4")),
    ]


@pytest.mark.parametrize("size", [64, 68, 80, 100, 300, 0x3FF])
def test_cut_headers_are_errors(size: int) -> None:
    data = pe({".nv_fatb": container(entry())}, ("a.dll",))[:size]
    if open_binary_or_none(data) is None:
        return
    with pytest.raises(BinaryError):
        read_pe(BytesSource(data))


def open_binary_or_none(data: bytes) -> object:
    """None where the cut lies before the PE signature: then it is a DOS program."""
    try:
        return open_binary(BytesSource(data))
    except BinaryError:
        return data


def test_32_bit_file_is_named() -> None:
    data = bytearray(pe({".text": b""}))
    data[88:90] = struct.pack("<H", 0x10B)
    with pytest.raises(BinaryError, match="64-bit PE"):
        read_pe(BytesSource(bytes(data)))
