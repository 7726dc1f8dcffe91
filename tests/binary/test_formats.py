from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from cudadoctor.binary.device_code import Compression
from cudadoctor.binary.formats import FileKind, open_binary
from cudadoctor.binary.source import BinaryError, BytesSource, FileSource
from cudadoctor.model.binaries import Place
from tests.binary.conftest import SAMPLES

FAMILY = ("sm_100f", "sm_103a", "compute_120f PTX 9.0", "compute_100a PTX 9.0")
PLAIN = ("sm_80", "sm_90a", "compute_90 PTX 9.0")

EXPECTED: dict[str, tuple[FileKind, tuple[tuple[Place, str, tuple[str, ...], str], ...]]] = {
    "plain.so": (
        FileKind.ELF,
        ((Place.REGISTERED, ".nv_fatbin", ("sm_80", "sm_90a"), "tiny"), (Place.REGISTERED, ".nv_fatbin", PLAIN, "")),
    ),
    "compressed.so": (
        FileKind.ELF,
        (
            (Place.REGISTERED, ".nv_fatbin", ("sm_75", "sm_120"), "tiny"),
            (Place.REGISTERED, ".nv_fatbin", ("sm_75", "compute_120 PTX 9.0", "sm_120"), ""),
        ),
    ),
    "lz4.so": (
        FileKind.ELF,
        ((Place.REGISTERED, ".nv_fatbin", ("sm_89",), "tiny"), (Place.REGISTERED, ".nv_fatbin", ("sm_89",), "")),
    ),
    "constants.so": (FileKind.ELF, ((Place.REGISTERED, ".nv_fatbin", ("sm_86",), "tiny"),) * 2),
    "linked.so": (
        FileKind.ELF,
        (
            (Place.REGISTERED, ".nv_fatbin", ("sm_80",), "linked"),
            (Place.RELOCATABLE, "__nv_relfatbin", ("compute_80 PTX 9.0", "sm_80"), ""),
            (Place.RELOCATABLE, "__nv_relfatbin", ("compute_80 PTX 9.0", "sm_80"), ""),
        ),
    ),
    "linked_sass.so": (
        FileKind.ELF,
        (
            (Place.REGISTERED, ".nv_fatbin", ("sm_80",), "linked"),
            (Place.RELOCATABLE, "__nv_relfatbin", ("sm_80",), ""),
            (Place.RELOCATABLE, "__nv_relfatbin", ("sm_80",), ""),
        ),
    ),
    "linked_lld.so": (
        FileKind.ELF,
        (
            (Place.REGISTERED, ".nv_fatbin", ("sm_80",), "linked"),
            (Place.RELOCATABLE, "__nv_relfatbin", ("sm_80",), ""),
            (Place.RELOCATABLE, "__nv_relfatbin", ("sm_80",), ""),
        ),
    ),
    "family.fatbin": (FileKind.FATBIN, ((Place.FILE, "", FAMILY, ""),)),
    "specific.cubin": (FileKind.CUBIN, ((Place.FILE, "", ("sm_90a",), ""),)),
    "specific.ptx": (FileKind.PTX, ((Place.FILE, "", ("compute_90a PTX 9.0",), ""),)),
    "lto.o": (FileKind.ELF, ((Place.RELOCATABLE, "__nv_relfatbin", ("sm_80", "lto_90"), ""),)),
    "objects.a": (
        FileKind.ARCHIVE,
        ((Place.REGISTERED, ".nv_fatbin", ("sm_80",), ""), (Place.RELOCATABLE, "__nv_relfatbin", ("sm_80",), "")),
    ),
    "loose.so": (FileKind.ELF, ((Place.LOOSE, ".rodata", ("sm_90a",), ""), (Place.DATA, ".ldata", FAMILY, ""))),
}
"""What the commands of build_data.py ask nvcc for, in file order."""


