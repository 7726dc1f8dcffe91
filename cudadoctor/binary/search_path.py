"""The parts of ld.so's search that belong to the machine: the cache file, the default folders, the hwcaps folders.

The cache's format is glibc's (public headers, documented); reading it agrees with `ldconfig -p` on the machines of the tests.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudadoctor.binary.elf import Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CACHE_MAGIC = b"glibc-ld.so.cache1.1"
MAX_CACHE_SIZE = 1 << 26
_HEADER_SIZE = 48
_ENTRY = struct.Struct("<iIIIQ")
_FLAGS = {Machine.X86_64: 0x0303, Machine.AARCH64: 0x0A03}
_EXTENSION_MAGIC = 0xEAA42174
_EXTENSION_HWCAPS = 1
_HWCAP_IS_EXTENSION = 1 << 62

DEFAULT_FOLDERS = {
    Machine.X86_64: ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
    Machine.AARCH64: ("/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"),
}
"""Folders that ld.so tries last: Debian's, then Fedora's, then the plain ones. The real list is compiled into ld.so
(`ld.so --help` prints it); a folder of another distribution does no harm, for it is absent or holds files of another class."""

_X86_LEVELS = (
    ("x86-64-v4", frozenset({"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"})),
    ("x86-64-v3", frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"})),
    ("x86-64-v2", frozenset({"cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"})),
)


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One row of ld.so.cache; `hwcap` is the name of its glibc-hwcaps folder or empty."""

    soname: str
    path: str
    hwcap: str


def x86_levels(cpuinfo: str) -> tuple[str, ...]:
    """The glibc-hwcaps names that a CPU with the `flags` line of /proc/cpuinfo reaches, best first."""
    line = next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "")
    flags = frozenset(line.partition(":")[2].split())
    reached: list[str] = []
    for name, wanted in reversed(_X86_LEVELS):
        if not wanted <= flags:
            break
        reached.insert(0, name)
    return tuple(reached)


def parse_cache(data: bytes, machine: Machine) -> Iterator[CacheEntry]:
    """The entries of /etc/ld.so.cache for one machine, in file order; what does not fit is left out, nothing is raised."""
    start = data.find(CACHE_MAGIC)  # files of old glibc versions have an older table in front
    if start < 0 or len(data) < start + _HEADER_SIZE:
        return
    table = data[start:]
    count = min(int.from_bytes(table[20:24], "little"), (len(table) - _HEADER_SIZE) // _ENTRY.size)
    hwcaps = _hwcap_names(table)
    for index in range(count):
        flags, name, path, _os_version, hwcap = _ENTRY.unpack_from(table, _HEADER_SIZE + index * _ENTRY.size)
        if flags != _FLAGS.get(machine):
            continue
        level = _hwcap_of(hwcap, hwcaps)
        if level is not None:
            yield CacheEntry(_text(table, name), _text(table, path), level)


def _hwcap_of(hwcap: int, names: tuple[str, ...]) -> str | None:
    """The hwcaps folder of an entry; None for the legacy hwcaps, which glibc 2.37 dropped."""
    if hwcap == 0:
        return ""
    index = hwcap & 0xFFFFFFFF
    return names[index] if hwcap & _HWCAP_IS_EXTENSION and index < len(names) else None


def _hwcap_names(table: bytes) -> tuple[str, ...]:
    extension = int.from_bytes(table[32:36], "little")
    if extension == 0 or extension + 8 > len(table):
        return ()
    magic, sections = struct.unpack_from("<II", table, extension)
    if magic != _EXTENSION_MAGIC:
        return ()
    for index in range(min(sections, (len(table) - extension - 8) // 16)):
        tag, _flags, offset, size = struct.unpack_from("<IIII", table, extension + 8 + index * 16)
        if tag == _EXTENSION_HWCAPS and offset + size <= len(table):
            return tuple(_text(table, name) for (name,) in struct.iter_unpack("<I", table[offset : offset + size // 4 * 4]))
    return ()


def _text(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset, offset + 4096)
    return table[offset:end].decode("utf-8", "surrogateescape") if end >= 0 else ""


def with_hwcaps(folders: Iterable[str], levels: tuple[str, ...]) -> Iterator[str]:
    """Each folder, preceded by its glibc-hwcaps folders, best first."""
    for folder in folders:
        for level in levels:
            yield f"{folder}/glibc-hwcaps/{level}"
        yield folder
