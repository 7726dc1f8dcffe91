from __future__ import annotations

import re
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from cudadoctor.binary.elf import Machine
from cudadoctor.binary.loader import host_machine
from cudadoctor.binary.search_path import CACHE_MAGIC, CacheEntry, parse_cache, with_hwcaps, x86_levels

CACHE = Path("/etc/ld.so.cache")


def cache(rows: list[tuple[int, str, str, int]], hwcaps: tuple[str, ...] = ()) -> bytes:
    """A cache file with rows (flags, soname, path, hwcap) and a glibc-hwcaps extension."""
    strings, offsets = b"", []
    base = 48 + 24 * len(rows)
    for text in [text for row in rows for text in row[1:3]] + list(hwcaps):
        offsets.append(base + len(strings))
        strings += text.encode() + b"\0"
    body = b"".join(
        struct.pack("<iIIIQ", row[0], offsets[2 * index], offsets[2 * index + 1], 0, row[3]) for index, row in enumerate(rows)
    )
    extension = base + len(strings)
    header = (
        CACHE_MAGIC + struct.pack("<II", len(rows), len(strings)) + b"\2\0\0\0" + struct.pack("<I12x", extension if hwcaps else 0)
    )
    names = struct.pack(f"<{len(hwcaps)}I", *offsets[2 * len(rows) :])
    section = struct.pack("<II", 0xEAA42174, 1) + struct.pack("<IIII", 1, 0, extension + 24, len(names)) + names
    return header + body + strings + (section if hwcaps else b"")


def test_reads_rows_and_hwcaps() -> None:
    rows = [
        (0x0303, "libx.so", "/lib/glibc-hwcaps/x86-64-v3/libx.so", (1 << 62) + 1),
        (0x0303, "libx.so", "/lib/libx.so", 0),
        (0x0003, "libx.so", "/lib32/libx.so", 0),
        (0x0303, "libx.so", "/lib/avx512_1/libx.so", 1 << 5),
    ]
    data = cache(rows, ("x86-64-v2", "x86-64-v3"))
    assert list(parse_cache(data, Machine.X86_64)) == [
        CacheEntry("libx.so", "/lib/glibc-hwcaps/x86-64-v3/libx.so", "x86-64-v3"),
        CacheEntry("libx.so", "/lib/libx.so", ""),
    ]
    assert list(parse_cache(data, Machine.AARCH64)) == []


def test_old_table_in_front() -> None:
    data = b"ld.so-1.7.0\0" + bytes(60) + cache([(0x0A03, "liba.so", "/lib/liba.so", 0)])
    assert list(parse_cache(data, Machine.AARCH64)) == [CacheEntry("liba.so", "/lib/liba.so", "")]


def test_every_truncation_is_survived() -> None:
    data = cache([(0x0303, "libx.so", "/lib/libx.so", (1 << 62))] * 3, ("x86-64-v2",))
    for size in range(len(data)):
        for entry in parse_cache(data[:size], Machine.X86_64):
            assert entry.soname in {"libx.so", ""}


def test_agrees_with_ldconfig() -> None:
    if shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin") is None or not CACHE.exists():
        pytest.skip("no ldconfig or no cache on this machine")
    program = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    text = subprocess.run((str(program), "-p"), capture_output=True, text=True, check=True, timeout=60).stdout
    mark = "AArch64" if host_machine() is Machine.AARCH64 else "x86-64"
    wanted = re.findall(rf"^\t(\S+) \(libc6,{mark}[^)]*\) => (\S+)$", text, re.MULTILINE)
    found = [(entry.soname, entry.path) for entry in parse_cache(CACHE.read_bytes(), host_machine())]
    assert wanted
    assert set(found) <= set(wanted)
    assert len(found) >= len(wanted) * 0.9  # legacy hwcaps rows are left out on purpose


V2 = "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"
V3 = f"{V2} avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"


@pytest.mark.parametrize(
    ("flags", "levels"),
    [
        ("", ()),
        (V2, ("x86-64-v2",)),
        (V3, ("x86-64-v3", "x86-64-v2")),
        (f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl", ("x86-64-v4", "x86-64-v3", "x86-64-v2")),
        ("avx512f avx512bw avx512cd avx512dq avx512vl", ()),
    ],
)
def test_x86_levels(flags: str, levels: tuple[str, ...]) -> None:
    assert x86_levels(f"processor\t: 0\nflags\t\t: fpu {flags}\n") == levels


def test_levels_are_those_that_the_real_loader_searches() -> None:
    loader = Path("/lib64/ld-linux-x86-64.so.2")
    if not loader.exists():
        pytest.skip("no x86-64 glibc loader on this machine")
    text = subprocess.run((str(loader), "--help"), capture_output=True, text=True, check=True, timeout=60).stdout
    searched = tuple(re.findall(r"^  (x86-64-v\d) \(supported, searched\)", text, re.MULTILINE))
    if "glibc-hwcaps" not in text:
        pytest.skip("this glibc has no glibc-hwcaps")
    assert x86_levels(Path("/proc/cpuinfo").read_text()) == searched


def test_with_hwcaps() -> None:
    assert list(with_hwcaps(("/a",), ("x86-64-v3", "x86-64-v2"))) == [
        "/a/glibc-hwcaps/x86-64-v3",
        "/a/glibc-hwcaps/x86-64-v2",
        "/a",
    ]