def decode(path: Path) -> tuple[FileKind, tuple[tuple[Place, str, tuple[str, ...], str], ...]]:
    """The file in the form of EXPECTED; every module must be complete."""
    with FileSource(path) as source:
        opened = open_binary(source)
        assert opened is not None
        modules = tuple(opened.modules)
    assert all(module.complete for module in modules)
    notes = {(True, False): "tiny", (False, True): "linked", (False, False): ""}
    rows = tuple((m.place, m.section, tuple(e.label for e in m.entries), notes[m.is_tiny, m.device_linked]) for m in modules)
    return opened.kind, rows


@pytest.mark.parametrize("name", EXPECTED)
def test_reads_checked_in_samples(name: str, samples: Path) -> None:
    assert decode(samples / name) == EXPECTED[name]


@pytest.mark.nvcc
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EXPECTED if name != "linked_lld.so"])
def test_reads_what_nvcc_builds_now(name: str, built_samples: Path) -> None:
    kind, rows = decode(built_samples / name)
    wanted_kind, wanted = EXPECTED[name]
    assert kind is wanted_kind
    assert [row[:2] for row in rows] == [row[:2] for row in wanted]
    assert [_without_isa(row[2]) for row in rows] == [_without_isa(row[2]) for row in wanted]


def _without_isa(labels: tuple[str, ...]) -> list[str]:
    """Targets in any order: the PTX version and the order of entries are the toolkit's own."""
    return sorted(label.split()[0] for label in labels)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("plain.so", {Compression.NONE, Compression.ZSTD}),
        ("compressed.so", {Compression.ZSTD}),
        ("lz4.so", {Compression.LZ4}),
        ("lto.o", {Compression.ZSTD, Compression.SCRAMBLED}),
    ],
)
def test_compression(name: str, expected: set[Compression], samples: Path) -> None:
    with FileSource(samples / name) as source:
        opened = open_binary(source)
        assert opened is not None
        assert {entry.compression for module in opened.modules for entry in module.entries} == expected


def test_file_without_section_table_is_swept(samples: Path) -> None:
    data = bytearray((samples / "plain.so").read_bytes())
    data[40:48] = bytes(8)  # e_shoff
    data[60:64] = bytes(4)  # e_shnum, e_shstrndx
    opened = open_binary(BytesSource(bytes(data)))
    assert opened is not None
    labels = {tuple(entry.label for entry in module.entries) for module in opened.modules}
    assert labels == {("sm_80", "sm_90a"), PLAIN}


def test_magic_in_code_is_not_taken(tmp_path: Path) -> None:
    if shutil.which("gcc") is None:
        pytest.skip("no gcc on PATH")
    text = tmp_path / "code.c"
    text.write_text("unsigned long f(void) { return 0x00100001ba55ed50ul; }")
    subprocess.run(("gcc", "-shared", "-nostdlib", "-o", "code.so", "code.c"), cwd=tmp_path, check=True, timeout=60)
    assert b"\x50\xed\x55\xba\x01\x00\x10\x00" in (tmp_path / "code.so").read_bytes()
    assert decode(tmp_path / "code.so") == (FileKind.ELF, ())


def test_other_files_are_no_binaries(samples: Path) -> None:
    assert open_binary(BytesSource(b"")) is None
    assert open_binary(BytesSource(b"#!/bin/sh\necho hello\n" * 10)) is None
    assert open_binary(BytesSource(b"MZ" + bytes(200))) is None
    with zipfile.ZipFile(SAMPLES):
        assert open_binary(BytesSource(SAMPLES.read_bytes())) is None


@pytest.mark.parametrize(("klass", "order"), [(1, 1), (2, 2), (9, 9)])
def test_other_elf_classes_are_named(klass: int, order: int) -> None:
    with pytest.raises(BinaryError, match=f"class {klass} and byte order {order}"):
        open_binary(BytesSource(b"\x7fELF" + bytes((klass, order)) + bytes(200)))
