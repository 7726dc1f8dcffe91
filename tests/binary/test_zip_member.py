from __future__ import annotations

import random
import struct
import zipfile
import zlib
from pathlib import Path

import pytest

from cudadoctor.binary.contents import read_contents
from cudadoctor.binary.source import BinaryError, ByteSource, BytesSource, FileSource, WorkLimitError
from cudadoctor.binary.zip_member import DeflatedSource, PagedSource, wheel_members
from tests.binary.conftest import SAMPLES


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def make_zip(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def read_all(path: Path) -> dict[str, bytes]:
    with FileSource(path) as source:
        return {member.name: member.source.read(0, member.size) for member in wheel_members(path, source)}


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_members_are_read_in_place(method: int, tmp_path: Path) -> None:
    members = {"a/one.so": b"\x7fELF" + bytes(range(256)) * 1000, "empty": b"", "two": b"text"}
    assert read_all(make_zip(tmp_path / "a.whl", members, method)) == members


def test_samples_read_the_same_inside_a_wheel(samples: Path) -> None:
    with FileSource(SAMPLES) as source:
        for member in wheel_members(SAMPLES, source):
            with FileSource(samples / member.name) as file:
                assert read_contents(member.source) == read_contents(file)


@pytest.mark.parametrize("wrap", [lambda source: source, PagedSource])
def test_random_access_of_a_deflated_member(wrap: type[PagedSource]) -> None:
    generator = random.Random(1)
    data = bytes(generator.randrange(256) // 8 for _ in range(1 << 16)) * 80  # 5 MB in 3 restart spacings
    source: ByteSource = wrap(DeflatedSource(BytesSource(deflated(data)), len(data)))
    for _ in range(60):
        offset, length = generator.randrange(len(data)), generator.choice((1, 64, 5000, 300_000))
        assert source.read(offset, length) == data[offset : offset + length]
    assert source.read(len(data), 10) == b""
    assert source.read(-1, 10) == b""


def test_claims_more_than_it_holds() -> None:
    source = DeflatedSource(BytesSource(deflated(b"x" * 1000)), 2000)
    with pytest.raises(BinaryError, match="holds 1000 bytes, but claims 2000"):
        source.read(0, 2000)


def test_claims_less_than_it_holds() -> None:
    source = DeflatedSource(BytesSource(deflated(b"x" * 1000)), 500)
    assert source.read(0, 5000) == b"x" * 500


def test_cut_and_damaged_data() -> None:
    packed = deflated(random.Random(2).randbytes(100_000))
    with pytest.raises(BinaryError, match="packed data ends"):
        DeflatedSource(BytesSource(packed[:5000]), 100_000).read(0, 100_000)
    with pytest.raises(BinaryError, match="damaged deflate data"):
        DeflatedSource(BytesSource(b"\xff" * 100), 100_000).read(0, 100_000)


def test_zip_bomb_is_named_and_not_unpacked(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "bomb.whl", {"libcuda_bomb.so": b"\x7fELF" + bytes(100 << 20)})
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BinaryError, match="zip bomb"):
        read_all(path)


def test_bomb_beside_incompressible_members(tmp_path: Path) -> None:
    members = {"noise": random.Random(3).randbytes(2 << 20), "libbomb.so": b"\x7fELF" + bytes(100 << 20)}
    path = make_zip(tmp_path / "bomb.whl", members)
    with FileSource(path) as source:
        bomb = next(member for member in wheel_members(path, source) if member.name == "libbomb.so")
        with pytest.raises(BinaryError, match="zip bomb"):
            bomb.source.read(0, 10)


def test_lying_size_in_the_directory(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "lie.whl", {"liblie.so": b"\x7fELF" + bytes(1000)})
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 60_000_000)
    path.write_bytes(data)
    with FileSource(path) as source:
        (member,) = wheel_members(path, source)
        assert member.size == 60_000_000
        with pytest.raises(BinaryError):
            read_contents(member.source)


def test_other_methods_and_encryption_are_named(tmp_path: Path) -> None:
    path = make_zip(tmp_path / "b.whl", {"x.so": b"x" * 100}, zipfile.ZIP_BZIP2)
    with pytest.raises(BinaryError, match="method 12"):
        read_all(path)
    path = make_zip(tmp_path / "e.whl", {"x.so": b"x" * 100})
    data = bytearray(path.read_bytes())
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(BinaryError, match="encrypted"):
        read_all(path)


@pytest.mark.parametrize("size", [0, 4, 30, 100, 500])
def test_cut_zip_is_an_error(size: int, tmp_path: Path) -> None:
    path = make_zip(tmp_path / "c.whl", {"x.so": random.Random(4).randbytes(1000)})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(BinaryError, match="damaged zip"):
        read_all(path)


def test_going_back_and_forth_has_a_limit() -> None:
    data = random.Random(5).randbytes(1 << 16) * 64
    source = DeflatedSource(BytesSource(deflated(data)), len(data))
    with pytest.raises(WorkLimitError):
        for _ in range(2000):
            source.read(len(data) - 1, 1)
            source.read(0, 1)


def test_pages_answer_two_tables_read_in_turn() -> None:
    data = random.Random(6).randbytes(1 << 16) * 64
    source = PagedSource(DeflatedSource(BytesSource(deflated(data)), len(data)))
    for index in range(2000):
        assert source.read(index, 4) == data[index : index + 4]
        assert source.read(len(data) - 5000 + index, 4) == data[len(data) - 5000 + index :][:4]
